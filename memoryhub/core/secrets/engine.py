"""Find the secrets of a text: one pass for all keywords, then the rules of each, from left to right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter, itemgetter

import re2

from memoryhub.core.secrets.assignment import LOOSE, Assignment, ColumnRead, assignment_at, cells_below
from memoryhub.core.secrets.checks import CHECKS
from memoryhub.core.secrets.rule import (
    LETTERS,
    NOWHERE,
    Candidate,
    KeywordIndex,
    Place,
    Rule,
    RuleForm,
    SecretHit,
    SecretMatch,
    Span,
    apart,
    begins_word,
    compiled,
)
from memoryhub.core.secrets.values import (
    entropy,
    is_assigned,
    is_identifier,
    is_key_value,
    is_name_of_key,
    is_secret_value,
    is_uuid,
    looks_generated,
    names_secret,
)

# The number of names tried in one run without space or quotes: more would be slow, and nobody writes so many.
_MOST_TRIES = 16
_AWS = rb"(?:AWS::\w{1,40}::|:(?:\d{12}|\*):)$"
# A digest in base64, up to a place in it that looks like the prefix of a token
_INTEGRITY = rb"sha(?:1|224|256|384|512)[-=:][\w+/-]*$"
# Elements of XML signatures and encryption
_ENCRYPTED = rb"<(?:\w+:)?(?:CipherValue|SignatureValue|DigestValue|X509\w+|Modulus|Exponent)\b"
_NAME = LETTERS | frozenset(b"_-")
_HEX = frozenset(b"0123456789abcdefABCDEF")
_DASH = frozenset(b"-")
_LINE_END = rb"\n|\\+n"
_HEADING = rb"[\s>#*-]*(?:[A-Za-z']+ ){0,6}[A-Za-z_-]{1,24}"
_LONGEST_HEADING = 80
_LONGEST_IDENTIFIER = 128
# Digits of an escape such as ``\u2028``, which can precede a word without being part of it.
_LONGEST_ESCAPE = 4


class Detector:
    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self.keywords = KeywordIndex(self.rules)
        self._without_keyword = [rule for rule in self.rules if rule.form is RuleForm.ALL]

    def find(self, data: bytes) -> list[SecretHit]:
        places = self.keywords.of(data)
        # First the rules that recognise a secret alone, then, between their hits, values judged by their names.
        recognised = list(_recognised(data, places))
        for rule in self._without_keyword:
            recognised = sorted([*recognised, *apart(list(_everywhere(rule, data)), recognised)], key=_start)
        hits = sorted([*recognised, *_named_values(data, places, recognised)], key=_start)
        hits = sorted([*hits, *apart(list(_recognised(data, places, last=True)), hits)], key=_start)
        return sorted([*hits, *apart(list(_cells(data, places)), hits)], key=_start)


_start = attrgetter("start")


def _everywhere(rule: Rule, data: bytes) -> Iterator[SecretHit]:
    pattern = compiled(rule.pattern)
    size = len(data)
    cursor = 0
    spans = pattern.find(data, 0, size)
    while spans:
        first, end = spans[0]
        if _may_begin(rule, data, first, cursor):
            place = checked(SecretMatch(data, rule, *_secret_group(spans), size))
            if place is not None and place[0] >= cursor:
                yield SecretHit(rule, *place)
                cursor = place[1]
        spans = pattern.find(data, end, size)


def _recognised(data: bytes, places: list[Place], *, last: bool = False) -> Iterator[SecretHit]:
    cursor = 0
    for start, candidates in places:
        if start < cursor:
            continue
        for rule, _ in candidates:
            if rule.form is RuleForm.VALUE or rule.last is not last or not _may_begin(rule, data, start, cursor):
                continue
            span = _secret_span(rule, data, start, cursor)
            if span is not None:
                yield SecretHit(rule, *span)
                cursor = span[1]
                break


def _may_begin(rule: Rule, data: bytes, start: int, cursor: int) -> bool:
    return bool(rule.inside or rule.back) or begins_word(data, start, cursor, rule.not_after)


def _secret_span(rule: Rule, data: bytes, start: int, cursor: int) -> Span | None:
    limit = min(len(data), start + rule.reach)
    if rule.back:
        spans = compiled(rule.pattern).find(data, max(cursor, start - rule.back), limit)
        if spans is None or not spans[0][0] <= start < spans[0][1]:
            return None
    else:
        spans = compiled(rule.pattern).at(data, start, limit)
    if spans is None:
        return None
    span = checked(SecretMatch(data, rule, *_secret_group(spans), len(data)))
    if span is None or not cursor <= span[0] < span[1]:
        return None
    first = min(spans[0][0], span[0])
    last = max(spans[0][1], span[1])
    before = data[max(0, first - _LONGEST_IDENTIFIER) : first]
    if compiled(_INTEGRITY).find(before, 0, len(before)):
        return None
    # Part of a digest or UUID that nothing else marks as a secret
    if _in_identifier(data, first, last, _HEX, b"_") or _in_identifier(data, first, last, _HEX | _DASH, b"_-"):
        return None
    return span


def _in_identifier(data: bytes, start: int, end: int, characters: frozenset[int], not_beside: bytes) -> bool:
    if end - start > _LONGEST_IDENTIFIER or not characters.issuperset(data[start:end]):
        return False
    first = start
    last = end
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


# The last group that matched, or the whole match
def _secret_group(spans: list[Span]) -> Span:
    last = max(spans[1:], key=itemgetter(1), default=NOWHERE)
    return spans[0] if last == NOWHERE else last


def checked(match: SecretMatch) -> Span | None:
    """Return the span of the secret if it passes its rule's entropy and checks."""
    rule = match.rule
    if rule.entropy and entropy(match.secret) < rule.entropy:
        return None
    span = match.span
    for name in rule.checks:
        accepted = CHECKS[name](match)
        if not accepted:
            return None
        if isinstance(accepted, tuple):
            span = accepted
    return span


def _named_values(data: bytes, places: list[Place], recognised: list[SecretHit]) -> Iterator[SecretHit]:
    spans = iter([*recognised, None])
    following = next(spans)
    cursor = run_end = tries = 0
    for start, candidates in places:
        while following is not None and following.end <= start:
            cursor = max(cursor, following.end)
            following = next(spans)
        limit = following.start if following is not None else len(data)
        if start < cursor or start >= limit or (start < run_end and tries >= _MOST_TRIES):
            continue
        read = _read_value(data, start, limit, candidates)
        if isinstance(read, SecretHit):
            yield read
            cursor = read.end
        elif read:
            tries = tries + 1 if start < run_end else 0
            run_end = max(run_end, read)


def _cells(data: bytes, places: list[Place]) -> Iterator[SecretHit]:
    """Yield the secrets in table cells below a name, without overlap."""
    hits: dict[int, SecretHit] = {}
    columns: dict[int, ColumnRead] = {}
    for start, candidates in places:
        for rule, size in candidates:
            if rule.in_tables:
                for first, end in cells_below(data, start, start + size, columns):
                    read = Assignment(b"", b"", LOOSE, first, end, quoted=False, called=False)
                    if end > first and _accepts(rule, data, start, start + size, read):
                        hits[first] = SecretHit(rule, first, end)
                break
    cursor = 0
    for hit in sorted(hits.values(), key=_start):
        if hit.start >= cursor:
            yield hit
            cursor = hit.end


# The secret, or the end of the value that is none
def _read_value(data: bytes, start: int, limit: int, candidates: tuple[Candidate, ...]) -> SecretHit | int:
    read: Assignment | None = None
    position = -1
    spaced = any(rule.spaced for rule, _ in candidates)
    for rule, size in candidates:
        if rule.form is not RuleForm.VALUE:
            continue
        if start + size != position:
            position = start + size
            read = None
            if position <= limit:
                read = assignment_at(data, position, limit, spaced=spaced)
        if read is not None and (read.sign or rule.spaced) and _accepts(rule, data, start, position, read):
            return SecretHit(rule, read.start, read.end)
    return read.end if read else 0


def _accepts(rule: Rule, data: bytes, start: int, position: int, read: Assignment) -> bool:
    if rule.pattern:
        return _fits(rule, data, start, read)
    if not _may_name(rule, data, start):
        return False
    first = _name_start(data, start)
    name = _unescaped((data[first:position] + read.name_end).decode(errors="replace"))
    value = data[read.start : read.end].decode(errors="replace")
    # ``arn:…:123456789012:secret:x``, ``AWS::ApiGateway::ApiKey``
    before = data[max(0, first - 48) : first]
    if before.endswith(b":") and compiled(_AWS).find(before, 0, len(before)) is not None:
        return False
    if not (read.sign or _is_beside(data, position, read)) or not is_assigned(read, name, value):
        return False
    if _is_in_list(data, position, read) or compiled(_ENCRYPTED).find(data, position, read.start) is not None:
        return False
    return _without_signs(value) not in _without_signs(name) and VALUE_CHECKS[rule.checks[0]](name, value, read)


# ``"#pbkdf2paramssalt">pbkdf2Params.salt``: the value says its name again
def _without_signs(text: str) -> str:
    return "".join(filter(str.isalnum, text)).lower()


def _may_name(rule: Rule, data: bytes, start: int) -> bool:
    # ``sumo`` in ``Matsumoto`` is no service.
    if rule.begins_word and data[start : start + 1].islower() and data[start - 1 : start].isalpha():
        return False
    # The token in a badge's address only shows a picture.
    return data[max(0, start - 5) : start] != b".svg?"


def _is_in_list(data: bytes, position: int, read: Assignment) -> bool:
    """Return whether a comma and a line end separate the value from its name, and no call begins on that line."""
    if read.sign != ",":
        return False
    line = data[max(0, position - _LONGEST_HEADING) : position].rpartition(b"\n")[2]
    return b"\n" in data[position : read.start] and b"(" not in line


def _is_beside(data: bytes, position: int, read: Assignment) -> bool:
    """Return whether the value is on the line of its name, or below a line of a few words that ends in the name."""
    if compiled(_LINE_END).find(data, position, read.start) is None:
        return True
    line = data[max(0, position - _LONGEST_HEADING) : position].rpartition(b"\n")[2].rpartition(b"\\n")[2]
    line += read.name_end
    return compiled(_HEADING).fits(line, 0, len(line))


# ``\\u5bc6\\u7801``: a name in JSON, perhaps escaped twice
def _unescaped(name: str) -> str:
    if "\\u" not in name:
        return name
    text: str = re2.sub(r"\\{1,2}u([0-9a-fA-F]{4})", lambda match: chr(int(match[1], 16)), name)
    return text


def _fits(rule: Rule, data: bytes, start: int, read: Assignment) -> bool:
    if read.called or not compiled(rule.pattern).fits(data, read.start, read.end):
        return False
    if is_identifier(data[read.start : read.end].decode(errors="replace")):
        name = data[_name_start(data, start) : read.start].decode(errors="replace")
        if not names_secret(name):
            return False
    if rule.name and compiled(rule.name).at(data, start, read.start) is None:
        return False
    return checked(SecretMatch(data, rule, read.start, read.end, len(data))) is not None


def _name_start(data: bytes, start: int) -> int:
    first = start
    while first > 0 and first > start - 40 and data[first - 1] in _NAME:
        first -= 1
    return first


def _of_secret(name: str, value: str, read: Assignment) -> bool:
    return is_secret_value(name, value, quoted=read.quoted)


def _of_key(name: str, value: str, read: Assignment) -> bool:
    # In ``header("X-Api-Key", "…")`` the comma assigns.
    if not read.sign or (read.sign == "," and not ("-" in name and name.lower().endswith("key"))):
        return False
    if name.lower() in _ANY_KEY and is_identifier(value):
        return False
    return is_key_value(name, value)


def _of_vendor(name: str, value: str, read: Assignment) -> bool:
    if read.sign == ",":
        return False
    if is_uuid(value):
        return name.lower() in _KEYS_ARE_UUIDS or (bool(read.sign) and is_name_of_key(name))
    # A git commit or a checksum may stand after the name of a service, but hardly an MD5 digest
    if is_identifier(value) and len(value) not in _DIGITS_OF_KEYS and not names_secret(name):
        return False
    return is_key_value(name, value) and looks_generated(value)


# Names of any key: of a cache, a map, a table
_ANY_KEY = frozenset({"key", "salt", "pepper"})
_KEYS_ARE_UUIDS = frozenset({"heroku", "hubspot", "pinecone", "postmark", "snyk"})
_DIGITS_OF_KEYS = 32, 64
VALUE_CHECKS = {"named-secret": _of_secret, "named-key": _of_key, "named-service": _of_vendor}
