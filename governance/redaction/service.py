"""Looking at a redaction, and doing it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from governance.redaction.copies import count_copies, entities_of, kept_files, kept_headers
from governance.redaction.excerpts import places_of, whole_places
from governance.redaction.finding import Event, Findings, find_places, selected_events
from governance.redaction.growth import look_through
from governance.redaction.matching import Matcher
from governance.redaction.proof import search_home
from governance.redaction.schemas import Kept, Place, RedactionDone, RedactionPreview, RedactionRun, RedactionSelect
from memories.embeddings.vectors import forget_files
from memories.search.index import forget_removed
from memoryhub.core import log
from memoryhub.core.errors import ConfirmationRequired, NotFound
from memoryhub.core.permissions import Act, demand
from memoryhub.core.vacuum import wipe_free_space

_ROUNDS = 3
Progress = Callable[[int], None]


def preview_redaction(*, command: RedactionSelect) -> RedactionPreview:
    """Show what would be taken out, with every copy of it, and what stays; nothing is changed.

    Raises:
        NotFound: nothing is found.
        Invalid: the pattern is none.
        Forbidden: the caller may not redact.
    """
    demand(Act.GOVERN)
    if command.whole:
        return _preview_whole(selected_events(command))
    findings = _found(command)
    token = findings.token()
    return _preview(
        findings.positions,
        finds=findings.count,
        token=token,
        question=f"take {_counted(findings.count, 'find')} out of {_counted(len(findings.found), 'event')} for good?",
        kept=[] if command.rules else kept_headers(Matcher(command)),
        places=places_of(findings),
        all_places=sum(len(each.finds) for each in findings.found),
    )


def redact(*, command: RedactionRun, progress: Progress = lambda _: None) -> RedactionDone:
    """Take it out of the log and of everything that was made of it, and prove it by reading the files.

    What was written meanwhile and holds it too goes along. Backups are told of, and left alone.

    Raises:
        NotFound: nothing is found.
        ConfirmationRequired: ``confirm_token`` is not that of what would be done now.
        Invalid: the pattern is none, or what is left of an event does not hold together.
        Forbidden: the caller may not redact.
    """
    demand(Act.GOVERN)
    if command.whole:
        return _erase_whole(command)
    findings = _found(command)
    _require(command, findings.token(), findings.positions)
    texts, count, positions = set(findings.texts()), 0, set(findings.positions)
    event_id = None
    for _ in range(_ROUNDS):
        event = log.redact_payloads(findings.payloads(), what=_what(command), reason=command.reason, progress=progress)
        event_id, count = event.position, count + findings.count
        findings = find_places(command)
        if not findings.found:
            break
        texts |= findings.texts()
        positions |= set(findings.positions)
    if command.rules:
        look_through()
    return _proven(event_id, len(positions), count, texts)


def _erase_whole(command: RedactionRun) -> RedactionDone:
    events = selected_events(command)
    _require(command, _token(events), [event.position for event in events])
    alone, streams = _apart(events)
    reason = command.reason or "redacted whole"
    with log.transaction():
        if streams:
            log.erase_streams(streams, reason=reason)
        if alone:
            log.erase_events(alone, reason=reason)
    return _proven(None, len(events), len(events), {event.payload for event in events})


def _apart(events: Sequence[Event]) -> tuple[list[int], list[str]]:
    """Return those that stand alone, and the streams of the others."""
    alone = [event for event in events if log.stands_alone(event.type)]
    streams = {event.stream for event in events if event not in alone}
    return [event.position for event in alone if event.stream not in streams], sorted(streams)


def _found(command: RedactionSelect) -> Findings:
    findings = find_places(command)
    if not findings.found:
        raise NotFound("nothing of that is in this store's log")
    return findings


def _require(command: RedactionRun, token: str, positions: Sequence[int]) -> None:
    if not positions:
        raise NotFound("nothing of that is in this store's log")
    if command.confirm_token != token:
        raise ConfirmationRequired(
            f"take this out of {_counted(len(positions), 'event')} for good? It cannot be brought back",
            id=positions[0],
            confirm_token=token,
        )


def _proven(event_id: int | None, events: int, finds: int, texts: set[str]) -> RedactionDone:
    forget_removed()
    forget_files()
    wipe_free_space()
    proof = search_home(texts)
    return RedactionDone(
        id=event_id,
        events=events,
        finds=finds,
        searched_files=proof.files,
        searched_bytes=proof.bytes,
        left=kept_files(proof),
    )


def _preview_whole(events: list[Event]) -> RedactionPreview:
    if not events:
        raise NotFound("nothing of that is in this store's log")
    positions = [event.position for event in events]
    question = f"erase {_counted(len(events), 'event')} altogether?"
    return _preview(
        positions,
        finds=len(events),
        token=_token(events),
        question=question,
        kept=[],
        places=whole_places(events),
        all_places=len(events),
    )


def _preview(
    positions: list[int],
    *,
    finds: int,
    token: str,
    question: str,
    kept: list[Kept],
    places: list[Place],
    all_places: int,
) -> RedactionPreview:
    entities = entities_of(positions)
    return RedactionPreview(
        events=len(positions),
        finds=finds,
        entities=len(entities),
        copies=count_copies(positions, entities),
        places=places,
        all_places=all_places,
        kept=kept,
        confirm_token=token,
        question=question,
    )


def _token(events: Sequence[Event]) -> str:
    listed = " ".join(str(event.position) for event in events)
    return hashlib.sha256(f"erase {listed}".encode()).hexdigest()[:16]


def _what(command: RedactionSelect) -> str:
    if command.rules:
        return "the rules for secrets"
    return f"{'a text' if command.text else 'a pattern'} called {command.label}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
