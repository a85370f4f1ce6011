from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

from memoryhub.core.secrets.rule import compiled

_TEMPLATE = (
    rb"\$\{|\$\(|\{\{|<%|%\(|(?:^|[^\w])\$[A-Za-z_]|^<[^<>]*>?$|^\{[^{}]*\}?$|^%[sdv%A-Z]|^\$\d$|^@[A-Za-z_]+@$"
    rb"|^\[[a-z]+\]$"
)
_MASK = "xxxxx", "XXXXX", "***", "...", "…", "•••"
_FILLER = rb"^[xX*._\-#0?=]+$|0{8}"
_PLACEHOLDER = (
    rb"(?i)example|sample|dummy|placeholder|change[-_ ]?(?:me|it|this)|replace[-_ ]?(?:me|with|this)"
    rb"|insert[-_ ]|redacted|todo|fixme|secret[-_]?here|goes[-_]?here|(?:key|token|password)[-_]?here"
    rb"|^your|^(?:my|the|some|any|enter|put)(?:[-_ ]|(?-i:[A-Z]))[a-z_ -]*\d{0,3}$|^<|lorem|fake"
    rb"|not[-_]a?[-_]?(?:real|secret)"
)
_SAMPLE = (
    rb"(?i)(?:my|your|user|the|some|new|old|test|db|super|top|admin|root)?[-_ ]?"
    rb"(?:pass|passwd|passwords?|pwd|pw|secret|token|key|test|admin|root|user|guest|default|none|null|true|false|required"
    rb"|string|hidden|input|text|value|foo|bar|baz|abc|xyz|postgres|mysql|mariadb|redis|mongo|rabbitmq|sa|oracle|passw0rd)"
    rb"(?:[-_ ]?(?:word|here|field|value))?|1234?|12345\d*|incorrect|invalid|optional|current|wrong|[a-z]|\d{1,3}"
)
# In a value this long and this random, a word such as ``EXAMPLE`` does not make it a placeholder.
_LONG, _DENSE = 60, 4.5
_SEQUENCES = "abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz1234567890"
_ROWS = ("abcdefghijklmnop", "zyxwvutsrqponml", "0123456789abcdefghij")
_COMMON_PAIRS = frozenset(
    "ab ac ad ag ai al am an ap ar as at ba be bl ca ce ch ci ck cl co cr ct da de di do ea ec ed ee ef el em en ep"
    " er es et ev ex fe fi fo ge gi gr ha he hi ho ia ic id ie if ig il im in io ir is it iv iz ke la ld le li ll lo"
    " ly ma me mi mo mp na nc nd ne ng ni no ns nt oc od ol om on oo op or os ot ou ov ow pa pe pi pl po pp pr pt qu"
    " ra re ri rm ro rr rs rt ry sa sc se sh si so sp ss st su ta te th ti to tr ts tt tu ty ul un up ur us ut va ve"
    " vi yp ey pu ub rd wo".split()
)
_SHORTEST_MEAN = 2.6
_UUID = rb"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
_INTEGRITY = rb"(?i)^(?:sha(?:1|224|256|384|512)|md5)[-:=$]"
_HEX = frozenset("0123456789abcdefABCDEF")
# Lower-case digests: MD5, SHA-1 or a git commit, and SHA-224 to SHA-512.
_DIGEST = rb"(?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{56}|[0-9a-f]{64}|[0-9a-f]{96}|[0-9a-f]{128})"


def matches(pattern: bytes, value: str) -> bool:
    return compiled(pattern).is_in(value)


def fits(pattern: bytes, value: str) -> bool:
    return compiled(pattern).is_all(value)


def entropy(text: str) -> float:
    size = len(text)
    return -sum(n / size * math.log2(n / size) for n in Counter(text).values())


def is_template(value: str) -> bool:
    """Return whether the value is filled in later: ``${VAR}``, ``{{ x }}``, ``<token>``, ``%s``."""
    return value.startswith("[REDACTED") or matches(_TEMPLATE, value)


def is_sequence(value: str) -> bool:
    """Return whether the value is part of the alphabet or of the digits in order, or contains such a row."""
    lowered = value.lower()
    if _ROWS[0] in value and _ROWS[0].upper() in value:
        return True
    return not is_mixed(value) and (lowered in _SEQUENCES or any(row in lowered for row in _ROWS))


def is_masked(value: str) -> bool:
    return any(mask in value for mask in _MASK)


def is_filler(value: str) -> bool:
    return is_masked(value) or len(set(value)) < 4 or matches(_FILLER, value)


def is_placeholder(value: str) -> bool:
    if is_filler(value) or is_sequence(value) or is_template(value):
        return True
    return matches(_PLACEHOLDER, value) and not (len(value) >= _LONG and is_mixed(value) and entropy(value) >= _DENSE)


def is_sample(value: str) -> bool:
    """Return whether the value is a word that documentation uses as a password, such as ``secret``."""
    return fits(_SAMPLE, value)


def is_digest(value: str) -> bool:
    return matches(_INTEGRITY, value)


def is_uuid(value: str) -> bool:
    return len(value) == 36 and fits(_UUID, value)


def is_identifier(value: str) -> bool:
    """Return whether the value is a complete hexadecimal digest in one case, or a UUID."""
    return is_uuid(value) or fits(_DIGEST, value) or fits(_DIGEST, value.swapcase())


def is_hex(value: str) -> bool:
    return _HEX.issuperset(value)


def reads_as_words(value: str) -> bool:
    """Return whether the value consists of words, such as ``Ed25519PrivateKey`` or ``0004_alter_user``."""
    pairs, common = _pairs(value)
    # More than half must be pairs of letters, and most of these common in English words and program names; of random
    # letters, less than a quarter are.
    return pairs >= 0.5 * len(value) and common >= 0.58 * pairs and _mean_word(value) >= _SHORTEST_MEAN


def is_gibberish(value: str) -> bool:
    """Return whether the value is letters that form no words: twelve of both cases, or sixteen of any."""
    if len(value) < 12 or not value.isascii() or not value.isalpha():
        return False
    if len(value) < 16 and (value.isupper() or value[1:].islower()):
        return False
    pairs, common = _pairs(value)
    return common <= (0.42 if len(value) >= 16 else 0.3) * pairs and entropy(value) >= 3.0


def _pairs(value: str) -> tuple[int, int]:
    """Return how many adjacent letter pairs there are, and how many of them are common in words."""
    lowered = value.lower()
    pairs = [pair for pair in map("".join, pairwise(lowered)) if pair.isascii() and pair.isalpha()]
    return len(pairs), sum(pair in _COMMON_PAIRS for pair in pairs)


def _mean_word(value: str) -> float:
    # A capital after a lower-case letter starts another word.
    letters = sum(c.isalpha() for c in value)
    starts = sum(
        c.isalpha() and (not before.isalpha() or (before.islower() and c.isupper()))
        for before, c in pairwise(" " + value)
    )
    return letters / max(1, starts)


def looks_random(value: str, *, bits: float = 3.0) -> bool:
    has_digit = any(c.isdigit() for c in value)
    has_letter = any(c.isalpha() for c in value)
    return has_digit and has_letter and entropy(value) >= bits


def is_mixed(value: str) -> bool:
    return value != value.lower() and value != value.upper() and any(c.isdigit() for c in value)
