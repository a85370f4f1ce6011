"""Requests to a team's hub, over HTTPS, or over HTTP on this machine. Standard library only."""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import SplitResult, urlsplit

from memoryhub.core.errors import Invalid, Unavailable

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_MAX_ANSWER = 4 << 20


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What a hub has answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    def problem(self) -> dict[str, Any]:
        """Return the answer's JSON object, such as a problem; {} if it is none."""
        try:
            content = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return content if isinstance(content, dict) else {}

    def sentence(self) -> str:
        detail = self.problem().get("detail")
        return f"{self.status}: {detail}"[:400] if isinstance(detail, str) else f"{self.status}"


def check_url(text: str) -> SplitResult:
    """Return the parts of a hub's URL.

    Raises:
        Invalid: it is no URL, or would send the token unencrypted over a network.
    """
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise Invalid(f"--url is {text!r}, which is no URL: {error}") from error
    if parts.scheme not in ("http", "https") or not host or parts.username or parts.query or parts.fragment:
        raise Invalid(f"--url is {text!r}; write https://HOST/p/PROJECT/mcp, or https://HOST with --project ID")
    if parts.scheme == "http" and host not in LOOPBACK:
        raise Invalid(f"--url is {text!r}, which would send the token and what you write unencrypted; use https://")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise Invalid(f"--url is {text!r}; it may hold only ASCII letters, digits and punctuation")
    return parts


class HubConnection:
    """A connection to a hub that is kept open between requests."""

    def __init__(self, url: str, *, token: str, ca_file: str = "", seconds: float) -> None:
        parts = check_url(url)
        self._host = parts.netloc
        self._path = parts.path.rstrip("/")
        self._token = token
        self._connection = _connection(parts, ca_file, seconds)

    def close(self) -> None:
        self._connection.close()

    def open(self) -> None:
        """Connect.

        Raises:
            Unavailable: the hub cannot be reached.
        """
        try:
            self._connection.connect()
        except (OSError, ValueError) as error:
            raise Unavailable(_failure_sentence(self._host, error)) from error

    def post(self, path: str, content: Any, headers: dict[str, str] | None = None) -> HttpAnswer:
        """Send JSON and return the answer, whatever its status; redirects are not followed.

        Raises:
            Unavailable: the hub cannot be reached, or its answer is cut short; the next request connects again.
        """
        sent = {"Content-Type": "application/json", "Accept": "application/json", **(headers or {})}
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        try:
            self._connection.request(
                "POST", self._path + path, json.dumps(content, ensure_ascii=False).encode("utf-8", "replace"), sent
            )
            answer = self._connection.getresponse()
            body = answer.read(_MAX_ANSWER + 1)
        except (OSError, HTTPException, ValueError) as error:
            self._connection.close()
            raise Unavailable(_failure_sentence(self._host, error)) from error
        if len(body) > _MAX_ANSWER:
            self._connection.close()
            raise Unavailable(f"{self._host} sent more than {_MAX_ANSWER} bytes")
        return HttpAnswer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, body)


def _connection(parts: SplitResult, ca_file: str, seconds: float) -> HTTPConnection:
    if parts.scheme == "http":
        return HTTPConnection(parts.hostname or "", parts.port, timeout=seconds)
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ValueError) as error:
        raise Unavailable(f"the certificate file {ca_file} cannot be used: {error}") from error
    return HTTPSConnection(parts.hostname or "", parts.port, timeout=seconds, context=context)


def _failure_sentence(host: str, error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message
        return f"the certificate of {host} is not trusted: {why}; name the authority's file with --ca-file"
    if isinstance(error, TimeoutError):
        return f"{host} does not answer"
    return f"{host} cannot be reached: {getattr(error, 'strerror', None) or error or type(error).__name__}"
