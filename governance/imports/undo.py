"""Undo an import.

An undo names the positions that count no more, and the read models are built again without them: as if the batch had
never been, except what others have built on since.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from governance.events import IMPORT_ENDED, IMPORT_UNDONE, ImportUndone
from governance.imports.batches import TRACE, Batch, events_of, find_batch
from governance.rollback.downstream import find_downstream
from governance.rollback.effects import in_groups, touched_by
from governance.rollback.selectors import Header, Selected
from memories.models import Relation
from memoryhub.core import log
from memoryhub.core.entities import find_entities
from memoryhub.core.errors import Conflict, PreconditionFailed
from memoryhub.core.events.projection import void_sql
from memoryhub.core.permissions import Act, demand
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, TEXTS
from memoryhub.core.text import counted
from sessions_app.events import COMMIT_RECORDED, SESSION_STARTED
from sessions_app.events.sessions import TURN_BEGAN

# Kept items that an undo names; all of them are kept
_MOST_NAMED = 50
_ITEMS = {"memory": ("memory", "memories")}
_LATER = (
    f"SELECT DISTINCT stream_id FROM raw_events WHERE position > %s AND stream_id IN {TEXTS} "
    f"AND position NOT IN {IDS} AND position NOT IN ({{void}})"
)

# By what is not of the batch, and counts
_USED = (
    f"SELECT DISTINCT session_id FROM raw_events WHERE position > %s AND session_id IN {TEXTS} "
    f"AND position NOT IN {IDS} AND position NOT IN ({{void}})"
)
# Beside entities whose stream has their number
_CREATES = {SESSION_STARTED.name, TURN_BEGAN.name, COMMIT_RECORDED.name}


@dataclass(frozen=True, slots=True)
class Kept:
    id: int
    title: str
    # "revised since", "#412 builds on it"
    why: str


@dataclass(frozen=True, slots=True)
class Undo:
    """What an undo would do. ``token`` confirms it."""

    batch: Batch
    events: int
    # How many items of each type disappear: ``{"memory": 12}``
    items: dict[str, int]
    void: list[int]
    kept: list[Kept]
    token: str

    @property
    def items_text(self) -> str:
        """The items that disappear: "12 memories, 1 session"."""
        return ", ".join(counted(count, *_ITEMS.get(name, (name,))) for name, count in self.items.items())


def preview_undo(batch_id: int) -> Undo:
    """Return what an undo of an import would do; changes nothing.

    Raises:
        NotFound: there is no such import.
        Conflict: it was undone already.
    """
    batch = find_batch(batch_id)
    if batch.is_undone:
        raise Conflict(
            f"import #{batch.id} was undone already; if that was interrupted, `memory-hub rebuild` completes it",
            id=batch.id,
        )
    headers = _headers(batch)
    sessions = _sessions_in_use(headers)
    kept = _kept([header for header in headers if not _session_of(header)]) | _kept_sessions(headers, sessions)
    stay = {*kept, *_kept_relations(headers, kept)}
    void = [header for header in headers if header.entity not in stay and _session_of(header) not in sessions]
    positions = [header.position for header in void]
    created = (header for header in void if header.stream.endswith(f":{header.position}") or header.type in _CREATES)
    items = Counter(header.stream.partition(":")[0] for header in created)
    token = hashlib.sha256(json.dumps([batch.id, positions]).encode()).hexdigest()[:16]
    return Undo(batch, len(void), dict(items), positions, list(kept.values())[:_MOST_NAMED], token)


def undo_import(*, batch_id: int, token: str, progress: Callable[[int], None] = lambda _: None) -> Undo:
    """Make an import undone, as it was previewed.

    Raises:
        NotFound, Conflict: as ``preview_undo``.
        PreconditionFailed: the store has changed since the preview; the data has the new ``token``.
    """
    demand(Act.GOVERN)
    with log.transaction():
        plan = preview_undo(batch_id)
        if plan.token != token:
            raise PreconditionFailed(
                "the store has changed since the preview; look again, and confirm", token=plan.token
            )
        kept = [item.id for item in plan.kept]
        undone = ImportUndone(batch=batch_id, void=plan.void, kept=kept)
        log.append(log.prepare(IMPORT_UNDONE, undone), stream=f"{TRACE}{batch_id}")
    log.rebuild(progress)
    return plan


def _headers(batch: Batch) -> list[Header]:
    found = events_of(batch).exclude(event_type=IMPORT_ENDED.name).order_by("position")
    return [Header(*row) for row in found.values_list("position", "event_type", "stream_id", "session_id")]


# The session whose story an event tells, "" if it is of a memory or a relation
def _session_of(header: Header) -> str:
    if header.stream.startswith("turn:"):
        return header.session
    return header.stream.removeprefix("session:") if header.stream.startswith("session:") else ""


def _sessions_in_use(headers: Sequence[Header]) -> set[str]:
    names = sorted({name for header in headers if (name := _session_of(header))})
    own = [header.position for header in headers]
    found = rows.fetch(_USED.format(void=void_sql()), [own[0], json.dumps(names), json.dumps(own)]) if names else ()
    return {name for (name,) in found}


def _kept_sessions(headers: Sequence[Header], names: Collection[str]) -> dict[int, Kept]:
    began = [header for header in headers if header.type in _CREATES and _session_of(header) in names]
    titles = {entity.id: entity.title for entity in find_entities([header.position for header in began]).values()}
    ids = [header.position for header in began if header.stream.startswith("session:")]
    return {number: Kept(number, titles.get(number, ""), "it went on since") for number in ids}


# What others have built on since, by the id of the item
def _kept(headers: Sequence[Header]) -> dict[int, Kept]:
    by_type: dict[str, list[Header]] = {}
    for header in headers:
        by_type.setdefault(header.type, []).append(header)
    selected = Selected(list(headers), by_type)
    direct = touched_by(selected)
    touched = {thing.id for thing in in_groups(direct, lambda _: True)}
    downstream = find_downstream(direct, selected)
    why = dict.fromkeys(_changed_since(headers), "changed since")
    for name, text in (("built_on", "#{} builds on it"), ("relations", "relation #{} was added")):
        for derived in downstream.groups[name]:
            # What was there before the import needs an item that the import created, but not its changes to older ones
            is_later = max(derived.id, derived.via) > headers[0].position
            if is_later and derived.via in touched and derived.id not in touched:
                why.setdefault(derived.via, text.format(derived.id))
    titles = {entity.id: entity.title for entity in find_entities(why).values()}
    return {entity: Kept(entity, titles.get(entity, ""), reason) for entity, reason in sorted(why.items())}


def _changed_since(headers: Sequence[Header]) -> set[int]:
    streams = {header.stream: header.entity for header in headers}
    own = [header.position for header in headers]
    void = void_sql()
    later = rows.fetch(_LATER.format(void=void), [own[0], json.dumps(sorted(streams)), json.dumps(own)]) if own else ()
    return {streams[stream] for (stream,) in later}


# Relations of the batch go with an end that goes
def _kept_relations(headers: Sequence[Header], kept: Collection[int]) -> set[int]:
    relations = [header.entity for header in headers if header.stream.startswith("relation:")]
    ends = Relation.objects.filter(id__in=relations).values_list("id", "source_id", "target_id")
    return {relation for relation, source, target in ends if source in kept and target in kept}
