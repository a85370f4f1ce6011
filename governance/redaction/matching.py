"""Finding what is to be taken out of a text, and taking it out."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from governance.redaction.schemas import RedactionSelect
from memoryhub.core.errors import Invalid
from memoryhub.core.secrets.sanitize import sanitize, sanitize_text
from memoryhub.core.secrets.shapes import TEXT, Leaf, Shape
from sessions_app.spooled import hook_names

Span = tuple[int, int]
Cleaner = Callable[[str], tuple[str, list[Span]]]
"""Returns what is left of a text, and where in it the finds were."""


_PATTERN_MEMORY = 128 << 20
# Bytes; a text of 100,000 characters takes 5 million.
_OPENING = "[REDACTED:"
_TAG = re.compile(r"\[REDACTED:[^\]\s]{1,64}\]")


@dataclass(frozen=True, slots=True)
class Find:
    """A string of a payload with something to be taken out."""

    field: str
    before: str
    after: str
    spans: list[Span]

    @property
    def texts(self) -> list[str]:
        """What is taken out."""
        return [self.before[start:end] for start, end in self.spans]


class Matcher:
    """Takes out what a selection says, of any JSON value."""

    def __init__(self, selection: RedactionSelect) -> None:
        self._by_rules = selection.rules
        self._clean = _cleaner(selection)

    def clean(self, value: Any, names: Collection[str] = (), shape: Shape = TEXT) -> tuple[Any, list[Find]]:
        """Return a copy without what is to go, and what that was, string by string.

        Args:
            value: JSON data.
            names: keys that are names of the hub's own fields, and nobody's text.
            shape: which of its strings are generated; these stay.
        """
        walk = _Walk(self._clean, names)
        cleaned = walk.of(value, "", shape)
        if not self._by_rules:
            return cleaned, walk.finds
        named, _ = sanitize(cleaned, shape)  # what only its key gives away
        return named, [*walk.finds, *_differences(cleaned, named, "")]

    def clean_waiting(self, value: Any) -> tuple[Any, list[str]]:
        """Return a copy of a client's event without what is to go, and what that was."""
        left, finds = self.clean(value, hook_names())
        return left, [text for find in finds for text in find.texts]

    def clean_text(self, text: str) -> list[Span]:
        """Return where in a text something would have to go."""
        return self._clean(text)[1]


class _Walk:
    """One way through a JSON value, and what was found on it."""

    def __init__(self, clean: Cleaner, names: Collection[str]) -> None:
        self.finds: list[Find] = []
        self._clean, self._names = clean, names

    def of(self, value: Any, field: str, shape: Shape) -> Any:
        """Return a copy of what stands in a field, without what is to go."""
        if isinstance(value, str):
            return value if shape.leaf is Leaf.GENERATED else self._text(value, field)
        if isinstance(value, dict):
            return _keyed(
                (self._key(key, field, shape), self.of(each, inside(field, key), shape.at(key)))
                for key, each in value.items()
            )
        if isinstance(value, list):
            return [self.of(each, inside(field, index), shape.at(index)) for index, each in enumerate(value)]
        return value

    def _key(self, key: str, field: str, shape: Shape) -> str:
        return key if key in self._names or shape.key(key) is not Leaf.TEXT else self._text(key, field)

    def _text(self, text: str, field: str) -> str:
        after, spans = self._clean(text)
        if spans:
            self.finds.append(Find(field, text, after, spans))
        return after


def _keyed(pairs: Iterator[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs as an object; a key that has become another's is numbered, so that neither value is lost."""
    made: dict[str, Any] = {}
    for key, value in pairs:
        number, free = 2, key
        while free in made:
            free, number = f"{key} {number}", number + 1
        made[free] = value
    return made


def inside(field: str, key: str | int) -> str:
    """Return the name of what stands in a field under a key: ``attributes.examples[0]``."""
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


def _cleaner(selection: RedactionSelect) -> Cleaner:
    if selection.rules:
        return _by_rules
    pattern = _compiled(selection)
    tag = f"[REDACTED:{selection.label}]"

    def clean(text: str) -> tuple[str, list[Span]]:
        spans = [match.span() for match in pattern.finditer(text) if match.end() > match.start()]
        if spans and _OPENING in text:
            spans = _around_tags(text, spans, tag)
        return (_replaced(text, spans, tag) if spans else text), spans

    return clean


def _around_tags(text: str, spans: list[Span], own: str) -> list[Span]:
    """Return what of the spans is anybody's text.

    A tag's frame is not, and nothing of our own tag. What another tag is called may be: then all of that tag goes.
    """
    stay: list[Span] = []
    for tag in _TAG.finditer(text):
        start, end = tag.start() + len(_OPENING), tag.end() - 1
        if tag.group() != own and any(left < end and start < right for left, right in spans):
            spans = [*spans, tag.span()]
        else:
            stay.append(tag.span())
    return [part for span in _united(spans) for part in _without(span, stay)]


def _united(spans: list[Span]) -> list[Span]:
    """Return the spans in order, those that overlap as one."""
    united: list[Span] = []
    for start, end in sorted(spans):
        if united and start < united[-1][1]:
            united[-1] = (united[-1][0], max(end, united[-1][1]))
        else:
            united.append((start, end))
    return united


def _without(span: Span, others: list[Span]) -> Iterator[Span]:
    """Yield the parts of a span that none of the others, which are in order, covers."""
    start, end = span
    for left, right in others:
        if left < end and start < right:
            if start < left:
                yield start, left
            start = right
    if start < end:
        yield start, end


def _replaced(text: str, spans: list[Span], tag: str) -> str:
    parts, done = [], 0
    for start, end in spans:
        parts += [text[done:start], tag]
        done = end
    return "".join([*parts, text[done:]])


def _by_rules(text: str) -> tuple[str, list[Span]]:
    clean, findings = sanitize_text(text)
    return clean, [(finding.start, finding.end) for finding in findings]


def _compiled(selection: RedactionSelect) -> Any:
    """Return the pattern in the engine that takes linear time, whatever the pattern.

    Raises:
        Invalid: it is no pattern, or it finds the empty text.
    """
    import re2

    options = re2.Options()
    options.case_sensitive = not selection.ignore_case
    options.log_errors = False
    options.max_mem = _PATTERN_MEMORY
    try:
        pattern = re2.compile(selection.pattern or "|".join(map(re2.escape, selection.texts())), options)
    except re2.error as error:
        said = error.args[0].decode() if isinstance(error.args[0], bytes) else error
        raise Invalid(f"pattern is not an RE2 regular expression: {said}") from error
    if pattern.search(""):
        raise Invalid("pattern finds the empty text, so it would take out everything; make it say more")
    if "label" in selection.model_fields_set and pattern.search(selection.label):
        raise Invalid("label holds what is to be taken out; call it something else")
    return pattern
