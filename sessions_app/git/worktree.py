"""The working tree that a folder is in."""

from __future__ import annotations

import os
from pathlib import Path

from memoryhub.config.repository import is_folder
from memoryhub.core.errors import Invalid, Unavailable
from sessions_app.git.process import run


def list_files(directory: Path) -> list[str] | None:
    """Return the files below a folder that git tracks or does not ignore, relative to it; None outside git."""
    try:
        done = run(directory, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    except Unavailable:
        return None
    if done.returncode:
        return None
    return sorted({os.fsdecode(path) for path in done.stdout.split(b"\0") if path})


def path_in_worktree(directory: Path) -> str:
    """Return the folder's path in its worktree, such as ``docs/``; "" at the top and outside git."""
    try:
        done = run(directory, "rev-parse", "--show-prefix")
    except Unavailable:
        return ""
    return "" if done.returncode else os.fsdecode(done.stdout.removesuffix(b"\n"))


def top_of_worktree(directory: Path) -> Path:
    """Return the top folder of the working tree that contains a folder.

    Raises:
        Invalid: there is no such folder, or it is in no working tree.
    """
    if not is_folder(directory):
        raise Invalid(f"{directory} is not a folder")
    done = run(directory, "rev-parse", "--show-toplevel")
    if done.returncode or not done.stdout.strip():
        raise Invalid(f"{directory} is in no working tree of git")
    top = Path(os.fsdecode(done.stdout.removesuffix(b"\n"))).resolve()
    if not directory.resolve().is_relative_to(top):
        raise Invalid(f"{directory} is not in {top}, the working tree that its repository names (core.worktree)")
    return top
