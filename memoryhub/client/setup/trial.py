"""Start the hub with the command in a client's configuration, and do the MCP handshake."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memoryhub import __version__
from memoryhub.client.setup.clients import Target, config_file
from memoryhub.client.setup.document import read_document
from memoryhub.client.setup.entries import command_words, entry_words, find_server, variables
from memoryhub.core.errors import Conflict, NotFound, Unavailable
from memoryhub.env import DATABASE_VARIABLE

PROTOCOL = "2025-11-25"
_SECONDS = 60.0
_WORKSPACE = "${workspaceFolder}"


@dataclass(frozen=True, slots=True)
class Answer:
    command: list[str]
    server: str
    protocol: str
    tools: int


def try_client(target: Target, *, directory: Path) -> Answer:
    """Start the server as the client would, in a folder, and ask for its name and tools."""
    client = target.client
    entry = find_server(client, read_document(target.config))
    if entry is None:
        raise NotFound(f"{client.name} is not set up in {target.config}; run: memory-hub setup {client.id}")
    if target.config != config_file(client, None):
        _require_this_installation(target, entry)
    command = [word.replace(_WORKSPACE, str(directory)) for word in entry_words(entry)]
    # The client has not this shell's variable, and then works with the database of config.toml
    own = {name: value for name, value in os.environ.items() if name != DATABASE_VARIABLE}
    environment = {**own, **entry.get(client.environment, {}), "MEMORY_HUB_AUTOSTART": "off"}
    with _started(command, environment, directory) as process:
        hello = _ask(process, 1, "initialize", handshake())
        _send(process, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        tools = _ask(process, 2, "tools/list", {})["tools"]
    if not tools:
        raise Unavailable(hello.get("instructions", "").rstrip(".") or "the server offers no tools")
    info = hello["serverInfo"]
    return Answer(command, f"{info['name']} {info['version']}", hello["protocolVersion"], len(tools))


# Anybody can have written the files of a repository.
def _require_this_installation(target: Target, entry: dict[str, Any]) -> None:
    start = [*command_words(), "mcp"]
    words = entry_words(entry)
    settings = entry.get(target.client.environment) or {}
    if words[: len(start)] != start or settings.items() - variables().items():
        raise Conflict(
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
    """Return the parameters of ``initialize``."""
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
