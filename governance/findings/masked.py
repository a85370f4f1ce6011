"""Finding: the secrets that were masked before anything was stored, by kind and source; never the secrets."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.db.models import Value
from django.db.models.functions import StrIndex

from governance.findings.reading import excerpt
from governance.findings.schemas import MOST_EVIDENCE, FindingEvidence, FindingKind, ProjectFinding
from governance.imports import batch_of_trace, list_batches
from memoryhub.core import clock, log
from memoryhub.core.events.projection import void_positions
from memoryhub.core.log.quarantine import outside_quarantine
from memoryhub.core.text import counted
from sessions_app.models import Session

# As the sanitiser writes it: the kind, and four digits that are the same for the same secret
_TAG = re.compile(r"\[REDACTED:([a-z0-9-]{1,40}):([0-9a-f]{4})\]")
_BEGINNING = "[REDACTED:"
# Kinds without a service's form. In documents and messages of commits, nearly all of them are examples
_FORMLESS = frozenset({"password", "secret", "url-password"})
# Newest events that are searched, since each payload is read, and the oldest of those with tags that are counted
_MOST_SEARCHED, _MOST_EVENTS = 100_000, 20_000
_MOST_KINDS, _MOST_SOURCES = 4, 3
_AROUND = 60
_IN_MEMORY = 200
# Interfaces by the source of an event that belongs to no session and no import
_SOURCES = {
    "hook": "hooks",
    "mcp": "agents over MCP",
    "rest": "the REST API",
    "cli": "the command line",
    "admin": "pages",
}


@dataclass(slots=True)
class _MaskedSecrets:
    """The different secrets of a store, each counted where it came first."""

    kinds: Counter[str] = field(default_factory=Counter)
    sources: Counter[str] = field(default_factory=Counter)
    evidence: list[FindingEvidence] = field(default_factory=list)


def find_masked_secrets() -> ProjectFinding | None:
    """Return how many secrets were masked on the way in; None without any."""
    masked = _masked_secrets()
    count = masked.kinds.total()
    if not count:
        return None
    kinds = _listed(masked.kinds, _MOST_KINDS, "of other kinds")
    sources = _listed(masked.sources, _MOST_SOURCES, "from elsewhere")
    if len(masked.sources) == 1:
        sources = next(iter(masked.sources))
    were = "was" if count == 1 else "were"
    among = f"In the newest {_MOST_SEARCHED:,} events, " if log.head()[0] > _MOST_SEARCHED else ""
    return ProjectFinding(
        kind=FindingKind.SECRETS,
        sentence=f"{among}{counted(count, 'secret')} {were} masked before anything was stored: {kinds}; {sources}.",
        count=count,
        sessions=len({item.session_id for item in masked.evidence if item.session_id}),
        evidence=sorted(masked.evidence, key=_at, reverse=True)[:MOST_EVIDENCE],
        advice="They still are where they came from, such as in transcripts and files: replace those in use.",
    )


def _at(item: FindingEvidence) -> datetime:
    return item.at or datetime.min.replace(tzinfo=UTC)


def _listed(counts: Counter[str], most: int, remainder: str) -> str:
    parts = [f"{count:,} {name}" for name, count in counts.most_common(most)]
    if more := counts.total() - sum(count for _, count in counts.most_common(most)):
        parts.append(f"{more:,} {remainder}")
    return ", ".join(parts)


def _masked_secrets() -> _MaskedSecrets:
    masked = _MaskedSecrets()
    tools = {batch.id: batch.tool for batch in list_batches()}
    agents = dict(Session.objects.values_list("session_id", "agent"))
    seen: set[str] = set()
    for position, session_id, occurred_at, source, trace_id, text in _masked_events():
        tool = tools.get(batch_of_trace(trace_id))
        tags = [tag for tag in _TAG.finditer(text or "") if tag[0] not in seen]
        if tool and not session_id:
            tags = [tag for tag in tags if tag[1] not in _FORMLESS]
        for tag in tags:
            if tag[0] in seen:
                continue
            seen.add(tag[0])
            masked.kinds[tag[1]] += 1
            name = agents.get(session_id) or tool or _SOURCES.get(source, source)
            masked.sources[f"from {name}"] += 1
        if tags:
            payload = json.loads(text or "{}")
            at = clock.from_text(payload.get("written_at") or occurred_at)
            place = _around(payload, tags[0][0])
            masked.evidence.append(FindingEvidence(id=position, type="event", text=place, session_id=session_id, at=at))
    return masked


# Without those of imports that were undone, and those that a person redacted: tags of these say nothing of the way in
def _masked_events() -> Iterator[tuple[int, str, str, str, str, str | None]]:
    left_out = set(void_positions())
    for payload in log.events().of_type(log.PAYLOAD_REDACTED).payloads().values():
        left_out |= set(map(int, payload["digests"]))
    # In SQLite, ``contains`` ignores case
    newest = log.events().window(after=log.head()[0] - _MOST_SEARCHED)
    events = newest.annotate(beginning=StrIndex("payload_json", Value(_BEGINNING))).filter(beginning__gt=0)
    marked = outside_quarantine(events, "position")
    columns = marked.values_list("position", "session_id", "occurred_at", "source", "trace_id", "payload_json")
    for row in columns[:_MOST_EVENTS].iterator(_IN_MEMORY):
        if row[0] not in left_out:
            yield row


# The stored text on both sides of a tag
def _around(payload: Mapping[str, Any], tag: str) -> str:
    text = next((text for text in _texts(payload) if tag in text), tag)
    place = text.index(tag)
    start, end = max(place - _AROUND, 0), place + len(tag) + _AROUND
    return excerpt(f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
