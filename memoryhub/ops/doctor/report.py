"""Check a store, or all stores and the hub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from django.db import DatabaseError

from memoryhub import env
from memoryhub.core.backends.selected import machines, server, stores
from memoryhub.core.errors import NotFound
from memoryhub.core.stores.store import GLOBAL_STORE, StoreId, folder_of, require_stayed
from memoryhub.ops.doctor.finding import Finding
from memoryhub.ops.doctor.hub import examine_hub, examine_server
from memoryhub.ops.doctor.store import examine_store
from memoryhub.ops.jobs.targets import Target, all_stores


@dataclass(frozen=True, slots=True)
class Report:
    findings: Sequence[Finding]
    # Number of stores that were examined
    stores: int = 0
    # By store: what was compared with its log
    compared: dict[str, str] = field(default_factory=dict)
    # The address of the database's server, if it was checked, and nothing was wrong with it
    server: str = ""


def report_unusable(store: StoreId | None) -> Report | None:
    """Return why nothing can be examined, because the database does not answer; None if it does.

    Raises:
        NotFound: there is no home folder, or no such store.
        Moved: the store has moved to another place.
    """
    unusable = examine_server()
    if unusable and not _answers():
        return Report(unusable)
    if not env.home().is_dir():
        raise NotFound(f"the home folder {env.home()} does not exist yet")
    if store and not stores.exists(store):
        require_stayed(store)
        if not folder_of(store).is_dir():
            raise NotFound(f"there is no {store.scope} {store.name!r} in this hub")
    return None


def examine(store: StoreId | None = None, *, deep: bool = False) -> Report:
    """Examine a store, or all stores and the hub.

    Args:
        store: default: all stores and the hub.
        deep: compare all read models with the log; otherwise a long log is sampled.
    """
    examining = [store] if store else all_stores()
    # First, because opening a store makes the home folder private and replaces a damaged template
    in_hub = [] if store else examine_hub(deep=deep)
    examined = [examine_store(store_id, deep=deep) for store_id in examining]
    found = [finding for examination in examined for finding in examination.findings] + in_hub
    compared = {
        Target(store_id).title: examination.compared
        for store_id, examination in zip(examining, examined, strict=True)
        if examination.compared
    }
    checked = server.address() if machines.SHARED and not examine_server() else ""
    return Report(found, len(examining), compared, checked)


def _answers() -> bool:
    try:
        stores.exists(GLOBAL_STORE)
    except DatabaseError:
        return False
    return True
