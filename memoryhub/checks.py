"""Checking the chains of all stores, and keeping what was found in hub.db."""

from __future__ import annotations

from memoryhub.chain_state import check_chain
from memoryhub.core import clock
from memoryhub.core.errors import HubError
from memoryhub.core.stores import GLOBAL_STORE, StoreId, list_orgs, list_projects, org_store, project_store, use_store
from memoryhub.models import StoreCheck


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
