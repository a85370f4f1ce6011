"""When files of a folder were first committed, and by whom."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from subprocess import CompletedProcess

from memoryhub.core.errors import Unavailable
from sessions_app.git.process import moment_of, run, text_of

_FORMAT = "--format=%x01%an%x00%at%x00%P"


@dataclass(frozen=True, slots=True)
class FirstCommit:
    author: str
    committed_at: datetime


def first_commits(directory: Path) -> dict[str, FirstCommit]:
    """Map the files below a folder, relative to it, to the commits that added them; empty outside git.

    A renamed file keeps its first commit. A shallow clone does not know when the files of
    its oldest commits were added, so these are left out.
    """
    try:
        done = _log(directory, "--find-renames")
        if done.returncode:
            done = _log(directory, "--find-renames=100%")  # a partial clone has no texts to compare
        is_shallow = run(directory, "rev-parse", "--is-shallow-repository").stdout.strip() == b"true"
    except Unavailable:
        return {}
    first: dict[str, FirstCommit] = {}
    for commit in done.stdout.split(b"\x01")[1:] if done.returncode == 0 else ():
        author, seconds, parents, *changes = [*commit.split(b"\0"), b"", b""]  # a file's name may hold the mark
        if is_shallow and not parents:
            continue
        added = FirstCommit(text_of(author), moment_of(seconds))
        _follow([os.fsdecode(change) for change in changes], added, first)
    return first


def _log(directory: Path, renames: str) -> CompletedProcess[bytes]:
    options = ("--reverse", "--relative", "--name-status", "--diff-filter=AR", renames, "-z")
    return run(directory, "log", *options, _FORMAT, "HEAD", "--", ".")


# Pairs of `A` and a path, or triples of `R100`, the old path and the new one
def _follow(changes: list[str], added: FirstCommit, first: dict[str, FirstCommit]) -> None:
    tokens = iter(changes)
    for token in tokens:
        kind = token.strip()
        if kind.startswith("R"):
            before, after = next(tokens, ""), next(tokens, "")
            first[after] = first.get(before, added)
        elif kind:
            first.setdefault(next(tokens, ""), added)
