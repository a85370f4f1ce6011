"""Do the MCP handshake with a hub over HTTP, as a client would."""

from __future__ import annotations

import json
import os
from contextlib import closing
from typing import Any

from memoryhub.client.setup.trial import PROTOCOL, Answer, handshake
from memoryhub.core.errors import Unauthorized, Unavailable
from memoryhub.teams.connections import VARIABLE, all_connections
from memoryhub.teams.transport import Answer as HttpAnswer
from memoryhub.teams.transport import HubConnection

_SECONDS = 20.0


def try_url(url: str, *, variable: str = "", ca_file: str = "") -> Answer:
    """Ask a server for its name and tools, with the token of the environment or of this machine's connection.

    Args:
        url: of the server.
        variable: the environment variable with the token; "" for that of this machine's connection.
        ca_file: a certificate authority to trust instead of the system's.

    Raises:
        Unauthorized: there is no token, it is another hub's, or the hub refuses it.
        Unavailable: the hub cannot be reached, its certificate is not trusted, or it is no MCP server.
    """
    known = next((found for found in all_connections() if found.serves(url)), None)
    variable = variable or (known.token_variable if known else "") or VARIABLE
    token = os.environ.get(variable, "")
    _refuse_token_of_another_hub(token, variable, url)
    token = token or (known.token() if known else "")
    if not token:
        raise Unauthorized(f"no token: set {variable}, or run `memory-hub setup --url {url} --token-file -`")
    hub = HubConnection(url, token=token, ca_file=ca_file or (known.ca_file if known else ""), seconds=_SECONDS)
    with closing(hub):
        headers = {"Accept": "application/json, text/event-stream"}
        hello, answer = _ask(hub, 1, "initialize", handshake(), headers)
        headers["MCP-Protocol-Version"] = hello.get("protocolVersion", PROTOCOL)
        if session := answer.headers.get("mcp-session-id"):
            headers["Mcp-Session-Id"] = session
        hub.post("", {"jsonrpc": "2.0", "method": "notifications/initialized"}, headers)
        tools, _ = _ask(hub, 2, "tools/list", {}, headers)
    info = hello["serverInfo"]
    return Answer([url], f"{info['name']} {info['version']}", hello["protocolVersion"], len(tools["tools"]))


# The client would send it there too.
def _refuse_token_of_another_hub(token: str, variable: str, url: str) -> None:
    owners = [found for found in all_connections() if token and found.token() == token]
    if owners and not any(url.startswith(f"{found.url}/") for found in owners):
        raise Unauthorized(
            f"{variable} holds the token of {owners[0].url}; choose another variable for this hub with --token-variable"
        )


def _ask(
    hub: HubConnection, number: int, method: str, params: dict[str, Any], headers: dict[str, str]
) -> tuple[dict[str, Any], HttpAnswer]:
    answer = hub.post("", {"jsonrpc": "2.0", "id": number, "method": method, "params": params}, headers)
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
