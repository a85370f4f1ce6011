from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from governance.redaction.copies import (
    count_copies,
    entities_of,
    kept_fields,
    kept_files,
    kept_headers,
    kept_in_store,
    kept_mirrors,
    kept_other_case,
    kept_unselected,
    look_through,
    packs_without_marks,
    search_folder,
    unproven,
)
from governance.redaction.matching import Matcher
from governance.redaction.schemas import RedactionDone, RedactionPreview, RedactionRun, RedactionSelect
from governance.redaction.selectors import (
    EventText,
    Findings,
    find_places,
    places_of,
    selected_events,
    texts_of,
    whole_places,
)
from memories.duplicates import remember_topics
from memories.services.deletion import Traces, wipe_traces
from memoryhub import env
from memoryhub.core import log
from memoryhub.core.errors import ConfirmationRequired, ConflictError, Invalid, Locked, NotFound
from memoryhub.core.permissions import Act, demand
from memoryhub.core.slugs import NO_NAMES, DerivedNames
from memoryhub.core.text import counted
from sessions_app.spooled import Spooled, cleaning, find_spooled

_ROUNDS = 3
# Characters; shorter texts of erased events occur elsewhere by chance, so files are not searched for them
_TELLING = 24
Progress = Callable[[int], None]


def preview_redaction(*, command: RedactionSelect) -> RedactionPreview:
    """Show what a redaction would change, its copies, and what it can't change; writes nothing.

    Raises:
        NotFound: nothing matches.
        Invalid: ``pattern`` is not a valid expression.
        Forbidden: the caller may not redact.
    """
    demand(Act.GOVERN)
    if command.whole:
        return _preview_whole(selected_events(command))
    findings = find_places(command)
    matcher = Matcher(command, findings.names)
    spooled = _spooled(command, matcher)
    _require_found(findings.positions, spooled)
    remaining = [*kept_fields(findings), *kept_unselected(command, matcher), *kept_other_case(command, findings)]
    if not command.rules:
        remaining += kept_headers(matcher)
    finds = findings.count + len(spooled.texts)
    events = counted(len(findings.matches), "event")
    return _preview(
        findings.positions,
        spooled,
        finds=finds,
        confirm_token=findings.token(spooled),
        question=f"permanently redact {counted(finds, 'match', 'matches')} in {events}{_and_spooled(spooled)}?",
        kept=remaining,
        places=places_of(findings),
        all_places=len(list(findings.finds())),
    )


def redact(*, command: RedactionRun, progress: Progress = lambda _: None) -> RedactionDone:
    """Remove text from the log and everything derived from it, then search the files for it.

    Also redacts matches that were written meanwhile. Backups are not changed, only listed.

    Raises:
        NotFound: nothing matches.
        ConfirmationRequired: ``confirm_token`` does not match what would be done now.
        Invalid: ``pattern`` is not valid, ``reason`` contains the text, or a payload would no longer fit its schema.
        Locked: other processes kept erasing or redacting events.
        Forbidden: the caller may not redact.
    """
    demand(Act.GOVERN)
    if not command.whole and not command.rules and Matcher(command).clean_text(command.reason):
        raise Invalid("reason contains the text to redact, and the log keeps it; reword the reason")
    if command.whole:
        return _erase_whole(command)
    findings = find_places(command)
    matcher = Matcher(command, findings.names)
    spooled = _spooled(command, matcher)
    _require(command, findings.token(spooled), findings.positions, spooled)
    removed = RemovedText(names=findings.names)
    has_matches = bool(findings.matches)
    for _ in range(_ROUNDS):
        # The spool first: what the hub has drained from it until now is in the log, where the next round finds it
        removed.clean_spool(command, matcher)
        if findings.matches:
            _remove(command, findings, removed, progress)
        findings = find_places(command)
        if not findings.matches:
            break
    if has_matches and not removed.positions:
        raise Locked("other processes keep erasing or redacting events; run the redaction again")
    if command.rules:
        look_through()
    return _proven(removed)


# A selection of some events never includes spooled ones
def _spooled(command: RedactionSelect, matcher: Matcher) -> Spooled:
    return Spooled() if command.narrowed else find_spooled(matcher.clean_waiting)


@dataclass(slots=True)
class RemovedText:
    event_id: int | None = None
    finds: int = 0
    positions: set[int] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    names: DerivedNames = NO_NAMES
    spooled: int = 0

    def clean_spool(self, command: RedactionSelect, matcher: Matcher) -> None:
        if not command.narrowed:
            with cleaning() as clean:
                self.add(clean(matcher.clean_waiting))

    def add(self, spooled: Spooled) -> None:
        self.spooled += len(spooled.lines)
        self.finds += len(spooled.texts)
        self.texts |= set(spooled.texts)


def _remove(command: RedactionRun, findings: Findings, removed: RemovedText, progress: Progress) -> None:
    remember_topics(findings.topics())  # before, because it may fail; it changes nothing until the keys have changed
    what = f"{'a text' if command.text else 'a pattern'} called {command.label}"
    if command.rules:
        what = "the rules for secrets"
    payloads = findings.payloads()
    payloads |= packs_without_marks(payloads)
    try:
        event = log.redact_payloads(
            payloads, what=what, reason=command.reason, seen=findings.erasure, progress=progress
        )
    except ConflictError:  # others erased or redacted since the search; the next round searches again
        return
    removed.event_id = event.position
    removed.finds += findings.count
    removed.positions |= set(findings.positions)
    removed.texts |= findings.texts()
    if command.text:
        removed.texts |= findings.names.slugs


def _erase_whole(command: RedactionRun) -> RedactionDone:
    reason = command.reason or "redacted whole"
    positions = [event.position for event in selected_events(command)]
    traces = Traces(positions)
    _require(command, _token(positions), positions, Spooled())
    removed = RemovedText()
    # In this order: the drain also takes the spool's lock before the store's (decision 31)
    with traces.cleaning() as clean_spool, log.transaction():
        events = selected_events(command)
        positions = [event.position for event in events]
        _require(command, _token(positions), positions, Spooled())
        streams = {event.stream for event in events if not log.stands_alone(event.type)}
        alone = [event.position for event in events if event.stream not in streams]
        if streams:
            log.erase_streams(sorted(streams), reason=reason)
        if alone:
            log.erase_events(alone, reason=reason)
        traces.erase_packs(reason=reason)
        removed.add(clean_spool())
    removed.finds += len(events)
    removed.positions = set(positions)
    for event in events:
        removed.texts.update(text for text in texts_of(event) if len(text) >= _TELLING)
    return _proven(removed)


def _require_found(positions: Sequence[int], spooled: Spooled) -> None:
    if not positions and not spooled.lines:
        raise NotFound("no match in this store; check the text and the selection")


def _require(command: RedactionRun, token: str, positions: Sequence[int], spooled: Spooled) -> None:
    _require_found(positions, spooled)
    if command.confirm_token != token:
        raise ConfirmationRequired(
            f"permanently redact {counted(len(positions), 'event')}{_and_spooled(spooled)}? This can't be undone; "
            "confirm with the token of the preview",
            id=positions[0] if positions else None,
            confirm_token=token,
        )


def _and_spooled(spooled: Spooled) -> str:
    count = len(spooled.lines)
    return f" and {counted(count, 'event')} in the spool" if count else ""


def _proven(removed: RemovedText) -> RedactionDone:
    wiped = wipe_traces()
    proof = search_folder(env.home(), removed.texts)
    return RedactionDone(
        id=removed.event_id,
        events=len(removed.positions),
        finds=removed.finds,
        spooled=removed.spooled,
        searched_files=proof.files,
        searched_bytes=proof.bytes,
        left=[
            *kept_in_store(removed.texts, wiped=wiped),
            *kept_files(proof, wiped=wiped),
            *kept_mirrors(removed.texts, removed.names),
        ],
        unproven=unproven(),
    )


def _preview_whole(events: list[EventText]) -> RedactionPreview:
    positions = [event.position for event in events]
    _require_found(positions, Spooled())
    traces = Traces(positions)
    spooled = traces.find_spooled()
    return _preview(
        positions,
        spooled,
        packs=traces.count_packs(),
        finds=len(events),
        confirm_token=_token(positions),
        question=f"permanently erase {counted(len(events), 'event')}?",
        kept=[],
        places=whole_places(events),
        all_places=len(events),
    )


def _preview(positions: list[int], spooled: Spooled, *, packs: int = 0, **fields: Any) -> RedactionPreview:
    entities = entities_of(positions)
    copies = count_copies(positions, entities)
    if packs:
        copies["context packs whose query quotes it"] = packs
    if spooled.lines:
        copies["events in the spool"] = len(spooled.lines)
    return RedactionPreview(
        events=len(positions), entities=len(entities), spooled=len(spooled.lines), copies=copies, **fields
    )


def _token(positions: Sequence[int]) -> str:
    listed = " ".join(map(str, positions))
    return hashlib.sha256(f"erase {listed}".encode()).hexdigest()[:16]
