"""Find the commits that a client's command made, with git in the client's folder. Needs no store."""

from __future__ import annotations

import logging
import re
from datetime import timedelta
from pathlib import Path

from memoryhub.config.repository import find_repository, resolved
from memoryhub.core import clock
from memoryhub.core.errors import Unavailable
from sessions_app import git
from sessions_app.events.client import COMMAND_RUN
from sessions_app.hook_parser import HookEvent
from sessions_app.schemas import CommitRecord

logger = logging.getLogger(__name__)

_COMMITS = re.compile(r"\bgit\b[^|;&\n]*\bcommit\b")
# git's message for a new commit: `[main 1a2b3c4] Subject`.
_NEW_COMMIT = re.compile(r"^\[[^\]\n]*\b([0-9a-f]{7,64})\]", re.MULTILINE)
_MOST = 50
_JUST_NOW = timedelta(minutes=5)


def find_commits(event: HookEvent) -> list[CommitRecord]:
    """Return the commits of a command with ``git commit``; none if git cannot say, or in another repository.

    A session may work in a nested repository, a submodule or a copy of something else: these have other projects.
    """
    if event.type != COMMAND_RUN.name or not _COMMITS.search(event.payload.get("command", "")):
        return []
    if not event.working_directory or not _is_of_session(event):
        return []
    folder = Path(event.working_directory)
    try:
        # A program's output may say so any number of times, and each costs git a look
        shas = dict.fromkeys(_NEW_COMMIT.findall(event.payload.get("output", "")))
        commits = [git.read_commit(folder, sha) for sha in list(shas)[:_MOST]]
        return [commit for commit in commits if commit] or _latest(folder)
    except Unavailable as error:
        logger.warning("the commits of a command are not recorded: %s", error.message)
        return []


def _is_of_session(event: HookEvent) -> bool:
    session = find_repository(resolved(Path(event.directory or event.working_directory)))
    if session is None:
        return True
    current = find_repository(resolved(Path(event.working_directory)))
    return current is not None and current.common_dir == session.common_dir


# A quiet command prints neither a hash nor a failure: HEAD counts if it is recent.
def _latest(folder: Path) -> list[CommitRecord]:
    last = git.read_commit(folder, "HEAD")
    return [last] if last and abs(clock.now() - last.committed_at) < _JUST_NOW else []
