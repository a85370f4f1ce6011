"""Looking at a redaction, and doing it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from governance.redaction.copies import count_copies, entities_of, kept_fields, kept_files, kept_headers
from governance.redaction.excerpts import places_of, texts_of, whole_places
from governance.redaction.finding import Event, Findings, find_places, selected_events
from governance.redaction.growth import look_through
from governance.redaction.matching import Matcher
from governance.redaction.proof import search_home
from governance.redaction.schemas import Kept, Place, RedactionDone, RedactionPreview, RedactionRun, RedactionSelect
from memories.services.erase import wipe_traces
from memoryhub.core import log
from memoryhub.core.errors import ConfirmationRequired, Conflict, Invalid, Locked, NotFound
from memoryhub.core.permissions import Act, demand
from memoryhub.core.wording import counted

_ROUNDS = 3
_TELLING = 24
"""Characters; of what was erased whole, shorter texts are elsewhere by chance."""
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
        question=f"take {counted(findings.count, 'find')} out of {counted(len(findings.found), 'event')} for good?",
        kept=[*kept_fields(findings), *([] if command.rules else kept_headers(Matcher(command)))],
        places=places_of(findings),
        all_places=sum(len(each.finds) for each in findings.found),
    )


def redact(*, command: RedactionRun, progress: Progress = lambda _: None) -> RedactionDone:
    """Take it out of the log and of everything that was made of it, and prove it by reading the files.

    What was written meanwhile and holds it too goes along. Backups are told of, and left alone.

    Raises:
        NotFound: nothing is found.
        ConfirmationRequired: ``confirm_token`` is not that of what would be done now.
        Invalid: the pattern is none, the reason holds it, or what is left of an event does not hold together.
        Locked: others erased or redacted events time and again.
        Forbidden: the caller may not redact.
    """
    demand(Act.GOVERN)
    _require_clean_reason(command)
    if command.whole:
        return _erase_whole(command)
    taken = _Taken()
    for _ in range(_ROUNDS):
        findings = find_places(command)
        if not taken.positions:
            _require(command, findings.token(), findings.positions)
        if not findings.found:
            break
        _take(command, findings, taken, progress)
    if not taken.positions:
        raise Locked("others erase or redact events all the time; redact again")
    if command.rules:
        look_through()
    return _proven(taken)


@dataclass(slots=True)
class _Taken:
    """What was taken out so far."""

    event_id: int | None = None
    finds: int = 0
    positions: set[int] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)


def _take(command: RedactionRun, findings: Findings, taken: _Taken, progress: Progress) -> None:
    """Take out what was found; nothing where others have erased or redacted since it was, so that it is another now."""
    what, seen = _what(command), findings.erasure
    try:
        event = log.redact_payloads(findings.payloads(), what=what, reason=command.reason, seen=seen, progress=progress)
    except Conflict:
        return
    taken.event_id, taken.finds = event.position, taken.finds + findings.count
    taken.positions |= set(findings.positions)
    taken.texts |= findings.texts()


def _require_clean_reason(command: RedactionRun) -> None:
    if not command.whole and not command.rules and Matcher(command).clean_text(command.reason):
        raise Invalid("reason holds what is to be taken out, and would be kept; say it otherwise")


def _erase_whole(command: RedactionRun) -> RedactionDone:
    reason = command.reason or "redacted whole"
    with log.transaction():
        events = selected_events(command)
        _require(command, _token(events), [event.position for event in events])
        alone, streams = _apart(events)
        if streams:
            log.erase_streams(streams, reason=reason)
        if alone:
            log.erase_events(alone, reason=reason)
    texts = {text for event in events for text in texts_of(event) if len(text) >= _TELLING}
    return _proven(_Taken(None, len(events), {event.position for event in events}, texts))


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
            f"take this out of {counted(len(positions), 'event')} for good? It cannot be brought back",
            id=positions[0],
            confirm_token=token,
        )


def _proven(taken: _Taken) -> RedactionDone:
    wiped = wipe_traces()
    proof = search_home(taken.texts)
    return RedactionDone(
        id=taken.event_id,
        events=len(taken.positions),
        finds=taken.finds,
        searched_files=proof.files,
        searched_bytes=proof.bytes,
        left=kept_files(proof, wiped=wiped),
    )


def _preview_whole(events: list[Event]) -> RedactionPreview:
    if not events:
        raise NotFound("nothing of that is in this store's log")
    positions = [event.position for event in events]
    question = f"erase {counted(len(events), 'event')} altogether?"
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
