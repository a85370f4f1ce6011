"""The examination of hub.db, jobs.db and the template of new stores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from memoryhub import env
from memoryhub.backups.files import backups_of
from memoryhub.backups.soundness import hub_problem, newest_sound_hub_backup
from memoryhub.core.store_files import template_file, template_problem
from memoryhub.doctor.finding import Finding, blamed_on_disk

_STOP = "stop `memory-hub serve`"


def examine_databases() -> Iterator[Finding]:
    """Yield what is wrong with the databases that are no store's."""
    yield from _hub()
    yield from _jobs()
    yield from _template()


def _hub() -> Iterator[Finding]:
    path = env.home() / "hub.db"
    problem = _missing(path, used=bool(backups_of(None))) or (hub_problem(path) if path.exists() else "")
    if not problem or (problem == "the file is empty" and not backups_of(None)):
        return  # an empty one is also what a command leaves that only asked for it; the jobs' finding says what to do
    backup = newest_sound_hub_backup()
    again = f"{_remove(path)}, then `memory-hub jobs` creates it; people and tokens must be added again"
    restore = f"`memory-hub restore {quote(str(backup))} --hub` puts the newest sound backup in its place"
    blamed = blamed_on_disk("hub.db", problem)
    yield blamed or Finding("hub.db", problem, f"{_STOP}; {restore if backup else again}")


def _jobs() -> Iterator[Finding]:
    path = env.home() / "jobs.db"
    used = (env.home() / "hub.db").exists() and not hub_problem(env.home() / "hub.db")
    problem = _missing(path, used=used) or (hub_problem(path, "jobs.db") if path.exists() else "")
    if problem:
        again = "`memory-hub jobs` creates it with all schedules at their defaults"
        removed = f"{_remove(path)}, then " if os.path.lexists(path) else ""
        blamed = blamed_on_disk("jobs.db", problem)
        yield blamed or Finding("jobs.db", problem, f"{_STOP}; {removed}{again}")


def _missing(path: Path, *, used: bool) -> str:
    return "the file is missing" if used and not path.exists() else ""


def _remove(path: Path) -> str:
    """Return the command that removes a database; its WAL must not meet the next one of that name."""
    paths = [f"{path}{end}" for end in ("", "-wal", "-shm")]
    return f"`rm -rf {' '.join(map(quote, paths))}`"


def _template() -> Iterator[Finding]:
    path = template_file()
    problem = template_problem(path)
    if problem:
        mend = f"{_remove(path)}; the next use of it creates it again"
        blamed = blamed_on_disk("the template", problem)
        yield blamed or Finding("the template", f"new stores would be damaged: {problem}", mend)
