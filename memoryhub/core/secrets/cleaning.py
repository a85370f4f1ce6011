from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

from memoryhub.core.secrets.catalogue import detector
from memoryhub.core.secrets.custom_rules import CustomRules
from memoryhub.core.secrets.found import Finding, Hit, apart
from memoryhub.core.secrets.personal import PERSONAL_PREFIX
from memoryhub.core.secrets.private import private_spans
from memoryhub.core.secrets.repeats import NOTHING_KNOWN, RULE, Known, is_repeatable, repeats
from memoryhub.core.secrets.tags import tag, tag_spans

Edit = tuple[int, int, str]


# A text built from pieces of an original, with the position of each piece there.
class TracedText:
    def __init__(self, pieces: list[tuple[int, str]]) -> None:
        self.text = "".join(text for _, text in pieces)
        self._pieces = pieces
        self._starts = [0, *accumulate(len(text) for _, text in pieces)][: len(pieces)]

    def origin(self, offset: int) -> int:
        """Return the position in the original of the character at ``offset``."""
        index = bisect_right(self._starts, offset) - 1
        if index < 0:
            return 0
        return self._pieces[index][0] + offset - self._starts[index]

    def edited(self, edits: Iterable[Edit]) -> TracedText:
        """Apply edits ``(start, end, replacement)``, sorted and without overlap."""
        pieces: list[tuple[int, str]] = []
        cursor = 0
        for start, end, replacement in edits:
            pieces += self._cut(cursor, start)
            if replacement:
                pieces.append((self.origin(start), replacement))
            cursor = end
        return TracedText([*pieces, *self._cut(cursor, len(self.text))])

    def _cut(self, start: int, end: int) -> list[tuple[int, str]]:
        pieces: list[tuple[int, str]] = []
        index = max(0, bisect_right(self._starts, start) - 1)
        while start < end:
            following = self._starts[index + 1] if index + 1 < len(self._starts) else len(self.text)
            stop = min(end, following)
            if stop > start:
                pieces.append((self.origin(start), self.text[start:stop]))
            start, index = stop, index + 1
        return pieces


_MAX_ROUNDS = 12
_SHORTEST = 7  # a password in a URL: ://:p@h


# What differs by store: the key of its tags, its custom rules, and the secrets that it has seen.
class Context(NamedTuple):
    key: bytes
    custom: CustomRules
    known: Known = NOTHING_KNOWN


class _Secret(NamedTuple):
    type: str
    rule: str
    start: int
    end: int


def clean_text(text: str, context: Context) -> tuple[str, list[Finding]]:
    traced = TracedText([(0, text)])
    findings: list[Finding] = []
    values: dict[str, str] = {}
    for _ in range(_MAX_ROUNDS):
        traced, found = _round(traced, context, values)
        findings += found
        if not found:
            return traced.text, sorted(findings, key=_start)
    # Removing one secret can join the parts of another, so the text is read again after each round. A text that still
    # changes after a dozen rounds was made to do so, and is masked completely.
    return tag("text", text, context.key), [Finding("text", "too-many-rounds", 0, len(text))]


def _start(found: Finding | _Secret) -> int:
    return found.start


def _round(traced: TracedText, context: Context, values: dict[str, str]) -> tuple[TracedText, list[Finding]]:
    spans = private_spans(traced.text)
    findings = [_finding(traced, "private", "private-block", *span) for span in spans]
    traced = traced.edited((start, end, "") for start, end in spans) if spans else traced
    secrets = list(_secrets(traced.text, context.custom)) if len(traced.text) >= _SHORTEST else []
    secrets = _with_repeats(traced.text, secrets, context, values)
    findings += [_finding(traced, *secret) for secret in secrets]
    return _tagged(traced, secrets, context.key) if secrets else traced, findings


def _with_repeats(text: str, secrets: list[_Secret], context: Context, values: dict[str, str]) -> list[_Secret]:
    for kind, rule, start, end in secrets:
        if is_repeatable(text[start:end]) and not rule.startswith(PERSONAL_PREFIX):
            values[text[start:end]] = kind
    if not values and context.known is NOTHING_KNOWN:
        return secrets
    taken = [*tag_spans(text), *((secret.start, secret.end) for secret in secrets)]
    found = sorted(repeats(text, context.known, values), key=_place)
    return sorted([*secrets, *_free(text, found, sorted(taken), context.custom)], key=_start)


def _place(place: tuple[int, int, str]) -> tuple[int, int]:
    return place[0], -place[1]


def _free(
    text: str, places: list[tuple[int, int, str]], taken: list[tuple[int, int]], custom: CustomRules
) -> Iterator[_Secret]:
    index = cursor = 0
    for start, end, kind in places:
        while index < len(taken) and taken[index][1] <= start:
            index += 1
        beside = index == len(taken) or end <= taken[index][0]
        if beside and start >= cursor and not custom.allows(text[start:end]):
            yield _Secret(kind, RULE, start, end)
            cursor = end


def _tagged(traced: TracedText, secrets: list[_Secret], key: bytes) -> TracedText:
    text = traced.text
    return traced.edited((start, end, tag(kind, text[start:end], key)) for kind, _, start, end in secrets)


def _finding(traced: TracedText, kind: str, rule: str, start: int, end: int) -> Finding:
    return Finding(kind, rule, traced.origin(start), traced.origin(end - 1) + 1)


def _secrets(text: str, custom: CustomRules) -> Iterator[_Secret]:
    start = 0
    # Text before and after a tag is never read together.
    for first, last in tag_spans(text):
        yield from _secrets_of(text[start:first], start, custom)
        start = last
    yield from _secrets_of(text[start:] if start else text, start, custom)


def _secrets_of(stretch: str, offset: int, custom: CustomRules) -> Iterator[_Secret]:
    data = stretch.encode()
    hits = detector().find(data)
    if custom.personal:
        hits = _with_custom(hits, custom.personal.find(data))
    if custom.rules:
        hits = _with_custom(custom.find(data), hits)
    for hit, start, end in _in_characters(hits, data, len(stretch)):
        if not custom.allows(stretch[start:end]):
            yield _Secret(hit.rule.type, hit.rule.id, start + offset, end + offset)


def _with_custom(custom: list[Hit], hits: list[Hit]) -> list[Hit]:
    return sorted([*custom, *apart(hits, custom)], key=lambda hit: hit.start)


def _in_characters(hits: list[Hit], data: bytes, size: int) -> Iterator[tuple[Hit, int, int]]:
    if size == len(data):
        yield from ((hit, hit.start, hit.end) for hit in hits)
        return
    done = characters = 0
    for hit in hits:
        # A hit that cuts a character in two takes all of it.
        start, end = max(done, _back(data, hit.start)), _forth(data, hit.end)
        characters += len(data[done:start].decode())
        first = characters
        characters += len(data[start:end].decode())
        done = end
        yield hit, first, characters


def _back(data: bytes, place: int) -> int:
    while data[place] & 0xC0 == 0x80:
        place -= 1
    return place


def _forth(data: bytes, place: int) -> int:
    while place < len(data) and data[place] & 0xC0 == 0x80:
        place += 1
    return place
