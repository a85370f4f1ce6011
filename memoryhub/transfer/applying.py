"""Apply a bundle to a store: adopt its log, go on with it, or merge it (decision 65)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from governance.imports import ImportUndone
from memoryhub.core import log
from memoryhub.core.errors import Conflict
from memoryhub.core.events.projection import finish_rebuild
from memoryhub.core.log.adopting import append_as_is, forward
from memoryhub.core.log.digests import GENESIS, payload_digest
from memoryhub.core.permissions import Act, demand
from memoryhub.core.schemas import STORED, Payload
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import StoreId, use_store
from memoryhub.core.stores.wal import wipe_free_space
from memoryhub.transfer.bundles import Bundle, BundleEvent
from memoryhub.transfer.jsonl import UNFIT, refusal, wrong

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
class Contents:
    """What a check of all events has found."""

    # The last event that the store has too
    fork: int = 0
    fork_digest: str = GENESIS
    # The last event that removes text from others
    last_removal: int = 0
    erased: set[int] = field(default_factory=set)
    redacted: dict[int, str] = field(default_factory=dict)
    # Events of undone imports
    void: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Plan:
    outcome: Outcome
    store: StoreId
    contents: Contents
    # The store's head, when the plan was made
    head: tuple[int, str]


def plan_bundle(bundle: Bundle, store: StoreId) -> Plan:
    """Check every event of a bundle, and return what applying it to a store would do; writes nothing.

    Raises:
        Invalid: an event is not the one that was written, or this version can't read it.
    """
    if not store.path.exists():
        return Plan(Outcome.ADOPTED, store, check(bundle), (0, GENESIS))
    with use_store(store):
        contents, head = check(bundle, (digest for (digest,) in rows.iterate(_DIGESTS))), log.head()
    return Plan(_outcome(bundle, contents.fork, head[0], store), store, contents, head)


def _outcome(bundle: Bundle, fork: int, last: int, store: StoreId) -> Outcome:
    if fork == bundle.manifest.events:
        return Outcome.CONTAINED
    if fork < last or bundle.manifest.store != store.name:
        return Outcome.MERGED
    return Outcome.FORWARDED if last else Outcome.ADOPTED


def apply_bundle(bundle: Bundle, store: StoreId, progress: Progress = lambda _: None) -> Plan:
    """Apply a bundle to a store: all of it or nothing.

    Raises:
        Invalid: as ``plan_bundle``.
        Conflict: the store has changed meanwhile.
        Forbidden: the caller may not govern the store.
    """
    demand(Act.GOVERN, to="apply a bundle")
    plan = plan_bundle(bundle, store)
    with use_store(store, create=True):
        if plan.outcome in (Outcome.ADOPTED, Outcome.FORWARDED):
            _continue(bundle, plan, progress)
    return plan


def _continue(bundle: Bundle, plan: Plan, progress: Progress) -> None:
    contents = plan.contents
    if plan.head[0] and contents.last_removal > contents.fork:
        forward(_without_erased(bundle, contents), fork=plan.head, progress=progress)
        wipe_free_space()
        return
    with log.transaction():
        if log.head() != plan.head:
            raise Conflict("the store has changed meanwhile; try again")
        for event in _without_erased(bundle, contents):
            if event.position > contents.fork:
                _append(event, contents)
            if event.position % 500 == 0:
                progress(event.position)
    finish_rebuild()


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


def check(bundle: Bundle, own: Iterable[str] = ()) -> Contents:
    """Check the chain and the payloads of a bundle, and that this version can read every event.

    Args:
        bundle: whose events are read once.
        own: the chain digests of the store with which the bundle is compared, from its first event.

    Raises:
        Invalid: an event is not the one that was written, or can't be read.
    """
    contents, others, is_common = Contents(), iter(own), True
    # Payloads with another digest than the chain has, and those without a payload
    changed: dict[int, str] = {}
    missing: set[int] = set()
    for event in bundle.events():
        is_common = is_common and next(others, None) == event.chain_digest
        if is_common:
            contents.fork, contents.fork_digest = event.position, event.chain_digest
        if event.payload_json is None:
            missing.add(event.position)
            continue
        _note_removal(event, contents)
        digest = payload_digest(event.salt or "", event.payload_json)
        if digest != event.payload_digest:
            changed[event.position] = digest
    _require_explained(contents, changed, missing)
    return contents


def _note_removal(event: BundleEvent, contents: Contents) -> None:
    payload = _readable(event)
    if event.known_type.removes_text:
        contents.last_removal = event.position
    if isinstance(payload, log.PayloadErased):
        contents.erased.update(payload.positions)
    elif isinstance(payload, log.PayloadRedacted):
        contents.redacted |= payload.digests
    elif isinstance(payload, ImportUndone):
        contents.void.update(payload.void)


def _readable(event: BundleEvent) -> Payload:
    try:
        found: Payload = event.known_type.schema.model_validate_json(event.payload_json or "", context=STORED)
    except UNFIT as error:
        raise refusal(event.position, error) from error
    return found


def _require_explained(contents: Contents, changed: dict[int, str], missing: set[int]) -> None:
    wanted = {position: digest for position, digest in contents.redacted.items() if position not in missing}
    differing = {position for position, _ in changed.items() ^ wanted.items()}
    if differing:
        raise wrong(min(differing), "its payload is not the one that was written")
    if missing - contents.erased:
        raise wrong(min(missing - contents.erased), "its payload is missing, and no event records an erasure")
