"""Compose a sent pack again, and count the lines that were erased since."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from django.utils import timezone

from memories.models import ContextPack, MemoryScope
from memories.pack.compose import Body, compose, gather, most_items
from memories.pack.recall import ids_at, recalled_body
from memories.pack.sections import Edition, Request
from memories.pack.service import Pack, find_pack, pack_text
from memories.schemas.query import ContextReplay
from memories.scopes import Level
from memories.search.parsed_query import parse
from memoryhub.core import clock, log
from memoryhub.core.log.redact import redacted_digests
from memoryhub.core.models import RawEvent
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, json_list
from memoryhub.core.stores.store import Scope, StoreId, use_store

_SCOPE_OF_STORE = {Scope.PROJECT: MemoryScope.PROJECT, Scope.ORG: MemoryScope.ORG, Scope.GLOBAL: MemoryScope.GLOBAL}
# Entries that lost the payload of an event, or a part of it
_ERASED = (
    f"SELECT entry.position FROM raw_events AS entry WHERE entry.position IN {IDS} AND EXISTS (SELECT 1 FROM "
    "raw_events AS event WHERE event.stream_id = entry.stream_id AND (event.payload_json IS NULL "
    f"OR event.position IN {IDS}))"
)


def replay_pack(*, command: ContextReplay) -> Pack:
    """Compose a pack again from the stores as of when it was sent.

    Raises:
        NotFound: there is no such pack, or one of its stores is gone.
    """
    sent = find_pack(command.id)
    with clock.frozen(sent.created_at), timezone.override(_zone_of(sent)):
        chain = [_past(store, position, sent.session_id) for store, position in _positions(sent)]
        with use_store(chain[0].store):
            query = parse(sent.query)
            request = Request(chain, sent.created_at, query, sent.session_id, most_items(sent.max_tokens))
            body = recalled_body(request, sent.marks) if sent.is_recall else _composed(request, sent)
        marks = body.marks()
    lost = {key for key, mark in sent.marks.items() if marks.get(key) != mark}
    erased = _count_erased(sent, lost) if lost else 0
    text = pack_text(sent.id, body, _positions(sent)[0][0].name, erased=erased)
    same = body.digest == sent.digest
    differs = len(lost) > erased or not (lost or same)
    return Pack(sent.id, text, body.digest, body, as_sent=same, erased=erased, differs=differs)


# Its dates were those of the zone in which it was sent
def _zone_of(sent: ContextPack) -> str:
    payload = log.event_of(RawEvent.objects.get(position=sent.id)).payload
    return payload.zone if payload else "UTC"


# The digest tells which version sent the pack
def _composed(request: Request, sent: ContextPack) -> Body:
    bodies = (_composed_in(edition, request, sent) for edition in sorted(Edition, reverse=True))
    present = next(bodies)
    if present.digest == sent.digest:
        return present
    return next((body for body in bodies if body.digest == sent.digest), present)


def _composed_in(edition: Edition, request: Request, sent: ContextPack) -> Body:
    return compose(gather(replace(request, edition=edition)), sent.max_tokens, sent=sent.marks)


def _positions(sent: ContextPack) -> list[tuple[StoreId, int]]:
    named = ((name.partition(":"), position) for name, position in sent.positions)
    return [(StoreId(Scope(scope), name), position) for (scope, _, name), position in named]


def _past(store: StoreId, position: int, session_id: str) -> Level:
    with use_store(store):
        view = log.view_at(position)
    own = _SCOPE_OF_STORE[store.scope]
    in_session = own is MemoryScope.PROJECT and session_id
    return Level(view, (MemoryScope.SESSION, own) if in_session else (own,), session_id if in_session else "")


# The other lines that were lost are composed differently by this version, or under today's settings
def _count_erased(sent: ContextPack, lost: Collection[str]) -> int:
    count = 0
    for store, _ in _positions(sent):
        level = Level(store, (_SCOPE_OF_STORE[store.scope],))
        ids = [entry for key in lost for entry in ids_at(level, [key.rpartition(" ")[2]])]
        with use_store(store):
            erased = {entry for (entry,) in rows.fetch(_ERASED, [json_list(ids), json_list(redacted_digests())])}
        count += sum(entry in erased for entry in ids)
    return count
