"""The examination of backups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from memoryhub.backups.files import backups_of
from memoryhub.backups.soundness import examine_backup, hub_problem
from memoryhub.core.stores import StoreId
from memoryhub.doctor.finding import Finding

_Pair = tuple[str, str]


def examine_backups(store: StoreId, *, whole: bool, deep: bool = False) -> Iterator[_Pair]:
    """Yield what is wrong with a store's newest backup, or with all of them.

    Args:
        store: whose backups to verify.
        whole: nothing was found in the store itself, so that another backup can be made.
        deep: verify all backups, not the newest alone.
    """
    for path in backups_of(store) if deep else backups_of(store)[-1:]:
        problem = examine_backup(path, store).problem
        if problem:
            yield f"the backup {path.name} cannot be restored: {problem}", _replace_backup(path, whole=whole)


def examine_hub_backups(*, deep: bool = False) -> Iterator[Finding]:
    """Yield what is wrong with the newest backup of hub.db, or with all of them."""
    for path in backups_of(None) if deep else backups_of(None)[-1:]:
        problem = hub_problem(path)
        if problem:
            what = f"the backup {path.name} cannot be restored: {problem}"
            yield Finding("the hub's backups", what, _replace_backup(path, whole=True))


def _replace_backup(path: Path, *, whole: bool) -> str:
    if whole:
        return f"`rm {quote(str(path))}`, then `memory-hub backup` makes another"
    return "mend the store first; the next backup replaces it"
