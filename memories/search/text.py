"""Parse questions into terms and FTS5 expressions that no input can break."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from memories.search.folding import folded
from memories.search.languages import STOP_WORDS_OF, chinese_forms, languages_of, other_forms, without_accents
from memories.search.shaping import MONTHS, UNSPACED, name_parts, pairs, sign_word, signs_in

_WORD = re.compile(r"[^\W_]+")
_NAME = re.compile(r"[^\W_]+(?:[-._/:\\]{1,2}[^\W_]+){1,7}")
_ISO_DATE = re.compile(r"\b(\d{4})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])\b")
# The beginning of a commit's id, or all of it, in the lengths that people shorten it to
_HASH = re.compile(r"(?=[a-f]*\d)[0-9a-f]{7,64}")
_SHORT_HASHES = (7, 8, 9, 10, 12)
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


class Term(str):
    """A search term with further forms that count as the same word; one that ends with ``*`` is a prefix."""

    forms: tuple[str, ...] = ()


def forms_of(word: str) -> tuple[str, ...]:
    return word.forms if isinstance(word, Term) else ()


def all_forms(words: Iterable[str]) -> list[str]:
    return [form for word in words for form in (word, *forms_of(word))]


def is_prefix(form: str) -> bool:
    return form.endswith("*") and form[0].isalnum()


def term(word: str, forms: Iterable[str]) -> str:
    """Return a word as a search term, with its further forms."""
    if not (others := tuple(form for form in dict.fromkeys((*forms_of(word), *forms)) if form != word)):
        return word
    made = Term(word)
    made.forms = others
    return made


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
    words = list(dict.fromkeys(_words(rest)))
    languages = languages_of(words, STOP_WORDS)
    telling = [word for word in words if not _is_stop_word(word, languages)]
    found = (telling or list(dict.fromkeys(_words(question))))[:_MAX_TERMS]
    chinese = {} if rest.isascii() else chinese_forms(rest)
    return tuple(term(word, _forms(word, languages, chinese)) for word in found)


def _forms(word: str, languages: Sequence[str], chinese: Mapping[str, Sequence[str]]) -> Iterable[str]:
    if _HASH.fullmatch(word):
        return (f"{word}*", *(word[:length] for length in _SHORT_HASHES if length < len(word)))
    return chinese.get(word, ()) if UNSPACED.match(word) else other_forms(word, languages) if languages else ()


def _is_stop_word(word: str, languages: Sequence[str]) -> bool:
    return word in STOP_WORDS or any(without_accents(word) in STOP_WORDS_OF[language] for language in languages)


def phrases(question: str) -> list[str]:
    """Return names of several parts (``a.b_c``, ``src/a.py:3``, ``write-ahead``), each as its words."""
    found = [" ".join(_WORD.findall(name.lower())) for name in _NAME.findall(folded(question))]
    return list(dict.fromkeys(found))[:_MAX_PHRASES]


def match_any(words: Iterable[str]) -> str:
    return " OR ".join(map(_matching, all_forms(words)))


# Quoted, so that no word is an operator
def _matching(word: str) -> str:
    text, beginning = indexed_form(word)
    return f'"{text}"*' if beginning else f'"{text}"'


def indexed_form(word: str) -> tuple[str, bool]:
    """Return the text that stands for a form in the index, and whether it is the beginning of a word only."""
    if is_prefix(word):
        return word[:-1], True
    return (word, True) if _is_single_character(word) else (sign_word(word), False)


# A single character of an unspaced run is indexed as the first of a pair, so it needs a prefix query
def _is_single_character(word: str) -> bool:
    return len(word) == 1 and bool(UNSPACED.match(word))


def _words(question: str) -> Iterator[str]:
    yield from signs_in(question)
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
