from __future__ import annotations

import http.client
import json
import os
import re
import select
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any
from unittest import TestCase, mock

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.mcp.client import (
    CLIENT,
    DEADLINE_SECONDS,
    FIXTURES,
    HANDSHAKE,
    ROOT,
    Message,
    command,
    destroy,
    environment,
    wait_until,
)
from tests.web.server import Server, Shell, serving

ADDRESS = re.compile(r"http://(\S+):(\d+)/mcp")
HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Connection": "close"}


class HttpServer:
    path = "/mcp"

    def __init__(self, home: Path, *options: str, **changes: str) -> None:
        self.home = home
        self.process = subprocess.Popen(
            command("--project", "alpha", "--http", "0", *options),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(home, **changes),
            cwd=ROOT,
            bufsize=0,
        )
        self.greeting = self._first_line()
        found = ADDRESS.search(self.greeting)
        assert found, self.greeting
        self.host, self.port = found[1], int(found[2])
        self.url = f"http://{self.host}:{self.port}/mcp"

    @property
    def authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {(self.home / 'token').read_text().strip()}"}

    def send(self, method: str, body: Message | None = None, **headers: str) -> http.client.HTTPResponse:
        """Send a request and return the response with only its head read."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=DEADLINE_SECONDS)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, self.path, json.dumps(body) if body else None, {**HEADERS, **named})
        return connection.getresponse()

    def get(self, path: str, **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=DEADLINE_SECONDS)
        connection.request("GET", path, headers={"Connection": "close", **headers})
        return connection.getresponse()

    def status(self, **headers: str) -> int:
        with self.send("POST", hello(), **headers) as response:
            response.read()
            return response.status

    @asynccontextmanager
    async def client(self, mode: str, **settings: Any) -> AsyncIterator[Client]:
        async with (
            httpx2.AsyncClient(headers=self.authorization, timeout=DEADLINE_SECONDS) as sender,
            Client(streamable_http_client(self.url, http_client=sender), mode=mode, **settings) as client,
        ):
            yield client

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(DEADLINE_SECONDS)

    def destroy(self) -> None:
        destroy(self.process)

    def _first_line(self) -> str:
        assert self.process.stderr
        assert select.select([self.process.stderr], [], [], DEADLINE_SECONDS)[0], "no address came"
        return self.process.stderr.readline().decode()


class HubProject(HttpServer):
    """A project's address in a hub, with the hub's own token or another."""

    def __init__(self, hub: Server, project: str = "alpha", token: str = "") -> None:
        self.home = hub.home
        self.host, self.port = hub.place
        self.path = f"/p/{project}/mcp"
        self.url = f"{hub.address}{self.path}"
        self._token = token

    @property
    def authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else super().authorization


@contextmanager
def half_a_post(server: HttpServer, headers: dict[str, str]) -> Iterator[http.client.HTTPConnection]:
    """Send the head of a request; yield the connection."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=DEADLINE_SECONDS)
    with closing(connection):
        connection.putrequest("POST", server.path)
        for name, value in {**server.authorization, **headers}.items():
            connection.putheader(name, value)
        connection.endheaders()
        yield connection


class HttpSession:
    def __init__(self, server: HttpServer, **capabilities: Message) -> None:
        self._server = server
        self._headers = {**server.authorization, "MCP-Protocol-Version": HANDSHAKE[-1]}
        with server.send("POST", hello(**capabilities), **self._headers) as response:
            assert response.status == 200, response.read()
            self._headers["MCP-Session-Id"] = response.headers["mcp-session-id"]
            response.read()
        self.send("POST", {"jsonrpc": "2.0", "method": "notifications/initialized"}).read()

    def send(self, method: str, body: Message | None = None) -> http.client.HTTPResponse:
        return self._server.send(method, body, **self._headers)

    def begin(self, tool: str, **arguments: Any) -> http.client.HTTPResponse:
        """Call a tool and return the response before the answer has arrived."""
        params = {"name": tool, "arguments": arguments}
        return self.send("POST", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})

    @contextmanager
    def partly(self, tool: str, **arguments: Any) -> Iterator[tuple[http.client.HTTPConnection, bytes]]:
        """Send a call but for its last byte, once the server waits for the body; yield the connection and the byte."""
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
        body = json.dumps(call).encode()
        # The server sends "100 Continue" when it begins to read the body, after it has admitted the caller.
        length = {"Content-Length": str(len(body)), "Expect": "100-continue"}
        with half_a_post(self._server, {**HEADERS, **self._headers, **length}) as connection:
            assert connection.sock.recv(1_000).startswith(b"HTTP/1.1 100 ")
            connection.send(body[:-1])
            yield connection, body[-1:]

    def say(self, tool: str, **arguments: Any) -> str:
        with self.begin(tool, **arguments) as response:
            return text_of(response)


def hello(**capabilities: Message) -> Message:
    params = {"protocolVersion": HANDSHAKE[-1], "capabilities": capabilities, "clientInfo": CLIENT}
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


def text_of(response: http.client.HTTPResponse) -> str:
    data = [line.removeprefix("data: ") for line in response.read().decode().splitlines() if line.startswith("data: ")]
    text = json.loads(data[-1])["result"]["content"][0]["text"]
    assert isinstance(text, str)
    return text


@contextmanager
def hub_with(*projects: str, program: str = "") -> Iterator[Server]:
    with mock.patch.dict(os.environ, MEMORY_HUB_TEST_TOOLS=FIXTURES), serving("--no-worker", program=program) as hub:
        for project in projects:
            assert hub.api("POST", "projects", {"project_id": project}).status == 201
        yield hub


class HubTestCase(TestCase):
    hub: Server
    shell: Shell
    program = ""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        stack = ExitStack()
        cls.addClassCleanup(stack.close)
        cls.hub = stack.enter_context(hub_with("alpha", "beta", program=cls.program))
        cls.shell = Shell(cls.hub.home)
        stack.callback(cls.shell.close)

    def setUp(self) -> None:
        self.alpha, self.beta = HubProject(self.hub), HubProject(self.hub, "beta")
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.go, self.trace = self.folder / "go", self.folder / "trace"

    @contextmanager
    def blocked(self, sessions: Sequence[HttpSession]) -> Iterator[list[Future[str]]]:
        """Yield a call of each session; they wait until the block ends."""
        with ThreadPoolExecutor(len(sessions)) as pool:
            wait = {"path": str(self.trace), "until": str(self.go)}
            try:
                yield [pool.submit(session.say, "test_wait", **wait) for session in sessions]
            finally:
                self.go.touch()

    def wait_for_begun(self, count: int) -> None:
        wait_until(lambda: self.trace.exists() and self.trace.read_text() == "begun\n" * count)

    def run_token(self, *words: str) -> str:
        code, output = self.shell.run("token", *words)
        self.assertEqual(code, 0, output)
        return output

    def token(self, name: str, verbs: str = "read,write", *options: str) -> str:
        return self.run_token("create", "--name", name, "--verbs", verbs, "--days", "30", *options).split()[-1]

    def refused(self, response: http.client.HTTPResponse) -> tuple[int, str]:
        with response:
            return response.status, json.loads(response.read())["detail"]
