"""Find the secrets of a text: one pass for all keywords, then the rules of each, from left to right."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator

import re2

from memoryhub.core.secrets.assignment import LOOSE, Assignment, Read, assignment_at, cells_below
from memoryhub.core.secrets.rule import (
    LETTERS,
    NOWHERE,
    Candidate,
    Form,
    Found,
    Hit,
    Place,
    Places,
    Rule,
    Span,
    apart,
    begins_word,
    compiled,
)
from memoryhub.core.secrets.values import (
    entropy,
    fits,
    is_assigned,
    is_code,
    is_filler,
    is_gibberish,
    is_identifier,
    is_key_value,
    is_masked,
    is_mixed,
    is_name_of_key,
    is_placeholder,
    is_plain,
    is_sample,
    is_secret_value,
    is_template,
    is_uuid,
    looks_generated,
    looks_random,
    matches,
    names_secret,
    reads_as_words,
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


_MAX_KEY = 24_000
_LINE = rb"[A-Za-z0-9+/=]+|[A-Z][A-Za-z-]{2,20}: [^\n\\]{0,120}"
_BREAKS = rb"(?:\s|\\{1,4}[nrt]|[\"',+])+"


def whole_block(found: Found) -> Span | None:
    """Return the block up to its END line; of a truncated one, as far as it reads as a key."""
    data, start, head = found.data, found.start, found.end
    limit = min(found.limit, head + _MAX_KEY)
    dashes = data.find(b"-----", head, limit)
    if dashes >= 0 and data.startswith(b"-----END", dashes):
        closing = data.find(b"-----", dashes + 8, min(limit, dashes + 80))
        end = closing + 5 if closing >= 0 else dashes + 8
        return (start, end) if end - head > 40 else None
    end = _end_of_lines(data, head, limit)
    return (start, end) if end - head > 16 else None


def _end_of_lines(data: bytes, position: int, limit: int) -> int:
    end = position
    while position < limit:
        gap = compiled(_BREAKS).at(data, position, limit)
        line = compiled(_LINE).at(data, gap[0][1] if gap else position, limit)
        text = data[slice(*line[0])] if line else b""
        if line is None or (len(text) < 20 and not text.endswith(b"=") and b":" not in text):
            break
        position = end = line[0][1]
    return end


Check = Callable[[Found], Span | None]

_BASE64 = LETTERS | frozenset(b"+/=")
_WORD = LETTERS | frozenset(b"_")
_WEB_SAMPLE = rb"(?i)\b(?:https?|ftp):(?:\\?/){2}(?:user|username|usr|login|foo|name|abc|123|me|[a-z])?:$"
# Characters that end a user and password in an address, but that people type in passwords.
_RAW = rb"[/?#]"
# A port and a path, or another address.
_NO_PASSWORD = rb"^\d{0,5}(?:[/?#]|$)|://|^[\]\[]|[{}<>$]|/@|^(?i:port)\b"
_HOST_AFTER = rb"^[\w-]+(?:\.[\w-]+)*(?::\d|[/?\"'\s),;]|$)"
_WEB_PASSWORD = rb"(?i)pass(?:wd|word)?|pwd|pw|abc|xyz|123|[a-z]"
_NAMED = rb"(?i)passw|pwd|_pass|^pass|secret|^[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+$"
_PUBLISHED = "pk_live_", "pk_test_", "diff-"
_SNOWFLAKE = rb"[MNO][\w-]{22,28}"
_DIGEST_BEFORE = rb"(?i)(?:sha\d{0,3}|md5|hash|digest|checksum|integrity)[\"' ]{0,2}[-=:]?[\"' ]{0,2}$"


def unmasked(found: Found) -> Span | None:
    """Reject masks such as ``ghp_xxxxxxxx`` and zero padding."""
    secret = found.secret
    return None if is_masked(secret) or "00000000" in secret else found.span


def mixed(found: Found) -> Span | None:
    """Require a digit and no mask: for prefixes that plain words have too."""
    secret = found.secret
    return found.span if any(c.isdigit() for c in secret) and not is_masked(secret) else None


def whole(found: Found) -> Span | None:
    return None if found.after and found.after[0] in _WORD else found.span


def unlike_words(found: Found) -> Span | None:
    return None if reads_as_words(found.secret) else found.span


def unfilled(found: Found) -> Span | None:
    """Reject padding only: the position already says that it is a secret."""
    return None if is_filler(found.secret) else found.span


def random(found: Found) -> Span | None:
    """Require letters, digits and entropy, and no placeholder."""
    secret = found.secret
    return found.span if looks_random(secret) and not is_placeholder(secret) else None


def given(found: Found) -> Span | None:
    """Accept any password except templates and masks."""
    secret = found.secret
    return None if is_template(secret) or set(secret) <= {"*", "x", "X", "."} else found.span


def typed(found: Found) -> Span | None:
    """Accept any password that a person may have typed: no placeholder, no number."""
    secret = found.secret
    return None if is_placeholder(secret) or secret.isdigit() else found.span


def chosen(found: Found) -> Span | None:
    """Accept any password except placeholders and the words that samples use."""
    secret = found.secret
    return None if len(secret) < 4 or is_placeholder(secret) or is_sample(secret) else found.span


def login(found: Found) -> Span | None:
    """Accept any password in a URL except templates, and ``user:password`` in web addresses."""
    secret = found.secret
    if matches(_RAW, secret) and (matches(_NO_PASSWORD, secret) or not matches(_HOST_AFTER, _following(found))):
        return None
    is_web = matches(_WEB_SAMPLE, found.before.decode(errors="replace")) and fits(_WEB_PASSWORD, secret)
    return None if is_web else given(found)


def _following(found: Found) -> str:
    return found.data[found.end + 1 : min(found.end + 80, found.limit)].decode(errors="replace")


def spoken(found: Found) -> Span | None:
    """Accept passwords as people type them: mixed case and digits, or digits and marks, and no words."""
    secret = found.secret
    typed = is_mixed(secret) or (any(c.isdigit() for c in secret) and any(not c.isalnum() for c in secret))
    return chosen(found) if typed and not is_plain(secret) and not is_code(secret) else None


def no_variable(found: Found) -> Span | None:
    """Reject variable names such as ``DB_PASSWORD`` and ``get_password``."""
    return None if matches(_NAMED, found.secret) else found.span


def no_word(found: Found) -> Span | None:
    secret = found.secret
    return found.span if any(c.isdigit() for c in secret) or is_gibberish(secret) else None


def no_uuid(found: Found) -> Span | None:
    return None if is_uuid(found.secret) else found.span


def no_digest(found: Found) -> Span | None:
    """Reject values after the name of a hash, such as ``sha256=…``."""
    return None if matches(_DIGEST_BEFORE, found.before.decode(errors="replace")) else found.span


def strong(found: Found) -> Span | None:
    """Require mixed case, digits and high entropy, and no words."""
    secret = found.secret.rsplit("_", 1)[-1]
    if found.secret.startswith(_PUBLISHED):
        return None
    accepted = is_mixed(secret) and entropy(secret) >= 3.7 and not is_placeholder(secret)
    return found.span if accepted and not reads_as_words(secret) else None


def no_sample(found: Found) -> Span | None:
    """Reject masks and ids with ``EXAMPLE``, as in the documentation of AWS."""
    return None if "EXAMPLE" in found.secret else unmasked(found)


def aws_secret(found: Found) -> Span | None:
    """Accept exactly 40 base64 characters of both cases with a digit: no git SHA, no path."""
    secret = found.secret
    longer = bool(found.after) and found.after[0] in _BASE64
    inner = not begins_word(found.data, found.start, 0, b"./") or secret.endswith("EXAMPLEKEY")
    return found.span if is_mixed(secret) and not (longer or inner) and looks_random(secret, bits=3.9) else None


def basic_credentials(found: Found) -> Span | None:
    """Accept base64 that decodes to ``user:password``."""
    secret = found.secret
    try:
        decoded = base64.b64decode(secret + "=" * (-len(secret) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
    return found.span if b":" in decoded and decoded.isascii() else None


def long_enough(found: Found) -> Span | None:
    return found.span if found.end - found.start >= 30 and not is_filler(found.secret) else None


def hex_before(found: Found) -> Span | None:
    """Require 32 hexadecimal digits before the match, and include them."""
    text = found.before[-32:].decode(errors="replace")
    is_key = len(text) == 32 and set(text) <= set("0123456789abcdef") and entropy(text) > 3
    return (found.start - 32, found.end) if is_key else None


def after_bot_id(found: Found) -> Span | None:
    """Require a bot's number before the colon."""
    before = found.before[:-1]  # the colon is the match's, not the secret's
    is_account = before[-13:-12] == b":" and before[-12:].isdigit()  # of AWS, in the name of a resource
    return found.span if len(before) >= 8 and before[-8:].isdigit() and not is_account else None


def after_snowflake(found: Found) -> Span | None:
    """Require a Discord id in base64 before the match; it starts with M, N or O."""
    before = found.before[-29:]
    for size in range(len(before), 22, -1):
        start = found.start - size
        if begins_word(found.data, start, 0, b"_-") and fits(_SNOWFLAKE, before[-size:].decode(errors="replace")):
            return start, found.end
    return None


CHECKS: dict[str, Check] = {
    "unmasked": unmasked,
    "mixed": mixed,
    "whole": whole,
    "unlike-words": unlike_words,
    "unfilled": unfilled,
    "random": random,
    "given": given,
    "strong": strong,
    "no-sample": no_sample,
    "chosen": chosen,
    "login": login,
    "spoken": spoken,
    "no-variable": no_variable,
    "typed": typed,
    "no-word": no_word,
    "no-digest": no_digest,
    "no-uuid": no_uuid,
    "aws-secret": aws_secret,
    "basic-credentials": basic_credentials,
    "long-enough": long_enough,
    "hex-before": hex_before,
    "after-bot-id": after_bot_id,
    "after-snowflake": after_snowflake,
    "key-block": whole_block,
}
