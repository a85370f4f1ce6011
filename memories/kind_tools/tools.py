"""MCP tools of the kinds whose titles are unique: one for every kind and verb."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from memories.kind_tools.schemas import KIND_TOOLS, KindTools, NamedMemoryList
from memories.kind_tools.service import (
    add_entry,
    deactivate_entry,
    entry_history,
    find_entry,
    list_entries,
    update_entry,
)
from memories.present import entry_line, memory_text, version_text, write_text
from memories.schemas import WriteResult
from memoryhub.core.paging import as_lines
from memoryhub.core.schemas import Command, Paging
from memoryhub.core.tools import Answer, Tool, ToolGroup, listed


@dataclass(frozen=True, slots=True)
class Verb:
    name: str
    description: str
    answer: Callable[[KindTools, Any], Answer]
    writes: bool = False

    def tool(self, entries: KindTools) -> Tool:
        name = f"{entries.kind}_{self.name}"
        kind = entries.declared
        words = {"noun": entries.words.noun, "plural": kind.plural.lower(), "name": entries.words.name}
        order = ", by priority" if kind.order == "priority" else ""
        schema: type[Command] = getattr(entries, self.name)
        return Tool(
            name,
            self.description.format(**words, order=order),
            schema,
            lambda command: self.answer(entries, command),
            group=ToolGroup.REGISTRY,
            writes=self.writes,
            full_name=f"memory_{name}",
            renamed={old: new for old, new in entries.renamed.items() if new in schema.model_fields},
        )


def _written(result: WriteResult) -> Answer:
    return Answer(write_text(result), result.model_dump(mode="json"))


def _add(entries: KindTools, command: Any) -> Answer:
    return _written(add_entry(command=entries.write(command), scope_id=command.scope_id))


def _update(entries: KindTools, command: Any) -> Answer:
    changes = entries.changes(command)
    entry = entries.reference(command)
    return _written(update_entry(kind=entries.kind, entry=entry, changes=changes, author=command.author))


def _get(entries: KindTools, command: Any) -> Answer:
    memory = find_entry(kind=entries.kind, entry=entries.reference(command))
    return Answer(memory_text(memory), memory)


def _list(entries: KindTools, command: Any) -> Answer:
    filters = NamedMemoryList.model_validate(command.model_dump(exclude_none=True))
    return listed(
        list_entries(kind=entries.kind, command=filters), entry_line, none=f"no {entries.words.noun} here matches"
    )


def _history(entries: KindTools, command: Any) -> Answer:
    paging = Paging(**command.model_dump(include=set(Paging.model_fields)))
    listing = entry_history(kind=entries.kind, entry=entries.reference(command), paging=paging)
    return Answer(as_lines(listing, version_text, none="no version"), listing.model_dump(mode="json"))


def _deactivate(entries: KindTools, command: Any) -> Answer:
    result = deactivate_entry(
        kind=entries.kind,
        entry=entries.reference(command),
        **command.model_dump(include={"reason", "author", "idempotency_key"}),
    )
    return _written(result)


VERBS = (
    Verb("add", "Add a {noun}; its {name} is unique in its scope.", _add, writes=True),
    Verb("update", "Update a {noun} by id or {name}, as a new version.", _update, writes=True),
    Verb("get", "Get a {noun} by id or {name}.", _get),
    Verb("list", "List the {plural} that apply here{order}.", _list),
    Verb("history", "Versions of a {noun}: author, time, reason, change.", _history),
    Verb(
        "deactivate",
        "Delete a {noun}; memory_restore undoes it.",
        _deactivate,
        writes=True,
    ),
)

TOOLS = [verb.tool(entries) for entries in KIND_TOOLS for verb in VERBS]
