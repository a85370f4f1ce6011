"""Status, edges and evidence of decisions while others are in quarantine (decision 27)."""

from __future__ import annotations

import json

from decisions.events import DECISION_EVIDENCED, DECISION_LINKED, DECISION_UNLINKED
from decisions.projectors import settle_statuses
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
    settle_statuses(event.position, [row[0] for row in rows.fetch(_SUPERSEDED, [ids, ids])])
