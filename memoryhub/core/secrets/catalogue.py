"""All rules: the pack as data, those for personal data, and a project's custom rules and allowlist."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache
from itertools import cycle
from pathlib import Path
from typing import Any

import re2

from memoryhub.core.secrets.checks import CHECKS
from memoryhub.core.secrets.engine import Detector
from memoryhub.core.secrets.rule import (
    LETTERS,
    NOWHERE,
    Pattern,
    Rule,
    RuleForm,
    SecretHit,
    SecretMatch,
    Span,
    compile_pattern,
    rule_of,
)
from memoryhub.core.secrets.values import fits, is_identifier, matches

_FILE = Path(__file__).with_name("rules.jsonl")


def lines() -> Iterator[dict[str, Any]]:
    with _FILE.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


@cache
def detector() -> Detector:
    return Detector(rule_of(line) for line in lines() if "id" in line)


@dataclass(frozen=True, slots=True)
class RuleInfo:
    id: str
    type: str
    description: str
    keywords: tuple[str, ...]
    # Empty if a value is judged by the name that it is assigned to.
    pattern: str
    # Where it was adapted from: ``gitleaks 8.30.1, github-pat (MIT)``.
    origins: tuple[str, ...]


_HUB = ("Memory Hub (MIT)",)
# What finds secrets without a rule of the pack
_BUILT_IN = (
    RuleInfo("private-block", "private", "A private block.", ("<private>",), "", _HUB),
    RuleInfo("repeated-secret", "secret", "A secret that was found elsewhere.", (), "", _HUB),
    RuleInfo("too-many-rounds", "text", "A text built to hide secrets inside secrets.", (), "", _HUB),
)


@cache
def catalogue() -> dict[str, RuleInfo]:
    head, *rules = lines()
    infos = {}
    for line in rules:
        origins = tuple(_origin(origin, head["sources"][origin["project"]]) for origin in line["from"])
        name, keywords = line["id"], tuple(line["keywords"])
        kind, pattern = line.get("type", name), line.get("pattern", "")
        infos[name] = RuleInfo(name, kind, line["description"], keywords, pattern, origins)
    return infos


def about(rule_id: str) -> RuleInfo | None:
    return catalogue().get(rule_id) or _rules_outside_the_pack().get(rule_id)


@cache
def _rules_outside_the_pack() -> dict[str, RuleInfo]:
    infos = {info.id: info for info in _BUILT_IN}
    for kind, (description, pattern) in _TEXTS.items():
        rule = _personal_rule(kind)
        infos[rule.id] = RuleInfo(rule.id, rule.type, description, (), pattern.decode("latin-1"), _HUB)
    return infos


def _origin(origin: dict[str, str], source: dict[str, str]) -> str:
    if origin["project"] == "memory-hub":
        documented = f", after {origin['documentation']}" if "documentation" in origin else ""
        return f"Memory Hub ({source['licence']}){documented}"
    return f"{origin['project']} {source['version']}, {origin['rule']} ({source['licence']})"


class Personal(StrEnum):
    EMAIL = "email"
    PHONE = "phone"
    CARD = "card"
    IBAN = "iban"
    NATIONAL_ID = "national_id"


# Prefix of the rules' ids in findings.
PERSONAL_PREFIX = "personal-"
_FILES = (
    rb"(?i)\.(?:py|js|ts|tsx|jsx|json|md|go|rs|rb|java|html?|css|txt|xml|ya?ml|toml|png|jpe?g|svg|gif|webp|sh|lock"
    rb"|git)$"
)
_SERVICES = rb"(?i)^(?:git|hg|svn|noreply|no-reply|x-access-token|oauth2)@|@[\d.]+$|@users\.noreply\.github\.com$"
_CARDS = (
    rb"4\d{12}(?:\d{3}){0,2}|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}"
    rb"|35\d{14}|6(?:011|5\d\d|4[4-9]\d)\d{12}|62\d{14,17}|(?:5018|5020|5038|6304|6759|676[1-3])\d{8,15}"
)
# Characters of an IBAN by country, from the registry of SWIFT.
_IBAN_COUNTRIES = {
    15: "NO",
    16: "BE",
    18: "DK FI FO GL NL",
    19: "MK SI",
    20: "AT BA EE KZ LT LU XK",
    21: "CH HR LI LV",
    22: "BG BH CR DE GB GE IE ME RS VA",
    23: "AE GI IL IQ TL",
    24: "AD CZ ES MD PK RO SA SE SK TN VG",
    25: "LY PT ST",
    26: "IS TR",
    27: "FR GR IT MC MR SM",
    28: "AL AZ BY CY DO GT HU LB PL SV",
    29: "BR EG PS QA UA",
    30: "JO KW MU",
    31: "MT SC",
    32: "LC",
}
_IBAN_SIZES = {country: size for size, countries in _IBAN_COUNTRIES.items() for country in countries.split()}
_DATE = rb"(?:19|20)\d\d[-./ ]?(?:0\d|1[0-2])[-./ ]?[0-3]\d|[0-3]?\d[./][01]?\d[./](?:19|20)\d\d"
_NUMBER = rb"(?:[ .()/-]{0,2}\d){7,14}"
# The prefix of a national phone number; an international one begins with ``+``.
_PHONE_WORDS = (
    rb"(?i)(?:\b(?:tel|telephone|phone|mobile|mobil|cell|fax|handy|telefon|telefono|t\xc3\xa9l|t\xc3\xa9l\xc3\xa9phone|tlf|gsm"
    rb"|whatsapp|m\xc3\xb3vil|celular|call|sms)\b|"
    + "тел|телефон|电话|電話|手机|전화|휴대폰".encode()
    + rb")[^\d\n+]{0,24}$"
)


def _digits(text: str) -> list[int]:
    return [int(c) for c in text if c.isdigit() and c.isascii()]


def _luhn(text: str) -> bool:
    total = 0
    for place, digit in enumerate(reversed(_digits(text))):
        total += sum(divmod(digit * (1 + place % 2), 10))
    return total % 10 == 0


def _weighted(text: str, weights: Iterable[int]) -> int:
    return sum(digit * weight for digit, weight in zip(_digits(text), weights, strict=False))


def _social_security(text: str) -> bool:
    area, group, serial = text.split("-")
    return area not in ("000", "666") and area < "900" and group != "00" and serial != "0000"


def _spanish(text: str) -> bool:
    number = text.upper().replace("-", "").replace(" ", "")
    digits = number[:-1].translate(str.maketrans("XYZ", "012"))
    return digits.isdigit() and number[-1] == "TRWAGMYFPDXBNJZSQVHLCKE"[int(digits) % 23]


_ODD = (1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23)


def _italian(text: str) -> bool:
    values = [int(c, 36) - (0 if c.isdigit() else 10) for c in text.upper()]
    total = sum(_ODD[value] for value in values[0:15:2]) + sum(values[1:15:2])
    return total % 26 == values[15]


def _french(text: str) -> bool:
    number = text.replace(" ", "").upper().replace("2A", "19").replace("2B", "18")
    return number.isdigit() and 97 - int(number[:13]) % 97 == int(number[13:])


def _brazilian(text: str) -> bool:
    digits = _digits(text)
    first = _weighted(text, range(10, 1, -1)) * 10 % 11 % 10
    second = _weighted(text, range(11, 1, -1)) * 10 % 11 % 10
    return len(set(digits)) > 1 and digits[9:] == [first, second]


def _chinese(text: str) -> bool:
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    return "10X98765432"[_weighted(text[:17], weights) % 11] == text[17].upper()


def _korean(text: str) -> bool:
    weights = (2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5)
    return (11 - _weighted(text[:13], weights) % 11) % 10 == _digits(text)[12]


def _swiss(text: str) -> bool:
    return (10 - _weighted(text[:15], cycle((1, 3))) % 10) % 10 == _digits(text)[12]


def _russian(text: str) -> bool:
    return _weighted(text, range(9, 0, -1)) % 101 % 100 == int(text[-2:])


def _polish(text: str) -> bool:
    return _weighted(text, (1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1)) % 10 == 0


_BIRTH = rb"\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])"
# Forms of national ids, and their check digits. Forms that any number has are read only after their name.
_NATIONAL: tuple[tuple[bytes, Callable[[str], bool], bytes], ...] = (
    (rb"\d{3}-\d{2}-\d{4}", _social_security, b""),
    (rb"[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?\d\d ?\d\d ?\d\d ?[A-D]", bool, b""),
    (rb"(?:\d{8}|[XYZ]-?\d{7})-?[A-Z]", _spanish, b""),
    (rb"[A-Z]{6}\d\d[A-EHLMPR-T]\d\d[A-Z]\d{3}[A-Z]", _italian, b""),
    (rb"[12] ?\d\d ?(?:0[1-9]|1[0-2]) ?(?:\d\d|2[AB]) ?\d{3} ?\d{3} ?\d\d", _french, b""),
    (rb"\d{3}\.\d{3}\.\d{3}-\d\d", _brazilian, b""),
    (rb"[1-9]\d{5}(?:19|20)" + _BIRTH + rb"\d{3}[\dXx]", _chinese, b""),
    (_BIRTH + rb"-[1-4]\d{6}", _korean, b""),
    (rb"756\.\d{4}\.\d{4}\.\d\d", _swiss, b""),
    (rb"\d{3}-\d{3}-\d{3} \d\d", _russian, b""),
    (_BIRTH + rb"[-+]\d{4}", lambda text: _luhn(text.replace("-", "").replace("+", "")), b""),
    (rb"\d{4} \d{4} \d{4}", bool, rb"(?i)aadhaa?r\W{0,24}$"),
    (rb"\d{11}", _polish, rb"(?i)pesel\W{0,24}$"),
    (rb"\d{11}|\d\d ?\d{3} ?\d{3} ?\d{3}", bool, rb"(?i)(?:steuer-?id\w{0,24}|idnr|identifikationsnummer)\W{0,8}$"),
    (rb"\d{9}", bool, rb"(?i)(?:\bbsn|burgerservicenummer|\bssn|social security(?: number)?|\bsin|\bnino?)\W{0,12}$"),
)


def email(match: SecretMatch) -> bool:
    return not matches(_FILES, match.secret) and not matches(_SERVICES, match.secret)


def _alone(match: SecretMatch) -> bool:
    """Return whether no letter, digit or part of a number stands beside the match."""
    before = match.data[max(0, match.start - 2) : match.start]
    after = match.data[match.end : match.end + 2]
    beside = before[-1:] + after[:1]
    if any(byte in LETTERS or byte in b"_%#" for byte in beside):
        return False
    return not (_continues(before[::-1]) or _continues(after))


def _continues(beside: bytes) -> bool:
    return len(beside) == 2 and beside[0] in b".,:/-=" and beside[1:].isdigit()


def card(match: SecretMatch) -> bool:
    number = match.secret.replace(" ", "").replace("-", "")
    return fits(_CARDS, number) and len(set(number)) > 1 and _luhn(number) and _alone(match)


def iban(match: SecretMatch) -> Span | None:
    text = match.secret
    number = text.replace(" ", "")
    size = _IBAN_SIZES.get(number[:2], 0)
    if not size or len(number) < size:
        return None
    if match.start > 0 and match.data[match.start - 1] in LETTERS:
        return None
    while len(number) > size:
        text = text[:-1].rstrip()
        number = text.replace(" ", "")
    value = "".join(str(int(c, 36)) for c in number[4:] + number[:4])
    return (match.start, match.start + len(text)) if int(value) % 97 == 1 else None


def phone(match: SecretMatch) -> bool:
    text = match.secret
    digits = _digits(text)
    if not _alone(match) or matches(b"^" + _DATE, text) or not 7 <= len(digits) <= 15 or len(set(digits)) < 3:
        return False
    if text.startswith("+"):
        return len(digits) >= 9 and text[1] != "0"
    is_named = matches(_PHONE_WORDS, match.before.decode(errors="replace"))
    return is_named or fits(rb"\(\d{3}\) ?\d{3}-\d{4}", text)


def national_id(match: SecretMatch) -> bool:
    text = match.secret
    if not _alone(match) or is_identifier(text):
        return False
    before = match.before.decode(errors="replace")
    return any(fits(form, text) and holds(text) and matches(name, before) for form, holds, name in _NATIONAL)


CHECKS.update({"email": email, "card": card, "iban": iban, "phone": phone, "national-id": national_id})

_TEXTS = {
    Personal.EMAIL: ("An e-mail address.", rb"[A-Za-z0-9._%+'-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,5}[A-Za-z]{2,24}"),
    Personal.CARD: ("The number of a payment card, by its check digit.", rb"\b\d(?:[ -]?\d){11,18}\b"),
    Personal.IBAN: ("An IBAN, by its check digits.", rb"\b[A-Z]{2}\d\d(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b"),
    Personal.PHONE: ("A phone number.", rb"\+" + _NUMBER + rb"|\(?\b\d" + _NUMBER),
    Personal.NATIONAL_ID: (
        "The number of a person in a country, by its form and check digits.",
        b"|".join(rb"\b(?:" + form + rb")\b" for form, _, _ in _NATIONAL),
    ),
}


def _personal_rule(kind: Personal) -> Rule:
    _, pattern = _TEXTS[kind]
    name = kind.replace("_", "-")
    return Rule(f"{PERSONAL_PREFIX}{name}", name, RuleForm.ALL, (), pattern=pattern, checks=(name,), inside=True)


@cache
def personal_detector(kinds: frozenset[Personal]) -> Detector:
    return Detector(_personal_rule(kind) for kind in Personal if kind in kinds)


# Prefix of a custom rule's id in findings.
CUSTOM_PREFIX = "own:"
_WINDOW = 8192
# The longest match of a custom rule, so that no pattern can make the search read a text repeatedly.
_LONGEST = 4096
# Instructions of all patterns of a project: a text of 100 kB takes at most a few seconds.
MAX_SIZE = 2_500
# Secrets of one text. A rule that matches more often is too wide, and masks the rest of the text at once.
_MOST_HITS = 10_000

# Anyone can try out rules, so patterns that are not used any more are forgotten.
_compiled = lru_cache(maxsize=1024)(compile_pattern)


# A custom rule as the settings declare it.
@dataclass(frozen=True, slots=True)
class CustomRule:
    id: str
    pattern: str
    type: str = "secret"
    keywords: tuple[str, ...] = ()


# Compiled rules; equal only to themselves, so they can be a cache key.
@dataclass(frozen=True, slots=True, eq=False)
class CustomRules:
    rules: tuple[Rule, ...] = ()
    texts: frozenset[str] = frozenset()
    # Finds the types of personal data that the project masks.
    personal: Detector | None = None
    patterns: tuple[Pattern, ...] = ()

    def allows(self, secret: str) -> bool:
        return secret in self.texts or any(pattern.is_all(secret) for pattern in self.patterns)

    def find(self, data: bytes) -> list[SecretHit]:
        candidates: list[SecretHit] = []
        for rule in self.rules:
            candidates += _custom_hits(rule, data)
        hits: list[SecretHit] = []
        for hit in sorted(candidates, key=lambda hit: (hit.start, -hit.end)):
            if not hits or hit.start >= hits[-1].end:
                hits.append(hit)
            if len(hits) > _MOST_HITS:
                hits[-1] = SecretHit(hit.rule, hits[-1].start, len(data))
                break
        return hits


NO_RULES = CustomRules()


def compile_rules(rules: Iterable[CustomRule], allow: Iterable[str], personal: Iterable[Personal] = ()) -> CustomRules:
    """Compile a project's rules and allowlist.

    Args:
        rules: each has an RE2 pattern; if it has keywords, one must occur in a text for the pattern to be tried.
        allow: exact texts, and patterns between slashes (``/test_[a-z]+/``) that match a whole secret.
        personal: types of personal data to mask as well.

    Raises:
        ValueError: a pattern is invalid or matches the empty text.
    """
    texts = set()
    patterns = []
    for text in allow:
        pattern = pattern_of(text)
        if pattern is None:
            texts.add(text)
        else:
            patterns.append(checked_pattern(pattern))
    compiled_rules = []
    for rule in rules:
        checked_pattern(rule.pattern)
        keywords = tuple(word.lower().encode() for word in rule.keywords)
        name, pattern_bytes = f"{CUSTOM_PREFIX}{rule.id}", rule.pattern.encode()
        compiled_rules.append(Rule(name, rule.type, RuleForm.ALL, keywords, pattern=pattern_bytes))
    kinds = frozenset(personal)
    detector_of_kinds = personal_detector(kinds) if kinds else None
    return CustomRules(tuple(compiled_rules), frozenset(texts), detector_of_kinds, tuple(patterns))


def pattern_of(allowed: str) -> str | None:
    """Return the pattern of an allowed text between slashes; None if it is an exact text."""
    is_pattern = len(allowed) > 2 and allowed.startswith("/") and allowed.endswith("/")
    return allowed[1:-1] if is_pattern else None


def checked_pattern(pattern: str) -> Pattern:
    try:
        compiled = _compiled(pattern.encode())
    except re2.error as error:
        reason = error.args[0]
        if isinstance(reason, bytes):
            reason = reason.decode(errors="replace")
        raise ValueError(f"{pattern[:80]!r} is not a valid RE2 pattern: {reason}") from None
    if compiled.find(b"", 0, 0) is not None:
        raise ValueError(f"{pattern[:80]!r} matches the empty text; require at least one character")
    return compiled


def size_of(patterns: Iterable[str], allow: Iterable[str]) -> int:
    """Return the number of instructions of a project's patterns, which bounds the time that they take."""
    named = [*patterns, *(pattern for text in allow if (pattern := pattern_of(text)) is not None)]
    return sum(checked_pattern(pattern).size for pattern in named)


def _custom_hits(rule: Rule, data: bytes) -> Iterator[SecretHit]:
    if rule.keywords:
        lowered = data.lower()
        if not any(word in lowered for word in rule.keywords):
            return
    pattern = _compiled(rule.pattern)
    size = len(data)
    position = 0
    while position < size:
        stop = min(size, position + _WINDOW)
        spans = pattern.find(data, position, stop)
        if spans is None:
            position = stop if stop == size else stop - _LONGEST
            continue
        # The first group that matched, or the whole match
        start, end = next((span for span in spans[1:] if span != NOWHERE), spans[0])
        if end > start:
            yield SecretHit(rule, start, end)
        position = max(spans[0][1], position + 1)
