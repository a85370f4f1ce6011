"""Accept the loss of acknowledged events when no backup has them (decision 38)."""

from __future__ import annotations

from pydantic import Field

from memoryhub.core.backends.selected import stores
from memoryhub.core.errors import Damaged, Invalid
from memoryhub.core.events.event_types import define_governance_event
from memoryhub.core.events.projection import Event
from memoryhub.core.log.anchor import anchor_problem, read_anchor, replace_anchor
from memoryhub.core.log.append import append, prepare, transaction
from memoryhub.core.log.chain import verify
from memoryhub.core.log.read import head
from memoryhub.core.permissions import Act
from memoryhub.core.schemas import Payload, Sha256
from memoryhub.core.stores.store import StoreId, current_store, require_stayed, use_store


class LossAccepted(Payload):
    """A person accepted that acknowledged events are lost."""

    # The last acknowledged event; 0 if the anchor could not be read.
    anchored_position: int = Field(ge=0)
    anchored_digest: Sha256 | None = None
    # The last event that is left. Later ids are assigned a second time.
    found_position: int = Field(ge=0)
    found_digest: Sha256
    problem: str
    reason: str = ""


LOSS_ACCEPTED = define_governance_event(
    "log.loss_accepted", LossAccepted, label="Log loss accepted", act=Act.WRITE, is_local=True
)


def accept_loss(*, store: StoreId, reason: str = "") -> Event[LossAccepted]:
    """Record the loss in the log, and allow writes again; a missing store is created again, unless it has moved."""
    require_stayed(store)
    problem = stores.recreate(store)
    with use_store(store):
        problem = problem or anchor_problem() or _missing_anchor()
        if not problem:
            raise Invalid("nothing is lost: the log contains every acknowledged event")
        left = verify(anchored=False)
        if not left.ok:
            raise Damaged(f"{left.describe()}; this loss cannot be accepted, restore a backup")
        with transaction(anchored=False):
            event = append(prepare(LOSS_ACCEPTED, _payload(problem, reason)), stream="log")
        # After a crash before this line, writes are still refused, and the loss can be accepted again.
        replace_anchor(store, *head())
    return event


def _missing_anchor() -> str:
    is_missing = read_anchor(current_store()) is None and head()[0]
    return "the store's anchor is missing" if is_missing else ""


def _payload(problem: str, reason: str) -> LossAccepted:
    try:
        anchor = read_anchor(current_store())
    except ValueError:
        anchor = None
    position, digest = head()
    return LossAccepted(
        anchored_position=anchor.position if anchor else 0,
        anchored_digest=anchor.digest if anchor else None,
        found_position=position,
        found_digest=digest,
        problem=problem,
        reason=reason,
    )
