"""The working tree that a folder is in."""

from __future__ import annotations

import os
from pathlib import Path

from memoryhub.config.repository import is_folder
from memoryhub.core.errors import Invalid
from sessions_app.git.process import run_in_repository

# Where a folder is outside git, and where git cannot tell, are two answers: the second one is an error, because the
# caller would otherwise read the files that the repository ignores.


def list_files(directory: Path) -> list[str] | None:
    """Return the files below a folder that git tracks or does not ignore, relative to it.

    None outside git, and for a folder that is ignored itself: git does not look into it.

    Raises:
        Unavailable: the folder is in a repository that git cannot read.
    """
    done = run_in_repository(directory, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if done is None or (not done.stdout and _is_ignored(directory)):
        return None
    return sorted({os.fsdecode(path) for path in done.stdout.split(b"\0") if path})


def _is_ignored(directory: Path) -> bool:
    done = run_in_repository(directory, "check-ignore", "--quiet", ".")
    return done is not None and done.returncode == 0


def path_in_worktree(directory: Path) -> str:
    """Return the folder's path in its worktree, such as ``docs/``; "" at the top and outside git.

    Raises:
        Unavailable: the folder is in a repository that git cannot read.
    """
    done = run_in_repository(directory, "rev-parse", "--show-prefix")
    return "" if done is None else os.fsdecode(done.stdout.removesuffix(b"\n"))


def top_of_worktree(directory: Path) -> Path:
    """Return the top folder of the working tree that contains a folder.

    Raises:
        Invalid: there is no such folder, or it is in no working tree.
        Unavailable: it is in a repository that git cannot read.
    """
    if not is_folder(directory):
        raise Invalid(f"{directory} is not a folder")
    done = run_in_repository(directory, "rev-parse", "--show-toplevel")
    if done is None or not done.stdout.strip():
        raise Invalid(f"{directory} is in no working tree of git")
    top = Path(os.fsdecode(done.stdout.removesuffix(b"\n"))).resolve()
    if not directory.resolve().is_relative_to(top):
        raise Invalid(f"{directory} is not in {top}, the working tree that its repository names (core.worktree)")
    return top
