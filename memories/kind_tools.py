"""MCP tools of each kind whose titles are unique: guidelines, tools and knowledge by id or by nearest name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field, create_model
from pydantic.fields import FieldInfo

from memories import scopes
from memories.events import filled
from memories.models import MemoryKind, MemoryScope
from memories.present import entry_line, memory_text, version_text, written
from memories.query import query
from memories.schemas import (
    Content,
    IfExists,
    MemoryDelete,
    MemoryGet,
    MemoryUpdate,
    MemoryWrite,
    Tags,
    Title,
    TypeName,
)
from memories.schemas.query import MemoryQuery, QueryOrder, QueryScope, QueryTags
from memories.selectors.memories import get_memories
from memories.services import delete_memory, update_memory, write_memory
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.kinds import KINDS, Kind, ToolNames
from memoryhub.core.origin import current_origin, use_origin
from memoryhub.core.paging import as_lines, decode_cursor, encode_cursor, page
from memoryhub.core.schemas import (
    MAX_AUTHOR,
    Command,
    EntityId,
    IdempotencyKey,
    Line,
    Paging,
    Version,
    only_in_full,
    self_evident,
    unlisted,
)
from memoryhub.core.tools import Answer, Tool, ToolGroup, listed

Fields = dict[str, Any]

_ID: Fields = {"id": (EntityId | None, None)}
_NAMED: Fields = {
    "scope": (MemoryScope | None, None),
    "scope_id": (Line, Field("", max_length=200, json_schema_extra=only_in_full)),
    "inherit": (bool, Field(True, json_schema_extra=only_in_full)),
}
_INCLUDE_DELETED: Fields = {"include_deleted": (bool, Field(False, json_schema_extra=only_in_full))}
_AUTHOR: Fields = {
    "author": (Line, Field("", max_length=MAX_AUTHOR, json_schema_extra=only_in_full)),
    "idempotency_key": (IdempotencyKey, None),
}
_PLACE: Fields = {
    "scope": (MemoryScope, Field(MemoryScope.PROJECT, description="who sees it")),
    "scope_id": (Line, Field("", max_length=200, json_schema_extra=only_in_full)),
    "if_exists": (IfExists, Field(IfExists.ERROR, json_schema_extra=only_in_full)),
}
_TAGS: Fields = {"tags": (Tags | None, None)}
_CHANGE: Fields = {
    "base_version": (Version | None, Field(None, description="version you read", json_schema_extra=self_evident)),
    "change_reason": (str, Field("", max_length=1_000)),
}
_OLD_NAMES = {
    "scope_type": "scope",
    "created_by": "author",
    "updated_by": "author",
    "deactivated_by": "author",
    "type": "category",
    "include_inactive": "include_deleted",
}


class NamedMemory(Command):
    """A memory of a kind: an id, or a name in a scope."""

    id: EntityId | None = None
    name: str | None = Field(None, max_length=300)
    scope: MemoryScope | None = None
    scope_id: str = ""
    inherit: bool = True
    include_deleted: bool = False


@dataclass(frozen=True)
class KindTools:
    """A kind and the schemas of its tools."""

    kind: MemoryKind
    declared: Kind
    words: ToolNames

    @property
    def renamed(self) -> Mapping[str, str]:
        name, text = self.words.name, self.words.text
        synonyms = {"content": text, "description": text, "name": name, "title": name}
        renamed = {old: new for old, new in synonyms.items() if old not in (name, text)}
        return {**_OLD_NAMES, f"{self.kind}_id": "id", **renamed}

    @cached_property
    def add(self) -> type[Command]:
        fields = {name: _as_argument(field) for name, field in self._attributes.items()}
        texts = {self.words.name: (Title, ...), self.words.text: (Content, ...)}
        return self._model("Add", {**texts, **self._category, **fields, **_TAGS, **self._source, **_PLACE, **_AUTHOR})

    @cached_property
    def update(self) -> type[Command]:
        fields = {name: _as_change(field) for name, field in self._attributes.items()}
        name = Field(None, description="which; with id: its new name")
        texts = {self.words.name: (Title | None, name), self.words.text: (Content | None, None)}
        changes = {"category": (TypeName | None, None), **fields, **_TAGS, **self._source, **_CHANGE}
        return self._model("Update", {**_ID, **texts, **changes, **_NAMED, **_AUTHOR})

    @cached_property
    def get(self) -> type[Command]:
        return self._model("Get", {**self._which, **_NAMED, **_INCLUDE_DELETED})

    @cached_property
    def list(self) -> type[Command]:
        return self._model("List", {**self._category, **_TAGS, **_NAMED, **_INCLUDE_DELETED, **_PAGING})

    @cached_property
    def history(self) -> type[Command]:
        return self._model("History", {**self._which, **_NAMED, **_PAGING})

    @cached_property
    def deactivate(self) -> type[Command]:
        reason = {"reason": (str, Field("", max_length=1_000))}
        return self._model("Deactivate", {**self._which, **_NAMED, **reason, **_AUTHOR})

    def reference(self, command: Command) -> NamedMemory:
        """Return the memory that a command refers to; a name next to an id is ignored."""
        fields = self._fields_of(command)
        reference = {name: value for name, value in fields.items() if name in NamedMemory.model_fields}
        if not fields.get("id"):
            reference["name"] = fields.get("title")
        return NamedMemory.model_validate(reference)

    def write(self, command: Command) -> MemoryWrite:
        fields = {**self._changes(command), "scope": command.scope}  # type: ignore[attr-defined]
        return MemoryWrite.model_validate({**fields, "kind": self.kind, "named": True})

    def changes(self, command: Command) -> dict[str, Any]:
        """Convert the arguments of ``update`` to fields of ``MemoryUpdate``."""
        changes = self._changes(command)
        if not command.id:  # type: ignore[attr-defined]
            changes.pop("title", None)
        return changes

    def _changes(self, command: Command) -> dict[str, Any]:
        fields = self._fields_of(command)
        attributes = {name: fields.pop(name) for name in self._attributes if name in fields}
        changes = {name: value for name, value in fields.items() if name not in NamedMemory.model_fields}
        return {**changes, **filled(attributes=attributes)}

    def _fields_of(self, command: Command) -> dict[str, Any]:
        names = {self.words.name: "title", self.words.text: "content", "category": "type"}
        arguments = command.model_dump(mode="json", exclude_unset=True, exclude_none=True)
        return {names.get(name, name): value for name, value in arguments.items()}

    @property
    def _attributes(self) -> Mapping[str, FieldInfo]:
        return self.declared.attributes.model_fields

    @property
    def _which(self) -> Fields:
        return {**_ID, self.words.name: (str | None, Field(None, max_length=300))}

    @property
    def _category(self) -> Fields:
        values = ", ".join(self.declared.types) or "any word, e.g. security"
        return {"category": (TypeName | None, Field(None, description=values))}

    @property
    def _source(self) -> Fields:
        field = Field(None, max_length=1_000, json_schema_extra=unlisted)
        if self.words.lists_source:
            field = Field(None, max_length=1_000, description="path or URL")
        return {"source": (Line | None, field)}

    def _model(self, verb: str, fields: Fields) -> type[Command]:
        model: type[Command] = create_model(f"{self.kind.title()}{verb}", __base__=Command, **fields)
        return model


def _as_argument(field: FieldInfo) -> Any:
    return (field.annotation, field)


def _as_change(field: FieldInfo) -> Any:
    annotation: Any = field.annotation
    if field.metadata:
        annotation = Annotated[(annotation, *field.metadata)]
    return (annotation | None, None)


_PAGING: Fields = {name: _as_argument(field) for name, field in Paging.model_fields.items()}

KIND_TOOLS = tuple(KindTools(MemoryKind(kind.name), kind, kind.tools) for kind in KINDS.values() if kind.tools)


def find_entry(*, kind: MemoryKind, entry: NamedMemory, versions: bool = False) -> dict[str, Any]:
    """Return the entry as JSON data.

    Raises:
        NotFound: there is no such entry, or the id belongs to another kind.
        Gone: it is deactivated, and ``include_deleted`` is off.
        Invalid: neither id nor name is given, or the scope is not bound here.
    """
    check_scope_id(entry.scope, entry.scope_id)
    fields = entry.model_dump(include={"scope", "include_deleted"})
    if entry.id:
        memory = get_memories(command=MemoryGet(ids=[entry.id], versions=versions, **fields))[0]
    elif entry.name:
        command = MemoryGet(name=entry.name, kind=kind, inherit=entry.inherit, versions=versions, **fields)
        try:
            memory = get_memories(command=command)[0]
        except NotFound as error:
            raise NotFound(f"there is no {kind} {entry.name[:200]!r} here; {kind}_list shows all") from error
    else:
        raise Invalid(f"give the id or the name of the {kind}")
    if memory["kind"] != kind:
        raise NotFound(f"#{memory['id']} is of kind {memory['kind']}, not {kind}; memory_get reads it", id=memory["id"])
    return memory


def check_scope_id(scope: MemoryScope | None, scope_id: str) -> None:
    """Check that a scope id is the one that is bound here.

    Raises:
        Invalid: it is another one; the message names the right one.
    """
    if not scope_id:
        return
    if scope is None:
        raise Invalid("scope_id needs scope: session, project, org or global")
    session = current_origin().session_id
    if scope is MemoryScope.SESSION and scope_id != session:
        raise Invalid(
            f"this connection's session is {session or 'none'}; resume another one with "
            "session_resume, or leave scope_id out"
        )
    scopes.levels(scope, scope_id=scope_id)


# For clients that act for several agents
def _acting(author: str) -> AbstractContextManager[object]:
    return use_origin(actor=author) if author else nullcontext()


@dataclass(frozen=True, slots=True)
class Verb:
    name: str
    description: str
    answer: Callable[[KindTools, Any], Answer]
    writes: bool = False

    def tool(self, entries: KindTools) -> Tool:
        name = f"{entries.kind}_{self.name}"
        kind = entries.declared
        noun, plural = entries.words.nouns
        words = {"noun": noun, "plural": plural, "name": entries.words.name}
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


def _add(entries: KindTools, command: Any) -> Answer:
    write = entries.write(command)
    check_scope_id(write.scope, command.scope_id)
    with _acting(write.author):
        return written(write_memory(command=write))


def _update(entries: KindTools, command: Any) -> Answer:
    changes = {name: value for name, value in entries.changes(command).items() if name != "author"}
    memory = find_entry(kind=entries.kind, entry=entries.reference(command))
    update = MemoryUpdate(**changes, id=memory["id"], scope=memory["scope"])
    with _acting(command.author):
        return written(update_memory(command=update))


def _get(entries: KindTools, command: Any) -> Answer:
    memory = find_entry(kind=entries.kind, entry=entries.reference(command))
    return Answer(memory_text(memory), memory)


def _list(entries: KindTools, command: Any) -> Answer:
    check_scope_id(command.scope, command.scope_id)
    scope = command.scope
    if scope is None and not command.inherit:
        scope = scopes.own_scope()
    question = MemoryQuery(
        types=[entries.kind],
        type=command.category or "",
        tags=QueryTags(require=command.tags or []),
        scope=QueryScope(type=scope, id=command.scope_id, inherit=command.inherit) if scope else None,
        include_inactive=command.include_deleted,
        order=QueryOrder(entries.declared.order),
        **command.model_dump(include=set(Paging.model_fields)),
    )
    listing = query(command=question, line=entry_line)
    return listed(listing, entry_line, none=f"no {entries.words.nouns[0]} here matches")


def _history(entries: KindTools, command: Any) -> Answer:
    memory = _with_versions(entries.kind, entries.reference(command))
    last = decode_cursor(command.cursor, (int,))
    remaining = [version for version in memory["versions"] if last is None or version["version"] < last[0]]
    versions = remaining[: command.limit]
    entry_fields = {"id": memory["id"], "title": memory["title"], "scope": memory["scope"]}
    compacted = {"content": None, "diff": ""} if command.compact else {}
    listing = page(
        [{**entry_fields, **version, **compacted} for version in versions],
        total=len(memory["versions"]),
        more=len(remaining) > len(versions),
        cursor_of=lambda version: encode_cursor(version["version"]),
        line=version_text,
        max_tokens=command.max_tokens,
    )
    return Answer(as_lines(listing, version_text, none="no version"), listing.model_dump(mode="json"))


# A live entry wins over a deactivated one of the same name
def _with_versions(kind: MemoryKind, entry: NamedMemory) -> dict[str, Any]:
    if not entry.id:
        try:
            return find_entry(kind=kind, entry=entry, versions=True)
        except NotFound:
            pass
    return find_entry(kind=kind, entry=entry.model_copy(update={"include_deleted": True}), versions=True)


def _deactivate(entries: KindTools, command: Any) -> Answer:
    entry = entries.reference(command)
    memory = find_entry(kind=entries.kind, entry=entry.model_copy(update={"include_deleted": entry.id is not None}))
    fields = command.model_dump(include={"reason", "idempotency_key"})
    delete = MemoryDelete(id=memory["id"], scope=memory["scope"], **fields)
    with _acting(command.author):
        return written(delete_memory(command=delete))


VERBS = (
    Verb("add", "Add a {noun}; its {name} is unique in its scope.", _add, writes=True),
    Verb("update", "Update a {noun} by id or {name}, as a new version.", _update, writes=True),
    Verb("get", "Get a {noun} by id or {name}.", _get),
    Verb("list", "List the {plural} that apply here{order}.", _list),
    Verb("history", "Versions of a {noun}: author, time, reason, change.", _history),
    Verb("deactivate", "Delete a {noun}; memory_restore undoes it.", _deactivate, writes=True),
)

TOOLS = [verb.tool(entries) for entries in KIND_TOOLS for verb in VERBS]
