"""State of a log's hash chain: head, anchor, last full verification."""

from __future__ import annotations

from dataclasses import dataclass

from memoryhub.core import clock, log
from memoryhub.core.errors import HubError
from memoryhub.core.log.anchor import read_anchor
from memoryhub.core.stores.store import StoreId, current_store, use_store
from memoryhub.models import StoreCheck


# Read without walking the chain
@dataclass(frozen=True, slots=True)
class ChainState:
    position: int
    digest: str
    # Position of the anchor; None if missing or unreadable
    anchored: int | None
    anchor_problem: str
    # The last full verification
    check: StoreCheck | None

    @property
    def unchecked(self) -> int:
        return max(0, self.position - (self.check.events if self.check else 0))


def chain_state() -> ChainState:
    store = current_store()
    try:
        anchor = read_anchor(store)
    except ValueError:
        anchor = None
    check = StoreCheck.objects.filter(store=store.alias).first()
    return ChainState(*log.head(), anchor.position if anchor else None, log.anchor_problem(), check)


def check_chain() -> StoreCheck:
    found = log.verify()
    values = {"checked_at": clock.now(), "ok": found.ok, "events": found.events, "finding": found.describe()}
    return StoreCheck.objects.update_or_create(store=current_store().alias, defaults=values)[0]


def check_store(store: StoreId) -> StoreCheck:
    try:
        with use_store(store):
            return check_chain()
    except HubError as error:
        unread = {"checked_at": clock.now(), "ok": False, "events": 0, "finding": error.message}
        return StoreCheck.objects.update_or_create(store=store.alias, defaults=unread)[0]
