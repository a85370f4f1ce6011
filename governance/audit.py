"""The audit of a store: who was given which context pack, and who changed how much, from the log (decision 74)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from memories.events import CONTEXT_PACKED
from memoryhub.core import clock
from memoryhub.core.events.event_types import event_type
from memoryhub.core.origin import reader_of
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.permissions import Act
from memoryhub.core.schemas import Command, Listing, Moment, Paging
from memoryhub.core.stores import rows
from memoryhub.core.text import counted, csv_lines

COLUMNS = ("position", "at", "person", "client", "door", "session_id", "query", "tokens", "entries", "digest")
_FIELDS = (
    "r.position, r.occurred_at, r.actor, r.source, r.session_id, r.chain_digest, p.query, p.tokens, p.marks "
    "FROM raw_events r LEFT JOIN memories_contextpack p ON p.id = r.position"
)
_AT_ONCE = 1_000


class AuditPeriod(Command):
    """What an audit covers."""

    person: str = Field("", max_length=64, description="only this person, with all their clients; default: everyone")
    since: Moment | None = Field(None, description="from this time on")
    until: Moment | None = Field(None, description="before this time")


class AuditRequest(Paging, AuditPeriod):
    """A page of an audit."""


class AuditExport(AuditPeriod):
    """A whole audit, one line for each pack."""

    form: Literal["csv", "jsonl"] = Field("csv", description="csv: for spreadsheets; jsonl: for programs")


class Activity(BaseModel):
    """What one actor did through one interface."""

    person: str = Field(description="the person; empty: an agent or a local client")
    client: str = Field(description="the person's client, or the agent")
    door: str = Field(description="mcp, rest, hook, admin, cli, import, job")
    packs: int = 0
    tokens: int = Field(0, description="of those packs")
    writes: int = 0
    reviews: int = 0
    governed: int = Field(0, description="redactions, erasures, roll-backs, retention, settings")
    last_at: datetime


_COUNTED = {Act.WRITE: "writes", Act.REVIEW: "reviews", Act.GOVERN: "governed"}


def list_activity(*, command: AuditPeriod) -> list[Activity]:
    """Return what each person and client did in the period, the last active first."""
    where, values = _where(command)
    activities: dict[tuple[str, str, str], Activity] = {}
    # One row for each actor, interface and type of event
    grouped = rows.fetch(
        "SELECT r.actor, r.source, r.event_type, count(*), max(r.occurred_at), coalesce(sum(p.tokens), 0) "
        "FROM raw_events r LEFT JOIN memories_contextpack p ON p.id = r.position AND r.event_type = 'context.packed' "
        f"WHERE {where} GROUP BY r.actor, r.source, r.event_type",
        values,
    )
    for actor, source, type_name, count, last_at, tokens in grouped:
        person, client = reader_of(actor, source)
        at = datetime.fromisoformat(last_at)
        activity = activities.setdefault(
            (person, client, source), Activity(person=person, client=client, door=source, last_at=at)
        )
        activity.last_at = max(activity.last_at, at)
        if type_name == CONTEXT_PACKED.name:
            activity.packs += count
            activity.tokens += tokens
        elif (kind := event_type(type_name)) and kind.act in _COUNTED:
            name = _COUNTED[kind.act]
            setattr(activity, name, getattr(activity, name) + count)
    return sorted(activities.values(), key=lambda activity: activity.last_at, reverse=True)


def list_packs_read(*, command: AuditRequest) -> Listing:
    """Return a page of the packs that were given, newest first, each with its reader and what it contained."""
    where, values = _where(command, packs=True)
    total = rows.fetch(f"SELECT count(*) FROM raw_events r WHERE {where}", values)[0][0]
    before = decode_cursor(command.cursor, (int,))
    if before:
        where, values = f"{where} AND r.position < %s", [*values, before[0]]
    packs = _rows(where, values, order="DESC", limit=command.limit + 1)
    if command.compact:
        packs = [{name: item[name] for name in ("position", "person", "client")} for item in packs]
    return page(
        packs[: command.limit],
        total=total,
        more=len(packs) > command.limit,
        cursor_of=lambda item: encode_cursor(item["position"]),
        line=audit_line,
        max_tokens=command.max_tokens,
    )


def export_audit(*, command: AuditExport) -> Iterator[str]:
    """Return the lines of every pack that was given, oldest first, with the digest of the chain at its event."""
    if command.form == "csv":
        return csv_lines(COLUMNS, map(_csv_row, _all(command)))
    return (f"{json.dumps(item, ensure_ascii=False)}\n" for item in _all(command))


def _all(command: AuditPeriod) -> Iterator[dict[str, Any]]:
    where, values = _where(command, packs=True)
    last = 0
    while batch := _rows(f"{where} AND r.position > %s", [*values, last], order="ASC", limit=_AT_ONCE):
        yield from batch
        last = batch[-1]["position"]


def audit_line(item: dict[str, Any]) -> str:
    reader = "/".join(filter(None, (item["person"], item["client"]))) or "unknown"
    if "at" not in item:
        return f"#{item['position']} {reader}"
    about = f"; asked for {item['query']}" if item["query"] else ""
    entries = counted(len(item["entries"]), "entry", "entries")
    head = f"#{item['position']} {clock.minute(item['at'])}"
    return f"{head} {reader} over {item['door']}: {entries}, {item['tokens']} tokens{about}"


def _csv_row(item: dict[str, Any]) -> list[Any]:
    return [" ".join(item[name]) if name == "entries" else item[name] for name in COLUMNS]


def _where(command: AuditPeriod, *, packs: bool = False) -> tuple[str, list[Any]]:
    conditions: list[str] = ["true"]
    values: list[Any] = []
    if packs:
        conditions.append("r.event_type = 'context.packed'")
    if command.person:
        # Not a range of texts: PostgreSQL orders '/' and '0' by the database's collation.
        conditions.append("(r.actor = %s OR substr(r.actor, 1, %s) = %s)")
        prefix = f"{command.person}/"
        values += [command.person, len(prefix), prefix]
    for name, sign in (("since", ">="), ("until", "<")):
        moment = getattr(command, name)
        if moment is not None:
            conditions.append(f"r.occurred_at {sign} %s")
            values.append(clock.to_text(moment))
    return " AND ".join(conditions), values


def _rows(where: str, values: list[Any], *, order: str, limit: int) -> list[dict[str, Any]]:
    sql = f"SELECT {_FIELDS} WHERE {where} ORDER BY r.position {order} LIMIT {limit}"
    return list(map(_item, rows.fetch(sql, values)))


# A pack that retention has removed keeps its event, without what it contained.
def _item(row: Sequence[Any]) -> dict[str, Any]:
    position, at, actor, source, session, digest, query, tokens, marks = row
    person, client = reader_of(actor, source)
    return {
        "position": position,
        "at": at,
        "person": person,
        "client": client,
        "door": source,
        "session_id": session,
        "query": query or "",
        "tokens": tokens or 0,
        "entries": sorted({key.rpartition(" ")[2] for key in json.loads(marks or "{}")}),
        "digest": digest,
    }
