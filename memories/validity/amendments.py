"""Which entries and messages newer ones amend or contradict: by stored findings, and among the hits of a search."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import chain, combinations
from operator import attrgetter
from typing import Any, NamedTuple

from memories.kinds import BETWEEN_HEADINGS
from memories.models import AmendmentKind
from memories.search.text import STOP_WORDS
from memories.substance import REFERENCE
from memories.validity.amendment_rules import AmendmentEvidence, TitledText, amendment, states_change
from memories.validity.change_words import CHANGE_WORDS
from memories.validity.marks import Mark, MarkKind
from memories.validity.trust import trust_marks, trusts_of
from memoryhub.core.log.quarantine import OUTSIDE
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, TEXTS

# Score factor of an entry that a newer one amends
_AMENDED_WEIGHT = 0.3
# Speaker of a prompt
PERSON = "user"


class Statement(NamedTuple):
    """An entry or a message that is compared with others."""

    id: int
    text: TitledText
    # Comparable
    written_at: Any
    # The author of an entry, or who wrote a message
    speaker: str = ""
    # The session in which it was written, and when that began
    session_id: str = ""
    session_began_at: Any = None


class Pair(NamedTuple):
    newer_id: int
    older_id: int
    kind: AmendmentKind
    # Whether the newer one has words of change, and the same speaker
    is_certain: bool = False
    # The one of a lesser origin, if a person accepted the other
    lesser_id: int = 0
    # False if both may be true: the newer only stands first
    is_marked: bool = True


def compared(older: Statement, newer: Statement) -> Pair | None:
    """Return whether the newer of two statements amends or contradicts the older."""
    evidence = amendment(older.text, newer.text)
    if evidence is None or (evidence is AmendmentEvidence.NEAR and newer.written_at <= older.written_at):
        return None
    kind = AmendmentKind.AMENDS
    if evidence is AmendmentEvidence.VALUE and not _overrules(older, newer):
        kind = AmendmentKind.CONTRADICTS
    is_certain = evidence is AmendmentEvidence.EXPLICIT and newer.speaker == older.speaker
    return Pair(newer.id, older.id, kind, is_certain, is_marked=evidence is not AmendmentEvidence.NEAR)


# Without words of change, a later statement only holds instead if a person or the same author makes it. A session that
# was at work when the older one was written did not know it
def _overrules(older: Statement, newer: Statement) -> bool:
    if newer.text.is_section or newer.written_at <= older.written_at or newer.speaker not in (PERSON, older.speaker):
        return False
    is_other_session = newer.session_id != older.session_id and newer.session_began_at is not None
    return newer.speaker == PERSON or not is_other_session or newer.session_began_at > older.written_at


def amendments_among(statements: Collection[Statement], couples: Sequence[tuple[int, int]] | None = None) -> list[Pair]:
    """Return which statements amend or contradict others, the oldest of these first.

    Args:
        statements: what is compared.
        couples: ids of those that may amend each other; None to look at all.
    """
    by_id = {statement.id: statement for statement in statements}
    order = {key: (statement.written_at, key) for key, statement in by_id.items()}
    if couples is None:
        couples = may_amend({key: statement.text for key, statement in by_id.items()})
    pairs: list[Pair] = []
    for couple in couples:
        older, newer = sorted(couple, key=order.__getitem__)
        if pair := compared(by_id[older], by_id[newer]):
            pairs.append(pair)
    return sorted(pairs, key=lambda pair: order[pair.older_id])


# Words that two texts have in common before they are compared, and their share of the shorter one. If one of them has
# words of change, one word is enough
_LEAST_COMMON, _LEAST_SHARE = 2, 0.3


def may_amend(texts: Mapping[int, TitledText]) -> list[tuple[int, int]]:
    """Return pairs of texts with so many words in common that one may amend the other."""
    sketches = [(key, *_sketch(text)) for key, text in texts.items()]
    pairs: list[tuple[int, int]] = []
    for (one, words, least), (other, other_words, other_least) in combinations(sketches, 2):
        if len(words & other_words) >= min(least, other_least):
            pairs.append((one, other))
    return pairs


# Characters of a text whose words are compared, and of a word: its ending says little
_READ, _BEGINNING = 500, 5
_IGNORED = STOP_WORDS - CHANGE_WORDS
_TO_SPACES = str.maketrans(dict.fromkeys(",.:;!?()`'\"", " "))


# The words of a text, and how many must be common; taking a text apart properly takes longer
@lru_cache(maxsize=4096)
def _sketch(text: TitledText) -> tuple[frozenset[str], float]:
    words = set(f"{text.title} {text.content[:_READ]}".lower().translate(_TO_SPACES).split()) - _IGNORED
    is_changing = not CHANGE_WORDS.isdisjoint(words) and states_change(text)
    beginnings = frozenset([word[:_BEGINNING] for word in words])
    return beginnings, 1 if is_changing else max(_LEAST_COMMON, _LEAST_SHARE * len(beginnings))


# Pairs that a person has dismissed are left out, and those whose other half is deleted, rejected or in quarantine: only
# live entries have a search document
_PAIRS = (
    "SELECT a.newer_id, a.older_id, a.kind, a.is_certain FROM memories_amendment a "
    f"WHERE (a.older_id IN {IDS} OR a.newer_id IN {IDS}) AND (a.is_accepted IS NULL OR a.is_accepted) "
    "AND EXISTS (SELECT 1 FROM memories_searchdocument d WHERE d.id = a.newer_id) "
    "AND EXISTS (SELECT 1 FROM memories_searchdocument d WHERE d.id = a.older_id) "
    f"AND a.newer_id {OUTSIDE} AND a.older_id {OUTSIDE} ORDER BY a.older_id, a.id"
)


@rows.InSteps
def stored_pairs(ids: Sequence[int]) -> rows.Steps[list[Pair]]:
    """Return the findings about entries of the current store, oldest entry first."""
    listed = json.dumps(list(ids))
    (findings,) = yield [(_PAIRS, [listed, listed])]
    pairs: list[Pair] = []
    for newer, older, kind, certain in findings:
        pairs.append(Pair(newer, older, AmendmentKind(kind), bool(certain)))
    return _weighed(pairs)


# A page, the output of a tool or an import contradicts what a person accepted, and does not amend it
def _weighed(pairs: list[Pair]) -> list[Pair]:
    ids = {*(pair.newer_id for pair in pairs), *(pair.older_id for pair in pairs)}
    lesser = trust_marks(ids) if ids else {}
    if not lesser:
        return pairs
    accepted = {key for key, trust in trusts_of(ids).items() if trust.accepted_by}
    weighed: list[Pair] = []
    for pair in pairs:
        if pair.newer_id in lesser and pair.older_id in accepted:
            weighed.append(pair._replace(kind=AmendmentKind.CONTRADICTS, is_certain=False, lesser_id=pair.newer_id))
        elif pair.older_id in lesser and pair.newer_id in accepted:
            weighed.append(pair._replace(lesser_id=pair.older_id))
        else:
            weighed.append(pair)
    return weighed


# Sources whose documents are compared: commits and commands tell what happened
COMPARED = ("memory", "decision", "message")
# What follows in the text of a decision tells why it was chosen
_CHOSEN_END = " — "
_BEGAN = f"SELECT session_id, started_at FROM sessions_app_session WHERE session_id IN {TEXTS}"
# Those that a person has dismissed
_DISMISSED = (
    "SELECT newer_id, older_id FROM memories_amendment "
    f"WHERE newer_id IN {IDS} AND older_id IN {IDS} AND NOT is_accepted"
)
_FACTS = f"SELECT id, updated_at, author FROM memories_memory WHERE id IN {IDS}"


def pairs_among(
    documents: Mapping[int, Mapping[str, Any]], texts: Mapping[int, str], *, about: int | None = None
) -> list[Pair]:
    """Return which entries and messages of the current store, such as hits of a search, amend or contradict others.

    Args:
        documents: columns of their search documents, by id.
        texts: of these documents.
        about: one of them, to return only its pairs.
    """
    compared_texts: dict[int, TitledText] = {}
    for key, document in documents.items():
        if document["source"] in COMPARED:
            title = "" if document["source"] == "message" else document["title"]
            is_section = document["source"] == "memory" and document["type"] == REFERENCE
            if is_section:
                # Without the file
                title = title.partition(BETWEEN_HEADINGS)[2] or title
            content = texts.get(key, "")
            if document["source"] == "decision":
                content = content.partition(_CHOSEN_END)[0]
            compared_texts[key] = TitledText(content, title, is_section)
    couples = may_amend(compared_texts)
    if about is not None:
        couples = [couple for couple in couples if about in couple]
    if not couples:
        return []
    ids = sorted({*chain.from_iterable(couples)})
    sessions = sorted({documents[key]["session_id"] for key in ids})
    written, beginnings, dismissed = rows.fetch_together(
        [(_FACTS, [json.dumps(ids)]), (_BEGAN, [json.dumps(sessions)]), (_DISMISSED, [json.dumps(ids)] * 2)]
    )
    facts = {key: columns for key, *columns in written}
    began = {name: rows.time_text(at) for name, at in beginnings}
    statements: list[Statement] = []
    for key in ids:
        document = documents[key]
        written_at, speaker = facts.get(key, (document["created_at"], document["type"]))
        session_id = document["session_id"]
        statements.append(
            Statement(
                key,
                compared_texts[key],
                rows.time_text(written_at),
                speaker,
                session_id=session_id,
                session_began_at=began.get(session_id),
            )
        )
    return _weighed([pair for pair in amendments_among(statements, couples) if pair[:2] not in dismissed])


def merged_pairs(*lists: Sequence[Pair]) -> list[Pair]:
    """Return the pairs of several lists once each; an earlier list counts more."""
    by_ends: dict[tuple[int, int], Pair] = {}
    for pair in chain.from_iterable(lists):
        by_ends.setdefault((pair.newer_id, pair.older_id), pair)
    return sorted(by_ends.values(), key=lambda pair: (pair.older_id, pair.newer_id))


def amendment_marks(ids: Sequence[int], pairs: Sequence[Pair]) -> dict[int, Mark]:
    """Map entries of the current store that newer ones amend or contradict to marks that name these."""
    amended: dict[int, Pair] = {}
    texts: dict[int, str] = {}
    for pair in pairs:
        if not pair.is_marked:
            continue
        if pair.kind is AmendmentKind.AMENDS:
            amended[pair.older_id] = max(pair, amended.get(pair.older_id, pair), key=attrgetter("newer_id"))
            continue
        if pair.lesser_id != pair.newer_id:
            texts[pair.older_id] = f"contradicts #{pair.newer_id}"
        if pair.lesser_id != pair.older_id:
            texts[pair.newer_id] = f"contradicts #{pair.older_id}"
    marks = {key: Mark(MarkKind.CONTRADICTED, text) for key, text in texts.items()}
    for older, pair in amended.items():
        # One that does not say so itself may be about something else: both are recalled
        text = f"amended by #{pair.newer_id}"
        marks[older] = Mark(MarkKind.AMENDED, text, _AMENDED_WEIGHT, withheld=pair.is_certain)
    return {key: marks[key] for key in ids if key in marks}
