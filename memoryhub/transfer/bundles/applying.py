"""Apply a bundle: create a store from it, continue one, or merge its memories into another."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Any, TypeVar

from django.db.transaction import on_commit

from governance.events import LOG_MERGED, LogMerged
from governance.redaction.copies import look_through
from memoryhub.core import log
from memoryhub.core.backends.selected import stores
from memoryhub.core.errors import ConflictError, HubError, Invalid
from memoryhub.core.events.projection import finish_rebuild
from memoryhub.core.log.adopting import append_as_is, forward
from memoryhub.core.log.digests import GENESIS
from memoryhub.core.log.erase import is_unwiped, redacted_digests, wipe_free_space
from memoryhub.core.permissions import Act, demand
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.store import StoreId, require_stayed, use_store
from memoryhub.core.text import counted, first_of
from memoryhub.registry.access_history import noting_moves
from memoryhub.transfer.bundles.archive import Bundle, BundleContents, check
from memoryhub.transfer.bundles.lines import UNFIT, ChainedEvent, refusal
from memoryhub.transfer.bundles.merging import Merge, MergeReport

Progress = Callable[[int], None]

_PROGRESS_EVENTS = 500
_MOST_NAMED = 10

E = TypeVar("E")


class BundleOutcome(StrEnum):
    # The store has no events: it gets the log as it is.
    ADOPTED = "adopted"
    # The store's log is the beginning of the bundle's.
    FORWARDED = "forwarded"
    # The bundle's log is the beginning of the store's, or was merged before.
    CONTAINED = "contained"
    # Both went on, or have nothing in common.
    MERGED = "merged"


@dataclass(slots=True)
class Applied:
    """What became of a bundle, or what would."""

    outcome: BundleOutcome
    store: StoreId
    contents: BundleContents
    # The store's head before
    head: tuple[int, str]
    # New in the store
    added: int = 0
    # Set by a merge
    merge: MergeReport | None = None
    # The event that recorded an earlier merge of the same log, 0 if there is none
    merged_before: int = 0
    # Places in the log that the secret rules of this hub would have masked; None if not looked for
    secrets: int | None = None


def preview_bundle(bundle: Bundle, store: StoreId) -> Applied:
    """Check every event of a bundle, and return what applying it to a store would do.

    Raises:
        Invalid: an event is not the one that was written, or this version can't read it.
        Moved: the store has moved to another place.
    """
    plan = _planned(bundle, store)
    if plan.outcome is BundleOutcome.MERGED and stores.exists(store):
        with use_store(store), suppress(_ApplyUndone), log.transaction():
            _merge(bundle, plan, redactions_to_repeat(bundle, plan.contents), lambda _: None)
            raise _ApplyUndone
    return plan


class _ApplyUndone(Exception):
    """Rolls a preview back."""


def apply_bundle(bundle: Bundle, store: StoreId, progress: Progress = lambda _: None) -> Applied:
    """Apply a bundle to a store: all of it or nothing.

    Raises:
        Invalid: as ``preview_bundle``.
        ConflictError: the store has changed meanwhile.
        Damaged: the store's log lost events that the bundle does not have.
        Forbidden: the caller may not govern the store.
    """
    demand(Act.GOVERN, to="apply a bundle")
    plan = _planned(bundle, store)
    if plan.outcome is BundleOutcome.CONTAINED:
        return plan
    with use_store(store, create=True), noting_moves():
        if plan.outcome is BundleOutcome.MERGED:
            redacted = redactions_to_repeat(bundle, plan.contents)
            if redacted:  # first: if the process dies after it, the next attempt does the rest
                log.redact_payloads(redacted, what="redacted in another store", reason="a bundle was merged")
            _merge(bundle, plan, redacted, progress)
        else:
            _continue(bundle, plan, progress)
            plan.secrets = 0
            if _needs_look(bundle, plan):
                plan.secrets = look_through().finds
        if is_unwiped():
            wipe_free_space()
    return plan


def _planned(bundle: Bundle, store: StoreId) -> Applied:
    manifest = bundle.manifest
    if not stores.exists(store):
        require_stayed(store)
        plan = Applied(BundleOutcome.ADOPTED, store, check(bundle), (0, GENESIS))
    else:
        with use_store(store):
            digests = chain.from_iterable(log.iterate_columns("chain_digest"))
            plan = Applied(BundleOutcome.ADOPTED, store, check(bundle, digests), log.head())
            merged = log.events().of_type(LOG_MERGED).payloads() if bundle.is_chained else {}
            earlier = (position for position, payload in merged.items() if payload.get("head") == manifest.head)
            plan.merged_before = next(earlier, 0)
    last = plan.head[0]
    fork = plan.contents.fork
    if fork == plan.contents.events or plan.merged_before:
        plan.outcome = BundleOutcome.CONTAINED
    elif fork < last or manifest.store_id != store or not bundle.is_chained:
        plan.outcome = BundleOutcome.MERGED
    else:
        plan.outcome = BundleOutcome.FORWARDED if last else BundleOutcome.ADOPTED
        plan.added = plan.contents.events - fork
    return plan


def _continue(bundle: Bundle, plan: Applied, progress: Progress) -> None:
    contents = plan.contents
    if plan.head[0] and contents.last_removal > contents.fork:
        with _unfit_refused():
            forward(_without_erased(bundle, contents, progress), fork=plan.head)
        return
    # The bundle may have what the log lost, so its anchor is compared at the end
    with _unfit_refused(), log.transaction(anchored=False):
        if log.head() != plan.head:
            raise ConflictError("the store has changed meanwhile; try again")
        for event in _without_erased(bundle, contents, progress):
            if event.position > contents.fork:
                try:
                    append_as_is(event, void=contents.void)
                except UNFIT as error:
                    raise refusal(event.position, error) from error
        log.require_anchored()
    finish_rebuild()


# Events are written in batches, so an error may come after the event that caused it
@contextmanager
def _unfit_refused() -> Iterator[None]:
    try:
        yield
    except HubError:
        raise
    except UNFIT as error:
        why = f"the bundle's events do not fit each other ({type(error).__name__}); nothing was imported"
        raise Invalid(why) from error


# The new events were sanitised by the rules of another hub. A scan of the whole log takes 15 s for 100,000 events.
def _needs_look(bundle: Bundle, plan: Applied) -> bool:
    if plan.outcome is BundleOutcome.ADOPTED:
        return True
    new = (event for event in bundle.events() if event.position > plan.contents.fork and event.payload is not None)
    return any(log.prepare(event.known_type, event.stored_payload()).redactions for event in new)


def _counted(events: Iterator[E], progress: Progress) -> Iterator[E]:
    number = 0
    for number, event in enumerate(events, 1):
        yield event
        if number % _PROGRESS_EVENTS == 0:
            progress(number)
    progress(number)


# Text that was erased does not come back, even if a file still has it.
def _without_erased(bundle: Bundle, contents: BundleContents, progress: Progress) -> Iterator[ChainedEvent]:
    for event in _counted(bundle.events(), progress):
        assert isinstance(event, ChainedEvent)  # noqa: S101 - others are merged
        if event.payload_json is not None and event.position in contents.erased:
            yield event.model_copy(update={"payload_json": None, "salt": None})
        else:
            yield event


# Appends the events of a bundle that the current store lacks, as if they were written here, and records it. Those of
# ``redactions_to_repeat`` are redacted before.
def _merge(bundle: Bundle, plan: Applied, redacted: Collection[int], progress: Progress) -> None:
    with log.transaction():
        merging = Merge(plan.contents)
        removed = {*redacted, *redacted_digests()}
        merging.take_all(_counted(bundle.events(), progress))
        merging.open_conflicts()
        report = merging.report
        report.unredacted = [position for position in report.unredacted if position not in removed]
        if report.added and bundle.is_chained:
            manifest = bundle.manifest
            merged = LogMerged(
                store=f"{manifest.scope}:{manifest.store}",
                events=manifest.events,
                head=manifest.head,
                fork=plan.contents.fork,
                fork_digest=plan.contents.fork_digest,
                sha256=bundle.sha256,
                added=report.added,
                conflicts=report.conflicts,
            )
            report.position = log.append(log.prepare(LOG_MERGED, merged), stream="merges").position
        if merging.has_undone:
            on_commit(log.rebuild, using=require_current_alias())
    plan.merge = report
    plan.added = report.added
    if not plan.added:
        plan.outcome = BundleOutcome.CONTAINED


def redactions_to_repeat(bundle: Bundle, contents: BundleContents) -> dict[int, Any]:
    """Return the redacted payloads of common events that only the other store has redacted, by position.

    What this store has redacted too stays as it is: the other store may still have what was removed here.
    """
    payloads: dict[int, Any] = {}
    positions = {position for position in contents.redacted if position <= contents.fork} - set(redacted_digests())
    if not positions or contents.last_removal <= contents.fork:
        return payloads
    for event in bundle.events():
        if event.position in positions and isinstance(event, ChainedEvent) and event.payload_json is not None:
            present = log.events().at([event.position]).readable().first()
            if present and present.payload_json != event.payload_json:
                payloads[event.position] = json.loads(event.payload_json)
    return payloads


def describe_merge(merge: MergeReport) -> Iterator[str]:
    """Yield a line on each thing that a person should know of a merge."""
    if merge.conflicts:
        yield f"changed in both, with an open conflict: {_named_positions(merge.conflicts)}"
    if merge.kept:
        yield f"changed in both, this store's state stays: {_named_positions(merge.kept)}"
    for reason, left_out in merge.left_out.items():
        yield f"left out {counted(left_out, 'event')}: {reason}"
    for name, strings in sorted(merge.redactions.items()):
        yield f"masked {name} in {counted(strings, 'event')}"
    if merge.unredacted:
        yield f"redacted there, but not here: {_named_positions(merge.unredacted)}; redact it here too"


def describe_secrets(applied: Applied) -> Iterator[str]:
    """Yield a line if the secret rules of this hub would have masked something in a log that was taken as it is."""
    if applied.secrets:
        yield (
            f"{counted(applied.secrets, 'place')} would have been masked by this hub's secret rules; "
            "`memory-hub redact --rules` shows them"
        )


def _named_positions(positions: Sequence[int]) -> str:
    return first_of([f"#{position}" for position in positions], _MOST_NAMED)
