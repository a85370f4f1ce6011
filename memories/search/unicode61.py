"""The tokens of FTS5's ``porter unicode61 remove_diacritics 2``, for an index that SQLite does not write."""

from __future__ import annotations

import hashlib
import re
from functools import cache, lru_cache
from pathlib import Path

_TABLES = Path(__file__).with_name("unicode61.txt")
_ASCII_TOKEN = re.compile("[0-9a-z]+")
# FTS5 cuts longer tokens; both in bytes
_LONGEST_TOKEN = 32768
# An index of PostgreSQL has no longer keys than 2,704 bytes; a longer token ends with its digest
_LONGEST_KEY = 1000
_SHORTEST_STEMMED, _LONGEST_STEMMED = 3, 64


def tokens(text: str) -> list[str]:
    """Return the stems of a text's words, in their order."""
    if text.isascii():
        return list(map(_stem, _ASCII_TOKEN.findall(text.lower())))
    pattern, folded = _unicode()
    return [_stem(token.translate(folded)) for token in pattern.findall(text)]


# The pattern of tokens, and the table that folds their characters
@cache
def _unicode() -> tuple[re.Pattern[str], dict[int, int | None]]:
    tables = dict(re.findall(r"^\[(\w+)\]\n([^#\[]+)", _TABLES.read_text("utf-8"), re.MULTILINE))
    separators = ""
    for run in tables["separators"].split():
        separators += "-".join(re.escape(chr(int(end, 16))) for end in run.split("-"))
    accents = [int(accent, 16) for accent in tables["accents"].split()]
    folded: dict[int, int | None] = dict.fromkeys(accents)
    for run in tables["folded"].split():
        characters, _, step = run.partition("/")
        source, target, *count = re.split("[=*]", characters)
        for place in range(int(count[0], 16) if count else 1):
            further = place * int(step or 1)
            folded[int(source, 16) + further] = int(target, 16) + further
    return re.compile(f"[^{separators}{''.join(map(chr, accents))}][^{separators}]*"), folded


@lru_cache(maxsize=65536)
def _stem(token: str) -> str:
    word = token.encode()
    if _SHORTEST_STEMMED <= len(word) <= _LONGEST_STEMMED:
        word = _step_1b(_step_1a(word))
        if word.endswith(b"y") and _has_vowel(word[:-1]):
            word = word[:-1] + b"i"
        word = _replace_suffix(_replace_suffix(word, _STEP_2), _STEP_3)
        return _step_5(_step_4(word)).decode(errors="backslashreplace")  # it may halve a character
    if len(word) <= _LONGEST_KEY:
        return token
    return word[:_LONGEST_KEY].decode(errors="ignore") + hashlib.sha256(word[:_LONGEST_TOKEN]).hexdigest()


# Porter's stemmer as FTS5 has it (ext/fts5/fts5_tokenize.c): on bytes, every byte that is no vowel is a consonant.
# In each step the first suffix that matches decides, whether or not its condition holds.

# Suffixes with their replacements
_PAIRS_2 = (
    b"ational/ate tional/tion enci/ence anci/ance izer/ize logi/log bli/ble alli/al entli/ent eli/e ousli/ous "
    b"ization/ize ation/ate ator/ate alism/al iveness/ive fulness/ful ousness/ous aliti/al iviti/ive biliti/ble"
)
_STEP_2 = [pair.split(b"/") for pair in _PAIRS_2.split()]
_STEP_3 = [pair.split(b"/") for pair in b"ical/ic ness/ icate/ic iciti/ic ful/ ative/ alize/al".split()]
_STEP_4 = b"al ance ence er ic able ible ant ement ment ent ion ou ism ate iti ous ive ize".split()


def _step_1a(word: bytes) -> bytes:
    if not word.endswith(b"s") or word.endswith(b"ss"):
        return word
    if (len(word) > 4 and word.endswith(b"sses")) or (len(word) > 3 and word.endswith(b"ies")):
        return word[:-2]
    return word[:-1]


def _step_1b(word: bytes) -> bytes:
    if len(word) > 3 and word.endswith(b"eed"):
        return word[:-1] if _vowel_groups(word[:-3]) > 0 else word
    for suffix in (b"ed", b"ing"):
        if len(word) > len(suffix) and word.endswith(suffix):
            stem = word[: -len(suffix)]
            return _step_1b2(stem) if _has_vowel(stem) else word
    return word


def _step_1b2(word: bytes) -> bytes:
    if len(word) > 2 and word.endswith((b"at", b"bl", b"iz")):
        return word + b"e"
    last = word[-1:]
    if last not in b"aeioulsz" and last == word[-2:-1]:
        return word[:-1]
    if _vowel_groups(word) == 1 and _ends_short(word):
        return word + b"e"
    return word


def _replace_suffix(word: bytes, suffixes: list[list[bytes]]) -> bytes:
    for suffix, other in suffixes:
        if len(word) > len(suffix) and word.endswith(suffix):
            stem = word[: -len(suffix)]
            return stem + other if _vowel_groups(stem) > 0 else word
    return word


def _step_4(word: bytes) -> bytes:
    for suffix in _STEP_4:
        if len(word) > len(suffix) and word.endswith(suffix):
            stem = word[: -len(suffix)]
            fits = _vowel_groups(stem) > 1 and (suffix != b"ion" or stem.endswith((b"s", b"t")))
            return stem if fits else word
    return word


def _step_5(word: bytes) -> bytes:
    if word.endswith(b"e"):
        stem = word[:-1]
        measure = _vowel_groups(stem)
        if measure > 1 or (measure == 1 and not _ends_short(stem)):
            word = stem
    if word.endswith(b"ll") and _vowel_groups(word[:-1]) > 1:
        return word[:-1]
    return word


# How often a vowel is followed by a consonant
def _vowel_groups(word: bytes) -> int:
    return _vowels_and_consonants(word).count("vc")


# For each byte ``v`` or ``c``; ``y`` is a vowel after a consonant
def _vowels_and_consonants(word: bytes) -> str:
    kinds, consonant = [], False
    for byte in word:
        consonant = byte not in b"aeiou" and not (consonant and byte == 0x79)
        kinds.append("c" if consonant else "v")
    return "".join(kinds)


def _has_vowel(word: bytes) -> bool:
    return any(byte in b"aeiou" or (place and byte == 0x79) for place, byte in enumerate(word))


def _ends_short(word: bytes) -> bool:
    return not word.endswith((b"w", b"x", b"y")) and _vowels_and_consonants(word).endswith("cvc")
