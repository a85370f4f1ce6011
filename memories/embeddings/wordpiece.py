"""The WordPiece tokenizer of BERT models."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

BUNDLED_VOCABULARY = Path(__file__).parent / "data" / "bert-uncased-vocabulary.txt"

_LONGEST_WORD = 100
# Characters read per token at most; no text has longer tokens on average
_READ_CHARACTERS = 20
_IDEOGRAPHS = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))


class WordPiece:
    """Tokenizer of one vocabulary; lower-cases and strips accents unless ``lowercase`` is off."""

    def __init__(self, pieces: Iterable[str], *, lowercase: bool = True) -> None:
        self._ids = {piece: number for number, piece in enumerate(pieces)}
        self._lowercase = lowercase
        self._unknown = self._ids["[UNK]"]
        self._begin, self._end = self._ids["[CLS]"], self._ids["[SEP]"]
        self._pieces_of = lru_cache(maxsize=20_000)(self._cut)

    @classmethod
    def from_file(cls, path: Path, *, lowercase: bool = True) -> WordPiece:
        return cls(path.read_text(encoding="utf-8").splitlines(), lowercase=lowercase)

    def encode(self, text: str, *, at_most: int) -> list[int]:
        ids: list[int] = []
        for word in self._words(text[: at_most * _READ_CHARACTERS]):
            ids += self._pieces_of(word)
            if len(ids) >= at_most - 2:
                break
        return [self._begin, *ids[: at_most - 2], self._end]

    def _words(self, text: str) -> list[str]:
        clean = "".join(map(_cleaned, text))
        if self._lowercase:
            clean = _without_accents(clean.lower())
        return "".join(map(_parted, clean)).split()

    def _cut(self, word: str) -> tuple[int, ...]:
        if len(word) > _LONGEST_WORD:
            return (self._unknown,)
        pieces, start = [], 0
        while start < len(word):
            piece, start = self._longest(word, start)
            if piece is None:
                return (self._unknown,)
            pieces.append(piece)
        return tuple(pieces)

    def _longest(self, word: str, start: int) -> tuple[int | None, int]:
        prefix = "##" if start else ""
        for end in range(len(word), start, -1):
            piece = self._ids.get(prefix + word[start:end])
            if piece is not None:
                return piece, end
        return None, start


# Control characters go, every space becomes one, and an ideograph is a word of its own
@lru_cache(maxsize=4096)
def _cleaned(character: str) -> str:
    if character in "\t\n\r":
        return " "
    category = unicodedata.category(character)
    if category.startswith("C") or character == "\ufffd":
        return ""
    if category == "Zs":
        return " "
    code = ord(character)
    return f" {character} " if any(first <= code <= last for first, last in _IDEOGRAPHS) else character


def _without_accents(text: str) -> str:
    if text.isascii():
        return text
    return "".join(
        character for character in unicodedata.normalize("NFD", text) if unicodedata.category(character) != "Mn"
    )


# Punctuation is a word of its own
@lru_cache(maxsize=4096)
def _parted(character: str) -> str:
    is_sign = "!" <= character <= "~" and not character.isalnum()
    is_punctuation = is_sign or unicodedata.category(character).startswith("P")
    return f" {character} " if is_punctuation else character
