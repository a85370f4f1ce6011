"""The examination of what is no store's: files, disk, the hub's own databases, and the jobs."""

from __future__ import annotations

import difflib
import os
import shutil
import stat
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from shlex import quote

from django.db import DatabaseError

from memoryhub import env
from memoryhub.core import clock, spool
from memoryhub.core.secret_files import REDACTION_KEY, SECRET_FILES, secret_problem
from memoryhub.core.wording import counted
from memoryhub.doctor.backups import examine_hub_backups
from memoryhub.doctor.databases import examine_databases
from memoryhub.doctor.files import examine_files
from memoryhub.doctor.finding import Finding, blamed_on_disk
from memoryhub.jobs import worker
from memoryhub.jobs.standing import Standing, standings
from sessions_app.layers import CONFIG_FILE
from sessions_app.settings import ProjectSettings, config_problem, unknown_in_config

_LEAST_FREE_BYTES = 1024**3
_OVERDUE = timedelta(minutes=10)
_SHOWN = 3


def examine_hub(*, deep: bool = False) -> list[Finding]:
    """Look at everything that is no store's, and return what is wrong."""
    databases = list(examine_databases())
    return [
        *_settings(),
        *_private(),
        *_secrets(),
        *examine_files(),
        *_disk(),
        *databases,
        *examine_hub_backups(deep=deep),
        *_spool(),
        *([] if databases else _jobs()),
    ]


def _settings() -> Iterator[Finding]:
    problem = config_problem()
    if problem:
        what, _, mend = problem.rpartition("; ")
        yield Finding("the settings", what, mend)
    for name in unknown_in_config():
        what = f"{CONFIG_FILE} names {name[:64]!r}, which is no setting and does nothing"
        near = difflib.get_close_matches(name, ProjectSettings.model_fields, n=1)
        yield Finding("the settings", what, f"take it out there{f', or write {near[0]}' if near else ''}")


def _private() -> Iterator[Finding]:
    home = env.home()
    open_to_others = [path for path in (home, *home.rglob("*")) if _mode(path) & 0o077]
    if open_to_others:
        names = ", ".join(str(path.relative_to(home)) or "." for path in open_to_others[:_SHOWN])
        more = f" and {len(open_to_others) - _SHOWN} more" if len(open_to_others) > _SHOWN else ""
        what = f"others on this machine may open what is private: {names}{more}"
        yield Finding("the home folder", what, f"`chmod -R go= {quote(str(home))}`")


def _secrets() -> Iterator[Finding]:
    for name, cost in SECRET_FILES.items():
        path = env.home() / name
        if problem := secret_problem(name):
            mend = f"`rm {quote(str(path))}`; the next start of `memory-hub serve` makes a new one: {cost}"
            yield Finding(name, f"the file {problem}", mend)
    if not os.path.lexists(env.home() / REDACTION_KEY) and any(env.home().glob("**/events.db")):
        mend = (
            "put it back from your own copy of the home folder; else the next start of `memory-hub serve` makes a new "
            f"one: {SECRET_FILES[REDACTION_KEY]}"
        )
        yield Finding(REDACTION_KEY, "the file is gone", mend)


def _mode(path: Path) -> int:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return 0
    return 0 if stat.S_ISLNK(found.st_mode) else found.st_mode


def _disk() -> Iterator[Finding]:
    home = env.home()
    largest = max((path.stat().st_size for path in home.glob("**/events.db")), default=0)
    free = shutil.disk_usage(home).free
    if free < max(_LEAST_FREE_BYTES, 3 * largest):
        what = f"the disk has {free // 2**20} MB free; a rebuild or a backup needs three times the largest store"
        yield Finding("the home folder", what, "make room on the disk, or move old backups elsewhere")
    if not os.access(home, os.W_OK):
        yield Finding("the home folder", "it cannot be written", "give its owner the right to write, or mount it so")


def _spool() -> Iterator[Finding]:
    waiting = [path for path in (env.home() / "spool").glob("*.jsonl*") if path.is_file()]
    broken = sum(len(spool.read(path)[1]) for path in waiting)
    if broken:
        what = f"{counted(broken, 'line')} of its files cannot be read"
        yield Finding("the spool", what, f"let `memory-hub serve` run: it moves them to {spool.REJECTED}/ beside")
    folder = env.home() / "spool" / spool.REJECTED
    count = sum(path.read_bytes().count(b"\n") for path in folder.glob("*.jsonl"))
    if count:
        mend = f"read what is in {folder}: each line says why; remove it when it is settled"
        yield Finding("the spool", f"{count} event{'s' if count > 1 else ''} of hooks could not be kept", mend)


def _jobs() -> Iterator[Finding]:
    if not (env.home() / "hub.db").exists():
        return
    try:
        found = standings()
    except DatabaseError as error:
        mend = "`memory-hub jobs` brings hub.db and jobs.db to this version, after a backup"
        what = f"how they stand cannot be read: {error}"
        yield blamed_on_disk("the jobs", str(error)) or Finding("the jobs", what, mend)
        return
    for standing in found:
        yield from _job(standing)


def _job(standing: Standing) -> Iterator[Finding]:
    job = standing.job
    for each in standing.failures:
        if each.last:
            what = f"the last run of {job.slug} was {each.last.result}: {each.last.message}"
            yield Finding(each.target.title, what, f"`memory-hub jobs {job.slug}` runs it now and says more")
    late = standing.next_run is not None and standing.next_run < clock.now() - _OVERDUE
    if late and not worker.is_there() and standing.last is None:
        yield Finding(f"job {job.slug}", "it has never run", "let `memory-hub serve` run, or `memory-hub jobs` by hand")
    if standing.is_off:
        yield Finding(
            f"job {job.slug}", "it is switched off", f"`memory-hub jobs {job.slug} --default` switches it on again"
        )
