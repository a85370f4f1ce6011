"""Find the secrets of a text: one pass for all keywords, then the rules of each, from left to right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import re2

from memoryhub.core.secrets.assignment import LOOSE, Assignment, assignment_at
from memoryhub.core.secrets.checks import CHECKS
from memoryhub.core.secrets.columns import Read, cells_below
from memoryhub.core.secrets.found import Candidate, Found, Hit, Place, Places, apart
from memoryhub.core.secrets.plausible import entropy, is_identifier, is_uuid, matches
from memoryhub.core.secrets.rule import LETTERS, NOWHERE, Form, Rule, Span, begins_word, compiled
from memoryhub.core.secrets.value_rules import (
    is_assigned,
    is_key_value,
    is_name_of_key,
    is_secret_value,
    looks_generated,
    names_secret,
)

# The number of names tried in one run without space or quotes: more would be slow, and nobody writes so many.
_MOST_TRIES = 16
_AWS = rb"(?:AWS::\w{1,40}::|:(?:\d{12}|\*):)$"
_NAME = LETTERS | frozenset(b"_-")
_HEX = frozenset(b"0123456789abcdefABCDEF")
_DASH = frozenset(b"-")
_LONGEST_IDENTIFIER = 128
# Digits of an escape such as ``\u2028``, which can precede a word without being part of it.
_LONGEST_ESCAPE = 4


class Detector:
    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self._places = Places(self.rules)
        self._without_keyword = [rule for rule in self.rules if rule.form is Form.ALL]

    def find(self, data: bytes) -> list[Hit]:
        places = self.places(data)
        # First the rules that recognise a secret alone, then, between their hits, values judged by their names.
        known = list(_known(data, places))
        for rule in self._without_keyword:
            known = sorted([*known, *apart(list(_everywhere(rule, data)), known)], key=_start)
        found = sorted([*known, *_values(data, places, known)], key=_start)
        return sorted([*found, *apart(list(_cells(data, places)), found)], key=_start)

    def places(self, data: bytes) -> list[Place]:
        return list(self._places.of(data))


def _everywhere(rule: Rule, data: bytes) -> Iterator[Hit]:
    pattern, size, cursor = compiled(rule.pattern), len(data), 0
    spans = pattern.find(data, 0, size)
    while spans:
        first, end = spans[0]
        place = checked(Found(data, rule, *_last(spans), size)) if _may_begin(rule, data, first, cursor) else None
        if place is not None and place[0] >= cursor:
            yield Hit(rule, *place)
            cursor = place[1]
        spans = pattern.find(data, end, size)


def _start(hit: Hit) -> int:
    return hit.start


def _known(data: bytes, places: list[Place]) -> Iterator[Hit]:
    cursor = 0
    for start, candidates in places:
        if start < cursor:
            continue
        for rule, _ in candidates:
            if rule.form is Form.VALUE or not _may_begin(rule, data, start, cursor):
                continue
            span = _span(rule, data, start, cursor)
            if span is not None:
                yield Hit(rule, *span)
                cursor = span[1]
                break


def _may_begin(rule: Rule, data: bytes, start: int, cursor: int) -> bool:
    return bool(rule.inside or rule.back) or begins_word(data, start, cursor, rule.not_after)


def _span(rule: Rule, data: bytes, start: int, cursor: int) -> Span | None:
    limit = min(len(data), start + rule.reach)
    if rule.back:
        spans = compiled(rule.pattern).find(data, max(cursor, start - rule.back), limit)
        if spans is None or not spans[0][0] <= start < spans[0][1]:
            return None
    else:
        spans = compiled(rule.pattern).at(data, start, limit)
    if spans is None:
        return None
    span = checked(Found(data, rule, *_last(spans), len(data)))
    if span is None or not cursor <= span[0] < span[1]:
        return None
    return None if _in_identifier(data, min(spans[0][0], span[0]), max(spans[0][1], span[1])) else span


def _in_identifier(data: bytes, start: int, end: int) -> bool:
    # Part of a digest or UUID that nothing else marks as a secret.
    return _in_word(data, start, end, _HEX, b"_") or _in_word(data, start, end, _HEX | _DASH, b"_-")


def _in_word(data: bytes, start: int, end: int, characters: frozenset[int], not_beside: bytes) -> bool:
    if end - start > _LONGEST_IDENTIFIER or not characters.issuperset(data[start:end]):
        return False
    first, last = start, end
    while first > 0 and start - first < _LONGEST_IDENTIFIER and data[first - 1] in characters:
        first -= 1
    while last < len(data) and last - end < _LONGEST_IDENTIFIER and data[last] in characters:
        last += 1
    if last < len(data) and (data[last] in LETTERS or data[last] in not_beside):
        return False
    return any(
        begins_word(data, place, 0, not_beside) and is_identifier(data[place:last].decode())
        for place in range(first, min(first + _LONGEST_ESCAPE, start) + 1)
    )


def _last(spans: list[Span]) -> Span:
    return max(spans[1:], key=_end) if len(spans) > 1 and max(spans[1:], key=_end) != NOWHERE else spans[0]


def _end(span: Span) -> int:
    return span[1]


def checked(found: Found) -> Span | None:
    """Return the span of the secret if it passes its rule's entropy, allowlist and checks."""
    rule = found.rule
    if rule.entropy and entropy(found.secret) < rule.entropy:
        return None
    if any(matches(pattern, found.secret) for pattern in rule.allow):
        return None
    span: Span | None = found.span
    for name in rule.checks:
        span = CHECKS[name](found)
        if span is None:
            return None
    return span


def _values(data: bytes, places: list[Place], known: list[Hit]) -> Iterator[Hit]:
    spans = iter([*known, None])
    following = next(spans)
    cursor = run_end = tries = 0
    for start, candidates in places:
        while following is not None and following.end <= start:
            cursor = max(cursor, following.end)
            following = next(spans)
        limit = following.start if following is not None else len(data)
        if start < cursor or start >= limit or (start < run_end and tries >= _MOST_TRIES):
            continue
        read = _read(data, start, limit, candidates)
        if isinstance(read, Hit):
            yield read
            cursor = read.end
        elif read:
            tries = tries + 1 if start < run_end else 0
            run_end = max(run_end, read)


def _cells(data: bytes, places: list[Place]) -> Iterator[Hit]:
    """Yield the secrets in table cells below a name, without overlap."""
    hits: dict[int, Hit] = {}
    columns: dict[int, Read] = {}
    for start, candidates in places:
        for rule, size in candidates:
            if rule.spaced:
                for first, end in cells_below(data, start, start + size, columns):
                    read = Assignment(b"", b"", LOOSE, first, end, quoted=False, called=False)
                    if end > first and _accepts(rule, data, start, start + size, read):
                        hits[first] = Hit(rule, first, end)
                break
    cursor = 0
    for hit in sorted(hits.values(), key=_start):
        if hit.start >= cursor:
            yield hit
            cursor = hit.end


def _read(data: bytes, start: int, limit: int, candidates: tuple[Candidate, ...]) -> Hit | int:
    read: Assignment | None = None
    position = -1
    for rule, size in candidates:
        if rule.form is not Form.VALUE:
            continue
        if start + size != position:
            position = start + size
            read = assignment_at(data, position, limit, spaced=rule.spaced) if position <= limit else None
        if read is not None and _accepts(rule, data, start, position, read):
            return Hit(rule, read.start, read.end)
    return read.end if read else 0


def _accepts(rule: Rule, data: bytes, start: int, position: int, read: Assignment) -> bool:
    if rule.pattern:
        return _fits(rule, data, start, read)
    first = _first(data, start)
    name = _unescaped((data[first:position] + read.rest).decode(errors="replace"))
    value = data[read.start : read.end].decode(errors="replace")
    if _of_badge(data, start) or _of_resource(data, first) or not is_assigned(read, name, value):
        return False
    return VALUE_CHECKS[rule.checks[0]](name, value, read)


def _unescaped(name: str) -> str:
    # ``\\u5bc6\\u7801``: a name in JSON, perhaps escaped twice
    return re2.sub(r"\\{1,2}u([0-9a-fA-F]{4})", _character, name) if "\\u" in name else name


def _character(match: re2._Match) -> str:
    return chr(int(match[1], 16))


def _fits(rule: Rule, data: bytes, start: int, read: Assignment) -> bool:
    if read.called or not compiled(rule.pattern).fits(data, read.start, read.end):
        return False
    if is_identifier(data[read.start : read.end].decode(errors="replace")) and not names_secret(
        _named(data, start, read)
    ):
        return False
    if rule.name and compiled(rule.name).at(data, start, read.start) is None:
        return False
    return checked(Found(data, rule, read.start, read.end, len(data))) is not None


def _named(data: bytes, start: int, read: Assignment) -> str:
    return data[_first(data, start) : read.start].decode(errors="replace")


def _of_badge(data: bytes, start: int) -> bool:
    # The token in a badge's address only shows a picture.
    return data[max(0, start - 5) : start] == b".svg?"


def _of_resource(data: bytes, start: int) -> bool:
    # ``arn:…:123456789012:secret:x``, ``AWS::ApiGateway::ApiKey``
    before = data[max(0, start - 48) : start]
    return before.endswith(b":") and compiled(_AWS).find(before, 0, len(before)) is not None


def _first(data: bytes, start: int) -> int:
    first = start
    while first > 0 and first > start - 40 and data[first - 1] in _NAME:
        first -= 1
    return first


def _of_secret(name: str, value: str, read: Assignment) -> bool:
    return is_secret_value(name, value, quoted=read.quoted)


def _of_key(name: str, value: str, read: Assignment) -> bool:
    return read.sign not in ("", ",") and is_key_value(name, value)


def _of_vendor(name: str, value: str, read: Assignment) -> bool:
    if read.sign in ("", ","):
        return False
    if is_identifier(value) and not names_secret(name):
        return False
    return (is_uuid(value) and is_name_of_key(name)) or (is_key_value(name, value) and looks_generated(value))


VALUE_CHECKS = {"named-secret": _of_secret, "named-key": _of_key, "named-service": _of_vendor}
