"""Projectors of decisions, edges and evidence, and of the commits that name decisions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from decisions.edges import Succession
from decisions.events import (
    DECISION_EVIDENCED,
    DECISION_LINKED,
    DECISION_MARKED,
    DECISION_RECORDED,
    DECISION_UNLINKED,
    Artifact,
    CommitEvidence,
    DecisionEvidenced,
    DecisionLinked,
    DecisionMarked,
    DecisionRecorded,
    DecisionUnlinked,
    Edge,
)
from decisions.models import ArtifactKind, Decision, EdgeRelation, LinkType
from memories.validity.projectors import store_provenance
from memoryhub.core import clock
from memoryhub.core.events.projection import Event, projects
from memoryhub.core.log import PAYLOAD_ERASED, PayloadErased
from memoryhub.core.log.quarantine import (
    OUTSIDE,
    QUARANTINE_LIFTED,
    QUARANTINE_PLACED,
    QuarantineLifted,
    QuarantinePlaced,
)
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, TEXTS, elements, json_int, json_list, json_text
from sessions_app.events import COMMIT_LINKED, COMMIT_RECORDED, CommitLinked, CommitRecorded

_TRAILER = re.compile(r"^(decisions?|refs):[ \t]*(\S.*)$", re.IGNORECASE | re.MULTILINE)
_ID = re.compile(r"#(\d{1,15})\b")
_REVERTED = re.compile(r"^This reverts commit ([0-9a-f]{7,64})", re.IGNORECASE | re.MULTILINE)
_MAX_IDS = 50


def mentions(message: str) -> dict[int, LinkType]:
    """Parse trailers of a commit message: ``Decision: #412`` implements it, ``Refs: #412`` relates to it."""
    link_types: dict[int, LinkType] = {}
    for match in _TRAILER.finditer(message):
        link_type = LinkType.RELATES if match[1].lower() == "refs" else LinkType.IMPLEMENTS
        for number in _ID.findall(match[2]):
            if link_types.get(int(number)) is not LinkType.IMPLEMENTS:
                link_types[int(number)] = link_type
    return dict(islice(link_types.items(), _MAX_IDS))


def reverted_sha(message: str) -> str | None:
    """Parse git's ``This reverts commit …``."""
    match = _REVERTED.search(message)
    return match[1].lower() if match else None


_PLAIN = ("title", "context", "chosen", "rationale", "impact", "phase", "topic", "status", "author", "source")
# An existing row keeps its event, unless that event is in quarantine: then the new one replaces it (decision 27).
_REPLACE = "DO UPDATE SET event = excluded.event WHERE {}.event IN (SELECT id FROM quarantine)"


@projects(DECISION_RECORDED)
def record(event: Event[DecisionRecorded]) -> None:
    payload = event.payload
    rows.insert(
        Decision,
        id=event.position,
        alternatives=[alternative.model_dump() for alternative in payload.alternatives],
        review="",
        iteration_id=_active_iteration(),
        session_id=event.session_id,
        turn_id=event.turn_id,
        decided_at=clock.from_text(payload.decided_at) if payload.decided_at else event.occurred_at,
        **{name: getattr(payload, name) for name in _PLAIN},
    )
    for edge in payload.edges:
        _add_edge(event, event.position, edge)
    _add_evidence(event, event.position, payload.artifacts, payload.commits)
    store_provenance(event.position, payload.provenance)


@projects(DECISION_LINKED)
def link(event: Event[DecisionLinked]) -> None:
    _add_edge(event, event.payload.decision_id, event.payload.edge)


@projects(DECISION_UNLINKED)
def unlink(event: Event[DecisionUnlinked]) -> None:
    edge = event.payload.edge
    rows.execute(
        "DELETE FROM decisions_decisionedge WHERE from_id = %s AND relation = %s AND to_id = %s",
        [event.payload.decision_id, edge.relation, edge.to],
    )
    if edge.relation is EdgeRelation.SUPERSEDES:
        settle_statuses(event.position, [edge.to])


@projects(DECISION_MARKED)
def mark(event: Event[DecisionMarked]) -> None:
    payload = event.payload
    if payload.status is not None:
        rows.update(Decision, payload.decision_id, status=payload.status)
        settle_statuses(event.position, [payload.decision_id, *_superseded_by([payload.decision_id])])
    if payload.review is not None:
        rows.update(Decision, payload.decision_id, review=payload.review)


@projects(DECISION_EVIDENCED)
def evidence(event: Event[DecisionEvidenced]) -> None:
    _add_evidence(event, event.payload.decision_id, event.payload.artifacts, event.payload.commits)


# Links the decisions that the commit names, those that already name the commit, and those of a commit it reverts.
@projects(COMMIT_RECORDED)
def link_commit(event: Event[CommitRecorded]) -> None:
    payload = event.payload
    paths = json.dumps([file.path for file in payload.files])
    rows.execute(
        f"INSERT INTO decisions_commitfile (path, commit_id) SELECT DISTINCT value, %s FROM {elements()} AS path",
        [event.position, paths],
    )
    named = mentions(payload.message)
    if payload.mentions is not None:
        named = {decision_id: LinkType(link_type) for decision_id, link_type in payload.mentions.items()}
    named |= dict.fromkeys(payload.decision_ids, LinkType(payload.link_type))
    _link_existing(event.position, event.position, named)
    _link_unresolved(event)
    reverted = reverted_sha(payload.message)
    if reverted:
        _link_reverted(event, reverted)


@projects(COMMIT_LINKED)
def link_known_commit(event: Event[CommitLinked]) -> None:
    payload = event.payload
    named = dict.fromkeys(payload.decision_ids, LinkType(payload.link_type))
    _link_existing(event.position, payload.commit_id, named)


# Erasure takes whole streams: a decision goes with its edges and evidence (decision 6).
@projects(PAYLOAD_ERASED)
def remove_erased(event: Event[PayloadErased]) -> None:
    for table in ("commitfile", "commitlink"):
        sql = f"DELETE FROM decisions_{table} WHERE commit_id IN {IDS}"
        rows.execute(sql, [json.dumps(event.payload.positions)])
    for stream in event.payload.streams:
        kind, _, decision_id = stream.partition(":")
        if kind == "decision":
            for table in ("commitlink", "artifactlink"):
                rows.execute(f"DELETE FROM decisions_{table} WHERE decision_id = %s", [decision_id])
            rows.execute("DELETE FROM decisions_decisionedge WHERE from_id = %s", [decision_id])
            rows.execute("DELETE FROM decisions_decisionedge WHERE to_id = %s", [decision_id])
            rows.execute("DELETE FROM decisions_decision WHERE id = %s", [decision_id])


def _active_iteration() -> int | None:
    active = rows.column("SELECT id FROM sessions_app_iteration WHERE status = 'active' ORDER BY id DESC LIMIT 1")
    return next(iter(active), None)


def _add_edge(event: Event[Any], from_id: int, edge: Edge) -> None:
    rows.execute(
        "INSERT INTO decisions_decisionedge (from_id, relation, to_id, event) VALUES (%s, %s, %s, %s) "
        f"ON CONFLICT (from_id, relation, to_id) {_REPLACE.format('decisions_decisionedge')}",
        [from_id, edge.relation, edge.to, event.position],
    )
    if edge.relation is EdgeRelation.SUPERSEDES:
        settle_statuses(event.position, [edge.to])


def settle_statuses(position: int, decision_ids: Sequence[int]) -> None:
    """Set the status that follows from the log up to a position, of these decisions and of those below them.

    What a decision supersedes is settled too unless the decision takes effect by itself: then nothing above it matters.
    """
    while decision_ids:
        succession = Succession(decision_ids, until=position)
        unsettled = []
        for decision_id in filter(succession.statuses.__contains__, decision_ids):
            status = succession.status(decision_id)
            if status != succession.statuses[decision_id]:
                rows.update(Decision, decision_id, status=status)
            if not succession.takes_effect(decision_id):
                unsettled.append(decision_id)
        decision_ids = _superseded_by(unsettled)


def _superseded_by(decision_ids: Sequence[int]) -> list[int]:
    return rows.column(
        f"SELECT DISTINCT to_id FROM decisions_decisionedge WHERE relation = 'supersedes' AND from_id IN {IDS}",
        [json_list(decision_ids)],
    )


def _add_evidence(
    event: Event[Any], decision_id: int, artifacts: Iterable[Artifact], commits: Iterable[CommitEvidence]
) -> None:
    for artifact in artifacts:
        rows.execute(
            "INSERT INTO decisions_artifactlink (decision_id, kind, value, event) VALUES (%s, %s, %s, %s) "
            f"ON CONFLICT (decision_id, kind, value) {_REPLACE.format('decisions_artifactlink')}",
            [decision_id, artifact.kind, artifact.value, event.position],
        )
    for commit in commits:
        _add_link(decision_id, commit.commit_id, commit.link_type, event.position)


def _add_link(decision_id: int, commit_id: int, link_type: LinkType, position: int) -> None:
    rows.execute(
        "INSERT INTO decisions_commitlink (decision_id, commit_id, link_type, event) VALUES (%s, %s, %s, %s) "
        "ON CONFLICT (decision_id, commit_id) DO UPDATE SET link_type = excluded.link_type, event = excluded.event",
        [decision_id, commit_id, link_type, position],
    )


# A message may name ids that are not decisions.
def _link_existing(position: int, commit_id: int, named: dict[int, LinkType]) -> None:
    if not named:
        return
    existing = rows.column(f"SELECT id FROM decisions_decision WHERE id IN {IDS} ORDER BY id", [json_list(named)])
    for decision_id in existing:
        _add_link(decision_id, commit_id, named[decision_id], position)


# A decision may name a commit, by a short hash, before it is recorded; the artifact then becomes a link.
def _link_unresolved(event: Event[CommitRecorded]) -> None:
    sha = event.payload.sha
    prefixes = [sha[:length] for length in range(4, len(sha) + 1)]
    artifacts = rows.fetch(
        f"SELECT decision_id, value FROM decisions_artifactlink WHERE kind = %s AND value IN {TEXTS} ORDER BY 1",
        [ArtifactKind.COMMIT, json_list(prefixes)],
    )
    for decision_id, value in artifacts:
        _add_link(decision_id, event.position, LinkType.IMPLEMENTS, event.position)
        rows.execute(
            "DELETE FROM decisions_artifactlink WHERE decision_id = %s AND kind = %s AND value = %s",
            [decision_id, ArtifactKind.COMMIT, value],
        )


def _link_reverted(event: Event[CommitRecorded], reverted: str) -> None:
    implemented = rows.column(
        "SELECT l.decision_id FROM decisions_commitlink l JOIN sessions_app_commit c ON c.id = l.commit_id "
        "WHERE c.sha >= %s AND c.sha < %s AND l.link_type = 'implements' ORDER BY 1",
        [reverted, f"{reverted}g"],
    )
    for decision_id in implemented:
        _add_link(decision_id, event.position, LinkType.REVERTS, event.position)
        review = f"commit {event.payload.sha[:10]} reverts {reverted[:10]}, which implemented it"
        rows.update(Decision, decision_id, review=review)


# The decisions that the given ids and events supersede.
_SUPERSEDED = (
    "SELECT DISTINCT to_id FROM decisions_decisionedge WHERE relation = 'supersedes' "
    f"AND (from_id IN {IDS} OR event IN {IDS})"
)

# Streams of the decisions to which the given events added evidence or edges.
_TOUCHED = (
    f"SELECT stream_id FROM raw_events WHERE position IN {IDS} "
    f"AND event_type IN ('{DECISION_EVIDENCED.name}', '{DECISION_LINKED.name}')"
)
# If several events gave the same artifact and the recorded one is in quarantine, the artifact is reassigned to the
# earliest event outside it. `substr(…, 10)` cuts `decision:` off the stream id.
_EVIDENCE_OF_ANOTHER = f"""
UPDATE decisions_artifactlink SET event = given.event FROM (
    SELECT CAST(substr(e.stream_id, 10) AS INTEGER) AS decision_id, {json_text("a.value", "kind")} AS kind,
        {json_text("a.value", "value")} AS text, min(e.position) AS event
    FROM raw_events e JOIN {elements("e.payload_json", "artifacts")} a ON true
    WHERE e.stream_id IN ({_TOUCHED}) AND e.position {OUTSIDE} AND e.position < %s GROUP BY 1, 2, 3
) AS given
WHERE decisions_artifactlink.event IN (SELECT id FROM quarantine) AND decisions_artifactlink.kind = given.kind
    AND decisions_artifactlink.decision_id = given.decision_id AND decisions_artifactlink.value = given.text
"""
# The same for edges between decisions.
_EDGES_OF_ANOTHER = f"""
UPDATE decisions_decisionedge SET event = given.event FROM (
    SELECT CAST(substr(e.stream_id, 10) AS INTEGER) AS from_id,
        {json_text("e.payload_json", "edge", "relation")} AS relation,
        {json_int("e.payload_json", "edge", "to")} AS to_id, min(e.position) AS event
    FROM raw_events e WHERE e.stream_id IN ({_TOUCHED}) AND e.event_type = '{DECISION_LINKED.name}'
        AND e.payload_json IS NOT NULL AND e.position {OUTSIDE} AND e.position < %s AND NOT EXISTS (
            SELECT 1 FROM raw_events u WHERE u.stream_id = e.stream_id AND u.event_type = '{DECISION_UNLINKED.name}'
            AND u.position > e.position AND u.position < %s
            AND {json_text("u.payload_json", "edge", "relation")} = {json_text("e.payload_json", "edge", "relation")}
            AND {json_int("u.payload_json", "edge", "to")} = {json_int("e.payload_json", "edge", "to")}
        ) GROUP BY 1, 2, 3
) AS given
WHERE decisions_decisionedge.event IN (SELECT id FROM quarantine) AND decisions_decisionedge.to_id = given.to_id
    AND decisions_decisionedge.from_id = given.from_id AND decisions_decisionedge.relation = given.relation
"""


@projects(QUARANTINE_PLACED, QUARANTINE_LIFTED)
def settle_sources(event: Event[QuarantinePlaced | QuarantineLifted]) -> None:
    if event.version > 1:
        ids = json.dumps(event.payload.ids)
        rows.execute(_EVIDENCE_OF_ANOTHER, [ids, event.position])
        rows.execute(_EDGES_OF_ANOTHER, [ids, event.position, event.position])


# Decisions that a quarantined one superseded are in force again, and the reverse.
@projects(QUARANTINE_PLACED, QUARANTINE_LIFTED)
def settle_superseded(event: Event[QuarantinePlaced | QuarantineLifted]) -> None:
    ids = json.dumps(event.payload.ids)
    settle_statuses(event.position, rows.column(_SUPERSEDED, [ids, ids]))
