"""Which entries and messages newer ones amend or contradict: by stored findings, and among the hits of a search."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, combinations
from typing import Any, NamedTuple

from memories.models import AmendmentKind
from memories.search.text import STOP_WORDS
from memories.validity.amendment_rules import CHANGE_WORDS, TitledText, amendment, states_change
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
    # False for sections of documents: when they were imported says nothing
    can_amend: bool = True
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


def compared(older: Statement, newer: Statement) -> Pair | None:
    """Return whether the newer of two statements amends or contradicts the older."""
    if not newer.can_amend:
        return None
    finding = amendment(older.text, newer.text)
    if finding is None:
        return None
    kind = AmendmentKind.CONTRADICTS
    if finding.is_explicit or _overrules(older, newer):
        kind = AmendmentKind.AMENDS
    return Pair(newer.id, older.id, kind, finding.is_explicit and newer.speaker == older.speaker)


# Without words of change, a later statement only holds instead if a person or the same author makes it. A session that
# was at work when the older one was written did not know it
def _overrules(older: Statement, newer: Statement) -> bool:
    if newer.written_at <= older.written_at or newer.speaker not in (PERSON, older.speaker):
        return False
    is_other_session = newer.session_id != older.session_id and newer.session_began_at is not None
    return newer.speaker == PERSON or not is_other_session or newer.session_began_at > older.written_at


def amendments_among(statements: Collection[Statement]) -> list[Pair]:
    """Return which statements amend or contradict others, the oldest of these first."""
    return amendments_of(may_amend({statement.id: statement.text for statement in statements}), statements)


def amendments_of(couples: Iterable[tuple[int, int]], statements: Collection[Statement]) -> list[Pair]:
    by_id = {statement.id: statement for statement in statements}
    order = {key: (statement.written_at, key) for key, statement in by_id.items()}
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
    words = {key: _words(text) for key, text in texts.items()}
    changing = {key for key in texts if not CHANGE_WORDS.isdisjoint(words[key]) and states_change(texts[key])}
    pairs: list[tuple[int, int]] = []
    for one, other in combinations(words, 2):
        common = len(words[one] & words[other])
        if one in changing or other in changing:
            is_near = common > 0
        else:
            is_near = common >= max(_LEAST_COMMON, _LEAST_SHARE * min(len(words[one]), len(words[other])))
        if is_near:
            pairs.append((one, other))
    return pairs


# Characters of a text whose words are compared
_READ = 500
_IGNORED = STOP_WORDS - CHANGE_WORDS


# Without the punctuation after words; taking texts apart properly takes longer than all the rest
@lru_cache(maxsize=2048)
def _words(text: TitledText) -> frozenset[str]:
    plain = f"{text.title} {text.content[:_READ]}".lower().replace(", ", " ").replace(". ", " ").replace(": ", " ")
    return frozenset(plain.rstrip(".!").split()) - _IGNORED


# Pairs that a person has dismissed are left out, and those whose other half is deleted, rejected or in quarantine: only
# live entries have a search document
_PAIRS = (
    "SELECT a.newer_id, a.older_id, a.kind, a.is_certain FROM memories_amendment a "
    f"WHERE (a.older_id IN {IDS} OR a.newer_id IN {IDS}) AND (a.is_accepted IS NULL OR a.is_accepted) "
    "AND EXISTS (SELECT 1 FROM memories_searchdocument d WHERE d.id = a.newer_id) "
    "AND EXISTS (SELECT 1 FROM memories_searchdocument d WHERE d.id = a.older_id) "
    f"AND a.newer_id {OUTSIDE} AND a.older_id {OUTSIDE} ORDER BY a.older_id, a.id"
)


def stored_pairs(ids: Sequence[int]) -> list[Pair]:
    """Return the findings about entries of the current store, oldest entry first."""
    listed = json.dumps(list(ids))
    pairs: list[Pair] = []
    for newer, older, kind, certain in rows.fetch(_PAIRS, [listed, listed]):
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
            weighed.append(Pair(pair.newer_id, pair.older_id, AmendmentKind.CONTRADICTS, lesser_id=pair.newer_id))
        elif pair.older_id in lesser and pair.newer_id in accepted:
            weighed.append(pair._replace(lesser_id=pair.older_id))
        else:
            weighed.append(pair)
    return weighed


_DISMISSED = (
    "SELECT newer_id, older_id FROM memories_amendment "
    f"WHERE newer_id IN {IDS} AND older_id IN {IDS} AND NOT is_accepted"
)


def dismissed_among(ids: Sequence[int]) -> set[tuple[int, int]]:
    """Return the pairs of newer and older entries that a person has dismissed."""
    listed = json.dumps(list(ids))
    return set(rows.fetch(_DISMISSED, [listed, listed]))


# Sources whose documents are compared: commits and commands tell what happened
COMPARED = ("memory", "decision", "message")
# What follows in the text of a decision tells why it was chosen
_CHOSEN_END = " — "
_BEGAN = f"SELECT session_id, started_at FROM sessions_app_session WHERE session_id IN {TEXTS}"
_FACTS = f"SELECT id, updated_at, author, type FROM memories_memory WHERE id IN {IDS}"


def pairs_among(documents: Mapping[int, Mapping[str, Any]], texts: Mapping[int, str]) -> list[Pair]:
    """Return which entries and messages of the current store, such as hits of a search, amend or contradict others.

    Args:
        documents: columns of their search documents, by id.
        texts: of these documents.
    """
    compared_texts: dict[int, TitledText] = {}
    for key, document in documents.items():
        if document["source"] in COMPARED:
            title = "" if document["source"] == "message" else document["title"]
            content = texts.get(key, "")
            if document["source"] == "decision":
                content = content.partition(_CHOSEN_END)[0]
            compared_texts[key] = TitledText(content, title)
    couples = may_amend(compared_texts)
    if not couples:
        return []
    ids = sorted({*chain.from_iterable(couples)})
    facts = {key: columns for key, *columns in rows.fetch(_FACTS, [json.dumps(ids)])}
    sessions = {documents[key]["session_id"] for key in ids}
    began = {name: rows.time_text(at) for name, at in rows.fetch(_BEGAN, [json.dumps(sorted(sessions))])}
    statements: list[Statement] = []
    for key in ids:
        document = documents[key]
        written_at, speaker, type_name = facts.get(key, (document["created_at"], document["type"], ""))
        session_id = document["session_id"]
        statements.append(
            Statement(
                key,
                compared_texts[key],
                rows.time_text(written_at),
                speaker,
                can_amend=type_name != "reference",
                session_id=session_id,
                session_began_at=began.get(session_id),
            )
        )
    dismissed = dismissed_among(ids)
    pairs = amendments_of(couples, statements)
    return _weighed([pair for pair in pairs if (pair.newer_id, pair.older_id) not in dismissed])


def merged_pairs(*lists: Sequence[Pair]) -> list[Pair]:
    """Return the pairs of several lists once each; an earlier list counts more."""
    by_ends: dict[tuple[int, int], Pair] = {}
    for pair in chain.from_iterable(lists):
        by_ends.setdefault((pair.newer_id, pair.older_id), pair)
    return sorted(by_ends.values(), key=lambda pair: (pair.older_id, pair.newer_id))


def amendment_marks(ids: Sequence[int], pairs: Sequence[Pair] | None = None) -> dict[int, Mark]:
    """Map entries of the current store that newer ones amend or contradict to marks that name these."""
    amended: dict[int, int] = {}
    contradicted: dict[int, int] = {}
    for pair in stored_pairs(ids) if pairs is None else pairs:
        if pair.kind is AmendmentKind.AMENDS:
            amended[pair.older_id] = max(pair.newer_id, amended.get(pair.older_id, 0))
        else:
            if pair.lesser_id != pair.newer_id:
                contradicted[pair.older_id] = pair.newer_id
            if pair.lesser_id != pair.older_id:
                contradicted[pair.newer_id] = pair.older_id
    marks = {key: Mark(MarkKind.CONTRADICTED, f"contradicts #{other}") for key, other in contradicted.items()}
    for older, newer in amended.items():
        marks[older] = Mark(MarkKind.AMENDED, f"amended by #{newer}", _AMENDED_WEIGHT, withheld=True)
    return {key: marks[key] for key in ids if key in marks}
