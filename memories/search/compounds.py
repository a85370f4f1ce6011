"""Parts of words that no document of a store has: ``Bestelltabelle`` finds *Tabelle der Bestellungen* (decision 51)."""

from __future__ import annotations

from dataclasses import replace

from memories.search.languages import LATIN, other_forms
from memories.search.parsed_query import ParsedQuery
from memories.search.shaping import UNSPACED
from memories.search.text import STOP_WORDS, forms_of, term
from memories.search.text_index import text_index

_LEAST_PART = 4
_LONGEST = 40
# German puts one of these between parts
_JOINTS = ("s", "n", "es", "en")


def with_parts(query: ParsedQuery) -> ParsedQuery:
    """Return a question whose long words that the current store does not have also stand for their parts."""
    if _is_english(query) or not (long := [word for word in query.terms if _may_have_parts(word)]):
        return query
    missing = set(long) - text_index.known(long)
    terms = (term(word, _further(word)) if word in missing else word for word in query.terms)
    return replace(query, terms=tuple(terms)) if missing else query


def _is_english(query: ParsedQuery) -> bool:
    return not STOP_WORDS.isdisjoint(query.text.lower().split()) and not any(map(forms_of, query.terms))


def _may_have_parts(word: str) -> bool:
    return 2 * _LEAST_PART <= len(word) <= _LONGEST and word.isalpha() and not UNSPACED.match(word)


# A question of a few words may be in any language
def _further(word: str) -> tuple[str, ...]:
    others = () if forms_of(word) else other_forms(word, LATIN)
    return others if others and text_index.known([term(word, others)]) else (*others, *_parts(word))


# One part at least is a whole word, which is looked up first: beginnings of words take long in a large store
def _parts(word: str) -> tuple[str, ...]:
    splits = [(word[:place], word[place:]) for place in range(_LEAST_PART, len(word) - _LEAST_PART + 1)]
    forms = {part: _forms(part) for split in splits for part in split}
    whole = text_index.known([form for part in forms.values() for form in part])
    candidates = []
    for split in splits:
        left, right = (next((form for form in forms[part] if form in whole), f"{forms[part][-1]}*") for part in split)
        if left in whole or right in whole:
            candidates.append((left, right))
    found = whole | text_index.known(list({part for pair in candidates for part in pair} - whole))
    return max((pair for pair in candidates if found.issuperset(pair)), key=_likelihood, default=())


# A part, its stem and it without what joins it to the next
def _forms(part: str) -> list[str]:
    short = [part[: -len(joint)] for joint in _JOINTS if part.endswith(joint)]
    stems = [form.rstrip("*") for form in other_forms(part, ["german"])]
    return [part, *(form for form in dict.fromkeys((*short, *stems)) if len(form) >= _LEAST_PART and form != part)]


# Whole words before beginnings of words, then parts of similar length
def _likelihood(pair: tuple[str, str]) -> tuple[int, int]:
    return -sum(part.endswith("*") for part in pair), min(map(len, pair))
