"""Which decisions stand while others are in quarantine: what a decision there has superseded stands again."""

from __future__ import annotations

import json
from collections.abc import Sequence

from decisions.selectors.edges import heads
from memoryhub.core import rows
from memoryhub.core.projection import Event, projects
from memoryhub.core.quarantine import QUARANTINE_LIFTED, QUARANTINE_PLACED, QuarantineLifted, QuarantinePlaced

_BELOW = """
WITH RECURSIVE below(id) AS (
    SELECT to_id FROM decisions_decisionedge WHERE relation = 'supersedes'
        AND (from_id IN (SELECT value FROM json_each(%s)) OR event IN (SELECT value FROM json_each(%s)))
    UNION SELECT e.to_id FROM below JOIN decisions_decisionedge e ON e.from_id = below.id AND e.relation = 'supersedes'
)
SELECT id FROM below
"""

_SAID = (
    "coalesce((SELECT json_extract(e.payload_json, '$.status') FROM raw_events e "
    "WHERE e.stream_id = 'decision:' || decisions_decision.id AND e.position < %s "
    "AND e.event_type IN ('decision.recorded', 'decision.marked') "
    "AND json_extract(e.payload_json, '$.status') IN ('proposed', 'accepted') "
    "ORDER BY e.stream_seq DESC LIMIT 1), 'accepted')"
)
"""The status that a decision had before it was superseded."""


@projects(QUARANTINE_PLACED, QUARANTINE_LIFTED)
def settle_standing(event: Event[QuarantinePlaced | QuarantineLifted]) -> None:
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
        f"UPDATE decisions_decision SET {change} WHERE {condition} AND id IN (SELECT value FROM json_each(%s))",
        [*parameters, json.dumps(ids)],
    )
