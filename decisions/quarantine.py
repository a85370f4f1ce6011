"""Which decisions stand while others are in quarantine: what a decision there has superseded stands again."""

from __future__ import annotations

import json
from collections.abc import Sequence

from decisions.events import DECISION_EVIDENCED, DECISION_LINKED
from decisions.selectors.edges import heads
from memoryhub.core.events.projection import Event, projects
from memoryhub.core.log.quarantine import (
    OUTSIDE,
    QUARANTINE_LIFTED,
    QUARANTINE_PLACED,
    QuarantineLifted,
    QuarantinePlaced,
)
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, elements, json_int, json_text

_BELOW = f"""
WITH RECURSIVE below(id) AS (
    SELECT to_id FROM decisions_decisionedge WHERE relation = 'supersedes'
        AND (from_id IN {IDS} OR event IN {IDS})
    UNION SELECT e.to_id FROM below JOIN decisions_decisionedge e ON e.from_id = below.id AND e.relation = 'supersedes'
)
SELECT id FROM below
"""

_SAID = (
    f"coalesce((SELECT {json_text('e.payload_json', 'status')} FROM raw_events e "
    "WHERE e.stream_id = 'decision:' || decisions_decision.id AND e.position < %s "
    "AND e.event_type IN ('decision.recorded', 'decision.marked') "
    f"AND {json_text('e.payload_json', 'status')} IN ('proposed', 'accepted') "
    "ORDER BY e.stream_seq DESC LIMIT 1), 'accepted')"
)
"""The status that a decision had before it was superseded."""

# The streams of the decisions that some events gave evidence or edges to; the decisions themselves are not meant.
_TOUCHED = (
    f"SELECT stream_id FROM raw_events WHERE position IN {IDS} "
    f"AND event_type IN ('{DECISION_EVIDENCED.name}', '{DECISION_LINKED.name}')"
)
_EVIDENCE_OF_ANOTHER = f"""
UPDATE decisions_artifactlink SET event = given.event FROM (
    SELECT CAST(substr(e.stream_id, 10) AS INTEGER) AS decision_id, {json_text("a.value", "kind")} AS kind,
        {json_text("a.value", "value")} AS text, min(e.position) AS event
    FROM raw_events e JOIN {elements("e.payload_json", "artifacts")} a
    WHERE e.stream_id IN ({_TOUCHED}) AND e.position {OUTSIDE} AND e.position < %s GROUP BY 1, 2, 3
) AS given
WHERE decisions_artifactlink.event IN (SELECT id FROM quarantine) AND decisions_artifactlink.kind = given.kind
    AND decisions_artifactlink.decision_id = given.decision_id AND decisions_artifactlink.value = given.text
"""
_EDGES_OF_ANOTHER = f"""
UPDATE decisions_decisionedge SET event = given.event FROM (
    SELECT CAST(substr(e.stream_id, 10) AS INTEGER) AS from_id,
        {json_text("e.payload_json", "edge", "relation")} AS relation,
        {json_int("e.payload_json", "edge", "to")} AS to_id, min(e.position) AS event
    FROM raw_events e WHERE e.stream_id IN ({_TOUCHED}) AND e.event_type = '{DECISION_LINKED.name}'
        AND e.payload_json IS NOT NULL AND e.position {OUTSIDE} AND e.position < %s GROUP BY 1, 2, 3
) AS given
WHERE decisions_decisionedge.event IN (SELECT id FROM quarantine) AND decisions_decisionedge.to_id = given.to_id
    AND decisions_decisionedge.from_id = given.from_id AND decisions_decisionedge.relation = given.relation
"""


@projects(QUARANTINE_PLACED, QUARANTINE_LIFTED)
def settle_sources(event: Event[QuarantinePlaced | QuarantineLifted]) -> None:
    """Let evidence and edges that several events gave count as those of one that is not in quarantine."""
    if event.version > 1:
        ids = json.dumps(event.payload.ids)
        rows.execute(_EVIDENCE_OF_ANOTHER, [ids, event.position])
        rows.execute(_EDGES_OF_ANOTHER, [ids, event.position])


@projects(QUARANTINE_PLACED, QUARANTINE_LIFTED)
def settle_status(event: Event[QuarantinePlaced | QuarantineLifted]) -> None:
    """Let what stands now be accepted or proposed again, and what does not be superseded."""
    ids = json.dumps(event.payload.ids)
    below = [row[0] for row in rows.fetch(_BELOW, [ids, ids])]
    standing = heads(below)
    up = [each for each in below if standing.get(each) == [each]]
    _update(f"status = {_SAID}", "status = 'superseded'", up, event.position)
    down = [each for each in below if standing.get(each, []) not in ([], [each])]
    _update("status = 'superseded'", "status IN ('proposed', 'accepted')", down)


def _update(change: str, condition: str, ids: Sequence[int], *parameters: int) -> None:
    rows.execute(
        f"UPDATE decisions_decision SET {change} WHERE {condition} AND id IN {IDS}",
        [*parameters, json.dumps(ids)],
    )
