"""A client's window: it starts ``mcp`` and runs hooks as its children, and prints the session of each memory it wrote.

Arguments: how to run ``memory-hub``, the session's id, then what the client does: ``clear ID`` (it begins another
session), ``end``, ``pause`` or ``crash``.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any


class Window:
    def __init__(self, command: str, session: str) -> None:
        self.command = command
        self.session = session
        words = [*shlex.split(command), "mcp"]
        quiet = {**os.environ, "PYTHONDEVMODE": ""}  # asyncio's debug mode warns about slow steps
        self.server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=quiet)
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "window", "version": "1"}}
        self.ask("initialize", hello)

    def ask(self, method: str, parameters: dict[str, Any]) -> Any:
        assert self.server.stdin and self.server.stdout
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
        self.server.stdin.write(json.dumps(request).encode() + b"\n")
        self.server.stdin.flush()
        return json.loads(self.server.stdout.readline())["result"]

    def call(self, tool: str, **arguments: Any) -> Any:
        return self.ask("tools/call", {"name": tool, "arguments": {**arguments, "format": "json"}})["structuredContent"]

    def hook(self, event: str, **fields: str) -> None:
        payload = {"session_id": self.session, "cwd": str(Path.cwd()), "hook_event_name": event, **fields}
        words = ["sh", "-c", f"{self.command} hook claude-code {event}"]
        subprocess.run(words, input=json.dumps(payload).encode(), stdout=subprocess.DEVNULL, check=True)

    def close(self) -> None:
        self.server.communicate()  # closes its input, and waits for its end

    def write(self, title: str) -> str:
        self.call("memory_write", title=title, content=f"text of {title}")
        return str(self.call("memory_get", name=title)["results"][0]["session_id"])


def main(command: str, session: str, *then: str) -> None:
    window = Window(command, session)
    window.hook("SessionStart", source="resume" if then[:1] == ("resume",) else "startup")
    found = [window.write(f"first of {session}")]
    if then[:1] == ("clear",):
        window.session = then[1]
        window.hook("SessionStart", source="clear")
        found.append(window.write(f"second of {session}"))
    if then[:1] == ("end",):
        window.call("session_end", summary="done")
        window.hook("UserPromptSubmit", prompt="One more thing")
        found.append(window.write(f"second of {session}"))
    if then[:1] == ("pause",):
        window.call("session_pause", session_id=session)
        found.append(window.write(f"second of {session}"))
    if then[:1] == ("crash",):
        sys.stdout.write(json.dumps(found))
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    window.close()
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
