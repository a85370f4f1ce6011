"""Finding what is to be taken out of a text, and taking it out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from governance.redaction.schemas import RedactionSelect
from memoryhub.core.errors import Invalid
from memoryhub.core.sanitize import sanitize, sanitize_text

Span = tuple[int, int]
Cleaner = Callable[[str], tuple[str, list[Span]]]
"""Returns what is left of a text, and where in it the finds were."""


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

    def clean(self, value: Any) -> tuple[Any, list[Find]]:
        """Return a copy without what is to go, and what that was, string by string."""
        finds: list[Find] = []
        cleaned = self._walk(value, "", finds)
        if not self._by_rules:
            return cleaned, finds
        named, _ = sanitize(cleaned)  # what only its key gives away
        finds += _differences(cleaned, named, "")
        return named, finds

    def clean_text(self, text: str) -> list[Span]:
        """Return where in a text something would have to go."""
        return self._clean(text)[1]

    def _walk(self, value: Any, field: str, finds: list[Find]) -> Any:
        if isinstance(value, str):
            after, spans = self._clean(value)
            if spans:
                finds.append(Find(field, value, after, spans))
            return after
        if isinstance(value, dict):
            return {
                self._walk(key, field, finds): self._walk(each, _in(field, key), finds) for key, each in value.items()
            }
        if isinstance(value, list):
            return [self._walk(each, f"{field}[{index}]", finds) for index, each in enumerate(value)]
        return value


def _keyed(pairs: Iterator[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs as an object; a key that has become another's is numbered, so that neither value is lost."""
    made: dict[str, Any] = {}
    for key, value in pairs:
        number, free = 2, key
        while free in made:
            free, number = f"{key} {number}", number + 1
        made[free] = value
    return made


def _in(field: str, key: str) -> str:
    return f"{field}.{key}" if field else key


def _differences(before: Any, after: Any, field: str) -> Iterator[Find]:
    if isinstance(before, str) and before != after:
        yield Find(field, before, str(after), [(0, len(before))])
    elif isinstance(before, dict) and isinstance(after, dict):
        for (key, mine), other in zip(before.items(), after.values(), strict=False):
            yield from _differences(mine, other, _in(field, key))
    elif isinstance(before, list) and isinstance(after, list):
        for index, (mine, other) in enumerate(zip(before, after, strict=False)):
            yield from _differences(mine, other, f"{field}[{index}]")


def _cleaner(selection: RedactionSelect) -> Cleaner:
    if selection.rules:
        return _by_rules
    pattern = _compiled(selection)
    tag = f"[REDACTED:{selection.label}]"

    def clean(text: str) -> tuple[str, list[Span]]:
        spans = _outside_tags(text, [match.span() for match in pattern.finditer(text) if match.end() > match.start()])
        return (_replaced(text, spans, tag) if spans else text), spans

    return clean


def _outside_tags(text: str, spans: list[Span]) -> list[Span]:
    """Leave out what stands in a tag, which holds no text of anybody's."""
    if not spans or "[REDACTED:" not in text:
        return spans
    tags = [tag.span() for tag in _TAG.finditer(text)]
    return [(start, end) for start, end in spans if not any(left < end and start < right for left, right in tags)]


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
    options.literal = selection.text is not None
    try:
        pattern = re2.compile(selection.text or selection.pattern or "", options)
    except re2.error as error:
        said = error.args[0].decode() if isinstance(error.args[0], bytes) else error
        raise Invalid(f"pattern is not an RE2 regular expression: {said}") from error
    if pattern.search(""):
        raise Invalid("pattern finds the empty text, so it would take out everything; make it say more")
    return pattern
