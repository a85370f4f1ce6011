"""Apply a bundle to a store: adopt its log, go on with it, or merge it (decision 65)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum

from governance.redaction.copies import look_through
from memoryhub.core import log
from memoryhub.core.backends.selected import stores
from memoryhub.core.errors import Conflict, HubError, Invalid
from memoryhub.core.events.projection import finish_rebuild
from memoryhub.core.log.adopting import append_as_is, forward
from memoryhub.core.log.digests import GENESIS
from memoryhub.core.permissions import Act, demand
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import StoreId, require_stayed, use_store
from memoryhub.core.stores.wiping import is_unwiped, wipe_free_space
from memoryhub.registry.moves import noting_moves
from memoryhub.transfer.bundles.checking import Contents, check, read_payload
from memoryhub.transfer.bundles.format import BundleEvent
from memoryhub.transfer.bundles.merging import MergeReport, find_merge, merge, redactions_to_repeat
from memoryhub.transfer.bundles.reading import Bundle
from memoryhub.transfer.jsonl import UNFIT, refusal

Progress = Callable[[int], None]
_DIGESTS = "SELECT chain_digest FROM raw_events ORDER BY position"


class Outcome(StrEnum):
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

    outcome: Outcome
    store: StoreId
    contents: Contents
    # The store's head before
    head: tuple[int, str]
    # New in the store
    added: int = 0
    # Of a merge
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
    if plan.outcome is Outcome.MERGED and stores.exists(store):
        with use_store(store), suppress(_Undone), log.transaction():
            _merge(bundle, plan, redactions_to_repeat(bundle, plan.contents), lambda _: None)
            raise _Undone
    return plan


class _Undone(Exception):
    """Rolls a preview back."""


def apply_bundle(bundle: Bundle, store: StoreId, progress: Progress = lambda _: None) -> Applied:
    """Apply a bundle to a store: all of it or nothing.

    Raises:
        Invalid: as ``preview_bundle``.
        Conflict: the store has changed meanwhile.
        Damaged: the store's log lost events that the bundle does not have.
        Forbidden: the caller may not govern the store.
    """
    demand(Act.GOVERN, to="apply a bundle")
    plan = _planned(bundle, store)
    if plan.outcome is Outcome.CONTAINED:
        return plan
    with use_store(store, create=True), noting_moves():
        if plan.outcome is Outcome.MERGED:
            redacted = redactions_to_repeat(bundle, plan.contents)
            if redacted:  # first: if the process dies after it, the next attempt does the rest
                log.redact_payloads(redacted, what="redacted in another store", reason="a bundle was merged")
            _merge(bundle, plan, redacted, progress)
        else:
            _continue(bundle, plan, progress)
            plan.secrets = look_through().finds if _needs_look(bundle, plan) else 0
        if is_unwiped():
            wipe_free_space()
    return plan


def _planned(bundle: Bundle, store: StoreId) -> Applied:
    if not stores.exists(store):
        require_stayed(store)
        plan = Applied(Outcome.ADOPTED, store, check(bundle), (0, GENESIS))
    else:
        with use_store(store):
            own = (digest for (digest,) in rows.iterate(_DIGESTS))
            plan = Applied(Outcome.ADOPTED, store, check(bundle, own), log.head())
            plan.merged_before = find_merge(bundle.manifest.head)
    plan.outcome = _outcome(bundle, plan)
    if plan.outcome in (Outcome.ADOPTED, Outcome.FORWARDED):
        plan.added = bundle.manifest.events - plan.contents.fork
    return plan


def _outcome(bundle: Bundle, plan: Applied) -> Outcome:
    last, fork = plan.head[0], plan.contents.fork
    if fork == bundle.manifest.events or plan.merged_before:
        return Outcome.CONTAINED
    if fork < last or bundle.manifest.store_id != plan.store:
        return Outcome.MERGED
    return Outcome.FORWARDED if last else Outcome.ADOPTED


def _merge(bundle: Bundle, plan: Applied, redacted: Collection[int], progress: Progress) -> None:
    plan.merge = merge(bundle, plan.contents, redacted, progress)
    plan.added = plan.merge.added
    if not plan.added:
        plan.outcome = Outcome.CONTAINED


def _continue(bundle: Bundle, plan: Applied, progress: Progress) -> None:
    contents = plan.contents
    if plan.head[0] and contents.last_removal > contents.fork:
        with _unfit_refused():
            forward(_without_erased(bundle, contents), fork=plan.head, progress=progress)
        return
    # The bundle may have what the log lost, so its anchor is compared at the end
    with _unfit_refused(), log.transaction(anchored=False):
        if log.head() != plan.head:
            raise Conflict("the store has changed meanwhile; try again")
        for event in _without_erased(bundle, contents):
            if event.position > contents.fork:
                _append(event, contents)
            if event.position % 500 == 0:
                progress(event.position)
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
    if plan.outcome is Outcome.ADOPTED:
        return True
    new = (event for event in bundle.events() if event.position > plan.contents.fork)
    return any(log.prepare(event.known_type, read_payload(event)).redactions for event in new if event.payload_json)


def _append(event: BundleEvent, contents: Contents) -> None:
    try:
        append_as_is(event, void=contents.void)
    except UNFIT as error:
        raise refusal(event.position, error) from error


# Text that was erased does not come back, even if a file still has it.
def _without_erased(bundle: Bundle, contents: Contents) -> Iterator[BundleEvent]:
    for event in bundle.events():
        gone = event.payload_json is not None and event.position in contents.erased
        yield event.model_copy(update={"payload_json": None, "salt": None}) if gone else event
