"""Do the MCP handshake with a hub over HTTP, as a client would."""

from __future__ import annotations

import json
import os
from contextlib import closing
from typing import Any

from memoryhub.client.setup.trial import PROTOCOL, Answer, handshake
from memoryhub.config.teams.connections import VARIABLE, all_connections
from memoryhub.config.teams.transport import Answer as HttpAnswer
from memoryhub.config.teams.transport import Line
from memoryhub.core.errors import Unauthorized, Unavailable

_SECONDS = 20.0


def try_url(url: str, *, ca_file: str = "") -> Answer:
    """Ask a server for its name and tools, with the token of the environment or of this machine's connection.

    Raises:
        Unauthorized: there is no token, or the hub refuses it.
        Unavailable: the hub cannot be reached, its certificate is not trusted, or it is no MCP server.
    """
    known = next((found for found in all_connections() if found.serves(url)), None)
    token = os.environ.get(VARIABLE, "") or (known.token() if known else "")
    if not token:
        raise Unauthorized(f"no token: set {VARIABLE}, or run `memory-hub setup --url {url} --token-file -`")
    line = Line(url, token=token, ca_file=ca_file or (known.ca_file if known else ""), seconds=_SECONDS)
    with closing(line):
        headers = {"Accept": "application/json, text/event-stream"}
        hello, answer = _ask(line, 1, "initialize", handshake(), headers)
        headers["MCP-Protocol-Version"] = hello.get("protocolVersion", PROTOCOL)
        if session := answer.headers.get("mcp-session-id"):
            headers["Mcp-Session-Id"] = session
        line.post("", {"jsonrpc": "2.0", "method": "notifications/initialized"}, headers)
        tools, _ = _ask(line, 2, "tools/list", {}, headers)
    info = hello["serverInfo"]
    return Answer([url], f"{info['name']} {info['version']}", hello["protocolVersion"], len(tools["tools"]))


def _ask(
    line: Line, number: int, method: str, params: dict[str, Any], headers: dict[str, str]
) -> tuple[dict[str, Any], HttpAnswer]:
    answer = line.post("", {"jsonrpc": "2.0", "id": number, "method": method, "params": params}, headers)
    if answer.status in (401, 403):
        raise Unauthorized(f"the hub refuses the token ({answer.sentence()})")
    message = _message(answer)
    if not isinstance(message.get("result"), dict):
        error = message.get("error")
        why = error.get("message") if isinstance(error, dict) else answer.sentence()
        raise Unavailable(f"the server gave no valid answer to {method!r} ({why}); check the URL and the project")
    return message["result"], answer


# An answer is JSON, or a stream of events whose last message is the answer.
def _message(answer: HttpAnswer) -> dict[str, Any]:
    if not answer.headers.get("content-type", "").startswith("text/event-stream"):
        return answer.problem()
    lines = [line[5:] for line in answer.body.decode("utf-8", "replace").splitlines() if line.startswith("data:")]
    for text in reversed(lines):
        try:
            found = json.loads(text)
        except ValueError:
            continue
        if isinstance(found, dict) and ("result" in found or "error" in found):
            return found
    return {}
