"""A client that runs the real hook command, in a repository of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memoryhub.core.stores.store import project_store, use_store
from sessions_app.audit import EventWindow, replay_lines
from tests.databases import at_home, variables_of
from tests.home import RUN_HOME_VARIABLE
from tests.support import forget_all_stores, make_git_folder
from tests.web.server import DEADLINE_SECONDS, ROOT, poll


def run_hook(
    home: Path, event: str, data: Any, *options: str, client: str = "claude-code", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Run ``memory-hub hook`` as a client does; ``data`` is JSON data, or bytes that are written unchanged."""
    content = data if isinstance(data, bytes) else json.dumps(data).encode()
    return subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "hook", client, event, *options],
        check=False,
        input=content,
        capture_output=True,
        timeout=2 * DEADLINE_SECONDS,
        env=environment_of(home, **environment),
    )


def environment_of(home: Path, **more: str) -> dict[str, str]:
    # The hooks wait long for the hub, so that they do not spool on a busy machine.
    return {**os.environ, **variables_of(home), "MEMORY_HUB_HOOK_SECONDS": f"{DEADLINE_SECONDS:g}", **more}


def spooled(home: Path) -> list[dict[str, Any]]:
    """Return the whole lines that wait, in the order of their times; what is half written has no end yet."""
    lines = [line for path in (home / "spool").glob("*.jsonl") for line in path.read_text().splitlines(keepends=True)]
    return sorted((json.loads(line) for line in lines if line.endswith("\n")), key=lambda line: line["at"])


def wait_for_spooled(home: Path, count: int = 1) -> list[dict[str, Any]]:
    """Return the lines once there are ``count``: the hook does not wait for its child that writes them."""
    poll(lambda: len(spooled(home)) >= count, what=f"{count} lines in the spool")
    return spooled(home)


def replayed(home: Path, project: str) -> list[dict[str, Any]]:
    with at_home(home):
        try:
            with use_store(project_store(project)):
                return [json.loads(line) for line in replay_lines(command=EventWindow(), limit=None)]
        finally:
            forget_all_stores()


class Repository:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("config", "user.name", "Ada")
        self.git("config", "user.email", "ada@example.org")

    def git(self, *arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=self.folder, capture_output=True, text=True, check=True)
        return done.stdout

    def commit(self, name: str, content: str, message: str) -> str:
        """Write a file, commit it, and return git's output."""
        (self.folder / name).write_text(content)
        self.git("add", name)
        return self.git("commit", "-m", message)


class ClaudeCode:
    """Claude Code in one session: its hooks' payloads, as its documentation has them."""

    def __init__(self, home: Path, folder: Path, session: str) -> None:
        self._home = home
        self._common = {
            "session_id": session,
            "transcript_path": str(folder / "transcript.jsonl"),
            "cwd": str(folder),
            "permission_mode": "default",
        }

    def send(self, event: str, **fields: Any) -> str:
        done = run_hook(self._home, event, {**self._common, "hook_event_name": event} | fields)
        assert done.returncode == 0, done.stderr
        assert not done.stderr, done.stderr
        return done.stdout.decode()

    def start(self, source: str = "startup") -> str:
        return self._injected("SessionStart", source=source, model="claude-sonnet")

    def prompt(self, text: str) -> str:
        return self._injected("UserPromptSubmit", prompt=text)

    def _injected(self, event: str, **fields: Any) -> str:
        printed = self.send(event, **fields)
        if not printed:
            return ""
        answer = json.loads(printed)["hookSpecificOutput"]
        assert set(answer) == {"hookEventName", "additionalContext"}, "no decision about permissions"
        assert answer["hookEventName"] == event
        return str(answer["additionalContext"])

    def before(self, name: str, given: dict[str, Any]) -> str:
        return self._injected("PreToolUse", tool_name=name, tool_input=given, tool_use_id="toolu_01")

    def status_line(self) -> str:
        return self.send("StatusLine", hook_event_name="Status", model={"display_name": "Sonnet"})

    def bash(self, command: str, stdout: str, stderr: str = "") -> None:
        response = {"stdout": stdout, "stderr": stderr, "interrupted": False, "isImage": False}
        self.tool("Bash", {"command": command, "description": "…"}, response)

    def tool(self, name: str, given: dict[str, Any], response: Any) -> None:
        self.send("PostToolUse", tool_name=name, tool_input=given, tool_response=response, tool_use_id="toolu_01")


@contextmanager
def folder() -> Iterator[Path]:
    """A folder in the run's home; a hook's child that outlives its test may still write there while it is removed."""
    place = os.environ.get(RUN_HOME_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="memory-hub-hook-", dir=place, ignore_cleanup_errors=True) as name:
        yield Path(name)


class HookTestCase(unittest.TestCase):
    """A test with a home that does not exist yet, and a folder to work in."""

    def setUp(self) -> None:
        super().setUp()
        place = self.enterContext(folder())
        self.home = place / "home"
        self.work = make_git_folder(place / "alpha")

    def hook_data(self, **fields: Any) -> dict[str, Any]:
        return {"session_id": "s1", "cwd": str(self.work), **fields}

    def assert_harmless(self, done: subprocess.CompletedProcess[bytes], *, message: str = "") -> None:
        """Exit code 0, nothing for the client to read, at most one line for people."""
        error = done.stderr.decode()
        self.assertEqual((done.returncode, done.stdout), (0, b""), error)
        self.assertLessEqual(error.count("\n"), 1, error)
        self.assertNotIn("Traceback", error)
        self.assertIn(message, error)
        if not message:
            self.assertEqual(error, "")
