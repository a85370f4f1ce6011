"""Do the MCP handshake with the server in a client's configuration, or with a hub over HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memoryhub import __version__
from memoryhub.client.setup.clients import SetupTarget, config_file
from memoryhub.client.setup.document import read_document
from memoryhub.client.setup.entries import command_words, entry_words, find_server, variables
from memoryhub.core.errors import ConflictError, NotFound, Unauthorized, Unavailable
from memoryhub.env import DATABASE_VARIABLE
from memoryhub.teams.connections import VARIABLE, all_connections
from memoryhub.teams.transport import HttpAnswer, HubConnection

PROTOCOL = "2025-11-25"
_SECONDS = 60.0
_WORKSPACE = "${workspaceFolder}"


@dataclass(frozen=True, slots=True)
class TrialResult:
    command: list[str]
    server: str
    protocol: str
    tools: int


def try_client(target: SetupTarget, *, directory: Path) -> TrialResult:
    """Start the server as the client would, in a folder, and ask for its name and tools."""
    client = target.client
    entry = find_server(client, read_document(target.config))
    if entry is None:
        raise NotFound(f"{client.name} is not set up in {target.config}; run: memory-hub setup {client.id}")
    if target.config != config_file(client, None):
        _require_this_installation(target, entry)
    command = [word.replace(_WORKSPACE, str(directory)) for word in entry_words(entry)]
    # The client has not this shell's variable, and then works with the database of config.toml
    inherited = {name: value for name, value in os.environ.items() if name != DATABASE_VARIABLE}
    environment = {**inherited, **entry.get(client.environment, {}), "MEMORY_HUB_AUTOSTART": "off"}
    with _started(command, environment, directory) as process:
        hello = _ask(process, 1, "initialize", handshake())
        _send(process, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        tools = _ask(process, 2, "tools/list", {})["tools"]
    if not tools:
        raise Unavailable(hello.get("instructions", "").rstrip(".") or "the server offers no tools")
    info = hello["serverInfo"]
    return TrialResult(command, f"{info['name']} {info['version']}", hello["protocolVersion"], len(tools))


# Anybody can have written the files of a repository.
def _require_this_installation(target: SetupTarget, entry: dict[str, Any]) -> None:
    start = [*command_words(), "mcp"]
    words = entry_words(entry)
    settings = entry.get(target.client.environment) or {}
    if words[: len(start)] != start or settings.items() - variables().items():
        raise ConflictError(
            f"{target.config} starts another program than this installation, or gives it variables; nothing was "
            f"started. To change the entry: memory-hub setup {target.client.id} --repository"
        )


# A server that does not answer in time is killed, which ends the reads that wait for it.
@contextmanager
def _started(command: list[str], environment: dict[str, str], directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    try:
        # Unbuffered: what a process that ended did not read must not be written again when the pipe is closed.
        process = subprocess.Popen(command, cwd=directory, env=environment, bufsize=0, **pipes)  # noqa: S603 - the user's own
    except OSError as error:
        raise Unavailable(f"{command[0]} cannot be started: {error.strerror}; run setup again to fix it") from error
    guard = threading.Timer(_SECONDS, process.kill)
    guard.start()
    with process:
        try:
            yield process
        finally:
            guard.cancel()
            process.kill()


def handshake() -> dict[str, Any]:
    return {
        "protocolVersion": PROTOCOL,
        "capabilities": {},
        "clientInfo": {"name": "memory-hub setup --check", "version": __version__},
    }


def _ask(process: subprocess.Popen[bytes], number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    _send(process, {"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    while line := process.stdout.readline() if process.stdout else b"":
        try:
            message = json.loads(line)
        except ValueError:
            break
        if message.get("id") == number and "result" in message:
            return dict(message["result"])
        if message.get("id") == number:
            break
    raise Unavailable(f"the server gave no valid answer to {method!r}; run it by hand to see why")


def _send(process: subprocess.Popen[bytes], message: dict[str, Any]) -> None:
    try:
        if process.stdin:
            process.stdin.write(json.dumps(message).encode() + b"\n")
    except BrokenPipeError as error:
        raise Unavailable("the server ended before it answered; run it by hand to see why") from error


_HTTP_SECONDS = 20.0


def try_url(url: str, *, variable: str = "", ca_file: str = "") -> TrialResult:
    """Ask a server for its name and tools, with the token of the environment or of this machine's connection.

    Args:
        url: of the server.
        variable: the environment variable with the token; "" for that of this machine's connection.
        ca_file: a certificate authority to trust instead of the system's.

    Raises:
        Unauthorized: there is no token, it is another hub's, or the hub refuses it.
        Unavailable: the hub cannot be reached, its certificate is not trusted, or it is no MCP server.
    """
    connection = next((candidate for candidate in all_connections() if candidate.serves(url)), None)
    if connection:
        variable = variable or connection.token_variable
        ca_file = ca_file or connection.ca_file
    variable = variable or VARIABLE
    token = os.environ.get(variable, "")
    _refuse_token_of_another_hub(token, variable, url)
    if connection:
        token = token or connection.token()
    if not token:
        raise Unauthorized(f"no token: set {variable}, or run `memory-hub setup --url {url} --token-file -`")
    hub = HubConnection(url, token=token, ca_file=ca_file, seconds=_HTTP_SECONDS)
    with closing(hub):
        headers = {"Accept": "application/json, text/event-stream"}
        hello, answer = _ask_over_http(hub, 1, "initialize", handshake(), headers)
        headers["MCP-Protocol-Version"] = hello.get("protocolVersion", PROTOCOL)
        if session := answer.headers.get("mcp-session-id"):
            headers["Mcp-Session-Id"] = session
        hub.post("", {"jsonrpc": "2.0", "method": "notifications/initialized"}, headers)
        tools, _ = _ask_over_http(hub, 2, "tools/list", {}, headers)
    info = hello["serverInfo"]
    return TrialResult([url], f"{info['name']} {info['version']}", hello["protocolVersion"], len(tools["tools"]))


# The client would send it there too.
def _refuse_token_of_another_hub(token: str, variable: str, url: str) -> None:
    owners = [connection for connection in all_connections() if token and connection.token() == token]
    if owners and not any(url.startswith(f"{connection.url}/") for connection in owners):
        raise Unauthorized(
            f"{variable} holds the token of {owners[0].url}; choose another variable for this hub with --token-variable"
        )


def _ask_over_http(
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
            message = json.loads(text)
        except ValueError:
            continue
        if isinstance(message, dict) and ("result" in message or "error" in message):
            return message
    return {}
