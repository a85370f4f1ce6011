"""How far the log's chain is known to hold: its head, the anchor outside the store, and the last full check."""

from __future__ import annotations

from dataclasses import dataclass

from memoryhub.core import clock, log
from memoryhub.core.errors import HubError
from memoryhub.core.log.anchor import read_anchor
from memoryhub.core.stores.store import (
    GLOBAL_STORE,
    StoreId,
    current_store,
    list_orgs,
    list_projects,
    org_store,
    project_store,
    use_store,
)
from memoryhub.models import StoreCheck


@dataclass(frozen=True, slots=True)
class ChainState:
    """The chain of the current store, as it stands without walking it."""

    position: int
    digest: str
    anchored: int | None
    """The position of the anchor; None where there is none, or where it cannot be read."""
    anchor_problem: str
    check: StoreCheck | None
    """The last full check."""

    @property
    def unchecked(self) -> int:
        """How many events came after the last full check."""
        return max(0, self.position - (self.check.events if self.check else 0))


def chain_state() -> ChainState:
    """Return how the current store's chain stands."""
    store = current_store()
    try:
        anchor = read_anchor(store)
    except ValueError:
        anchor = None
    check = StoreCheck.objects.filter(store=store.alias).first()
    return ChainState(*log.head(), anchor.position if anchor else None, log.anchor_problem(), check)


def check_chain() -> StoreCheck:
    """Walk the current store's chain from its first event, keep what was found, and return it."""
    found = log.verify()
    values = {"checked_at": clock.now(), "ok": found.ok, "events": found.events, "finding": found.describe()}
    return StoreCheck.objects.update_or_create(store=current_store().alias, defaults=values)[0]


def check_stores() -> list[StoreCheck]:
    """Walk the chain of every store; one that cannot be read does not keep the others from being checked."""
    shared = [*map(org_store, list_orgs()), *([GLOBAL_STORE] if GLOBAL_STORE.path.exists() else [])]
    return [check_store(store) for store in [*map(project_store, list_projects()), *shared]]


def check_store(store: StoreId) -> StoreCheck:
    """Walk one store's chain and keep the finding, or why it could not be read."""
    try:
        with use_store(store):
            return check_chain()
    except HubError as error:
        unread = {"checked_at": clock.now(), "ok": False, "events": 0, "finding": error.message}
        return StoreCheck.objects.update_or_create(store=store.alias, defaults=unread)[0]
