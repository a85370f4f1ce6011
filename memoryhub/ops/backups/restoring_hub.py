"""Restore backups of hub.db. The hub must not run: it would continue with the file that is moved aside."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from memoryhub import env
from memoryhub.core import clock
from memoryhub.core.backends.sqlite import copies
from memoryhub.core.backends.sqlite.files import move_database
from memoryhub.core.disk import sync
from memoryhub.core.errors import Invalid, Unavailable
from memoryhub.ops.backups.making import KEPT_BEFORE_RESTORE
from memoryhub.ops.backups.paths import BEFORE_RESTORE, folder_of
from memoryhub.ops.backups.soundness import hub_problem


@dataclass(frozen=True, slots=True)
class RestoredHub:
    kept: Path | None


def restore_hub(*, source: Path) -> RestoredHub:
    env.prepare_home()
    folder = folder_of(None)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept = folder / f"{clock.file_stamp()}Z{BEFORE_RESTORE}"
    draft = folder / f".{kept.name}.{os.getpid()}.draft"
    try:
        copies.copy_database(source, draft)
        copies.make_single(draft)
        _require_hub(draft)
        return RestoredHub(_swap(draft, env.home() / "hub.db", kept))
    except OSError as error:
        raise Unavailable(f"can't restore hub.db ({error.strerror})") from error
    finally:
        copies.remove_database(draft)
        _remove_oldest_kept(folder)


def _require_hub(draft: Path) -> None:
    problem = hub_problem(draft)
    if problem:
        kind = Unavailable if "damaged" in problem else Invalid
        raise kind(f"not a sound backup of hub.db: {problem}")


# Side files first: an old WAL must never meet the restored file
def _swap(draft: Path, target: Path, kept: Path) -> Path | None:
    there = os.path.lexists(target)
    move_database(target, kept)
    draft.rename(target)
    sync(target.parent)
    return kept if there else None


def _remove_oldest_kept(folder: Path) -> None:
    for path in sorted(folder.glob(f"*{BEFORE_RESTORE}"))[:-KEPT_BEFORE_RESTORE]:
        copies.remove_database(path)
