"""Parses questions into terms and FTS5 expressions that no input can break."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memories.search.folding import folded
from memories.search.shaping import MONTHS, UNSPACED, name_parts, pairs

_WORD = re.compile(r"[^\W_]+")
_NAME = re.compile(r"[^\W_]+(?:[-._/:\\]{1,2}[^\W_]+){1,7}")
_ISO_DATE = re.compile(r"\b(\d{4})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])\b")
_MAX_TERMS = 32
_MAX_PHRASES = 4

# English stop words, and what remains of contractions
STOP_WORDS = frozenset(
    """a about after all also am an and any are as at be because been before being but by can could did do does doing
    down during each few for from further had has have having he her here hers him his how i if in into is it its itself
    just me more most my no nor not now of off on once only or other our ours out over own same she should so some such
    than that the their theirs them then there these they this those through to too under until up us very was we were
    what when where which while who whom why will with would you your yours d ll m re s t ve""".split()
)

# Spanish ones, without accents; words that mean something in English or in code are not included
SPANISH_STOP_WORDS = frozenset(
    """al aquel aquella como con cual cuales cuando cuanto cuantos de del desde donde el ella ellas ellos en es esa ese
    eso esta estaba estaban estan estas este esto estos fue fueron ha hace hacia han hasta hay la las le les lo los mas
    mi mis muy nos nosotros o para pero por porque que quien quienes se ser si sobre su sus tambien te tenemos tiene un
    una unas unos y ya""".split()
)


@dataclass(frozen=True, slots=True)
class SourceHint:
    """Wording by which a question asks for one source, such as "what did we decide" for decisions."""

    source: str
    # Matches such a question
    pattern: re.Pattern[str]
    # Words that name the source instead of the subject: not search terms
    words: re.Pattern[str]
    # Factor on the scores of the source's documents
    weight: float


_hints: list[SourceHint] = []


def define_source_hint(source: str, *, pattern: str, words: str, weight: float) -> None:
    """Register a ``SourceHint``; the patterns ignore case."""
    _hints.append(SourceHint(source, re.compile(pattern, re.IGNORECASE), re.compile(words, re.IGNORECASE), weight))


def hints_in(question: str) -> tuple[SourceHint, ...]:
    return tuple(hint for hint in _hints if hint.pattern.search(question))


def terms(question: str) -> list[str]:
    """Return the distinct search terms; stop words only if nothing else is left.

    A camelCase name gives the whole and its parts; unspaced text every adjacent pair of characters; a date such as
    2023-05-08 its day and month in words.
    """
    plain = folded(question)
    return list(terms_without(plain, hints_in(plain)))


def terms_without(question: str, hints: Sequence[SourceHint]) -> tuple[str, ...]:
    rest = question
    for hint in hints:
        rest = hint.words.sub(" ", rest)
    telling = [word for word in dict.fromkeys(_words(rest)) if not is_stop_word(word)]
    return tuple((telling or list(dict.fromkeys(_words(question))))[:_MAX_TERMS])


def is_stop_word(word: str) -> bool:
    return word in STOP_WORDS or _without_accents(word) in SPANISH_STOP_WORDS


def phrases(question: str) -> list[str]:
    """Return names of several parts (``a.b_c``, ``src/a.py:3``, ``write-ahead``), each as its words."""
    found = [" ".join(_WORD.findall(name.lower())) for name in _NAME.findall(folded(question))]
    return list(dict.fromkeys(found))[:_MAX_PHRASES]


def match_any(words: Sequence[str]) -> str:
    # Quoted, so that no word is an operator
    return " OR ".join(f'"{word}"*' if _is_single_character(word) else f'"{word}"' for word in words)


# A single character of an unspaced run is indexed as the first of a pair, so it needs a prefix query
def _is_single_character(word: str) -> bool:
    return len(word) == 1 and bool(UNSPACED.match(word))


def _words(question: str) -> Iterator[str]:
    for year, month, day in _ISO_DATE.findall(question):
        yield from (str(int(day)), MONTHS[int(month) - 1].lower(), year)
    for token in _WORD.findall(_ISO_DATE.sub(" ", question)):
        if not token.isascii() and UNSPACED.search(token):
            yield from _unspaced(token)
            continue
        yield token.lower()
        yield from (part.lower() for part in name_parts(token))


def _unspaced(token: str) -> Iterator[str]:
    for run in UNSPACED.findall(token):
        yield from pairs(run) or [run]
    yield from UNSPACED.sub(" ", token).lower().split()


def _without_accents(word: str) -> str:
    if word.isascii():
        return word
    return "".join(
        character for character in unicodedata.normalize("NFD", word) if not unicodedata.combining(character)
    )
