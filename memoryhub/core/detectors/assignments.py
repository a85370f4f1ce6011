"""Values given to a name that says "this is a secret": in code, YAML, JSON, env files and prose."""

from __future__ import annotations

import re

from .plausible import entropy, is_digest, is_placeholder, is_uuid, looks_random, reads_as_words
from .rule import Rule, Span, rule

_PASSWORD = re.compile(r"pass|pwd", re.IGNORECASE)
_HARMLESS_NAME = re.compile(
    r"(?:tokeni[sz]|tokenl?ess|secretar|passwordless|authori[sz](?:e|er|ed|ing)\b|authors?\b|credentialed)"
    r"|[._-]?(?:hash|digest|count|type|name|id|ids|url|uri|path|file|dir|field|length|len|size|limit|expir\w*"
    r"|ttl|at|policy|pattern|regexp?|prefix|suffix|label|format|algorithm|hint|prompt|class|version|ref|arn"
    r"|endpoint|index|kind|scope|scopes|budget|usage|column|header|param|env|var)s?$",
    re.IGNORECASE,
)
_CODE = re.compile(r"^[A-Za-z_][\w]*(?:(?:\.|::|->|\?\.)[A-Za-z_]\w*)+|[\w\]]\(|^(?:self|this|os|env|process)[.\[]|\[")
_SEPARATOR = re.compile(r"\.|::|->")
_PATH = re.compile(r"^(?:[.~]{0,2}/|https?:|[A-Za-z]:\\|file:|\w+://)")
_WORDS = re.compile(r"[A-Za-z]+(?:[-_./ :][A-Za-z]+)*\d{0,2}[.!?:]?")
_NUMBER = re.compile(r"[-+]?[\d.,:_/-]+|0x[0-9a-fA-F]{1,8}")
_PUNCTUATION = re.compile(r"[(){};,\s]")
_CALL = frozenset("([")
_DIGIT = re.compile(r"\d")
_MARK = re.compile(r"[^\w.-]")
_DIGIT_OR_MARK = re.compile(r"\d|[^\w.-]")
_SPACE = re.compile(r"\s")
_ESCAPED_GAP = re.compile(r"\\{1,3}[nrt]")
_JUDGED = 96
_STOP = ".,;:!?)]}>*"

_KEYWORDS = (
    "passw",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "api_key",
    "apikey",
    "api-key",
    "api key",
    "auth",
    "credential",
    "creds",
    "private_key",
    "privatekey",
    "private-key",
    "access_key",
    "accesskey",
    "access-key",
    "_key",
)
_NAME = (
    r"(?i:passw(?:or)?d?|passphrase|pwd|secret|token|api[_ -]?key|auth(?:orization)?|credentials?|creds"
    r"|private[_-]?key|access[_-]?key|_?key)[\w.-]{0,32}"
)
_NAME_OF_KEY = re.compile(
    r"(?:passw(?:or)?d|passphrase|pwd|secret|token|api[_ -]?key|authorization|credentials?|private[_-]?key"
    r"|access[_-]?key)$",
    re.IGNORECASE,
)
_CLOSE = r"[\"'`\\)\]>]{0,6}"
_DECLARED = r"(?: ?:? ?(?i:string|str|char\*?|const|final)\b)?"
_SIGN = r"(?::{1,3}=|[?.+]=|=>|->|={1,3}|[:,]|\|\|:?|(?i:is|was)\b)"
_GAP = r"(?:\s|\\{1,3}[nrt])"  # also as JSON writes it, once and twice
_OPERATOR = rf"{_GAP}{{1,20}}(?:{_SIGN}{_GAP}{{0,20}})?|{_SIGN}{_GAP}{{0,20}}"
_GIVEN = rf"(?:{_CLOSE}{_DECLARED}(?P<operator>{_OPERATOR})|[\"'\\]{{0,4}}>{_GAP}{{0,20}})"
_VALUE = (
    r"(?:\\{0,4}\"(?P<double>[^\"\\\n]{4,512})"
    r"|\\{0,4}'(?P<single>[^'\\\n]{4,512})"
    r"|`(?P<back>[^`\\\n]{4,512})"
    r"|(?P<bare>[^\s\"'`<>,;(){}\[\]\\|]{4,512}))"
)


def assigned_secret(match: re.Match[str]) -> Span | None:
    """Return the span of the value where its name and its looks agree that it is a secret."""
    kind = match.lastgroup or ""
    start, end = match.span(kind)
    value = match.string[start:end]
    if not _may_be_secret(match["name"], value):
        return None
    if kind == "bare":
        value = value.rstrip(_STOP)
        if is_code(value[:_JUDGED]) or match.string[end : end + 1] in _CALL or not _is_given(match, value):
            return None
    elif not _sign(match) and (_PUNCTUATION.search(value) or not _is_given(match, value)):
        return None
    accepted = is_secret_value(match["name"], value, quoted=kind != "bare")
    return (start, start + len(value)) if accepted else None


def is_code(value: str) -> bool:
    """Say whether the value reads as a call, an index or a dotted name rather than as a literal."""
    if not _CODE.search(value):
        return False
    return "(" in value or "[" in value or not any(_is_random_part(part) for part in _SEPARATOR.split(value))


def _is_random_part(part: str) -> bool:
    return len(part) >= 8 and looks_random(part, bits=2.7) and not reads_as_words(part)


def _sign(match: re.Match[str]) -> str:
    """Return what stands between name and value: ``=``, ``:``, ``is``, ``>`` of a tag, or nothing but space."""
    operator: str | None = match["operator"]
    return ">" if operator is None else _ESCAPED_GAP.sub("", operator).strip().lower()


def _is_given(match: re.Match[str], value: str) -> bool:
    """Say whether the value is given to the name: by a sign, or by standing next to it and being random."""
    sign = _sign(match)
    if sign == ",":
        return False
    return sign not in ("", "is", "was") or (len(value) >= 12 and looks_random(value[:_JUDGED], bits=3.2))


def is_secret_name(name: str) -> bool:
    """Say whether a key's name is that of a secret: ``db_password``, ``apiKey``, ``Authorization``."""
    return _NAME_OF_KEY.search(name) is not None


def is_secret_value(name: str, value: str, *, quoted: bool = True) -> bool:
    """Say whether a value given to ``name`` is a secret, by its length, its letters and its entropy."""
    head = value[:_JUDGED]
    if not _may_be_secret(name, value) or _HARMLESS_NAME.search(name):
        return False
    if is_placeholder(head) or is_digest(head) or _PATH.match(head) or _NUMBER.fullmatch(head):
        return False
    if _SPACE.search(value):
        return False
    return _is_password(head, quoted=quoted) if _PASSWORD.search(name) else _is_token(head)


def _may_be_secret(name: str, value: str) -> bool:
    """Refuse at little cost what can't be one: a token has a digit, a password a digit or a mark."""
    wanted = _DIGIT_OR_MARK if _PASSWORD.search(name) else _DIGIT
    return wanted.search(value, 0, _JUDGED) is not None


def _is_password(value: str, *, quoted: bool) -> bool:
    """Accept a short value too, where it is more than a plain word or a name in code."""
    if len(value) < 6 or is_code(value):
        return False
    return bool(_DIGIT.search(value) or (quoted and _MARK.search(value))) and entropy(value) >= 2.2


def _is_token(value: str) -> bool:
    """Accept a value of ten characters or more that is random rather than made of words."""
    if len(value) < 10 or _WORDS.fullmatch(value) or reads_as_words(value):
        return False
    return is_uuid(value) or looks_random(value, bits=2.9)


ASSIGNMENT_RULES: tuple[Rule, ...] = (
    rule(
        "assigned-secret",
        f"(?P<name>{_NAME}){_GIVEN}{_VALUE}",
        *_KEYWORDS,
        type="secret",
        refine=assigned_secret,
        any_case=True,
        inside_words=True,
    ),
)
