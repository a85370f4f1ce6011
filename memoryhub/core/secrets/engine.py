"""Find the secrets of a text: one pass for all keywords, then the rules of each, from left to right."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter, itemgetter

import re2

from memoryhub.core.secrets.assignment import LOOSE, Assignment, ColumnRead, assignment_at, cells_below
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
    fits,
    has_digit,
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
        self.keywords = KeywordIndex(self.rules)
        self._without_keyword = [rule for rule in self.rules if rule.form is RuleForm.ALL]

    def find(self, data: bytes) -> list[SecretHit]:
        places = self.keywords.of(data)
        # First the rules that recognise a secret alone, then, between their hits, values judged by their names.
        recognised = list(_recognised(data, places))
        for rule in self._without_keyword:
            recognised = sorted([*recognised, *apart(list(_everywhere(rule, data)), recognised)], key=_start)
        hits = sorted([*recognised, *_named_values(data, places, recognised)], key=_start)
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


def _recognised(data: bytes, places: list[Place]) -> Iterator[SecretHit]:
    cursor = 0
    for start, candidates in places:
        if start < cursor:
            continue
        for rule, _ in candidates:
            if rule.form is RuleForm.VALUE or not _may_begin(rule, data, start, cursor):
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
            if rule.spaced:
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
    for rule, size in candidates:
        if rule.form is not RuleForm.VALUE:
            continue
        if start + size != position:
            position = start + size
            read = None
            if position <= limit:
                read = assignment_at(data, position, limit, spaced=rule.spaced)
        if read is not None and _accepts(rule, data, start, position, read):
            return SecretHit(rule, read.start, read.end)
    return read.end if read else 0


def _accepts(rule: Rule, data: bytes, start: int, position: int, read: Assignment) -> bool:
    if rule.pattern:
        return _fits(rule, data, start, read)
    # The token in a badge's address only shows a picture.
    if data[max(0, start - 5) : start] == b".svg?":
        return False
    first = _name_start(data, start)
    name = _unescaped((data[first:position] + read.name_end).decode(errors="replace"))
    value = data[read.start : read.end].decode(errors="replace")
    # ``arn:…:123456789012:secret:x``, ``AWS::ApiGateway::ApiKey``
    before = data[max(0, first - 48) : first]
    if before.endswith(b":") and compiled(_AWS).find(before, 0, len(before)) is not None:
        return False
    if not is_assigned(read, name, value):
        return False
    return VALUE_CHECKS[rule.checks[0]](name, value, read)


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
    return read.sign not in ("", ",") and is_key_value(name, value)


def _of_vendor(name: str, value: str, read: Assignment) -> bool:
    if read.sign in ("", ","):
        return False
    if is_identifier(value) and not names_secret(name):
        return False
    return (is_uuid(value) and is_name_of_key(name)) or (is_key_value(name, value) and looks_generated(value))


VALUE_CHECKS = {"named-secret": _of_secret, "named-key": _of_key, "named-service": _of_vendor}


# The checks that rules name beside their pattern. Each accepts a match or not; some return the secret's span, which is
# then longer than the match.
Check = Callable[[SecretMatch], Span | bool | None]

_MAX_KEY = 24_000
_LINE = rb"[A-Za-z0-9+/=]+|[A-Z][A-Za-z-]{2,20}: [^\n\\]{0,120}"
_BREAKS = rb"(?:\s|\\{1,4}[nrt]|[\"',+])+"
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


def key_block(match: SecretMatch) -> Span | None:
    """Return the block up to its END line; of a truncated one, as far as it reads as a key."""
    data = match.data
    limit = min(match.limit, match.end + _MAX_KEY)
    dashes = data.find(b"-----", match.end, limit)
    shortest = 16
    if dashes >= 0 and data.startswith(b"-----END", dashes):
        shortest = 40
        closing = data.find(b"-----", dashes + 8, min(limit, dashes + 80))
        end = closing + 5 if closing >= 0 else dashes + 8
    else:
        end = _end_of_lines(data, match.end, limit)
    return (match.start, end) if end - match.end > shortest else None


def _end_of_lines(data: bytes, position: int, limit: int) -> int:
    end = position
    while position < limit:
        gap = compiled(_BREAKS).at(data, position, limit)
        if gap:
            position = gap[0][1]
        line = compiled(_LINE).at(data, position, limit)
        if line is None:
            break
        text = data[slice(*line[0])]
        if len(text) < 20 and not text.endswith(b"=") and b":" not in text:
            break
        position = end = line[0][1]
    return end


def unmasked(match: SecretMatch) -> bool:
    """Reject masks such as ``ghp_xxxxxxxx`` and zero padding."""
    return not is_masked(match.secret) and "00000000" not in match.secret


def mixed(match: SecretMatch) -> bool:
    """Require a digit and no mask: for prefixes that plain words have too."""
    return has_digit(match.secret) and not is_masked(match.secret)


def whole(match: SecretMatch) -> bool:
    return not match.after or match.after[0] not in _WORD


def unlike_words(match: SecretMatch) -> bool:
    return not reads_as_words(match.secret)


def unfilled(match: SecretMatch) -> bool:
    """Reject padding only: the position already says that it is a secret."""
    return not is_filler(match.secret)


def random(match: SecretMatch) -> bool:
    return looks_random(match.secret) and not is_placeholder(match.secret)


def no_template(match: SecretMatch) -> bool:
    """Accept any password except templates and masks."""
    return not is_template(match.secret) and not set(match.secret) <= {"*", "x", "X", "."}


def typed(match: SecretMatch) -> bool:
    """Accept any password that a person may have typed: no placeholder, no number."""
    return not is_placeholder(match.secret) and not match.secret.isdigit()


def chosen(match: SecretMatch) -> bool:
    """Accept any password except placeholders and the words that samples use."""
    secret = match.secret
    return len(secret) >= 4 and not is_placeholder(secret) and not is_sample(secret)


def login(match: SecretMatch) -> bool:
    """Accept any password in a URL except templates, and ``user:password`` in web addresses."""
    secret = match.secret
    if matches(_RAW, secret):
        following = match.data[match.end + 1 : min(match.end + 80, match.limit)].decode(errors="replace")
        if matches(_NO_PASSWORD, secret) or not matches(_HOST_AFTER, following):
            return False
    is_web = matches(_WEB_SAMPLE, match.before.decode(errors="replace")) and fits(_WEB_PASSWORD, secret)
    return not is_web and no_template(match)


def spoken(match: SecretMatch) -> bool:
    """Accept passwords as people type them: mixed case and digits, or digits and marks, and no words."""
    secret = match.secret
    is_typed = is_mixed(secret) or (has_digit(secret) and any(not c.isalnum() for c in secret))
    return is_typed and not is_plain(secret) and not is_code(secret) and chosen(match)


def no_variable(match: SecretMatch) -> bool:
    """Reject variable names such as ``DB_PASSWORD`` and ``get_password``."""
    return not matches(_NAMED, match.secret)


def no_word(match: SecretMatch) -> bool:
    return has_digit(match.secret) or is_gibberish(match.secret)


def no_uuid(match: SecretMatch) -> bool:
    return not is_uuid(match.secret)


def no_digest(match: SecretMatch) -> bool:
    return not matches(_DIGEST_BEFORE, match.before.decode(errors="replace"))


def strong(match: SecretMatch) -> bool:
    if match.secret.startswith(_PUBLISHED):
        return False
    secret = match.secret.rsplit("_", 1)[-1]
    is_random = is_mixed(secret) and entropy(secret) >= 3.7
    return is_random and not is_placeholder(secret) and not reads_as_words(secret)


def no_sample(match: SecretMatch) -> bool:
    """Reject masks and ids with ``EXAMPLE``, as in the documentation of AWS."""
    return "EXAMPLE" not in match.secret and unmasked(match)


def aws_secret(match: SecretMatch) -> bool:
    """Accept exactly 40 base64 characters of both cases with a digit: no git SHA, no path."""
    secret = match.secret
    if match.after and match.after[0] in _BASE64:
        return False
    if not begins_word(match.data, match.start, 0, b"./") or secret.endswith("EXAMPLEKEY"):
        return False
    return is_mixed(secret) and looks_random(secret, bits=3.9)


def basic_credentials(match: SecretMatch) -> bool:
    secret = match.secret
    try:
        decoded = base64.b64decode(secret + "=" * (-len(secret) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False
    return b":" in decoded and decoded.isascii()


def long_enough(match: SecretMatch) -> bool:
    return match.end - match.start >= 30 and not is_filler(match.secret)


def hex_before(match: SecretMatch) -> Span | None:
    """Require 32 hexadecimal digits before the match, and include them."""
    text = match.before[-32:].decode(errors="replace")
    is_key = len(text) == 32 and set(text) <= set("0123456789abcdef") and entropy(text) > 3
    return (match.start - 32, match.end) if is_key else None


def after_bot_id(match: SecretMatch) -> bool:
    """Require a bot's number before the colon."""
    before = match.before[:-1]  # the colon is the match's, not the secret's
    is_account = before[-13:-12] == b":" and before[-12:].isdigit()  # of AWS, in the name of a resource
    return len(before) >= 8 and before[-8:].isdigit() and not is_account


def after_snowflake(match: SecretMatch) -> Span | None:
    """Require a Discord id in base64 before the match; it starts with M, N or O."""
    before = match.before[-29:]
    for size in range(len(before), 22, -1):
        start = match.start - size
        if begins_word(match.data, start, 0, b"_-") and fits(_SNOWFLAKE, before[-size:].decode(errors="replace")):
            return start, match.end
    return None


# fmt: off
_CHECKS: tuple[Check, ...] = (
    unmasked, mixed, whole, unlike_words, unfilled, random, no_template, strong, no_sample, chosen, login, spoken,
    no_variable, typed, no_word, no_digest, no_uuid, aws_secret, basic_credentials, long_enough, hex_before,
    after_bot_id, after_snowflake, key_block,
)
# fmt: on
# By the names that rules use
CHECKS = {check.__name__.replace("_", "-"): check for check in _CHECKS}
