"""An MCP client over stdio, without the SDK: JSON lines, in both eras of the protocol."""

from __future__ import annotations

import json
import os
import select
import time
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.speed import processes
from memoryhub.mcp.snapshot import HANDSHAKE_VERSIONS, MODERN_VERSIONS

CLIENT = {"name": "memory-hub bench", "version": "1"}
_META = "io.modelcontextprotocol/"
ENVELOPE = {
    f"{_META}protocolVersion": MODERN_VERSIONS[-1],
    f"{_META}clientCapabilities": {},
    f"{_META}clientInfo": CLIENT,
}


class Era(StrEnum):
    HANDSHAKE = "handshake"
    MODERN = "modern"


class StdioClient:
    def __init__(self, home: Path, *options: str, era: Era = Era.MODERN, meaning: bool = False) -> None:
        self._era = era
        self._errors = home / "mcp.stderr"
        self._buffer = b""
        self._next_id = 0
        self._process = processes.start(home, self._errors, "mcp", *options, meaning=meaning)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        processes.end(self._process)

    def open(self) -> None:
        if self._era is Era.MODERN:
            self.ask("server/discover")
            return
        hello = {"protocolVersion": HANDSHAKE_VERSIONS[-1], "capabilities": {}, "clientInfo": CLIENT}
        self.ask("initialize", hello)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return its result.

        Raises:
            RuntimeError: the server refused it, exited, or did not answer within a minute.
        """
        params = dict(params or {})
        if self._era is Era.MODERN:
            params["_meta"] = ENVELOPE
        self._next_id += 1
        self._send({"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params})
        answer = self._answer(self._next_id)
        if "result" not in answer:
            raise RuntimeError(f"mcp refused {method}: {answer.get('error')}")
        result: dict[str, Any] = answer["result"]
        return result

    def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool and return the text of its answer.

        Raises:
            RuntimeError: the tool answered with an error.
        """
        result = self.ask("tools/call", {"name": tool, "arguments": arguments})
        text: str = result["content"][0]["text"]
        if result.get("isError"):
            raise RuntimeError(f"{tool} failed: {text}")
        return text

    def write(self, arguments: dict[str, Any]) -> None:
        self.call("memory_write", arguments)

    def search(self, question: str) -> None:
        if "#" not in self.call("memory_search", {"query": question}):
            raise RuntimeError(f"memory_search found nothing for {question!r}")

    def peak_resident_bytes(self) -> int:
        return processes.peak_resident_bytes(self._process)

    def _send(self, message: dict[str, Any]) -> None:
        data = memoryview(json.dumps(message).encode() + b"\n")
        assert self._process.stdin  # noqa: S101 - a pipe was asked for
        while data:
            data = data[self._process.stdin.write(data) :]

    def _answer(self, request_id: int) -> dict[str, Any]:
        deadline = time.monotonic() + processes.ANSWER_SECONDS
        while True:
            message: dict[str, Any] = json.loads(self._line(deadline))
            if message.get("id") == request_id and "method" not in message:
                return message

    def _line(self, deadline: float) -> bytes:
        assert self._process.stdout  # noqa: S101 - a pipe was asked for
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                raise RuntimeError("mcp did not answer in time")
            chunk = os.read(descriptor, 1 << 16)
            if not chunk:
                raise RuntimeError(f"mcp has ended: {processes.last_words(self._errors)}")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line
