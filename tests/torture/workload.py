"""What real processes do while they are recorded: ``python -m tests.torture.workload NAME HOME LEDGER``.

A client notes each answer in the ledger, so a recording has acknowledgements and file operations in one order.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
import threading
from pathlib import Path
from typing import Any

from tests.home import UNMEASURED
from tests.mcp.client import Process as McpServer
from tests.torture.rounds import rounds
from tests.web.server import Shell, serving

PROJECT = "alpha"
REDACTED = "marmaladeish"
_SECRET = "the key is AKIAIOSFODNN7EXAMPLQ"
_WORDS = "a store keeps what agents learn and decide so that nothing is lost when the power fails at night".split()


def text(chance: random.Random, *, words: int) -> str:
    return " ".join(chance.choice(_WORDS) for _ in range(words))


class Ledger:
    """A file to which an attack's clients write each acknowledgement in one call, once they have the answer."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, kind: str, **values: Any) -> None:
        os.write(self._descriptor, json.dumps({"kind": kind, **values}).encode() + b"\n")

    def close(self) -> None:
        os.close(self._descriptor)


class Agent:
    def __init__(self, home: Path, ledger: Ledger, name: str) -> None:
        self._server = McpServer(home, "--project", PROJECT, MEMORY_HUB_TEST_TOOLS="")
        self._server.initialize()
        self._ledger, self._name = ledger, name
        self._chance = random.Random(name)
        self._number = 0

    def work(self, count: int) -> None:
        for _ in range(count):
            self._number += 1
            self.write(words=self._chance.choice((5, 50, 3000)))
            if self._number % 3 == 0:
                self.record_decision()

    def write(self, *, words: int = 5, also: str = "") -> None:
        title, content = f"{self._name} {self._number} {also}".strip(), text(self._chance, words=words)
        written = self._server.data("memory_write", title=title, content=content)
        self._note(written, title, content)
        if self._number % 4 == 1:
            content = text(self._chance, words=words)
            self._note(self._server.data("memory_update", id=written["id"], content=content), title, content)
        if self._number % 5 == 2:
            self._note(self._server.data("memory_delete", id=written["id"]), title, content, deleted=True)

    def write_secret(self) -> None:
        title, secret = f"{self._name}'s secret", _SECRET
        written = self._server.data("memory_write", title=title, content=secret)
        content = self._server.data("memory_get", ids=[written["id"]])["results"][0]["content"]
        self._note(written, title, content, secret=secret)

    def record_decision(self) -> None:
        title = f"{self._name} decides {self._number}"
        recorded = self._server.data("decision_record", title=title, context="c", chosen="this", rationale="it holds")
        self._ledger.note("decision", id=recorded["id"], title=title)

    def end(self) -> None:
        self._server.end()
        self._server.destroy()

    def _note(self, answer: dict[str, Any], title: str, content: str, **more: Any) -> None:
        self._ledger.note("memory", id=answer["id"], version=answer["version"], title=title, content=content, **more)


def agents(home: Path, ledger: Ledger) -> None:
    """Two agents write at once, from the first write until the WAL was checkpointed."""
    both = [Agent(home, ledger, name) for name in ("ada", "ben")]
    both[0].write_secret()
    threads = [threading.Thread(target=agent.work, args=[rounds(12, long=20)]) for agent in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for agent in both:
        agent.end()


def upkeep(home: Path, ledger: Ledger) -> None:
    """Writes between all that replaces files and tables: backup, rebuild, redaction, views of the past, restore."""
    shell = Shell(home)
    agent = Agent(home, ledger, "cleo")
    agent.write(also=REDACTED)
    agent.work(3)
    said = _run(shell, "backup", "--project", PROJECT)
    backup = re.search(r"/\S+\.db", said)
    assert backup, said
    ledger.note("backup", path=os.path.relpath(backup[0], home))
    position = _head(shell)
    agent.work(2)
    _run(shell, "rebuild", "--project", PROJECT)
    agent.work(1)
    _run(shell, "search", "--project", PROJECT, "--as-of", str(position), "store")
    _run(shell, "restore", "--project", PROJECT, backup[0], refused=True)
    ledger.note("restoring", position=position)
    _run(shell, "restore", "--project", PROJECT, "--replace", backup[0])
    ledger.note("restored", position=position)
    agent.work(1)
    preview = _run(shell, "redact", "--project", PROJECT, "--text", REDACTED)
    ledger.note("redacting", text=REDACTED)
    _run(shell, "redact", "--project", PROJECT, "--text", REDACTED, "--confirm", preview.split()[-1])
    ledger.note("redacted", text=REDACTED)
    agent.work(2)
    agent.end()
    shell.close()


def web(home: Path, ledger: Ledger) -> None:
    """A start of the server: its secrets and databases, writes over REST, a token for an agent."""
    with serving("--no-worker", home=home) as server:
        assert server.api("POST", "projects", {"project_id": PROJECT}).status == 201
        for number in range(6):
            title, content = f"rest {number}", f"over REST {number}"
            answer = server.api("POST", f"projects/{PROJECT}/memories", {"title": title, "content": content})
            assert answer.status == 201, answer
            ledger.note("token", text=server.token)
            ledger.note("memory", id=answer.json()["id"], version=1, title=title, content=content)
    shell = Shell(home)
    _run(shell, "token", "create", "--name", "builder")
    ledger.note("agent token", name="builder")
    shell.close()


def _run(shell: Shell, *arguments: str, refused: bool = False) -> str:
    code, said = shell.run(*arguments)
    assert bool(code) is refused, (arguments, code, said)
    return said


def _head(shell: Shell) -> int:
    found = re.search(r"(\d[\d,]*) events", _run(shell, "verify", "--project", PROJECT))
    assert found
    return int(found[1].replace(",", ""))


WORKLOADS = {"agents": agents, "upkeep": upkeep, "web": web}


def main() -> None:
    name, home, ledger = sys.argv[1:]
    os.environ.update(UNMEASURED, MEMORY_HUB_EMBEDDING_MODEL="none", PYTHONDEVMODE="")
    notes = Ledger(Path(ledger))
    WORKLOADS[name](Path(home), notes)
    notes.close()


if __name__ == "__main__":
    main()
