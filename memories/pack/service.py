"""Send context packs, and replay them. One with new content is an event (decision 16)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from django.db.models import Q
from django.utils import timezone

from memories import scopes
from memories.events import CONTEXT_PACKED, ContextPacked, filled
from memories.models import ContextPack, MemoryScope
from memories.pack.answers import BEYOND_DOUBT
from memories.pack.at_work import MAX_TOKENS as OVERLAP_TOKENS
from memories.pack.at_work import overlap_body, sent_overlap_body
from memories.pack.composing import changed_since, compose, remarks_of, with_remarks
from memories.pack.notes import MAX_TOKENS as NOTE_TOKENS
from memories.pack.notes import note_body, noted_body, topic_of
from memories.pack.progress import has_progress
from memories.pack.recall import MAX_TOKENS as RECALL_TOKENS
from memories.pack.recall import recall_body, recalled_body
from memories.pack.sections import (
    NO_REMARKS,
    Edition,
    GatherRequest,
    PackBody,
    Remarks,
    gather,
    ids_at,
    most_items,
)
from memories.pack_sorts import ABSENT, NOTE, OVERLAP, RECALL, SAID_SECTION, SESSION, local_id, reference_of
from memories.schemas.query import ContextPackRequest, ContextReplay
from memories.scopes import Level
from memories.search import engine
from memories.search.parsed_query import parse
from memories.search.relevance import is_absent
from memories.uses.notes import note_packed
from memoryhub.config.current_settings import project_settings
from memoryhub.core import clock, log
from memoryhub.core.contributions import PlannedAction, openings, recalls
from memoryhub.core.errors import Locked, NotFound, Unavailable
from memoryhub.core.log.erase import redacted_digests
from memoryhub.core.origin import current_origin, named_reader, use_origin
from memoryhub.core.paging import answering, answers_json, estimate_tokens
from memoryhub.core.secrets.sanitize import sanitize_text
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import Scope, StoreId, current_store, use_store
from memoryhub.core.text import compact_json, counted
from sessions_app.events.client import FILE_EDITED
from sessions_app.git import branch_work
from sessions_app.selectors import context_begins
from sessions_app.services.sessions import is_held_out

# Stands for numbers while the size of an answer is counted
_MOST_TOKENS = 99_999_999
# Raw, since each pack asks for the last one of the same reader
_PACKS_LIKE_IT = (
    "SELECT p.id, p.digest, r.actor FROM memories_contextpack p JOIN raw_events r ON r.position = p.id "
    "WHERE p.session_id = %s AND p.id > %s AND p.query = %s AND p.max_tokens = %s ORDER BY p.id DESC LIMIT 50"
)
_PROMPT_CHARS = 2_000
# Subjects and paths that tell what a working tree is about
_MOST_WORK = 12
# Edits of which the files are looked at
_MOST_EDITS = 50

# What a session gets instead of its first pack if memory is held out of it
HELD_OUT = (
    "Memory Hub gives this session no memory unasked, to measure what memory is worth. "
    "memory_search and memory_context work as always."
)


@dataclass(frozen=True, slots=True)
class ComposedPack:
    id: int
    text: str
    # SHA-256 of the content; equal as long as nothing changed
    digest: str
    body: PackBody
    # False for a replayed pack if a line of it is not as it was sent
    as_sent: bool = True
    # Lines of a replayed pack whose text was erased or redacted since
    erased: int = 0
    # Whether other lines of it are not as they were sent
    differs: bool = False
    # Why the pack could not be recorded; its ``id`` is then 0, and it cannot be replayed
    unrecorded: str = ""

    def data(self) -> dict[str, Any]:
        sections: dict[str, dict[str, Any]] = {}
        for part in self.body.sections:
            sections[part.section.name] = {
                "title": part.section.title,
                "items": [item.line.removeprefix("- ") for item in part.items],
                "left_out": part.left_out,
                "more": part.section.more,
                "tokens": part.tokens,
            }
        meta = {"pack": self.id, "digest": self.digest, "estimated_tokens": _MOST_TOKENS}
        if self.unrecorded:
            meta["unrecorded"] = self.unrecorded
        meta |= {"absent": self.body.absent, "truncated": self.body.truncated}
        meta |= {"as_sent": self.as_sent, "erased": self.erased}
        data = {"text": self.text, "sections": sections, "meta": meta}
        meta["estimated_tokens"] = estimate_tokens(compact_json(data))
        return data


def pack_context(
    *, command: ContextPackRequest, progress_of: str | None = None, folder: Path | None = None
) -> ComposedPack:
    """Return the context pack; byte for byte the previous one while nothing has changed.

    With ``since``, only what changed since that pack. An opening names the session whose work it begins with, or "".
    Without a session, ``folder`` is the one that the caller works in.

    Raises:
        NotFound: there is no pack ``since``.
    """
    earlier = None if command.since is None else find_pack(command.since)
    request = replace(_request_about(command, folder), progress_of=progress_of)
    positions = _positions(request)
    body, budget = _compose(request, command.max_tokens)
    if not body.sections and earlier is None:
        return _composed_pack(0, body)
    unrecorded = ""
    pack_id = _last_equal(budget, request, body)
    if not pack_id:
        try:
            with use_store(current_store()):  # raises the hub's errors instead of the database's
                pack_id = _send(request, body, positions, budget)
        except (Locked, Unavailable) as error:  # better an unrecorded pack than none
            unrecorded = error.message
    pack = _composed_pack(pack_id, body)
    if earlier is not None:
        changed, gone = changed_since(body, earlier.marks)
        pack = replace(pack, text=_delta_text(pack_id, earlier.id, changed, gone), body=changed)
    if unrecorded:
        text = f"{pack.text}\n(this pack has no number and is not recorded: {unrecorded})"
        pack = replace(pack, text=text, unrecorded=unrecorded)
    return pack


def preview_pack(*, command: ContextPackRequest) -> ComposedPack:
    """Return the pack that would be sent now, with the id it would get."""
    body, _ = _compose(_request_about(command), command.max_tokens)
    return _composed_pack(log.head()[0] + 1, body)


def opening_pack(session_id: str, continued: str = "") -> str:
    """Return the pack for a session that starts or goes on; empty if nothing is stored yet.

    It begins with the session's work so far, or with that of the session that its window was in before.
    """
    if is_held_out(session_id):
        return HELD_OUT
    progress_of = next(filter(has_progress, filter(None, (session_id, continued))), "")
    with answering(as_json=False):
        sent = pack_context(command=ContextPackRequest(session_id=session_id or None), progress_of=progress_of)
    return sent.text if sent.body.sections else ""


def reopening_pack(session_id: str, _prompt: str) -> str:
    """Return the opening at the first prompt after a compaction, unless the client's start already had it."""
    begins = context_begins(session_id) if session_id else 0
    if not begins or is_held_out(session_id):
        return ""
    packs = ContextPack.objects.filter(session_id=session_id, id__gt=begins)
    if any(pack.sort is SESSION for pack in packs):
        return ""
    return opening_pack(session_id)


def recall_context(session_id: str, prompt: str) -> str:
    """Return what the session should know for its prompt and was not given yet; empty if nothing is relevant enough."""
    settings = project_settings()
    if not (settings.recall and session_id and prompt) or is_held_out(session_id):
        return ""
    # Only the first words of a prompt count, and parsing takes long for a word without end
    request = _request(ContextPackRequest(session_id=session_id, query=prompt[:_PROMPT_CHARS]))
    positions = _positions(request)
    body = recall_body(request, settings.recall_threshold)
    # The prompt itself is an event of the turn, and is not stored again
    return _send_once(replace(request, query=parse("")), body, positions, RECALL_TOKENS)


def overlap_notice(session_id: str, path: str = "") -> str:
    """Return what another session at work edits of this one's files, or of the file at ``path``; each once."""
    settings = project_settings()
    is_on = settings.notes if path else settings.recall
    if not (is_on and session_id) or is_held_out(session_id):
        return ""
    request = _request(ContextPackRequest(session_id=session_id))
    positions = _positions(request)
    return _send_once(request, overlap_body(request, path), positions, OVERLAP_TOKENS)


# What is not recorded would be given again
def _send_once(request: GatherRequest, body: PackBody, positions: list[tuple[str, int]], max_tokens: int) -> str:
    if not body.sections:
        return ""
    try:
        pack_id = _send(request, body, positions, max_tokens)
    except (Locked, Unavailable):
        return ""
    return pack_text(pack_id, body, current_store().name)


def note_before(action: PlannedAction, *, is_off: Callable[[str], bool]) -> str:
    """Return one line that the session should know before an action; empty without evidence for it.

    ``is_off`` tells whether a kind of notes is switched off.
    """
    topic = sanitize_text(topic_of(action))[0]
    if not (project_settings().notes and action.session_id and topic) or is_held_out(action.session_id):
        return ""
    request = _request(ContextPackRequest(session_id=action.session_id))
    positions = _positions(request)
    body = note_body(action, topic, request.chain, request.now, is_off=is_off)
    return _send_once(replace(request, query=parse(topic), is_asked=True), body, positions, NOTE_TOKENS)


def pack_digest(*, command: ContextPackRequest) -> str:
    """Return the digest of the current pack without sending it."""
    return _compose(_request_about(command), command.max_tokens)[0].digest


def find_pack(pack_id: int) -> ContextPack:
    """Return a pack that was sent.

    Raises:
        NotFound: there is no such pack.
    """
    pack: ContextPack | None = ContextPack.objects.filter(id=pack_id).first()
    if pack is None:
        raise NotFound(f"there is no context pack #{pack_id} here; leave the id out to get a new one")
    return pack


def _composed_pack(pack_id: int, body: PackBody) -> ComposedPack:
    return ComposedPack(pack_id, pack_text(pack_id, body, current_store().name), body.digest, body)


# As JSON, the content is sent as text and again by section, so less of it fits. The event has the budget of the text,
# with which a replay composes the same again.
def _compose(request: GatherRequest, max_tokens: int) -> tuple[PackBody, int]:
    gathered = gather(request)
    absent = request.has_question and request.best_relevance() < BEYOND_DOUBT
    is_said = any(part.section.name == SAID_SECTION for part in gathered)
    absent = absent and not is_said and (not gathered or is_absent(request.query.text, _rankings(request)))
    remarks = remarks_of(gathered, request.chain[0])
    gathered = with_remarks(gathered, remarks)
    budget = max_tokens
    body = replace(compose(gathered, budget), absent=absent)
    while answers_json():
        size = estimate_tokens(compact_json(_composed_pack(_MOST_TOKENS, body).data()))
        if size <= max_tokens:
            break
        # In proportion, or by a tenth if nothing would remain
        for smaller in (min(budget - 1, budget * max_tokens // size), budget * 9 // 10):
            shorter = compose(gathered, smaller)
            if shorter.sections:
                break
        else:
            break
        body, budget = replace(shorter, absent=absent), smaller
    return replace(body, remarks=remarks), budget


# As a search for the subject ranks, so that both say the same
def _rankings(request: GatherRequest) -> Iterator[tuple[StoreId, engine.Ranked]]:
    for level in request.chain:
        with use_store(level.store):
            ranked = engine.rank(request.query, level=level, blended=True)
        yield level.store, ranked


def _request(command: ContextPackRequest) -> GatherRequest:
    session_id = command.session_id or current_origin().session_id
    chain = scopes.levels(session_id=session_id)
    # Rounded to the precision of the log, so that a replay sees the same time
    now = clock.from_text(clock.to_text(clock.now()))
    # As the event will have it, so that a replay ranks by the same words
    query = parse(_clean(command.query))
    return GatherRequest(chain, now, query, bool(query.text), session_id, most=most_items(command.max_tokens))


# Asks git, which a prompt or an action does not wait for
def _request_about(command: ContextPackRequest, folder: Path | None = None) -> GatherRequest:
    request = _request(command)
    return request if request.is_asked else replace(request, query=parse(_clean(_work_of(request.session_id, folder))))


def _clean(text: str) -> str:
    return sanitize_text(" ".join(text.split()))[0]


# The branch of a session's folder, the subjects of its commits, and the files that were touched. Of a path, the folder
# and the name say what it is about.
def _work_of(session_id: str, folder: Path | None) -> str:
    folders = rows.column("SELECT directory FROM sessions_app_session WHERE session_id = %s", [session_id])
    if folders and folders[0].startswith("/"):
        folder = Path(folders[0])
    work = branch_work(folder) if folder else []
    if folders:
        edits = log.events().of_session(session_id).of_type(FILE_EDITED).order_by("-position")[:_MOST_EDITS]
        work += reversed(dict.fromkeys(edit["path"] for edit in edits.payloads().values()))
    return " ".join(map(_name_of_path, work[-_MOST_WORK:]))


def _name_of_path(text: str) -> str:
    path = PurePath(text)
    return text if " " in text else f"{path.parent.name} {path.stem}"


def _positions(request: GatherRequest) -> list[tuple[str, int]]:
    positions: list[tuple[str, int]] = []
    for level in request.chain:
        with use_store(level.store):
            positions.append((f"{level.store.scope}:{level.store.name}", log.head()[0]))
    return positions


# Id of the reader's last pack of this session and query, if its content is the same; else 0. The audit names each
# reader.
def _last_equal(max_tokens: int, request: GatherRequest, body: PackBody) -> int:
    reader = named_reader(current_origin().actor)
    begins = context_begins(request.session_id) if request.session_id else 0
    parameters = [request.session_id, begins, request.query.text if request.is_asked else "", max_tokens]
    for pack_id, digest, actor in rows.fetch(_PACKS_LIKE_IT, parameters):
        if named_reader(actor) == reader:
            return int(pack_id) if digest == body.digest else 0
    return 0


def _send(request: GatherRequest, body: PackBody, positions: list[tuple[str, int]], max_tokens: int) -> int:
    remarks = body.remarks.among(body.references())
    payload = ContextPacked(
        session_id=request.session_id,
        query=request.query.text if request.is_asked else "",
        max_tokens=max_tokens,
        tokens=estimate_tokens(pack_text(log.head()[0] + 1, body, current_store().name)),
        digest=body.digest,
        marks=body.marks(),
        positions=positions,
        packed_at=clock.to_text(request.now),
        zone=timezone.get_current_timezone_name(),
        work="" if request.is_asked else request.query.text,
        progress_of=request.progress_of or "",
        absent=body.absent,
        **filled(remarks=dict(remarks.beside), rechecks=dict(remarks.rechecks)),
    )
    draft = log.prepare(CONTEXT_PACKED, payload)
    # The event belongs to the session that gets the pack, whichever interface sends it
    origin = current_origin()
    turn_id = origin.turn_id if origin.session_id == request.session_id else ""
    with log.transaction(), use_origin(session_id=request.session_id, turn_id=turn_id):
        pack_id = log.append(draft, entity="pack").position
    note_packed(body.references(), request.chain)
    return pack_id


def pack_text(pack_id: int, body: PackBody, store: str, *, erased: int = 0) -> str:
    """Return a pack as the agent reads it; ``erased`` is how many of its lines were erased since it was sent."""
    lost = [f"({counted(erased, 'line')} erased since)"] if erased else []
    if body.sections and body.sort is NOTE:
        line = body.sections[0].items[0].line
        return f"{_first_words(pack_id, body)} ({body.sort.notice}): {line}"
    if body.sections:
        notice = f"{ABSENT} {body.sort.notice}" if body.absent else body.sort.notice
        head = f"{_first_words(pack_id, body)} of {store}: {notice}"
        return "\n".join([head, body.text, *lost, body.sort.footer])
    if lost:
        return "\n".join([f"{_first_words(pack_id, body)} of {store}", *lost])
    nothing = "nothing stored is about the subject" if body.absent else "nothing is known yet"
    return f"{SESSION.opening} of {store}: {nothing}"


def _first_words(pack_id: int, body: PackBody) -> str:
    return f"{body.sort.opening} #{pack_id}" if pack_id else body.sort.opening


def _delta_text(pack_id: int, since: int, changed: PackBody, gone: list[str]) -> str:
    first_words = _first_words(pack_id, changed)
    if not changed.sections and not gone:
        return f"{first_words}: nothing changed since #{since}"
    lines = [f"{first_words}: what changed since #{since}.", changed.text]
    if gone:
        lines.append(f"(no longer included: {', '.join(gone)})")
    return "\n".join(lines)


openings.append(opening_pack)
recalls += [reopening_pack, recall_context, lambda session_id, _prompt: overlap_notice(session_id)]


_SCOPE_OF_STORE = {Scope.PROJECT: MemoryScope.PROJECT, Scope.ORG: MemoryScope.ORG, Scope.GLOBAL: MemoryScope.GLOBAL}


def replay_pack(*, command: ContextReplay) -> ComposedPack:
    """Compose a pack again from the stores as of when it was sent.

    Raises:
        NotFound: there is no such pack, or one of its stores is gone.
    """
    sent = find_pack(command.id)
    positions = _sent_positions(sent)
    # Its dates were those of the zone in which it was sent
    payload = log.event_of(log.events().get(position=sent.id)).payload
    with clock.frozen(sent.created_at), timezone.override(payload.zone if payload else "UTC"):
        chain: list[Level] = []
        for store, position in positions:
            with use_store(store):
                view = log.view_at(position)
            scope = _SCOPE_OF_STORE[store.scope]
            if scope is MemoryScope.PROJECT and sent.session_id:
                chain.append(Level(view, (MemoryScope.SESSION, scope), sent.session_id))
            else:
                chain.append(Level(view, (scope,)))
        with use_store(chain[0].store):
            query = parse(sent.query or (payload.work if payload else ""))
            progress_of = payload.progress_of if payload else ""
            most = most_items(sent.max_tokens)
            request = GatherRequest(chain, sent.created_at, query, bool(sent.query), sent.session_id, progress_of, most)
            remarks = Remarks(payload.remarks, payload.rechecks) if payload else NO_REMARKS
            if sent.sort is RECALL:
                body = recalled_body(request, sent.marks, remarks)
            elif sent.sort is OVERLAP:
                body = sent_overlap_body(request, list(map(local_id, sent.marks)))
            elif sent.sort is NOTE:
                body = noted_body(chain, sent.marks, sent.query, sent.created_at, remarks)
            else:
                body = _composed_again(request, sent, remarks, absent=bool(payload and payload.absent))
        marks = body.marks()
    lost = {key for key, mark in sent.marks.items() if marks.get(key) != mark}
    erased = _count_erased(sent, lost) if lost else 0
    text = pack_text(sent.id, body, positions[0][0].name, erased=erased)
    same = body.digest == sent.digest
    differs = len(lost) > erased or not (lost or same)
    return ComposedPack(sent.id, text, body.digest, body, as_sent=same, erased=erased, differs=differs)


# The digest tells in which edition a pack was sent
def _composed_again(request: GatherRequest, sent: ContextPack, remarks: Remarks, *, absent: bool) -> PackBody:
    bodies: list[PackBody] = []
    for edition in sorted(Edition, reverse=True):
        gathered = with_remarks(gather(replace(request, edition=edition)), remarks)
        body = replace(compose(gathered, sent.max_tokens, sent=sent.marks), absent=absent)
        if body.digest == sent.digest:
            return body
        bodies.append(body)
    return bodies[0]


def _sent_positions(sent: ContextPack) -> list[tuple[StoreId, int]]:
    positions: list[tuple[StoreId, int]] = []
    for store, position in sent.positions:
        scope, _, name = store.partition(":")
        positions.append((StoreId(Scope(scope), name), position))
    return positions


# The other lines that were lost are composed differently by this version, or under today's settings
def _count_erased(sent: ContextPack, lost: Collection[str]) -> int:
    count = 0
    for store, _ in _sent_positions(sent):
        level = Level(store, (_SCOPE_OF_STORE[store.scope],))
        ids = [entry for key in lost for entry in ids_at(level, [reference_of(key)])]
        with use_store(store):
            streams = dict(log.events().at(ids).values_list("position", "stream_id"))
            # The entries that lost the payload of an event, or a part of it
            is_erased = Q(payload_json__isnull=True) | Q(position__in=list(redacted_digests()))
            events = log.events().of_stream(*streams.values()).filter(is_erased)
            erased = set(events.values_list("stream_id", flat=True))
        count += sum(streams.get(entry) in erased for entry in ids)
    return count
