"""What a request passes first: the edge's checks of hosts and proxies, and the limits per caller."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields

from memoryhub.core import counters
from memoryhub.core.errors import Invalid
from memoryhub.ops.serving.bridge import ACCEPTED, REMOTE_USER, VERDICT, Message, Receive, Scope, Send
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


class HttpRefusal(Exception):
    """Ends a request with a status and one sentence, before its response has begun."""

    def __init__(self, status: int, sentence: str, *, retry_after: int = 0) -> None:
        super().__init__(sentence)
        self.status = status
        self.retry_after = retry_after


class RequestGuard:
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
        except HttpRefusal as refusal:
            await _answer(send, refusal)

    # Sets the scope's client, scheme, Host and person from a named proxy's headers, and removes all such headers
    def _resolve(self, scope: Scope) -> None:
        peer, port = scope.get("client") or ("", 0)
        address = parsed_peer(peer)
        scope["client"] = (str(address or peer), port)
        forwarded: dict[bytes, list[bytes]] = {}
        headers: Headers = []
        named = self._network.remote_user_header.encode()
        for raw, value in scope["headers"]:
            name = raw.lower().replace(b"_", b"-")
            if name == named or _FORWARDED.fullmatch(name):
                if b"_" not in raw:
                    forwarded.setdefault(name, []).append(value)
            else:
                headers.append((raw, value))
        scope["headers"] = headers
        scope[REMOTE_USER] = ""
        is_public = scope.get("state", {}).get(BY_PUBLIC_SOCKET, False)
        is_forwarded = self._network.is_proxy(peer) and (bool(forwarded) or is_public)
        scope[IS_LOCAL] = not (is_public or is_forwarded) and (address is None or address.is_loopback)
        if is_forwarded:
            self._believe(scope, forwarded)

    def _believe(self, scope: Scope, forwarded: dict[bytes, list[bytes]]) -> None:
        scheme = _last_value(forwarded.get(b"x-forwarded-proto", []))
        addresses = _split_header(forwarded.get(b"x-forwarded-for", []))
        if not addresses or scheme not in ("http", "https"):
            # Otherwise all of its clients would share its address, and its connection's scheme would pass for theirs.
            raise HttpRefusal(400, "the proxy must send X-Forwarded-For and X-Forwarded-Proto with each request")
        scope["scheme"] = scheme
        named = self._network.remote_user_header.encode()
        if named and named in forwarded:
            # A proxy that adds its header to a client's, instead of replacing it, would let the client choose.
            if len(forwarded[named]) != 1:
                raise HttpRefusal(400, f"{self._network.remote_user_header} was sent more than once")
            scope[REMOTE_USER] = forwarded[named][0].decode("latin-1").strip()
        if host := _last_value(forwarded.get(b"x-forwarded-host", [])):
            headers = [(name, value) for name, value in scope["headers"] if name != b"host"]
            scope["headers"] = [*headers, (b"host", host.encode("latin-1"))]
        scope["client"] = (self._client(addresses), 0)

    # The last address that is not a named proxy's: those before it are whatever the client has sent.
    def _client(self, addresses: list[str]) -> str:
        for text in reversed(addresses):
            if not self._network.is_proxy(text):
                address = parsed_peer(text)
                if address is None:
                    raise HttpRefusal(400, "X-Forwarded-For must hold addresses alone")
                return str(address)
        return addresses[0]

    def _check(self, scope: Scope) -> None:
        headers = scope["headers"]
        hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
        if len(hosts) != 1:
            raise HttpRefusal(400, "a request needs exactly one Host")
        is_local = scope[IS_LOCAL] and re.sub(r":[0-9]*$", "", hosts[0]) in LOCAL_HOSTS
        if scope["scheme"] != "https" and not is_local:
            raise HttpRefusal(403, f"this hub answers over HTTPS only; use {self._network.public_url}/")
        origin_of_host = f"{scope['scheme']}://{hosts[0]}"
        for name, value in headers:
            if name == b"origin" and value.decode("latin-1") not in (origin_of_host, *self._network.origins):
                raise HttpRefusal(403, "this hub answers its own pages only, not those of the Origin")
        if _TRICKS.search(scope.get("raw_path") or scope["path"].encode()):
            raise HttpRefusal(400, "the path must not hold dot segments, encoded slashes or backslashes")
        if sum(name == b"authorization" for name, _ in headers) > 1:
            raise HttpRefusal(400, "a request has one Authorization")
        names = {name for name, _ in headers}
        if b"transfer-encoding" in names and (b"content-length" in names or scope["http_version"] != "1.1"):
            raise HttpRefusal(400, "a request has a Content-Length or a Transfer-Encoding, not both")


def _split_header(values: list[bytes]) -> list[str]:
    return [part.strip() for part in b",".join(values).decode("latin-1").split(",") if part.strip()]


def _last_value(values: list[bytes]) -> str:
    parts = _split_header(values)
    return parts[-1] if parts else ""


async def _answer(send: Send, refusal: HttpRefusal) -> None:
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


logger = logging.getLogger(__name__)

VARIABLE = "MEMORY_HUB_LIMITS"
LOG_SECONDS = 60.0
# Callers who are remembered; the longest unused are forgotten first
_MOST_KEYS = 20_000
_SIGNIN = "/signin/"
_TOKEN = re.compile(r"(mh_[a-z0-9]{8})_")
_LOGGED = 5

_LIMITED = {
    "address": "requests from this address",
    "token": "requests with this token",
    "failures": "failed attempts to sign in",
}

FAILURES = counters.new_counter(
    "authentication_failures", "Wrong, expired and revoked tokens and sign-in links", "kind"
)
REFUSED = counters.new_counter("limited_requests", "Requests refused by a limit", "limit")


@dataclass(frozen=True, slots=True)
class Limits:
    """Numbers that ``MEMORY_HUB_LIMITS`` changes, as JSON; each per client address unless it says otherwise."""

    requests_per_second: float = 500
    requests_burst: float = 5_000
    token_requests_per_second: float = 100
    token_requests_burst: float = 1_000
    failures_per_minute: float = 10
    failures_burst: float = 20
    requests_at_once: int = 400
    streams: int = 200
    # Bytes of bodies in memory; clients that have not authenticated can send them too.
    body_bytes: int = 16 * 1024 * 1024
    # For all addresses together
    all_requests_at_once: int = 1_000
    all_body_bytes: int = 64 * 1024 * 1024
    connections: int = 2_000
    # For an address at the public socket, named proxies excepted
    address_connections: int = 500
    # How long a client may take to send a request's headers, and its body
    header_seconds: float = 15
    body_seconds: float = 60
    # How long a client may leave an answer unread
    answer_seconds: float = 60

    @classmethod
    def from_text(cls, text: str) -> Limits:
        """Return the limits of the environment variable's value.

        Raises:
            Invalid: it is not a JSON object of known names and positive numbers.
        """
        try:
            values = json.loads(text or "{}")
        except ValueError:
            values = None
        names = [field.name for field in fields(cls)]
        if not isinstance(values, dict) or not all(_is_positive(value) for value in values.values()):
            raise Invalid(f'{VARIABLE} must be JSON with positive numbers, such as {{"requests_per_second": 50}}')
        if unknown := [name for name in values if name not in names]:
            raise Invalid(f"{VARIABLE} has no limit {unknown[0][:40]!r}; there are {', '.join(names)}")
        return cls(**values)


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


class Buckets:
    """Token buckets by key: each holds at most ``burst`` and gets ``per_second`` back."""

    def __init__(self, per_second: float, burst: float, *, now: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = burst
        self._now = now
        # Key to the tokens that it has, and since when
        self._tokens: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_for(self, key: str) -> float:
        """Return the seconds until one is left; 0 if one is."""
        return max(0.0, (1.0 - self._of(key)) / self._per_second)

    def take(self, key: str) -> None:
        self._tokens[key] = (max(0.0, self._of(key) - 1.0), self._now())
        self._tokens.move_to_end(key)
        while len(self._tokens) > _MOST_KEYS:
            self._tokens.popitem(last=False)

    def _of(self, key: str) -> float:
        tokens, at = self._tokens.get(key, (self._burst, self._now()))
        return min(self._burst, tokens + (self._now() - at) * self._per_second)


@dataclass(frozen=True, slots=True)
class _Caller:
    address: str
    # "token" or "link", what it tries; "" if neither
    kind: str
    # A token by its public prefix, never by its secret
    key: str
    # Digest of the token, to know it again; "" without one
    digest: str
    is_stream: bool
    is_local: bool
    # What the application has found out about the token
    verdict: Mapping[str, bool]

    def has_failed(self, status: int) -> bool:
        if self.kind == "link":
            return status == 410
        return not self.verdict.get(ACCEPTED, status != 401)


class Limiter:
    def __init__(self, application: Application, limits: Limits, *, now: Callable[[], float] = time.monotonic) -> None:
        self._application = application
        self._limits = limits
        self._now = now
        self._requests = Buckets(limits.requests_per_second, limits.requests_burst, now=now)
        self._by_token = Buckets(limits.token_requests_per_second, limits.token_requests_burst, now=now)
        per_second = limits.failures_per_minute / 60
        self._failures = Buckets(per_second, limits.failures_burst, now=now)
        # By address, whatever it tried: many tokens' prefixes would otherwise be as many buckets
        self._of_address = Buckets(per_second * 10, limits.failures_burst * 10, now=now)
        # Digests of tokens that were accepted: they work while others of the same address guess.
        self._accepted: OrderedDict[str, None] = OrderedDict()
        self._open: Counter[str] = Counter()
        # Bytes of bodies in memory, by address
        self._bytes: Counter[str] = Counter()
        # Failures since the last line of the log
        self._failed: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = _caller_of(scope)
        if caller.is_local:
            await self._application(scope, receive, self._watched(caller, send))
            return
        self._check(caller)
        with self._counted(caller), self._weighed(caller, receive) as weighed:
            await self._application(scope, weighed, self._watched(caller, send))

    def _check(self, caller: _Caller) -> None:
        limits = [(self._requests, caller.address, "address")]
        if caller.digest:
            limits.append((self._by_token, caller.digest, "token"))
        for buckets, key, limit in limits:
            self._refuse_if(buckets.wait_for(key), limit)
        if caller.kind and caller.digest not in self._accepted:
            self._refuse_if(self._failures.wait_for(caller.key), "failures")
            self._refuse_if(self._of_address.wait_for(caller.address), "failures")
        for buckets, key, _ in limits:
            buckets.take(key)

    def _refuse_if(self, seconds: float, limit: str) -> None:
        if seconds > 0:
            REFUSED.labels(limit).inc()
            wait = max(1, round(seconds))
            raise HttpRefusal(429, f"too many {_LIMITED[limit]}; try again in {wait} s", retry_after=wait)

    @contextmanager
    def _counted(self, caller: _Caller) -> Iterator[None]:
        kind = "requests"
        most = self._limits.requests_at_once
        if caller.is_stream:
            kind = "streams"
            most = self._limits.streams
        key = f"{kind} {caller.address}"
        if self._open[key] >= most:
            REFUSED.labels(kind).inc()
            raise HttpRefusal(429, f"this address has {most} {kind} open at once; wait for some to end", retry_after=1)
        if not caller.is_stream and self._open[""] >= self._limits.all_requests_at_once:
            REFUSED.labels("all").inc()
            raise HttpRefusal(503, "the hub has too many requests at once; try again later", retry_after=1)
        names = [key] if caller.is_stream else [key, ""]
        self._open.update(names)
        try:
            yield
        finally:
            self._open.subtract(names)
            if not self._open[key]:
                del self._open[key]

    @contextmanager
    def _weighed(self, caller: _Caller, receive: Receive) -> Iterator[Receive]:
        key = caller.address
        total = 0

        async def weighed() -> Message:
            nonlocal total
            message = await receive()
            size = len(message.get("body", b""))
            total += size
            self._bytes[key] += size
            if self._bytes[key] > self._limits.body_bytes:
                REFUSED.labels("body_bytes").inc()
                raise HttpRefusal(429, "this address sends too much at once; wait for requests to end", retry_after=1)
            if self._bytes.total() > self._limits.all_body_bytes:
                REFUSED.labels("all_body_bytes").inc()
                raise HttpRefusal(503, "the hub is sent too much at once; try again later", retry_after=1)
            return message

        try:
            yield weighed
        finally:
            self._bytes[key] -= total
            if not self._bytes[key]:
                del self._bytes[key]

    def _watched(self, caller: _Caller, send: Send) -> Send:
        async def watched(message: Message) -> None:
            if caller.kind and message["type"] == "http.response.start":
                self._note(caller, message["status"])
            await send(message)

        return watched

    def _note(self, caller: _Caller, status: int) -> None:
        if not caller.has_failed(status):
            if caller.verdict.get(ACCEPTED):
                self._accepted[caller.digest] = None
                self._accepted.move_to_end(caller.digest)
                while len(self._accepted) > _MOST_KEYS:
                    self._accepted.popitem(last=False)
            return
        self._accepted.pop(caller.digest, None)
        self._failures.take(caller.key)
        self._of_address.take(caller.address)
        FAILURES.labels(caller.kind).inc()
        self._failed[f"{caller.kind} from {caller.address}"] += 1
        # The first is logged at once, then a line a minute with what came since
        if self._timer is None:
            self._write_log()

    def _write_log(self) -> None:
        self._timer = None
        if not self._failed:
            return
        listed = ", ".join(f"{count} × {what}" for what, count in self._failed.most_common(_LOGGED))
        logger.warning("%d failed authentications: %s", self._failed.total(), listed)
        self._failed.clear()
        self._timer = asyncio.get_running_loop().call_later(LOG_SECONDS, self._write_log)


def _caller_of(scope: Scope) -> _Caller:
    headers = dict(scope["headers"])
    address = (scope.get("client") or ("", 0))[0]
    is_link = scope["path"].startswith(_SIGNIN)
    scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    # The page of a link reads no token, so a token must not make it something else.
    kind = digest = ""
    key = f"{address} "
    if is_link:
        kind = "link"
        key = f"{address} link"
    elif scheme.lower() == "bearer" and token.strip():
        kind = "token"
        prefix = _TOKEN.match(token.strip())
        key = f"{address} {prefix[1] if prefix else kind}"
        digest = hashlib.sha256(token.strip().encode("utf-8", "replace")).hexdigest()
    return _Caller(
        address=network_of(address),
        kind=kind,
        key=key,
        digest=digest,
        is_stream=_is_stream(scope, headers),
        is_local=scope[IS_LOCAL],
        verdict=scope.setdefault(VERDICT, {}),
    )


def _is_stream(scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
    follows = scope["method"] == "GET" and b"text/event-stream" in headers.get(b"accept", b"")
    return follows or headers.get(b"mcp-method") == b"subscriptions/listen"


# One host has a /64 of IPv6 for itself.
def network_of(address: str) -> str:
    parsed = parsed_peer(address)
    if parsed is None or parsed.version == 4:
        return address
    return ":".join(parsed.exploded.split(":")[:4]) + "::/64"
