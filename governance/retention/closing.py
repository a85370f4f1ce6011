"""The end of a run: what went of what it set out to take, counted from the log itself."""

from __future__ import annotations

import json
from typing import Any

from governance.models import RetentionRun
from governance.retention.events import RETENTION_RAN, RetentionBegan, RetentionRan
from memoryhub.core import log, rows
from memoryhub.core.dialect import elements, json_int
from sessions_app.retaining import pack_types

_RANGES = f"(SELECT {json_int('value', 0)} AS low, {json_int('value', 1)} AS high FROM {elements()} AS range) AS r"
_LEFT_EVENTS = (
    "SELECT e.event_type, count(*), sum(octet_length(e.payload_json)) "
    f"FROM {_RANGES} CROSS JOIN raw_events e ON e.position BETWEEN r.low AND r.high "
    "WHERE e.payload_json IS NOT NULL GROUP BY 1"
)
_LEFT_THINGS = (
    "SELECT count(DISTINCT f.position), count(*), sum(octet_length(e.payload_json)) "
    f"FROM {_RANGES} CROSS JOIN raw_events f ON f.position BETWEEN r.low AND r.high "
    "JOIN raw_events e ON e.stream_id = f.stream_id "
    "WHERE f.payload_json IS NOT NULL AND e.payload_json IS NOT NULL"
)


def close(run: RetentionRun, began: RetentionBegan) -> None:
    """Report what went; nothing happens where another process did so first."""
    report = _report(began)
    payload = RetentionRan(
        run_id=run.id,
        events=report["events"],
        bytes=report["bytes"],
        report=report,
    )
    with log.transaction():
        if RetentionRun.objects.filter(id=run.id, ran_at__isnull=True).exists():
            log.append(log.prepare(RETENTION_RAN, payload), stream=f"retention:{run.id}")


def _report(began: RetentionBegan) -> dict[str, Any]:
    """Return the plan's report without what was left, because it came to be kept while the run went on."""
    report: dict[str, Any] = json.loads(json.dumps(began.report))
    left = {name: (count, size) for name, count, size in rows.fetch(_LEFT_EVENTS, [json.dumps(began.positions)])}
    for place, group in enumerate(report["going"]):
        if place in began.things:
            things, events, size = rows.fetch(_LEFT_THINGS, [json.dumps(began.things[place])])[0]
        else:
            names = pack_types() if group["what"] == "pack" else [group["sub"]]
            events = sum(left.get(name, (0, 0))[0] for name in names)
            size = sum(left.get(name, (0, 0))[1] for name in names)
            things = events
        group["things"] -= things
        group["events"] -= events
        group["bytes"] -= size or 0
        report["left"] += things
    report["going"] = [group for group in report["going"] if group["things"]]
    return report | {name: sum(each[name] for each in report["going"]) for name in ("things", "events", "bytes")}
