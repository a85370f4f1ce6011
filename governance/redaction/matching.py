"""Find and replace text in JSON payloads, and make redacted payloads fit their schemas again."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from typing import Any

from pydantic import BaseModel, ValidationError

from governance.redaction.schemas import RedactionSelect
from memoryhub.config.project_settings import ProjectSettings
from memoryhub.core.errors import Invalid
from memoryhub.core.events.event_types import event_type
from memoryhub.core.kinds import DEFAULT_KIND, KINDS
from memoryhub.core.schemas import STORED
from memoryhub.core.secrets.sanitize import TEXT, Leaf, Shape, sanitize, sanitize_text
from memoryhub.core.slugs import DerivedNames
from sessions_app.events import PROJECT_CONFIGURED
from sessions_app.spooled import hook_names

Span = tuple[int, int]
# Returns the cleaned text and the spans that matched; of names, derived names too
Cleaner = Callable[[str, bool], tuple[str, list[Span]]]


# Bytes; a text of 100,000 characters takes 5 million
_PATTERN_MEMORY = 128 << 20
_OPENING = "[REDACTED:"
_TAG = re.compile(r"\[REDACTED:[^\]\s]{1,64}\]")


@dataclass(frozen=True, slots=True)
class Find:
    field: str
    before: str
    after: str
    spans: list[Span]

    @property
    def texts(self) -> list[str]:
        return [self.before[start:end] for start, end in self.spans]


class Matcher:
    def __init__(self, selection: RedactionSelect, names: DerivedNames | None = None) -> None:
        """Match what is selected and the names derived from it.

        Args:
            selection: what to match.
            names: default: those of the selection's text; the matches of a pattern are known only after a search.
        """
        self.names = DerivedNames(selection.texts()) if names is None else names
        self._by_rules = selection.rules
        self._clean = _cleaner(selection, self.names)

    def clean(
        self, value: Any, names: Collection[str] = (), shape: Shape = TEXT, *, by_pack_only: bool = False
    ) -> tuple[Any, list[Find]]:
        """Return a copy of a JSON value without the matched text, and the matches.

        Args:
            value: JSON data.
            names: keys that name fields of the hub's own schemas.
            shape: marks generated strings, which are never changed.
            by_pack_only: search by the rule pack alone, if by rules.
        """
        if self._by_rules and by_pack_only:
            cleaned, _ = sanitize(value, shape, by_pack_only=True)
            return cleaned, list(_differences(value, cleaned, ""))
        cleaner = _PayloadCleaner(self._clean, names)
        cleaned = cleaner.clean(value, "", shape)
        if not self._by_rules:
            return cleaned, cleaner.finds
        sanitized, _ = sanitize(cleaned, shape)  # what only its key gives away
        return sanitized, [*cleaner.finds, *_differences(cleaned, sanitized, "")]

    def clean_waiting(self, value: Any) -> tuple[Any, list[str]]:
        cleaned, finds = self.clean(value, hook_names())
        return cleaned, list(chain.from_iterable(find.texts for find in finds))

    def clean_text(self, text: str, *, is_name: bool = False) -> list[Span]:
        return self._clean(text, is_name)[1]


class _PayloadCleaner:
    def __init__(self, clean: Cleaner, names: Collection[str]) -> None:
        self.finds: list[Find] = []
        self._clean, self._names = clean, names

    def clean(self, value: Any, field: str, shape: Shape) -> Any:
        if isinstance(value, str):
            if shape.leaf is Leaf.GENERATED:
                return value
            return self._text(value, field, is_name=shape.leaf is Leaf.NAME)
        if isinstance(value, dict):
            return self._dict(value, field, shape)
        if isinstance(value, list):
            return [self.clean(item, inside(field, index), shape.at(index)) for index, item in enumerate(value)]
        return value

    # Numbered, because two keys that become equal must not lose one of the values
    def _dict(self, value: dict[str, Any], field: str, shape: Shape) -> dict[str, Any]:
        cleaned: dict[str, Any] = {}
        for key, item in value.items():
            name = key
            if key not in self._names and shape.key(key) is Leaf.TEXT:
                name = self._text(key, field, is_name=False)
            free = name
            number = 2
            while free in cleaned:
                free = f"{name} {number}"
                number += 1
            cleaned[free] = self.clean(item, inside(field, key), shape.at(key))
        return cleaned

    def _text(self, text: str, field: str, *, is_name: bool) -> str:
        after, spans = self._clean(text, is_name)
        if spans:
            self.finds.append(Find(field, text, after, spans))
        return after


def inside(field: str, key: str | int) -> str:
    if isinstance(key, int):
        return f"{field}[{key}]"
    return f"{field}.{key}" if field else key


def _differences(before: Any, after: Any, field: str) -> Iterator[Find]:
    if isinstance(before, str) and before != after:
        yield Find(field, before, str(after), [(0, len(before))])
    elif isinstance(before, dict) and isinstance(after, dict):
        for (key, mine), other in zip(before.items(), after.values(), strict=False):
            yield from _differences(mine, other, inside(field, key))
    elif isinstance(before, list) and isinstance(after, list):
        for index, (mine, other) in enumerate(zip(before, after, strict=False)):
            yield from _differences(mine, other, inside(field, index))


def _cleaner(selection: RedactionSelect, names: DerivedNames) -> Cleaner:
    tag = f"[REDACTED:{selection.label}]"
    if selection.rules:
        return partial(_clean_by_rules, names, tag)
    pattern = _compiled(selection, names)

    def clean(text: str, is_name: bool) -> tuple[str, list[Span]]:  # noqa: FBT001
        spans = [match.span() for match in pattern.finditer(text) if match.end() > match.start()]
        spans = _united([*spans, *names.spans(text, is_name=is_name)])
        if spans and _OPENING in text:
            spans = _around_tags(text, spans, tag)
        return _replace_spans(text, spans, tag), spans

    return clean


# Replacing inside an existing [REDACTED:…] tag would break its frame. A tag with another label that matches is
# replaced whole; our own tag is never matched.
def _around_tags(text: str, spans: list[Span], own_tag: str) -> list[Span]:
    stay: list[Span] = []
    for tag in _TAG.finditer(text):
        start, end = tag.start() + len(_OPENING), tag.end() - 1
        if tag.group() != own_tag and any(first < end and start < right for first, right in spans):
            spans = [*spans, tag.span()]
        else:
            stay.append(tag.span())
    parts: list[Span] = []
    for span in _united(spans):
        parts += _without(span, stay)
    return parts


def _united(spans: list[Span]) -> list[Span]:
    united: list[Span] = []
    for start, end in sorted(spans):
        if united and start < united[-1][1]:
            united[-1] = (united[-1][0], max(end, united[-1][1]))
        else:
            united.append((start, end))
    return united


def _without(span: Span, gaps: list[Span]) -> Iterator[Span]:
    start, end = span
    for first, right in gaps:
        if first < end and start < right:
            if start < first:
                yield start, first
            start = right
    if start < end:
        yield start, end


def _replace_spans(text: str, spans: list[Span], tag: str) -> str:
    parts: list[str] = []
    position = 0
    for start, end in spans:
        parts += [text[position:start], tag]
        position = end
    return "".join([*parts, text[position:]])


def _clean_by_rules(names: DerivedNames, tag: str, text: str, is_name: bool) -> tuple[str, list[Span]]:  # noqa: FBT001
    clean, findings = sanitize_text(text)
    if findings or not names:
        return clean, [(finding.start, finding.end) for finding in findings]
    spans = _united(names.spans(text, is_name=is_name))
    return _replace_spans(text, spans, tag), spans


# RE2 takes linear time for any pattern
def _compiled(selection: RedactionSelect, names: DerivedNames) -> Any:
    import re2

    options = re2.Options()
    options.case_sensitive = not selection.ignore_case
    options.log_errors = False
    options.max_mem = _PATTERN_MEMORY
    try:
        pattern = re2.compile(selection.pattern or "|".join(map(re2.escape, selection.texts())), options)
    except re2.error as error:
        message = error.args[0].decode() if isinstance(error.args[0], bytes) else error
        raise Invalid(f"pattern is not a valid RE2 expression: {message}") from error
    if pattern.search(""):
        raise Invalid("pattern matches the empty string; make it more specific")
    has_text = pattern.search(selection.label) or names.spans(selection.label, is_name=True)
    if "label" in selection.model_fields_set and has_text:
        raise Invalid("label contains the text to redact; choose another label")
    return pattern


# Truncating for one rule can break another
_ROUNDS = 3

Path = Sequence[str | int]


# All field names and enum values in an event type's payload: never a person's text
@cache
def field_names(type_name: str) -> frozenset[str]:
    kind = event_type(type_name)
    schemas: list[type[BaseModel]] = [ProjectSettings, *(memory_kind.attributes for memory_kind in KINDS.values())]
    if kind:
        schemas.append(kind.schema)
    names: set[str] = set()
    for schema in schemas:
        shape = schema.model_json_schema()
        for part in (shape, *shape.get("$defs", {}).values()):
            names.update(part.get("properties", ()))
            names.update(word for word in part.get("enum", ()) if isinstance(word, str))
    return frozenset(names)


def fit(type_name: str, before: Any, after: Any, finds: list[Find]) -> tuple[list[Find], list[str]]:
    """Change ``after`` until it fits its schema: truncate long texts, restore fields of a fixed form.

    Returns the finds that remain and the restored fields. The log refuses a payload that still does not fit.
    """
    stay: list[str] = []
    for _ in range(_ROUNDS):
        faults = _faults(type_name, after)
        for fault in faults:
            finds = _mended(before, after, fault, finds, stay)
        if not faults:
            break
    return finds, stay


# Validation errors of a payload, and of fields that have a schema of their own
def _faults(type_name: str, payload: Any) -> list[Mapping[str, Any]]:
    kind = event_type(type_name)
    faults = _faults_in(kind.schema, payload, ()) if kind else []
    if type_name == PROJECT_CONFIGURED.name:
        # None resets a setting
        settings = {name: value for name, value in payload["settings"].items() if value is not None}
        faults += _faults_in(ProjectSettings, settings, ("settings",))
    memory_kind = KINDS.get(payload.get("kind", DEFAULT_KIND))
    # Else ``attributes`` is a client's own field
    has_attributes = kind is None or "attributes" in kind.schema.model_fields
    if has_attributes and "attributes" in payload and memory_kind:
        faults += _faults_in(memory_kind.attributes, payload["attributes"], ("attributes",))
    return faults


def _faults_in(schema: type[BaseModel], value: Any, place: tuple[str, ...]) -> list[Mapping[str, Any]]:
    try:
        schema.model_validate(value, context=STORED)
    except ValidationError as error:
        return [{**fault, "loc": (*place, *fault["loc"])} for fault in error.errors(include_url=False)]
    return []


def _mended(before: Any, after: Any, fault: Mapping[str, Any], finds: list[Find], stay: list[str]) -> list[Find]:
    path = _path(after, fault["loc"])
    old, new = _at(before, path), _at(after, path)
    if not isinstance(old, str) or not isinstance(new, str) or old == new:
        return _as_before(before, after, fault["loc"], finds, stay)
    field = _name(path)
    if fault["type"] == "string_too_long":
        cut = new[: fault["ctx"]["max_length"]]
        _at(after, path[:-1])[path[-1]] = cut
        return [Find(field, old, cut, find.spans) if _is_of(find, field, old) else find for find in finds]
    _at(after, path[:-1])[path[-1]] = old
    stay.append(field)
    return [find for find in finds if not _is_of(find, field, old)]


# Restores a whole field after one of its keys became invalid
def _as_before(before: Any, after: Any, loc: Path, finds: list[Find], stay: list[str]) -> list[Find]:
    name = str(loc[0]) if loc else ""
    if after.get(name) == before.get(name):
        return finds
    after[name] = deepcopy(before[name])
    stay.append(name)
    return [find for find in finds if find.field.partition(".")[0].partition("[")[0] != name]


def _is_of(find: Find, field: str, text: str) -> bool:
    return find.field == field and find.before == text


# The location of an error without the union member names that pydantic inserts
def _path(value: Any, loc: Path) -> list[str | int]:
    path: list[str | int] = []
    for key in loc:
        if (isinstance(value, dict) and key in value) or (isinstance(value, list) and isinstance(key, int)):
            value = value[key]  # type: ignore[index]
            path.append(key)
    return path


def _at(value: Any, path: Path) -> Any:
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _name(path: Path) -> str:
    name = ""
    for key in path:
        name = inside(name, key)
    return name
