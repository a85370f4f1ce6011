"""Clean a text: remove private blocks, and replace secrets, and their repetitions, by tags."""

from __future__ import annotations

import hashlib
import hmac
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import NamedTuple

from memoryhub.core.secrets.catalogue import PERSONAL_PREFIX, CustomRules, detector
from memoryhub.core.secrets.rule import SecretFinding, SecretHit, apart
from memoryhub.core.secrets.values import (
    has_digit,
    has_letter,
    is_identifier,
    is_mixed,
    is_plain,
    is_sample,
    looks_random,
    matches,
    reads_as_words,
)

_NAME = "private"


def private_spans(text: str) -> list[tuple[int, int]]:
    """Return the spans to remove, in order and without overlap. An unclosed block extends to the end.

    The remaining text contains no tag, not even one whose halves only join after the removal.
    """
    if "<" not in text or _NAME not in text.lower():
        return []
    reader = _BlockReader()
    for start, chunk in _chunks(text):
        reader.read(start, chunk)
    return reader.finish(len(text))


def _chunks(text: str) -> Iterator[tuple[int, str]]:
    start = 0
    for cut in _cuts(text):
        if cut > start:
            yield start, text[start:cut]
        start = cut
    if start < len(text):
        yield start, text[start:]


def _cuts(text: str) -> Iterator[int]:
    opening = text.find("<")
    closing = text.find(">")
    while opening >= 0 or closing >= 0:
        if closing < 0 or 0 <= opening < closing:
            yield opening
            opening = text.find("<", opening + 1)
        else:
            yield closing + 1
            closing = text.find(">", closing + 1)


@dataclass(frozen=True, slots=True)
class _Tag:
    close: bool
    empty: bool


def _tag(text: str) -> _Tag | None:
    inner = text[1:-1].lstrip()
    close = inner.startswith("/")
    if close:
        inner = inner[1:].lstrip()
    ending = inner[len(_NAME) :]
    if inner[: len(_NAME)].lower() != _NAME or not (ending in ("", "/") or ending[0].isspace()):
        return None
    return _Tag(close, ending == "/")


# One nesting level: where its block was opened, and each ``<`` kept since with the text after it.
@dataclass(slots=True)
class _Frame:
    opened_at: int
    open_brackets: list[tuple[int, list[str]]] = field(default_factory=list)

    def keep(self, start: int, chunk: str) -> None:
        if chunk.startswith("<"):
            self.open_brackets.append((start, [chunk]))
        elif self.open_brackets:
            self.open_brackets[-1][1].append(chunk)

    def close_bracket(self) -> tuple[int, _Tag] | None:
        if not self.open_brackets:
            return None
        start, chunks = self.open_brackets.pop()
        tag = _tag("".join(chunks))
        if tag is None:
            self.open_brackets.clear()
            return None
        return start, tag


@dataclass(slots=True)
class _BlockReader:
    frames: list[_Frame] = field(default_factory=lambda: [_Frame(0)])
    spans: list[tuple[int, int]] = field(default_factory=list)

    def read(self, start: int, chunk: str) -> None:
        self.frames[-1].keep(start, chunk)
        if chunk.endswith(">") and (tag := self.frames[-1].close_bracket()):
            self._apply(*tag, start + len(chunk))

    def _apply(self, start: int, tag: _Tag, end: int) -> None:
        if not tag.close and not tag.empty:
            self.frames.append(_Frame(start))
        elif tag.close and len(self.frames) > 1:
            start = self.frames.pop().opened_at
        if len(self.frames) == 1:
            self._take_out(start, end)

    def _take_out(self, start: int, end: int) -> None:
        while self.spans and self.spans[-1][0] >= start:
            self.spans.pop()
        self.spans.append((start, end))

    def finish(self, end: int) -> list[tuple[int, int]]:
        if len(self.frames) > 1:
            self._take_out(self.frames[1].opened_at, end)
        return self.spans


RULE = "repeated-secret"
_SHORTEST_VALUE = 8
_LONGEST_VALUE = 200
# From this length on, a value is masked also inside a longer word.
_INSIDE_WORDS = 16
# With more values than this, whole words are compared instead of searching the text for each value.
_MOST_SEARCHED = 64
_DIGEST_BYTES = 16
# Signs of passwords, which names do not have.
_TYPED = rb"[!$%^&*]"
# Letters and digits in a row, from which on a value that is no words is generated.
_UNBROKEN = 14
_APART = b"\"'`<>,;(){}[]\\|\t\r\n" + bytes(range(128, 256))
_PARTS = b"=:/@&?#"
# Between a name and its value, which may have slashes
_SIGNS = b"=&?"
_ENDS = b".,;:!?*_"
_ASCII_DIGITS = b"0123456789"


# Tables that turn signs into spaces
_SPLITS = [bytes.maketrans(_APART + signs, b" " * len(_APART + signs)) for signs in (b"", _SIGNS, _PARTS)]

Place = tuple[int, int, str]


# The values to find again, each with its type: as they are, or by their keyed digest. Equal only to itself.
@dataclass(frozen=True, slots=True, eq=False)
class Known:
    values: Mapping[str, str] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    key: bytes = b""

    def type_of(self, value: str) -> str | None:
        kind = self.values.get(value)
        if kind or not self.digests:
            return kind
        return self.digests.get(digest(value, self.key))


NOTHING_KNOWN = Known()


def digest(value: str, key: bytes) -> str:
    """Return the keyed digest under which a store remembers a secret."""
    return hashlib.blake2b(value.encode(), key=key, digest_size=_DIGEST_BYTES, person=b"secret").hexdigest()


def is_repeatable(value: str) -> bool:
    """Return whether a value is so unlikely by chance that it is the same secret wherever it occurs."""
    if not _SHORTEST_VALUE <= len(value) <= _LONGEST_VALUE or not has_digit(value) or not has_letter(value):
        return False
    if any(map(str.isspace, value)):
        return False
    generated = is_mixed(value) or not value.isalnum() or (looks_random(value) and not reads_as_words(value))
    return generated and not is_plain(value) and not is_sample(value)


def is_memorable(value: str) -> bool:
    """Return whether a store remembers the value: no digest, UUID or name such as ``gpt-4o-mini`` or ``Python3.11``."""
    return is_repeatable(value) and not is_identifier(value) and not _may_be_name(value)


def _may_be_name(value: str) -> bool:
    # Names of models, versions and hosts are a few words and numbers; generated values change after a letter or two.
    if matches(_TYPED, value) and is_mixed(value):
        return False
    size = len(value)
    pieces = sum(_begins_piece(before, c) for before, c in pairwise(" " + value))
    if pieces * 5 >= size * 3 or (pieces > 5 and pieces * 2 >= size):
        return False
    shortest = _UNBROKEN if pieces < 5 else _SHORTEST_VALUE
    parts = "".join(c if c.isalnum() else " " for c in value).split()
    return not any(len(part) >= shortest and looks_random(part) and not reads_as_words(part) for part in parts)


def _begins_piece(before: str, c: str) -> bool:
    if c.isdigit():
        return not before.isdigit()
    return c.isalpha() and (not before.isalpha() or (c.isupper() and before.islower()))


def repeats(text: str, secrets: Known, values: Mapping[str, str]) -> Iterator[Place]:
    """Yield where known values occur in the text, with their types; places may overlap.

    Args:
        text: the text to search.
        secrets: values of the event and of the store.
        values: the values found in the text itself.
    """
    searched = {**secrets.values, **values}
    if len(searched) > _MOST_SEARCHED or secrets.digests:
        all_secrets = Known(searched, secrets.digests, secrets.key)
        if len(searched) > _MOST_SEARCHED:
            searched = {}
        for word in _likely_words(text):
            kind = all_secrets.type_of(word)
            if kind is not None:
                searched[word] = kind
    for value, kind in searched.items():
        for start in _occurrences(text, value):
            yield start, start + len(value), kind


# On bytes and without a call per character: this reads every text of a store that has seen a secret.
def _likely_words(text: str) -> list[str]:
    data = text.encode()
    words: set[bytes] = set()
    for split in _SPLITS:
        words.update(data.translate(split).split())
    likely = {word for word in words if _SHORTEST_VALUE <= len(word) <= _LONGEST_VALUE and _is_mixture(word)}
    likely |= {word.strip(_ENDS) for word in likely}
    return [word.decode() for word in likely]


def _is_mixture(word: bytes) -> bool:
    letters = word.translate(None, _ASCII_DIGITS)
    return len(letters) < len(word) and letters.lower() != letters.upper()


def _occurrences(text: str, value: str) -> Iterator[int]:
    start = text.find(value)
    while start >= 0:
        end = start + len(value)
        if len(value) >= _INSIDE_WORDS or not (text[start - 1 : start].isalnum() or text[end : end + 1].isalnum()):
            yield start
        start = text.find(value, end)


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
            stop = end
            if index + 1 < len(self._starts):
                stop = min(end, self._starts[index + 1])
            if stop > start:
                pieces.append((self.origin(start), self.text[start:stop]))
            start = stop
            index += 1
        return pieces


_MAX_ROUNDS = 12
_SHORTEST = 7  # a password in a URL: ://:p@h


# What differs by store: the key of its tags, its custom rules, and the secrets that it has seen.
class Context(NamedTuple):
    key: bytes
    custom: CustomRules
    seen: Known = NOTHING_KNOWN


class _Secret(NamedTuple):
    type: str
    rule: str
    start: int
    end: int


def clean_text(text: str, context: Context) -> tuple[str, list[SecretFinding]]:
    traced = TracedText([(0, text)])
    findings: list[SecretFinding] = []
    values: dict[str, str] = {}
    for _ in range(_MAX_ROUNDS):
        traced, round_findings = _round(traced, context, values)
        findings += round_findings
        if not round_findings:
            return traced.text, sorted(findings, key=attrgetter("start"))
    # Removing one secret can join the parts of another, so the text is read again after each round. A text that still
    # changes after a dozen rounds was made to do so, and is masked completely.
    return tag("text", text, context.key), [SecretFinding("text", "too-many-rounds", 0, len(text))]


def _round(traced: TracedText, context: Context, values: dict[str, str]) -> tuple[TracedText, list[SecretFinding]]:
    spans = private_spans(traced.text)
    findings = [_finding(traced, "private", "private-block", *span) for span in spans]
    if spans:
        traced = traced.edited((start, end, "") for start, end in spans)
    text = traced.text
    secrets = list(_detect(text, context.custom)) if len(text) >= _SHORTEST else []
    secrets = _with_repeats(text, secrets, context, values)
    if secrets:
        findings += [_finding(traced, *secret) for secret in secrets]
        traced = traced.edited((start, end, tag(kind, text[start:end], context.key)) for kind, _, start, end in secrets)
    return traced, findings


def _with_repeats(text: str, secrets: list[_Secret], context: Context, values: dict[str, str]) -> list[_Secret]:
    for kind, rule, start, end in secrets:
        if is_repeatable(text[start:end]) and not rule.startswith(PERSONAL_PREFIX):
            values[text[start:end]] = kind
    if not values and context.seen is NOTHING_KNOWN:
        return secrets
    masked = [*tag_spans(text), *((secret.start, secret.end) for secret in secrets)]
    repeated = sorted(repeats(text, context.seen, values), key=lambda place: (place[0], -place[1]))
    return sorted([*secrets, *_free(text, repeated, sorted(masked), context.custom)], key=attrgetter("start"))


def _free(
    text: str, places: list[tuple[int, int, str]], masked: list[tuple[int, int]], custom: CustomRules
) -> Iterator[_Secret]:
    index = cursor = 0
    for start, end, kind in places:
        while index < len(masked) and masked[index][1] <= start:
            index += 1
        beside = index == len(masked) or end <= masked[index][0]
        if beside and start >= cursor and not custom.allows(text[start:end]):
            yield _Secret(kind, RULE, start, end)
            cursor = end


def _finding(traced: TracedText, kind: str, rule: str, start: int, end: int) -> SecretFinding:
    return SecretFinding(kind, rule, traced.origin(start), traced.origin(end - 1) + 1)


def _detect(text: str, custom: CustomRules) -> Iterator[_Secret]:
    start = 0
    # Text before and after a tag is never read together.
    for first, last in tag_spans(text):
        yield from _detect_in(text[start:first], start, custom)
        start = last
    yield from _detect_in(text[start:], start, custom)


def _detect_in(stretch: str, offset: int, custom: CustomRules) -> Iterator[_Secret]:
    data = stretch.encode()
    hits = detector().find(data)
    if custom.personal:
        hits = _with_custom(hits, custom.personal.find(data))
    if custom.rules:
        hits = _with_custom(custom.find(data), hits)
    for hit, start, end in _in_characters(hits, data, len(stretch)):
        if not custom.allows(stretch[start:end]):
            yield _Secret(hit.rule.type, hit.rule.id, start + offset, end + offset)


def _with_custom(custom: list[SecretHit], hits: list[SecretHit]) -> list[SecretHit]:
    return sorted([*custom, *apart(hits, custom)], key=attrgetter("start"))


def _in_characters(hits: list[SecretHit], data: bytes, size: int) -> Iterator[tuple[SecretHit, int, int]]:
    if size == len(data):
        yield from ((hit, hit.start, hit.end) for hit in hits)
        return
    last = characters = 0
    for hit in hits:
        # A hit that cuts a character in two takes all of it.
        start = hit.start
        while data[start] & 0xC0 == 0x80:
            start -= 1
        start = max(last, start)
        end = hit.end
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end += 1
        characters += len(data[last:start].decode())
        first = characters
        characters += len(data[start:end].decode())
        last = end
        yield hit, first, characters


_START = "[REDACTED:"
# A type of up to 40 characters, a colon, four digits and the bracket.
_LONGEST_TAG = 46
_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-:")
# Sixteen bits tell the tokens of one text apart without revealing a weak secret (decision 21).
_TAG_DIGITS = 4


def tag(kind: str, secret: str, key: bytes) -> str:
    """Return the tag of a secret: equal for equal secrets and keys; without a key, equal for all secrets."""
    if not key:
        return f"{_START}{kind}]"
    digest = hmac.new(key, secret.encode(errors="replace"), hashlib.sha256).hexdigest()
    return f"{_START}{kind}:{digest[:_TAG_DIGITS]}]"


def tag_spans(text: str) -> Iterator[tuple[int, int]]:
    start = text.find(_START)
    while start >= 0:
        first = start + len(_START)
        end = text.find("]", first, first + _LONGEST_TAG)
        if end > first and _CHARACTERS.issuperset(text[first:end]):
            yield start, end + 1
        start = text.find(_START, max(first, end))
