"""Ask the running hub to run a command: it has imported what a new process would need a second for.

Standard library only. Whatever is unusual (variables of the hub, another version, no answer) is left to this process.
"""

from __future__ import annotations

import json
import os
import sys
from _socket import AF_UNIX, SHUT_WR, SOCK_STREAM
from _socket import socket as new_socket
from io import TextIOWrapper

import memoryhub
from memoryhub.env import home_text, working_folder_text
from memoryhub.management.terminal import discard_output, has_colour

# Below the home folder, which is its owner's alone
SOCKET = "run/commands.sock"
_CONNECT_SECONDS = 0.5
_ANSWER_SECONDS = 30.0
# The only variables that may be set: others change what a command does
_HARMLESS = frozenset({"MEMORY_HUB_HOME", "MEMORY_HUB_AUTOSTART"})


def run_in_hub(arguments: list[str]) -> int | None:
    """Print what the hub's process answers to a command line, and return its exit code; None if there is no answer."""
    if "TZ" in os.environ or any(name.startswith("MEMORY_HUB_") for name in os.environ.keys() - _HARMLESS):
        return None
    request = {
        "version": memoryhub.__version__,
        "arguments": arguments,
        "directory": working_folder_text(),
        "is_typed": sys.stdin.isatty(),
        "colour": [has_colour(sys.stdout), has_colour(sys.stderr)],
    }
    try:
        answer = json.loads(_exchange(json.dumps(request).encode()))
        code, output, errors = int(answer["code"]), str(answer["output"]), str(answer["errors"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if "--json" in arguments and isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    sys.stderr.write(errors)
    try:
        sys.stdout.write(output)
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
    return code


def _exchange(request: bytes) -> bytes:
    connection = new_socket(AF_UNIX, SOCK_STREAM)
    try:
        connection.settimeout(_CONNECT_SECONDS)
        connection.connect(f"{home_text()}/{SOCKET}")
        connection.settimeout(_ANSWER_SECONDS)
        connection.sendall(request)
        connection.shutdown(SHUT_WR)
        parts = []
        while part := connection.recv(1 << 16):
            parts.append(part)
        return b"".join(parts)
    finally:
        connection.close()
