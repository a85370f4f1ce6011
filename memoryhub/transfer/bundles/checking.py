"""Check the events of a bundle before they are applied."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from governance.events import ImportUndone
from memoryhub.core import log
from memoryhub.core.log.digests import GENESIS, payload_digest
from memoryhub.core.schemas import STORED, Payload
from memoryhub.transfer.bundles.format import BundleEvent
from memoryhub.transfer.bundles.reading import Bundle
from memoryhub.transfer.jsonl import UNFIT, refusal, wrong


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
    payload = read_payload(event)
    if event.known_type.removes_text:
        contents.last_removal = event.position
    if isinstance(payload, log.PayloadErased):
        contents.erased.update(_earlier(event, payload.positions))
    elif isinstance(payload, log.PayloadRedacted):
        _earlier(event, payload.digests)
        contents.redacted |= payload.digests
    elif isinstance(payload, ImportUndone):
        contents.void.update(_earlier(event, payload.void))


def _earlier(event: BundleEvent, positions: Collection[int]) -> Collection[int]:
    later = [position for position in positions if not 0 < position < event.position]
    if later:
        raise wrong(event.position, f"it names #{later[0]}, and there is no such event before it")
    return positions


def read_payload(event: BundleEvent) -> Payload:
    """Return the payload as the log reads it; Invalid if this version can't."""
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
