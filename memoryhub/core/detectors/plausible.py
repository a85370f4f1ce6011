"""Could this string be a secret? Entropy, placeholders, and what only looks like one."""

from __future__ import annotations

import math
import re
from collections import Counter

_TEMPLATE = re.compile(r"\$\{|\$\(|\{\{|<%|%\(|\$[A-Za-z_]|^<[^<>]*>?$|^\{[^{}]*\}?$|^%[sdv%A-Z]")
_MASK = re.compile(r"x{5}|X{5}|\*{3}|\.{3}|…|•{3}")
_FILLER = re.compile(r"^[xX*._\-#0?=]+$|0{8}")
_PLACEHOLDER = re.compile(
    r"example|sample|dummy|placeholder|change[-_ ]?(?:me|it|this)|replace[-_ ]?(?:me|with|this)"
    r"|insert[-_ ]|redacted|todo|fixme|secret[-_]?here|goes[-_]?here|(?:key|token|password)[-_]?here"
    r"|^(?:your|my|the|some|any|enter|put)[-_A-Z ]|^<|lorem",
    re.IGNORECASE,
)
_SEQUENCES = "abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz1234567890"
_WORD = re.compile(r"[a-z]{2,}")
_COMMON_PAIRS = frozenset(
    "ab ac ad ag ai al am an ap ar as at ba be bl ca ce ch ci ck cl co cr ct da de di do ea ec ed ee ef el em en ep"
    " er es et ev ex fe fi fo ge gi gr ha he hi ho ia ic id ie if ig il im in io ir is it iv iz ke la ld le li ll lo"
    " ly ma me mi mo mp na nc nd ne ng ni no ns nt oc od ol om on oo op or os ot ou ov ow pa pe pi pl po pp pr pt qu"
    " ra re ri rm ro rr rs rt ry sa sc se sh si so sp ss st su ta te th ti to tr ts tt tu ty ul un up ur us ut va ve"
    " vi yp ey pu ub rd wo".split()
)
_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_INTEGRITY = re.compile(r"(?:sha(?:1|224|256|384|512)|md5)[-:=$]", re.IGNORECASE)


def entropy(text: str) -> float:
    """Return the Shannon entropy of the characters, in bits a character."""
    size = len(text)
    return -sum(n / size * math.log2(n / size) for n in Counter(text).values())


def is_template(value: str) -> bool:
    """Say whether the value is filled in later: ``${VAR}``, ``{{ x }}``, ``<token>``, ``%s``."""
    return bool(_TEMPLATE.search(value)) or value.startswith("[REDACTED")


def is_sequence(value: str) -> bool:
    """Say whether the value is a piece of the alphabet or of the digits in their order."""
    return value.lower() in _SEQUENCES


def is_masked(value: str) -> bool:
    """Say whether part of the value is hidden, as in ``xxxxx`` or ``***``."""
    return bool(_MASK.search(value))


def is_filler(value: str) -> bool:
    """Say whether the value is masked or padding, such as ``0000`` or ``***``."""
    return is_masked(value) or bool(_FILLER.search(value)) or len(set(value)) < 4


def is_placeholder(value: str) -> bool:
    """Say whether the value stands for a secret without being one."""
    return is_template(value) or is_filler(value) or is_sequence(value) or bool(_PLACEHOLDER.search(value))


def is_digest(value: str) -> bool:
    """Say whether the value is an integrity hash that names its algorithm."""
    return bool(_INTEGRITY.match(value))


def is_uuid(value: str) -> bool:
    """Say whether the value is a UUID."""
    return bool(_UUID.fullmatch(value))


def reads_as_words(value: str) -> bool:
    """Say whether the value is made of words, as are ``Ed25519PrivateKey`` and ``0004_alter_user``.

    More than half of it must be letters next to letters, and of these pairs most must be ones that
    English words and the names in programs are full of; of random letters less than a quarter are.
    """
    pairs = [word[i : i + 2] for word in _WORD.findall(value.lower()) for i in range(len(word) - 1)]
    common = sum(pair in _COMMON_PAIRS for pair in pairs)
    return len(pairs) >= 0.5 * len(value) and common >= 0.58 * len(pairs)


def looks_random(value: str, *, bits: float = 3.0) -> bool:
    """Say whether the value has letters and digits and at least ``bits`` bits a character."""
    has_digit = any(c.isdigit() for c in value)
    has_letter = any(c.isalpha() for c in value)
    return has_digit and has_letter and entropy(value) >= bits
