"""Processes of the hub, started as clients and users start them, and clients over stdio and REST."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from enum import StrEnum
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote

from memoryhub.management.bench import ANSWER_SECONDS, HELLO, BenchClient, hub_environment, peak_of
from memoryhub.mcp.jsonrpc import MODERN_VERSIONS

_HOST = "127.0.0.1"
_POLL_SECONDS = 0.05
_END_SECONDS = 30.0
_MANAGE = Path(__file__).resolve().parents[2] / "manage.py"
_META = "io.modelcontextprotocol/"
ENVELOPE = {
    f"{_META}protocolVersion": MODERN_VERSIONS[-1],
    f"{_META}clientCapabilities": {},
    f"{_META}clientInfo": HELLO["clientInfo"],
}


def hub_command(*arguments: str) -> list[str]:
    return [sys.executable, str(_MANAGE), *arguments]


class Era(StrEnum):
    HANDSHAKE = "handshake"
    MODERN = "modern"


class StdioClient(BenchClient):
    """A client of a new ``mcp`` process, in either era of the protocol."""

    def __init__(self, home: Path, *options: str, era: Era = Era.MODERN, meaning: bool = False) -> None:
        super().__init__(hub_command("mcp", *options), home, hub_environment(home, meaning=meaning))
        self._era = era

    def open(self) -> str:
        if self._era is Era.HANDSHAKE:
            return super().open()
        self.ask("server/discover")
        return ""

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        if self._era is Era.MODERN:
            params = {**(params or {}), "_meta": ENVELOPE}
        return super().ask(method, params)

    def write(self, arguments: dict[str, Any]) -> None:
        self.call("memory_write", arguments)

    def search(self, question: str) -> None:
        if "#" not in self.call("memory_search", {"query": question}):
            raise RuntimeError(f"memory_search found nothing for {question!r}")


class HttpServer:
    """A process of the hub that listens at a port of its own, also after it was killed and started again."""

    def __init__(self, home: Path, *arguments: str) -> None:
        """``arguments`` end with the option that takes the port."""
        self.home = home
        self.port = _free_port()
        self._arguments = (*arguments, str(self.port))
        self._errors = home / f"{arguments[0]}.stderr"
        self.process: subprocess.Popen[bytes] | None = None
        self.peak_bytes = 0

    @classmethod
    def hub(cls, home: Path) -> HttpServer:
        return cls(home, "serve", "--port")

    @property
    def origin(self) -> str:
        return f"http://{_HOST}:{self.port}"

    def start(self) -> None:
        """Start the process and wait until it answers.

        Raises:
            RuntimeError: it has ended, or did not answer within a minute.
        """
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(  # noqa: S603 - our own command line
                hub_command(*self._arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=hub_environment(self.home),
                cwd=self.home,
            )
        deadline = time.monotonic() + ANSWER_SECONDS
        while not _answers(self.port):
            if self.process.poll() is not None or time.monotonic() > deadline:
                reason = self._errors.read_text(errors="replace").strip()[-500:]
                raise RuntimeError(f"{self._arguments[0]} did not start: {reason or 'it printed nothing'}")
            time.sleep(_POLL_SECONDS)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Run a block while the process does not run, nor any of its jobs."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    def measure(self) -> None:
        if self.process and self.process.poll() is None:
            with suppress(OSError):  # outside Linux
                self.peak_bytes = max(self.peak_bytes, peak_of(self.process.pid))

    def kill(self) -> None:
        self.measure()
        if self.process:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        self.measure()
        if self.process:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_END_SECONDS)
            self.kill()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((_HOST, 0))
        port: int = listener.getsockname()[1]
        return port


# An open port may belong to a server that is not ready yet.
def _answers(port: int) -> bool:
    with closing(HTTPConnection(_HOST, port, timeout=ANSWER_SECONDS)) as probe:
        try:
            probe.request("GET", "/api/v1/health")
            probe.getresponse().read()
        except (OSError, HTTPException):
            return False
        return True


class RestClient:
    """A client of a ``serve`` process, over one kept-alive connection."""

    def __init__(self, server: HttpServer, project: str) -> None:
        self._connection = HTTPConnection(_HOST, server.port, timeout=ANSWER_SECONDS)
        self._path = f"/api/v1/projects/{project}"
        token = (server.home / "token").read_text().strip()
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def write(self, arguments: dict[str, Any]) -> None:
        self._ask("POST", "/memories", json.dumps(arguments).encode())

    def search(self, question: str) -> None:
        if not self._ask("GET", f"/search?q={quote(question)}")["results"]:
            raise RuntimeError(f"REST found nothing for {question!r}")

    def close(self) -> None:
        self._connection.close()

    def _ask(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        self._connection.request(method, self._path + path, body, self._headers)
        response = self._connection.getresponse()
        content = response.read()
        if response.status >= 400:
            raise RuntimeError(f"{method} {path.partition('?')[0]}: {response.status} {content[:300]!r}")
        answer: dict[str, Any] = json.loads(content)
        return answer
