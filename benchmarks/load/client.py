"""An MCP client over HTTP without the SDK, which would take more of the processors than the server under load."""

from __future__ import annotations

import itertools
import json
from typing import Any

import httpx2

from benchmarks.speed.processes import ENVELOPE, Era
from memoryhub.management.bench import ANSWER_SECONDS, HELLO
from memoryhub.mcp.jsonrpc import HANDSHAKE_VERSIONS, MODERN_VERSIONS

_SESSION = "Mcp-Session-Id"
_HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


class Refused(Exception):
    """The server's answer is an error, or the server is unreachable."""


class HttpClient:
    """One client of one project. Without a session, or with one that the server no longer has, it opens one."""

    def __init__(self, address: str, token: str, era: Era) -> None:
        self._era = era
        self._address = address
        self._ids = itertools.count(1)
        version = (MODERN_VERSIONS if era is Era.MODERN else HANDSHAKE_VERSIONS)[-1]
        headers = {**_HEADERS, "Authorization": f"Bearer {token}", "MCP-Protocol-Version": version}
        self._http = httpx2.AsyncClient(headers=headers, timeout=ANSWER_SECONDS)
        self._session = ""

    async def close(self) -> None:
        await self._http.aclose()

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """Call a tool and return the text of its answer.

        Raises:
            Refused: the answer is an error, with its status or text, or none came.
        """
        try:
            if self._era is Era.HANDSHAKE and not self._session:
                await self._open()
            result = await self._ask("tools/call", {"name": tool, "arguments": arguments})
        except httpx2.HTTPError as error:
            self._session = ""
            raise Refused(f"the connection failed: {type(error).__name__}") from error
        text: str = result["content"][0]["text"]
        if result.get("isError"):
            raise Refused(text)
        return text

    async def _open(self) -> None:
        await self._ask("initialize", HELLO)
        await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if self._era is Era.MODERN:
            params = {**params, "_meta": ENVELOPE}
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        response = await self._post(message, **_routing(message) if self._era is Era.MODERN else {})
        answer = _answer_of(response)
        if "result" not in answer:
            raise Refused(f"{method} was refused: {answer.get('error')}")
        result: dict[str, Any] = answer["result"]
        return result

    async def _post(self, message: dict[str, Any], **headers: str) -> httpx2.Response:
        if self._session:
            headers[_SESSION] = self._session
        response = await self._http.post(self._address, json=message, headers=headers)
        if response.status_code == httpx2.codes.NOT_FOUND and self._session:
            self._session = ""
            raise Refused("the session is unknown: a new one is opened")
        if response.status_code >= httpx2.codes.BAD_REQUEST:
            raise Refused(f"{response.status_code} {response.text[:200]}")
        self._session = response.headers.get(_SESSION, self._session)
        return response


# Headers by which the newest revision lets proxies route a request without its body
def _routing(message: dict[str, Any]) -> dict[str, str]:
    return {"Mcp-Method": message["method"], "Mcp-Name": message["params"].get("name", "")}


def _answer_of(response: httpx2.Response) -> dict[str, Any]:
    text = response.text
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        data = [line.removeprefix("data:").strip() for line in text.splitlines() if line.startswith("data:")]
        answers = [json.loads(item) for item in data if item]
        return next((answer for answer in answers if "id" in answer and "method" not in answer), {})
    answer: dict[str, Any] = json.loads(text)
    return answer
