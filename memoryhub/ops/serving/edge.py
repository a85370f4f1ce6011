"""ASGI middleware in front of the whole hub: what proxies forward is believed or removed, and odd requests are refused.

Everything behind it, pages, REST and MCP alike, sees the client's own address, scheme and host (decision 72).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from memoryhub.ops.serving.bridge import REMOTE_USER, Receive, Scope, Send
from memoryhub.ops.serving.network import LOCAL_HOSTS, Network, parsed_peer

# Key of the scope: whether a client of this machine asks, on the socket for this machine, and through no proxy
IS_LOCAL = "memoryhub.is_local"
# Key of a connection's state: it was accepted on the public socket
BY_PUBLIC_SOCKET = "memoryhub.by_public_socket"

Headers = list[tuple[bytes, bytes]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_FORWARDED = re.compile(rb"x-forwarded-.*|forwarded|x-real-ip")
# Encoded slashes, backslashes and NUL, and dot segments: proxies and applications read them differently.
_TRICKS = re.compile(rb"%2f|%5c|%00|\\|(^|/)(\.|%2e){1,2}(/|$)|^//", re.IGNORECASE)


class Refusal(Exception):
    """Ends a request with a status and one sentence, before its response has begun."""

    def __init__(self, status: int, sentence: str, *, retry_after: int = 0) -> None:
        super().__init__(sentence)
        self.status = status
        self.retry_after = retry_after


class Edge:
    def __init__(self, application: Application, network: Network) -> None:
        self._application = application
        self._network = network

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            self._resolve(scope)
            if self._network.is_public:
                self._check(scope)
            await self._application(scope, receive, send)
        except Refusal as refusal:
            await _answer(send, refusal)

    # Sets the scope's client, scheme, Host and person from a named proxy's headers, and removes all such headers
    def _resolve(self, scope: Scope) -> None:
        peer, port = scope.get("client") or ("", 0)
        scope["client"] = (str(parsed_peer(peer) or peer), port)
        forwarded: dict[bytes, list[bytes]] = {}
        kept: Headers = []
        named = self._network.remote_user_header.encode()
        for raw, value in scope["headers"]:
            name = raw.lower().replace(b"_", b"-")
            if name == named or _FORWARDED.fullmatch(name):
                if b"_" not in raw:
                    forwarded.setdefault(name, []).append(value)
            else:
                kept.append((raw, value))
        scope["headers"] = kept
        scope[REMOTE_USER] = ""
        is_public = scope.get("state", {}).get(BY_PUBLIC_SOCKET, False)
        is_forwarded = self._network.is_proxy(peer) and (bool(forwarded) or is_public)
        scope[IS_LOCAL] = not (is_public or is_forwarded) and _is_of_machine(peer)
        if is_forwarded:
            self._believe(scope, forwarded)

    def _believe(self, scope: Scope, forwarded: dict[bytes, list[bytes]]) -> None:
        scheme = _last(forwarded.get(b"x-forwarded-proto", []))
        addresses = _split(forwarded.get(b"x-forwarded-for", []))
        if not addresses or scheme not in ("http", "https"):
            # Otherwise all of its clients would share its address, and its connection's scheme would pass for theirs.
            raise Refusal(400, "the proxy must send X-Forwarded-For and X-Forwarded-Proto with each request")
        scope["scheme"] = scheme
        named = self._network.remote_user_header.encode()
        if named and named in forwarded:
            scope[REMOTE_USER] = _only(forwarded[named], self._network.remote_user_header)
        if host := _last(forwarded.get(b"x-forwarded-host", [])):
            others = [(name, value) for name, value in scope["headers"] if name != b"host"]
            scope["headers"] = [*others, (b"host", host.encode("latin-1"))]
        scope["client"] = (self._client(addresses), 0)

    # The last address that is not a named proxy's: those before it are whatever the client has sent.
    def _client(self, addresses: list[str]) -> str:
        for text in reversed(addresses):
            if not self._network.is_proxy(text):
                address = parsed_peer(text)
                if address is None:
                    raise Refusal(400, "X-Forwarded-For must hold addresses alone")
                return str(address)
        return addresses[0]

    def _check(self, scope: Scope) -> None:
        headers = scope["headers"]
        hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
        if len(hosts) != 1:
            raise Refusal(400, "a request needs exactly one Host")
        is_local = scope[IS_LOCAL] and _without_port(hosts[0]) in LOCAL_HOSTS
        if scope["scheme"] != "https" and not is_local:
            raise Refusal(403, f"this hub answers over HTTPS only; use {self._network.public_url}/")
        own = f"{scope['scheme']}://{hosts[0]}"
        for name, value in headers:
            if name == b"origin" and value.decode("latin-1") not in (own, *self._network.origins):
                raise Refusal(403, "this hub answers its own pages only, not those of the Origin")
        if _TRICKS.search(scope.get("raw_path") or scope["path"].encode()):
            raise Refusal(400, "the path must not hold dot segments, encoded slashes or backslashes")
        if sum(name == b"authorization" for name, _ in headers) > 1:
            raise Refusal(400, "a request has one Authorization")
        names = {name for name, _ in headers}
        if b"transfer-encoding" in names and (b"content-length" in names or scope["http_version"] != "1.1"):
            raise Refusal(400, "a request has a Content-Length or a Transfer-Encoding, not both")


def _is_of_machine(peer: str) -> bool:
    address = parsed_peer(peer)
    return address is None or address.is_loopback


def _without_port(host: str) -> str:
    return re.sub(r":[0-9]*$", "", host)


def _split(values: list[bytes]) -> list[str]:
    return [part.strip() for part in b",".join(values).decode("latin-1").split(",") if part.strip()]


def _last(values: list[bytes]) -> str:
    parts = _split(values)
    return parts[-1] if parts else ""


# A proxy that adds its header to a client's, instead of replacing it, would let the client choose.
def _only(values: list[bytes], header: str) -> str:
    if len(values) != 1:
        raise Refusal(400, f"{header} was sent more than once")
    return values[0].decode("latin-1").strip()


async def _answer(send: Send, refusal: Refusal) -> None:
    headers: Headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"no-store"),
        (b"connection", b"close"),
    ]
    if refusal.retry_after:
        headers.append((b"retry-after", str(refusal.retry_after).encode()))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": f"{refusal}\n".encode(), "more_body": False})
