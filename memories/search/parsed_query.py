"""A search question, parsed once and passed to every step; long words also stand for their parts (decision 51)."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from memories.schemas import MemorySearch
from memories.scopes import Level
from memories.search.index import text_index
from memories.search.output import errors_first
from memories.search.text import (
    LATIN,
    STOP_WORDS,
    UNSPACED,
    SourceHint,
    all_forms,
    folded,
    forms_of,
    hints_in,
    is_prefix,
    other_forms,
    phrases,
    term,
    terms_without,
)
from memoryhub.core.log.quarantine import OUTSIDE
from memoryhub.core.stores import rows
from sessions_app.selectors import find_iteration

# SQL on ``{id}``, the column with a document's id, and on ``d``, its row; with the parameters
Condition = tuple[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    text: str
    # Search terms, folded as the index is
    terms: tuple[str, ...]
    # The same as they were written, for LIKE
    literal_terms: tuple[str, ...]
    # Names of several parts, each as words in their order
    phrases: tuple[str, ...]
    # Sources that the wording asks for
    hints: tuple[SourceHint, ...]
    filters: tuple[Condition, ...] = ()

    def among(self, sources: Sequence[str]) -> ParsedQuery:
        """Return the same question for some sources, without other filters."""
        return replace(self, filters=(_is_one_of("d.source", sources),))

    def conditions(self, level: Level | None, column: str) -> tuple[list[str], list[Any]]:
        """Return the SQL conditions on a hit, with their parameters; all memories are visible without a level.

        ``column`` is the one with the document's id.
        """
        conditions = [f"{column} {OUTSIDE}"]
        parameters: list[Any] = []
        restrictions = [level.restrict(column)] if level else []
        for sql, values in (*restrictions, *self.filters):
            if sql:
                conditions.append(sql.format(id=column))
                parameters += values
        return conditions, parameters


def parse(question: str) -> ParsedQuery:
    text = errors_first(question)
    folded_text = folded(text)
    written = unicodedata.normalize("NFC", text)
    # All three forms of ASCII are the same; each is parsed once
    hints = {form: hints_in(form) for form in {text, folded_text, written}}
    terms = {form: terms_without(form, hints[form]) for form in {folded_text, written}}
    return ParsedQuery(text, terms[folded_text], terms[written], tuple(phrases(folded_text)), hints[text])


def parse_search(command: MemorySearch) -> ParsedQuery:
    """Parse a search with its filters.

    Raises:
        NotFound: there is no such iteration in the current store.
    """
    return replace(parse(command.query), filters=tuple(_filters(command)))


def _filters(command: MemorySearch) -> Iterator[Condition]:
    if command.sources:
        yield _is_one_of("d.source", command.sources)
    for column in ("kind", "type", "session_id"):
        if value := getattr(command, column):
            yield f"d.{column} = %s", [value]
    if command.since:
        yield "d.created_at >= %s", [rows.time_value(command.since)]
    if command.until:
        yield "d.created_at < %s", [rows.time_value(command.until)]
    if command.iteration_id:
        # Created while the iteration was active, or one of its commits
        iteration = find_iteration(command.iteration_id)
        yield (
            "(({id} BETWEEN %s AND %s AND d.source <> 'commit') OR "
            "{id} IN (SELECT id FROM sessions_app_commit WHERE iteration_id = %s))",
            [iteration.id, iteration.end_position or 2**62, iteration.id],
        )
    for tag in command.tags:
        # Unary plus: SQLite would otherwise match the text once for each memory with the tag
        yield "+{id} IN (SELECT memory_id FROM memories_memorytag WHERE tag = %s)", [tag]


def _is_one_of(column: str, values: Sequence[str]) -> Condition:
    return f"{column} IN ({', '.join(['%s'] * len(values))})", list(values)


_LEAST_PART = 4
_LONGEST = 40
# German puts one of these between parts
_JOINTS = ("s", "n", "es", "en")


def with_parts(query: ParsedQuery) -> ParsedQuery:
    """Return a question whose long words that the current store does not have also stand for their parts."""
    is_foreign = any(map(is_prefix, all_forms(query.terms)))
    is_english = not is_foreign and not STOP_WORDS.isdisjoint(query.text.lower().split())
    lengths = range(2 * _LEAST_PART, _LONGEST + 1)
    long = [word for word in query.terms if len(word) in lengths and word.isalpha() and not UNSPACED.match(word)]
    if is_english or not long:
        return query
    missing = set(long) - text_index.existing(long)
    if not missing:
        return query
    terms = (term(word, _further_forms(word)) if word in missing else word for word in query.terms)
    return replace(query, terms=tuple(terms))


# A question of a few words may be in any language
def _further_forms(word: str) -> tuple[str, ...]:
    if forms_of(word):
        return _parts_of(word)
    forms = other_forms(word, LATIN)
    if forms and text_index.existing([term(word, forms)]):
        return forms
    return (*forms, *_parts_of(word))


# One part at least is a whole word, which is looked up first: beginnings of words take long in a large store
def _parts_of(word: str) -> tuple[str, ...]:
    splits = [(word[:place], word[place:]) for place in range(_LEAST_PART, len(word) - _LEAST_PART + 1)]
    forms: dict[str, list[str]] = {}
    for part in chain.from_iterable(splits):
        # A part, its stem and it without what joins it to the next
        short = [part.removesuffix(joint) for joint in _JOINTS]
        stems = [form.rstrip("*") for form in other_forms(part, ["german"])]
        forms[part] = [form for form in dict.fromkeys((part, *short, *stems)) if len(form) >= _LEAST_PART]
    whole = text_index.existing(list(chain.from_iterable(forms.values())))
    # A whole word of the store, or else the beginning of one
    best = {part: next((form for form in forms[part] if form in whole), f"{forms[part][-1]}*") for part in forms}
    pairs = [(best[first], best[second]) for first, second in splits]
    candidates = [pair for pair in pairs if not whole.isdisjoint(pair)]
    existing = whole | text_index.existing(list({*chain.from_iterable(candidates)} - whole))
    # Whole words before beginnings of words, then parts of similar length
    likely = [pair for pair in candidates if existing.issuperset(pair)]
    return max(likely, key=lambda pair: (-"".join(pair).count("*"), min(map(len, pair))), default=())
