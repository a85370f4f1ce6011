"""Search documents of decisions, and of commits by the decisions that they implement."""

from __future__ import annotations

from collections.abc import Sequence

from decisions.edges import heads
from decisions.events import DECISION_EVIDENCED, DECISION_RECORDED, IMPORT_KEY, DecisionEvidenced, DecisionRecorded
from decisions.models import EdgeRelation
from decisions.present import note_text
from decisions.selectors import find_decisions, views
from memories.models import EndType
from memories.search.text import define_source_hint
from memories.search.weights import define_demotion, define_notes, define_successors
from memories.superseded import SUPERSEDED_WEIGHT, define_successor
from memoryhub.core import clock
from memoryhub.core.events.projection import Event
from memoryhub.core.log.quarantine import OUTSIDE
from memoryhub.core.search import Document, define_text, indexed_when
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, json_list
from sessions_app.events import COMMIT_LINKED, COMMIT_RECORDED, CommitLinked, CommitRecorded
from sessions_app.models import Commit
from sessions_app.search import known_commit_document

define_text(
    "decision",
    "SELECT id, title, chosen || CASE rationale WHEN '' THEN '' ELSE ' — ' || rationale END "
    "|| CASE context WHEN '' THEN '' ELSE ' — ' || context END FROM decisions_decision",
)


# Includes the text of superseded decisions; linked commits are indexed again with its words.
@indexed_when(DECISION_RECORDED)
def decision_document(event: Event[DecisionRecorded]) -> list[Document]:
    payload = event.payload
    replaced = [edge.to for edge in payload.edges if edge.relation is EdgeRelation.SUPERSEDES]
    options = "\n".join(f"{alternative.option} {alternative.why_not}" for alternative in payload.alternatives)
    texts = (payload.context, payload.chosen, payload.rationale, options, payload.topic, _titles(replaced))
    document = Document(
        id=event.position,
        source="decision",
        type="decision",
        title=payload.title,
        body="\n".join(filter(None, texts)),
        created_at=clock.from_text(payload.decided_at) if payload.decided_at else event.occurred_at,
        session_id=event.session_id,
    )
    return [document, *_commits([commit.commit_id for commit in payload.commits])]


@indexed_when(DECISION_EVIDENCED)
def evidenced_commits(event: Event[DecisionEvidenced]) -> list[Document]:
    return _commits([commit.commit_id for commit in event.payload.commits])


@indexed_when(COMMIT_RECORDED, COMMIT_LINKED)
def linked_commit(event: Event[CommitRecorded | CommitLinked]) -> list[Document]:
    payload = event.payload
    return _commits([payload.commit_id if isinstance(payload, CommitLinked) else event.position])


_REPLACED = "SELECT id FROM decisions_decision WHERE status IN ('superseded', 'deprecated', 'rejected')"


def find_successors(ids: Sequence[int]) -> rows.Steps[dict[int, list[int]]]:
    """Map decisions that are no longer in force to those that replace them."""
    (ids_of_replaced,) = yield [(f"{_REPLACED} AND id IN {IDS}", [json_list(ids)])]
    replaced = heads(sorted(decision_id for (decision_id,) in ids_of_replaced))
    return {decision_id: current for decision_id, current in replaced.items() if current != [decision_id]}


def evidence_notes(ids: Sequence[int]) -> rows.Steps[dict[int, str]]:
    yield []  # the ORM asks
    return {decision["id"]: note_text(decision) for decision in views(find_decisions(ids))}


_VERBS = "(?:decided?|chosen?|choose|chose|picked?|settled?|agreed?)"
_NOUNS = "(?:decisions?|decidimos|decidi[oó]|decisi[oó]n|decisiones)"
# Questions about decisions: what did we decide about …, why was … chosen, which decisions …
QUESTION = rf"""(?x)\b(?:
  (?:did|do|have|had) \s+ (?:we|you|they) \s+ (?:\w+\s+)? {_VERBS}
  | (?:we|they) (?:'ve|\s+have|\s+had)? \s+ {_VERBS}
  | (?:was|were|been|is|are|got) \s+ (?:[\w-]+\s+){{0,6}}? {_VERBS}
  | {_NOUNS}
)\b"""
# Score factor of decisions for such a question.
QUESTION_WEIGHT = 2.0

define_source_hint("decision", pattern=QUESTION, words=rf"\b(?:{_VERBS}|{_NOUNS})\b", weight=QUESTION_WEIGHT)
define_demotion(_REPLACED, SUPERSEDED_WEIGHT, why="replaced")
define_successors(find_successors)
define_notes("decision", evidence_notes)

# Sections of a record that an older version imported as Markdown: they have its file and its title. A decision that was
# recorded by hand may name any file as its source. The condition on the source is written as in its index.
_RECORD_OF_SECTION = (
    "decisions_decision d WHERE NOT (d.source = '') AND d.source = m.source "
    "AND replace(m.title, d.title, '') <> m.title AND EXISTS (SELECT 1 FROM raw_events e "
    f"WHERE e.position = d.id AND substr(e.idempotency_key, 1, {len(IMPORT_KEY)}) = '{IMPORT_KEY}') AND d.id {OUTSIDE}"
)
_SECTION_OF_RECORD = f"substr(m.topic_key, 1, 7) = 'import:' AND EXISTS (SELECT 1 FROM {_RECORD_OF_SECTION})"


def section_notes(ids: Sequence[int]) -> rows.Steps[dict[int, str]]:
    """Map sections of records to a note that names the latest decision of their file."""
    latest = f"(SELECT max(d.id) FROM {_RECORD_OF_SECTION})"
    sql = f"SELECT m.id, {latest} FROM memories_memory m WHERE m.id IN {IDS} AND {_SECTION_OF_RECORD}"
    (sections,) = yield [(sql, [json_list(ids)])]
    return {memory_id: f"superseded by decision #{decision_id}" for memory_id, decision_id in sections}


# A memory that a decision supersedes stays until the decision is accepted.
define_successor(
    EndType.DECISION,
    "NOT EXISTS (SELECT 1 FROM decisions_decision AS successor WHERE successor.id = r.source_id "
    "AND successor.status IN ('proposed', 'rejected'))",
    _SECTION_OF_RECORD,
)
define_notes("memory", section_notes)


def _titles(ids: Sequence[int]) -> str:
    if not ids:
        return ""
    sql = f"SELECT title || ' ' || chosen FROM decisions_decision WHERE id IN {IDS} ORDER BY id"
    return "\n".join(rows.column(sql, [json_list(ids)]))


def _commits(commit_ids: Sequence[int]) -> list[Document]:
    if not commit_ids:
        return []
    texts = rows.fetch(
        "SELECT l.commit_id, d.title || ' ' || d.context || ' ' || d.chosen FROM decisions_commitlink l "
        f"JOIN decisions_decision d ON d.id = l.decision_id WHERE l.commit_id IN {IDS} ORDER BY d.id",
        [json_list(commit_ids)],
    )
    if not texts:
        return []
    words: dict[int, list[str]] = {}
    for commit_id, text in texts:
        words.setdefault(commit_id, []).append(text)
    linked = Commit.objects.filter(id__in=list(words))
    return [known_commit_document(commit, "\n".join(words[commit.id])) for commit in linked]
