"""A REST client: a real ``serve`` process and one kept-alive connection."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from benchmarks.speed import processes
from memoryhub.ops.serving.process import FILE_NAME

_HOST = "127.0.0.1"
_POLL_SECONDS = 0.05


class RestServer:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = 0
        self._errors = home / "serve.stderr"
        self._process = processes.start(home, self._errors, "serve", "--port", "0")
        drain_output(self._process)
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        processes.stop(self._process)

    def _wait(self) -> None:
        deadline = time.monotonic() + processes.ANSWER_SECONDS
        while not (self._finds_port() and _answers(self.port)):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"serve did not start: {processes.last_words(self._errors) or 'it printed nothing'}")
            time.sleep(_POLL_SECONDS)

    def _finds_port(self) -> bool:
        try:
            address = json.loads((self.home / FILE_NAME).read_bytes())["address"]
        except (FileNotFoundError, ValueError):
            return False
        self.port = urlsplit(address).port or 0
        return True


# An open port may belong to a server that is not ready yet.
def _answers(port: int) -> bool:
    with closing(HTTPConnection(_HOST, port, timeout=processes.ANSWER_SECONDS)) as probe:
        try:
            probe.request("GET", "/api/v1/health")
            probe.getresponse().read()
        except (OSError, HTTPException):
            return False
        return True


# Reads the server's output, so that it never blocks on a full pipe
def drain_output(process: subprocess.Popen[bytes]) -> None:
    output = process.stdout

    def read() -> None:
        while output and output.read(1 << 16):
            pass

    threading.Thread(target=read, daemon=True).start()


class RestClient:
    def __init__(self, server: RestServer, project: str) -> None:
        self._connection = HTTPConnection(_HOST, server.port, timeout=processes.ANSWER_SECONDS)
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


@contextmanager
def rest_client(server: RestServer, project: str) -> Iterator[RestClient]:
    client = RestClient(server, project)
    try:
        yield client
    finally:
        client.close()
