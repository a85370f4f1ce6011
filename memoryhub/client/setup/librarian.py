"""The librarian as a client's sub-agent: a file of the hub's own, which is written whole and removed whole."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from decisions.prompts import agent_file, instructions
from memoryhub.client.setup.document import Document, read_document
from memoryhub.config.clients import Agent
from memoryhub.core.errors import HubError

# The digest shows whether the rest of the file is as the hub wrote it.
_MARK = re.compile(r"^# From `memory-hub setup`, ([0-9a-f]{16})\n", re.MULTILINE)


def read_agent(path: Path | None) -> Document | None:
    """Return the file if the hub may write or remove it: there is none, or it is as the hub wrote it."""
    if path is None:
        return None
    try:
        document = read_document(path)
    except HubError:
        return None  # a person's own, as it is not one that the hub writes
    return document if not document.is_there or is_own_agent(document) else None


def is_own_agent(document: Document) -> bool:
    mark = _MARK.search(document.text[:200])
    return mark is not None and mark[1] == _digest(_MARK.sub("", document.text, count=1))


def put_agent(agent: Agent, document: Document) -> Document:
    """Return the librarian's file in the client's form."""
    front_matter = dict(line.split(": ", 1) for line in agent_file().split("\n---\n", 1)[0].splitlines()[1:])
    fields = {name: front_matter[name] for name in agent.fields} | agent.more
    is_toml = document.is_toml
    text = _toml(fields) if is_toml else _markdown(fields)
    mark = f"# From `memory-hub setup`, {_digest(text)}\n"
    marked = mark + text if is_toml else text.replace("---\n", f"---\n{mark}", 1)
    return replace(document, text=marked, data={"code": marked}, is_there=True)


def _markdown(fields: dict[str, Any]) -> str:
    lines = [f"{name}: {value if isinstance(value, str) else json.dumps(value)}" for name, value in fields.items()]
    return "\n".join(["---", *lines, "---", instructions(), ""])


def _toml(fields: dict[str, Any]) -> str:
    # A text of JSON is one of TOML.
    values = {**fields, "developer_instructions": instructions()}
    return "".join(f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in values.items())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
