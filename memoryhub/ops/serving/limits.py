"""Limits on requests, alike for pages, REST and MCP: how many, how many at once, and how many wrong tokens and links.

Clients of this machine have no limits of number: anyone who can run programs here can stop the hub anyway.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields

from memoryhub.core import counters
from memoryhub.core.errors import Invalid
from memoryhub.ops.serving.bridge import ACCEPTED, VERDICT, Message, Receive, Scope, Send
from memoryhub.ops.serving.edge import IS_LOCAL, Application, Refusal
from memoryhub.ops.serving.network import parsed_peer

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

FAILURES = counters.define(
    "authentication_failures", "Wrong, expired and revoked tokens and sign-in links", "kind", of_hub=True
)
REFUSED = counters.define("limited_requests", "Requests refused by a limit", "limit", of_hub=True)


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
    # Of all addresses together
    all_requests_at_once: int = 1_000
    all_body_bytes: int = 64 * 1024 * 1024
    connections: int = 2_000
    # Of an address at the public socket, named proxies excepted
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
            given = json.loads(text or "{}")
        except ValueError:
            given = None
        names = [known.name for known in fields(cls)]
        if not isinstance(given, dict) or not all(_is_positive(value) for value in given.values()):
            raise Invalid(f'{VARIABLE} must be JSON with positive numbers, such as {{"requests_per_second": 50}}')
        if unknown := [name for name in given if name not in names]:
            raise Invalid(f"{VARIABLE} has no limit {unknown[0][:40]!r}; there are {', '.join(names)}")
        return cls(**given)


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


class Buckets:
    """Token buckets by key: each holds at most ``burst`` and gets ``per_second`` back."""

    def __init__(self, per_second: float, burst: float, *, now: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._burst, self._now = per_second, burst, now
        # Key to what is left, and when
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_for(self, key: str) -> float:
        """Return the seconds until one is left; 0 if one is."""
        return max(0.0, (1.0 - self._of(key)) / self._per_second)

    def take(self, key: str) -> None:
        self._left[key] = (max(0.0, self._of(key) - 1.0), self._now())
        self._left.move_to_end(key)
        while len(self._left) > _MOST_KEYS:
            self._left.popitem(last=False)

    def _of(self, key: str) -> float:
        left, at = self._left.get(key, (self._burst, self._now()))
        return min(self._burst, left + (self._now() - at) * self._per_second)


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
        return status == 410 if self.kind == "link" else not self.verdict.get(ACCEPTED, status != 401)


class Limiter:
    def __init__(self, application: Application, limits: Limits, *, now: Callable[[], float] = time.monotonic) -> None:
        self._application, self._limits, self._now = application, limits, now
        self._requests = Buckets(limits.requests_per_second, limits.requests_burst, now=now)
        self._tokens = Buckets(limits.token_requests_per_second, limits.token_requests_burst, now=now)
        per_second = limits.failures_per_minute / 60
        self._failures = Buckets(per_second, limits.failures_burst, now=now)
        # Of an address, whatever it tried: many tokens' prefixes would otherwise be as many buckets
        self._of_address = Buckets(per_second * 10, limits.failures_burst * 10, now=now)
        # Digests of tokens that were accepted: they work while others of the same address guess.
        self._accepted: OrderedDict[str, None] = OrderedDict()
        self._open: Counter[str] = Counter()
        # Of bodies in memory, by address
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
            limits.append((self._tokens, caller.digest, "token"))
        for buckets, key, limit in limits:
            self._refuse_if(buckets.wait_for(key), limit)
        if caller.kind and caller.digest not in self._accepted:
            self._refuse_if(self._failures.wait_for(caller.key), "failures")
            self._refuse_if(self._of_address.wait_for(caller.address), "failures")
        for buckets, key, _ in limits:
            buckets.take(key)

    def _refuse_if(self, seconds: float, limit: str) -> None:
        if seconds > 0:
            REFUSED.count(limit, now=False)
            wait = max(1, round(seconds))
            raise Refusal(429, f"too many {_LIMITED[limit]}; try again in {wait} s", retry_after=wait)

    @contextmanager
    def _counted(self, caller: _Caller) -> Iterator[None]:
        kind = "streams" if caller.is_stream else "requests"
        most = self._limits.streams if caller.is_stream else self._limits.requests_at_once
        key = f"{kind} {caller.address}"
        if self._open[key] >= most:
            REFUSED.count(kind, now=False)
            raise Refusal(429, f"this address has {most} {kind} open at once; wait for some to end", retry_after=1)
        if not caller.is_stream and self._open[""] >= self._limits.all_requests_at_once:
            REFUSED.count("all", now=False)
            raise Refusal(503, "the hub has too many requests at once; try again later", retry_after=1)
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
        key, total = caller.address, 0

        async def weighed() -> Message:
            nonlocal total
            message = await receive()
            size = len(message.get("body", b""))
            total += size
            self._bytes[key] += size
            if self._bytes[key] > self._limits.body_bytes:
                REFUSED.count("body_bytes", now=False)
                raise Refusal(429, "this address sends too much at once; wait for requests to end", retry_after=1)
            if self._bytes.total() > self._limits.all_body_bytes:
                REFUSED.count("all_body_bytes", now=False)
                raise Refusal(503, "the hub is sent too much at once; try again later", retry_after=1)
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
        FAILURES.count(caller.kind, now=False)
        self._log(caller)

    # The first at once, then a line a minute with what came since
    def _log(self, caller: _Caller) -> None:
        self._failed[f"{caller.kind} from {caller.address}"] += 1
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
    scheme, _, given = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    # The page of a link reads no token, so a token must not make it something else.
    text = given.strip() if scheme.lower() == "bearer" and not is_link else ""
    kind = "link" if is_link else "token" if text else ""
    prefix = _TOKEN.match(text)
    return _Caller(
        address=network_of(address),
        kind=kind,
        key=f"{address} {prefix[1] if prefix else kind}",
        digest=hashlib.sha256(text.encode("utf-8", "replace")).hexdigest() if text else "",
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
