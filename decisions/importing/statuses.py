"""The status of a record, read from its words with their subject and negation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from decisions.importing.vocabulary import (
    FILLERS,
    NO_LONGER,
    NO_LONGER_PHRASES,
    NOT,
    NOT_PHRASES,
    NOT_YET,
    NOT_YET_PHRASES,
    PART_OF,
    PARTLY,
    PARTLY_PHRASES,
    RELATIONS,
    REPLACED_BY_PRECEDING,
    STATUS_PHRASES,
    STATUS_WORDS,
    Part,
    normal_name,
)
from decisions.models import DecisionStatus
from memoryhub.core.errors import Invalid

_STATUS_OF_WORD = {word: status for status, words in STATUS_WORDS.items() for word in words.split()}
_STATUS_OF_PHRASE = sorted(
    ((phrase, status) for status, phrases in STATUS_PHRASES.items() for phrase in phrases.split()),
    key=lambda item: -len(item[0]),
)
# What an accepted decision is instead, by the negation before the word; None if that is not known
_NEGATIONS: list[tuple[list[str], DecisionStatus | None]] = [
    *((phrase.split(), DecisionStatus.PROPOSED) for phrase in NOT_YET),
    *((phrase.split(), DecisionStatus.DEPRECATED) for phrase in NO_LONGER),
    *((phrase.split(), None) for phrase in NOT),
]
_NEGATION_PHRASES: list[tuple[str, DecisionStatus | None]] = [
    *((phrase, DecisionStatus.PROPOSED) for phrase in NOT_YET_PHRASES),
    *((phrase, DecisionStatus.DEPRECATED) for phrase in NO_LONGER_PHRASES),
    *((phrase, None) for phrase in NOT_PHRASES),
]
_RELATION = re.compile("|".join(pattern for pattern, _, _ in RELATIONS), re.IGNORECASE)
# A link or a record's number: what follows it speaks of that record
_RECORD = "\N{SECTION SIGN}"
_LINK = re.compile(r"!?\[[^\[\]]*\](?:\([^()]*\)|\[[^\[\]]*\])|\bADR[-_ ]?#?\d+", re.IGNORECASE)
_STRUCK_OR_ASIDE = re.compile(r"~~.*?~~|\([^()]*\)|（[^（）]*）", re.DOTALL)
_SENTENCE = re.compile(r"[.。;；!?！？](?=\s|\Z|[^\x00-\x7f])|\n+|->|=>|→")
_ARROW = re.compile("->|=>|→")
_WORD = re.compile(rf"[^\W\d_]+(?:['’][^\W\d_]+)?|{_RECORD}")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_UNSPACED_PASSIVE = re.compile(
    rf"[被由][^，。；\n]{{0,300}}(?:取代|替代|替换|替換)|{_RECORD}{REPLACED_BY_PRECEDING.pattern}"
)
_PARTS = re.compile(r"[,，、]|\s[-–—]+\s")
_BY = re.compile(r"\b(?:by|durch|von|par|por)\b", re.IGNORECASE)
# Longer texts tell the history of a record
_MAX_LENGTH = 20_000
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


class _Clause(NamedTuple):
    status: DecisionStatus
    date: str


def status_of(text: str) -> DecisionStatus:
    """Parse a status; one that is empty or only names other records is accepted.

    A status of another record or of a section is not the record's own. ``superseded`` outweighs the other words, which
    a record keeps from before; of several with a date the latest counts, after an arrow the last, else the first.

    Raises:
        Invalid: no status is recognised.
    """
    plain = _plain(text[:_MAX_LENGTH])
    if not plain.strip():
        return DecisionStatus.ACCEPTED
    sentences = list(_SENTENCE.split(plain)) if plain.count("|") < 2 else []
    clauses = list(_clauses(sentences))
    if any(clause.status is DecisionStatus.SUPERSEDED for clause in clauses):
        return DecisionStatus.SUPERSEDED
    if clauses and _ARROW.search(plain):
        return clauses[-1].status
    if clauses:
        return max(clauses, key=lambda clause: clause.date).status if _is_history(clauses) else clauses[0].status
    if sentences and _names_records_only(sentences):
        return DecisionStatus.ACCEPTED
    raise Invalid(f"status {text.strip()[:60]!r} is unknown; use one of {', '.join(DecisionStatus)}")


def _plain(text: str) -> str:
    unlinked = _STRUCK_OR_ASIDE.sub(" ", _LINK.sub(f" {_RECORD} ", text))
    return re.sub(r"[*`\"“”„«»]|(?<!\w)_|_(?!\w)", "", unlinked)


def _clauses(sentences: Sequence[str]) -> Iterator[_Clause]:
    for number, sentence in enumerate(filter(str.strip, sentences)):
        date = _DATE.search(sentence)
        for place, part in enumerate(_PARTS.split(_without_label(sentence))):
            status = _status_of_clause(part)
            is_first = number == place == 0
            # Further ones say what became of it: `Accepted. Superseded by …`, not `Accepted, replaced the old one`
            is_later = place == 0 and status is not DecisionStatus.SUPERSEDED
            if status and (is_first or is_later or _is_passive(part, status)):
                yield _Clause(status, date[0] if date else "")


def _is_passive(part: str, status: DecisionStatus) -> bool:
    is_alone = len(_WORD.findall(part)) == 1
    return status is DecisionStatus.SUPERSEDED and (is_alone or bool(_BY.search(part) or _UNSPACED.search(part)))


# `Status: accepted`, `2026-01-31: accepted`
def _without_label(sentence: str) -> str:
    undated = re.sub(rf"\A[^\w{_RECORD}]*(?:\d{{4}}-\d{{2}}-\d{{2}}\W+)?", "", sentence)
    label, _, value = undated.replace("：", ":").partition(":")
    return value if PART_OF.get(normal_name(label)) is Part.STATUS else undated


def _is_history(clauses: Sequence[_Clause]) -> bool:
    return len(clauses) > 1 and all(clause.date for clause in clauses)


def _names_records_only(sentences: Sequence[str]) -> bool:
    first = next((sentence for sentence in sentences if sentence.strip()), "")
    return bool(_RELATION.match(first.strip(" -*+\n")))


# The clause begins with the status; before it are at most adverbs and words that mean the record itself.
def _status_of_clause(clause: str) -> DecisionStatus | None:
    if _UNSPACED.search(clause):
        return _status_of_unspaced(clause)
    words = [match[0].casefold() for match in _WORD.finditer(clause)]
    is_partial, negation = False, None
    while words:
        is_partial = is_partial or words[0] in PARTLY
        if words[0] in _STATUS_OF_WORD:
            return _qualified(_STATUS_OF_WORD[words[0]], negation, is_partial=is_partial)
        here = next((item for item in _NEGATIONS if words[: len(item[0])] == item[0]), None)
        if here is None and words[0] not in FILLERS | PARTLY:
            return None
        negation = here or negation
        words = words[len(here[0]) if here else 1 :]
    return None


def _status_of_unspaced(clause: str) -> DecisionStatus | None:
    is_partial = bool(PARTLY_PHRASES.search(clause))
    if _UNSPACED_PASSIVE.search(clause):
        return _qualified(DecisionStatus.SUPERSEDED, None, is_partial=is_partial)
    for phrase, status in _STATUS_OF_PHRASE:
        if phrase in clause:
            around = clause.replace(phrase, "", 1)
            negation = next((item for item in _NEGATION_PHRASES if item[0] in around), None)
            return _qualified(status, negation, is_partial=is_partial)
    return None


def _qualified(
    status: DecisionStatus, negation: tuple[Any, DecisionStatus | None] | None, *, is_partial: bool
) -> DecisionStatus | None:
    if negation:
        return negation[1] if status is DecisionStatus.ACCEPTED else None
    if is_partial and status in (DecisionStatus.SUPERSEDED, DecisionStatus.DEPRECATED):
        return DecisionStatus.ACCEPTED
    return status
