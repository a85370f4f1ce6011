"""Arguments of the tools of each kind whose titles are unique, built from its attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field, create_model
from pydantic.fields import FieldInfo

from memories.models import MemoryKind, MemoryScope
from memories.schemas import Content, IfExists, MemoryWrite, Tags, Title, TypeName
from memoryhub.core.kinds import KINDS, Kind, ToolNames
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


class NamedMemoryList(Paging):
    """List memories of a kind."""

    category: str = ""
    tags: list[str] = Field(default_factory=list)
    scope: MemoryScope | None = None
    scope_id: str = ""
    inherit: bool = True
    include_deleted: bool = False
    cursor: str | None = None


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
        unused = {"title", "name", "content", "description"} - {name, text}
        synonyms = {"title": name, "name": name, "content": text, "description": text}
        return {**_OLD_NAMES, f"{self.kind}_id": "id", **{other: synonyms[other] for other in sorted(unused)}}

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
        """Return the entry that a command refers to; a name next to an id is ignored."""
        fields = self._fields_of(command)
        reference = {name: value for name, value in fields.items() if name in NamedMemory.model_fields}
        return NamedMemory.model_validate({**reference, "name": None if fields.get("id") else fields.get("title")})

    def write(self, command: Command) -> MemoryWrite:
        """Convert the arguments of ``add``."""
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
        return {**changes, **({"attributes": attributes} if attributes else {})}

    def _fields_of(self, command: Command) -> dict[str, Any]:
        """Return the given arguments under the field names of a memory."""
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
        types = ", ".join(self.declared.types)
        values = types or "any word, e.g. security"
        return {"category": (TypeName | None, Field(None, description=values))}

    @property
    def _source(self) -> Fields:
        listed = Field(None, max_length=1_000, description="path or URL")
        hidden = Field(None, max_length=1_000, json_schema_extra=unlisted)
        return {"source": (Line | None, listed if self.words.lists_source else hidden)}

    def _model(self, verb: str, fields: Fields) -> type[Command]:
        model: type[Command] = create_model(f"{self.kind.title()}{verb}", __base__=Command, **fields)
        return model


def _as_argument(field: FieldInfo) -> Any:
    return (field.annotation, field)


def _as_change(field: FieldInfo) -> Any:
    """Make an attribute an optional argument; unchanged if omitted."""
    annotation: Any = field.annotation
    if field.metadata:
        annotation = Annotated[(annotation, *field.metadata)]
    return (annotation | None, None)


_PAGING: Fields = {name: _as_argument(field) for name, field in Paging.model_fields.items()}

KIND_TOOLS = tuple(KindTools(MemoryKind(kind.name), kind, kind.tools) for kind in KINDS.values() if kind.tools)
