"""The examination of what is no store's: files, disk, the hub's own databases, and the jobs."""

from __future__ import annotations

import difflib
import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from django.db import DatabaseError

from memoryhub import env
from memoryhub.backups.copying import connect
from memoryhub.core import clock, schema, spool
from memoryhub.doctor.finding import Finding
from memoryhub.jobs import worker
from memoryhub.jobs.standing import Standing, standings
from sessions_app.layers import CONFIG_FILE
from sessions_app.settings import ProjectSettings, config_problem, unknown_in_config

_LEAST_FREE_BYTES = 1024**3
_OVERDUE = timedelta(minutes=10)
_SHOWN = 3


def examine_hub() -> list[Finding]:
    """Look at everything that is no store's, and return what is wrong."""
    return [*_settings(), *_private(), *_disk(), *_databases(), *_template(), *_lost(), *_spool(), *_jobs()]


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
        yield Finding("the home folder", what, f"`chmod -R go= {home}`")


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


def _databases() -> Iterator[Finding]:
    for name, mend in (
        ("hub.db", "stop `serve` and copy the newest of backups/hub/ over it"),
        ("jobs.db", "stop `serve` and remove it; it is made anew, with all schedules at their first times"),
    ):
        path = env.home() / name
        problem = _damage(path) if path.exists() else ""
        if problem:
            yield Finding(name, f"the file is damaged: {problem}", mend)


def _template() -> Iterator[Finding]:
    path = env.home() / "templates" / f"{schema.fingerprint()[:16]}.db"
    problem = _damage(path) if path.exists() else ""
    if problem:
        yield Finding("the template", f"new stores would be damaged: {problem}", f"remove {path}; it is made anew")


def _damage(path: Path) -> str:
    try:
        with closing(connect(path, mode="rw")) as connection:
            found = [text for (text,) in connection.execute(f"PRAGMA integrity_check({_SHOWN})")]
    except sqlite3.Error as error:
        return str(error)
    return "" if found == ["ok"] else "; ".join(found)[:500]


def _spool() -> Iterator[Finding]:
    folder = env.home() / "spool" / spool.REJECTED
    count = sum(path.read_bytes().count(b"\n") for path in folder.glob("*.jsonl"))
    if count:
        mend = f"read what is in {folder}: each line says why; remove it when it is settled"
        yield Finding("the spool", f"{count} event{'s' if count > 1 else ''} of hooks could not be kept", mend)


def _lost() -> Iterator[Finding]:
    """Find stores whose anchor is there and whose file is gone."""
    for anchor in sorted([*env.home().glob("*/head"), *env.home().glob("*/*/head")]):
        folder = anchor.parent
        if not (folder / "events.db").exists():
            option = f"--{_SCOPES[folder.parent.name]} {folder.name}" if folder.parent.name in _SCOPES else "--global"
            mend = (
                f"`memory-hub restore FILE {option}` with the newest of {env.home() / 'backups'}; where there is none, "
                f"`memory-hub doctor --accept-loss {option}` begins it again"
            )
            yield Finding(str(folder.relative_to(env.home())), "the store's file is gone", mend)


_SCOPES = {"projects": "project", "orgs": "org"}


def _jobs() -> Iterator[Finding]:
    if not (env.home() / "hub.db").exists():
        return
    try:
        found = standings()
    except DatabaseError as error:
        mend = "`memory-hub jobs` brings hub.db and jobs.db to this version, after a backup"
        yield Finding("the jobs", f"how they stand cannot be read: {error}", mend)
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
