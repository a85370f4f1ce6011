"""The files that are the hub's as a whole: the librarian, which is a sub-agent, the skill, and a client's policy."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from itertools import starmap
from pathlib import Path
from typing import Any

from decisions.prompts import agent_file, instructions
from memoryhub.client.setup.document import ConfigDocument, read_document
from memoryhub.client.setup.json_text import toml_line
from memoryhub.config.clients import Agent, Permissions
from memoryhub.core.errors import HubError

SKILL_FILE = Path(__file__).parent / "skill" / "memory-hub" / "SKILL.md"
# The digest shows whether the rest of the file is as the hub wrote it.
_MARK = re.compile(r"^# From `memory-hub setup`, ([0-9a-f]{16})\n", re.MULTILINE)


def read_own_file(path: Path | None) -> ConfigDocument | None:
    """Return the file if the hub may write or remove it: there is none, or it is as the hub wrote it."""
    if path is None:
        return None
    try:
        document = read_document(path)
    except HubError:
        return None  # a person's own, as it is not one that the hub writes
    if document.is_there and not is_own_file(document):
        return None
    return document


def is_own_file(document: ConfigDocument) -> bool:
    mark = _MARK.search(document.text[:200])
    return mark is not None and mark[1] == _digest(_MARK.sub("", document.text, count=1))


def put_skill(document: ConfigDocument) -> ConfigDocument:
    """Return the skill's file. All clients read the same form: see agentskills.io/specification."""
    return _marked(document, SKILL_FILE.read_text("utf-8"))


def put_policy(permissions: Permissions, document: ConfigDocument, rules: Sequence[str]) -> ConfigDocument:
    """Return a file of TOML with one table for each rule."""
    (table,) = permissions.keys
    text = ""
    for rule in rules:
        text += "\n".join([f"[[{table}]]", *starmap(toml_line, permissions.item(rule).items()), "", ""])
    return _marked(document, text)


def put_agent(agent: Agent, document: ConfigDocument) -> ConfigDocument:
    """Return the librarian's file in the client's form."""
    if not document.is_toml:
        return _marked(document, agent_text(agent))
    values = {**_fields(agent), "developer_instructions": instructions()}
    return _marked(document, "".join(f"{toml_line(name, value)}\n" for name, value in values.items()))


def agent_text(agent: Agent) -> str:
    """Return the librarian as Markdown, with the front matter that the client takes."""
    fields = _fields(agent)
    # A text is written as it is.
    values = {name: json.dumps(value) for name, value in fields.items() if not isinstance(value, str)}
    lines = [f"{name}: {value}" for name, value in (fields | values).items()]
    return "\n".join(["---", *lines, "---", instructions(), ""])


def _fields(agent: Agent) -> dict[str, Any]:
    front_matter = dict(line.split(": ", 1) for line in agent_file().split("\n---\n", 1)[0].splitlines()[1:])
    return {name: front_matter[name] for name in agent.fields} | agent.more


def _marked(document: ConfigDocument, text: str) -> ConfigDocument:
    # Front matter must come first
    head = "---\n" if text.startswith("---\n") else ""
    mark = f"# From `memory-hub setup`, {_digest(text)}\n"
    return document.with_code(f"{head}{mark}{text.removeprefix(head)}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
