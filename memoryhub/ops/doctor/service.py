"""Examine a hub: its databases, files, server and jobs, and every store."""

from __future__ import annotations

import difflib
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from shlex import quote

from django.db import DatabaseError

from memoryhub import env
from memoryhub.config.current_settings import CONFIG_FILE, config_problem, unknown_in_config
from memoryhub.config.project_settings import ProjectSettings
from memoryhub.core import clock, spool
from memoryhub.core.autostart import is_allowed
from memoryhub.core.backends.selected import faults, machines, stores
from memoryhub.core.backends.sqlite.structure import template_file, template_problem
from memoryhub.core.errors import NotFound
from memoryhub.core.secret_files import REDACTION_KEY, SECRET_FILES, secret_problem
from memoryhub.core.stores.store import GLOBAL_STORE, StoreId, folder_of, require_stayed
from memoryhub.core.text import counted
from memoryhub.ops.backups.files import backups_of, hub_problem, newest_sound_hub_backup
from memoryhub.ops.doctor.finding import Finding, blamed_on_disk, examine_files, examine_hub_backups, listed_paths
from memoryhub.ops.doctor.store import examine_store
from memoryhub.ops.jobs.running import JobTarget, all_stores, worker_is_running
from memoryhub.ops.jobs.status import JobStatus, job_statuses
from memoryhub.ops.serving.process import find_running, log_lines
from memoryhub.teams.sending import team_states

_STOP = "stop `memory-hub serve`"


def examine_databases() -> Iterator[Finding]:
    if machines.SHARED:
        yield from examine_server()
        return
    yield from _hub()
    yield from _jobs_database()
    yield from _template()


def examine_server() -> list[Finding]:
    return [Finding(*problem) for problem in machines.server_problems()]


def _hub() -> Iterator[Finding]:
    path = env.home() / "hub.db"
    problem = _database_problem(path, used=bool(backups_of(None)))
    if not problem or (problem == "the file is empty" and not backups_of(None)):
        return  # commands that only read it leave an empty file; the finding on jobs has the repair
    repair = f"{_remove_files(path)}, then `memory-hub jobs` creates it; people and tokens must be added again"
    backup = newest_sound_hub_backup()
    if backup:
        repair = f"`memory-hub restore {quote(str(backup))} --hub` puts the newest sound backup in its place"
    yield blamed_on_disk("hub.db", problem) or Finding("hub.db", problem, f"{_STOP}; {repair}")


def _jobs_database() -> Iterator[Finding]:
    path = env.home() / "jobs.db"
    used = (env.home() / "hub.db").exists() and not hub_problem(env.home() / "hub.db")
    problem = _database_problem(path, used=used)
    if problem:
        again = "`memory-hub jobs` creates it with all schedules at their defaults"
        removed = f"{_remove_files(path)}, then " if os.path.lexists(path) else ""
        blamed = blamed_on_disk("jobs.db", problem)
        yield blamed or Finding("jobs.db", problem, f"{_STOP}; {removed}{again}")


def _database_problem(path: Path, *, used: bool) -> str:
    if path.exists():
        return hub_problem(path, path.name)
    return "the file is missing" if used else ""


# An old WAL must not meet the next database of that name
def _remove_files(path: Path) -> str:
    paths = [f"{path}{end}" for end in ("", "-wal", "-shm")]
    return f"`rm -rf {' '.join(map(quote, paths))}`"


def _template() -> Iterator[Finding]:
    path = template_file()
    problem = template_problem(path)
    if problem:
        repair = f"{_remove_files(path)}; the next use of it creates it again"
        blamed = blamed_on_disk("the template", problem)
        yield blamed or Finding("the template", f"new stores would be damaged: {problem}", repair)


_LEAST_FREE_BYTES = 1024**3
# Most hubs run only while a client is connected
_OVERDUE = timedelta(days=3)


def examine_hub(*, deep: bool = False) -> list[Finding]:
    databases = list(examine_databases())
    findings = [
        *_examine_settings(),
        *_private(),
        *_examine_secrets(),
        *examine_files(),
        *_disk(),
        *databases,
        *examine_hub_backups(deep=deep),
        *_serving(),
        *_spool(),
        *_teams(),
    ]
    if not databases:
        findings += _jobs()
    return findings


def _examine_settings() -> Iterator[Finding]:
    problem = config_problem()
    if problem:
        what, _, repair = problem.rpartition("; ")
        yield Finding("the settings", what, repair)
    for name in unknown_in_config():
        what = f"{CONFIG_FILE} names {name[:64]!r}, which is not a setting"
        repair = "remove it"
        for similar in difflib.get_close_matches(name, ProjectSettings.model_fields, n=1):
            repair = f"remove it, or write {similar}"
        yield Finding("the settings", what, repair)


def _private() -> Iterator[Finding]:
    home = env.home()
    open_to_others = [path for path in (home, *home.rglob("*")) if _mode(path) & 0o077]
    if open_to_others:
        what = f"other users of this machine can open private files: {listed_paths(open_to_others)}"
        yield Finding("the home folder", what, f"`chmod -R go= {quote(str(home))}`")


def _examine_secrets() -> Iterator[Finding]:
    for name, cost in SECRET_FILES.items():
        path = env.home() / name
        if problem := secret_problem(name):
            repair = f"`rm {quote(str(path))}`; the next start of `memory-hub serve` creates a new one: {cost}"
            yield Finding(name, f"the file {problem}", repair)
    if not os.path.lexists(env.home() / REDACTION_KEY) and any(env.home().glob("**/events.db")):
        repair = (
            "restore it from your own copy of the home folder; else the next start of `memory-hub serve` creates a "
            f"new one: {SECRET_FILES[REDACTION_KEY]}"
        )
        yield Finding(REDACTION_KEY, "the file is gone", repair)


def _mode(path: Path) -> int:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return 0
    if stat.S_ISLNK(status.st_mode):
        return 0
    return status.st_mode


def _disk() -> Iterator[Finding]:
    home = env.home()
    largest = max((path.stat().st_size for path in home.glob("**/events.db")), default=0)
    free = shutil.disk_usage(home).free
    if free < max(_LEAST_FREE_BYTES, 3 * largest):
        what = f"the disk has {free // 2**20} MB free; a rebuild or a backup needs three times the largest store"
        yield Finding("the home folder", what, "make room on the disk, or move old backups elsewhere")
    if not os.access(home, os.W_OK):
        yield Finding("the home folder", "it cannot be written", "make it writable for its owner")


# Refusals of commands begin with this
_REFUSAL = "memory-hub: "


def _serving() -> Iterator[Finding]:
    if running := find_running():
        if running.upgrade:
            what, _, repair = running.upgrade.partition("; ")
            yield Finding("the hub", what, repair)
        return
    lines = log_lines()
    if lines and lines[-1].startswith(_REFUSAL):
        problem = lines[-1].removeprefix(_REFUSAL).rstrip(".")
        yield Finding(
            "the hub", f"the last one that a client started ended: {problem}", "`memory-hub serve` shows more"
        )
    waiting = spool.count_waiting()
    if waiting and not is_allowed():
        what = f"{counted(waiting, 'hook event')} waiting, no hub runs, and clients may not start it"
        yield Finding(
            "the hub", what, "`memory-hub serve`, or let clients start it: `memory-hub setup CLIENT --autostart`"
        )


def _spool() -> Iterator[Finding]:
    waiting = [path for path in (env.home() / "spool").glob("*.jsonl*") if path.is_file()]
    broken = sum(len(spool.read(path)[1]) for path in waiting)
    if broken:
        what = f"{counted(broken, 'line')} of its files cannot be read"
        yield Finding("the spool", what, f"let `memory-hub serve` run: it moves them to {spool.REJECTED}/")
    folder = env.home() / "spool" / spool.REJECTED
    count = sum(path.read_bytes().count(b"\n") for path in folder.glob("*.jsonl"))
    if count:
        repair = f"read the files in {folder}, where each line has its reason, and remove them afterwards"
        yield Finding("the spool", f"{count} event{'s' if count > 1 else ''} of hooks could not be captured", repair)


def _teams() -> Iterator[Finding]:
    for team in team_states():
        name = f"the team's hub at {team.url}, project {team.project}"
        if team.problem:
            what = f"{counted(team.waiting, 'hook event')} waiting since {team.since}: {team.problem}"
            yield Finding(name, what, "they are sent once it answers; for a new token, see `memory-hub setup --url`")
        if team.refused:
            repair = f"read the files in {team.aside}, where each line has its reason, and remove them"
            yield Finding(name, f"it refused {counted(team.refused, 'hook event')}", repair)


def _jobs() -> Iterator[Finding]:
    if not stores.has_hub():
        return
    try:
        statuses = job_statuses()
    except DatabaseError as error:
        if machines.SHARED and faults.is_missing_table(error):
            return  # the hub has not been served yet
        repair = f"`memory-hub jobs` upgrades {stores.HUB_NAME} and {stores.QUEUE_NAME}, after a backup"
        what = f"can't read their status: {error}"
        yield blamed_on_disk("the jobs", str(error)) or Finding("the jobs", what, repair)
        return
    yield from _overdue(statuses)
    for status in statuses:
        yield from _job(status)


def _overdue(statuses: list[JobStatus]) -> Iterator[Finding]:
    limit = clock.now() - _OVERDUE
    names = [one.job.slug for one in statuses if one.last is None and one.next_run and one.next_run < limit]
    if names and not worker_is_running():
        what = f"no hub has run for {_OVERDUE.days} days, so these have never run: {', '.join(names)}"
        repair = "let `memory-hub serve` run, or `memory-hub service install` starts it with each sign-in"
        yield Finding("the jobs", what, repair)


def _job(status: JobStatus) -> Iterator[Finding]:
    job = status.job
    for failure in status.failures:
        if failure.last:
            what = f"the last run of {job.slug} was {failure.last.result}: {failure.last.message}"
            yield Finding(failure.target.title, what, f"`memory-hub jobs {job.slug}` runs it now and shows details")
    if status.is_off:
        yield Finding(
            f"job {job.slug}", "it is switched off", f"`memory-hub jobs {job.slug} --default` switches it on again"
        )


@dataclass(frozen=True, slots=True)
class DoctorReport:
    findings: Sequence[Finding]
    # Number of stores that were examined
    stores: int = 0
    # By store: what was compared with its log
    compared: dict[str, str] = field(default_factory=dict)
    # The address of the database's server, if it was checked, and nothing was wrong with it
    server: str = ""


def report_unusable(store: StoreId | None) -> DoctorReport | None:
    """Return why nothing can be examined, because the database does not answer; None if it does.

    Raises:
        NotFound: there is no home folder, or no such store.
        Moved: the store has moved to another place.
    """
    unusable = examine_server()
    if unusable and not _answers():
        return DoctorReport(unusable)
    if not env.home().is_dir():
        raise NotFound(f"the home folder {env.home()} does not exist yet")
    if store and not stores.exists(store):
        require_stayed(store)
        if not folder_of(store).is_dir():
            raise NotFound(f"there is no {store.scope} {store.name!r} in this hub")
    return None


def examine(store: StoreId | None = None, *, deep: bool = False) -> DoctorReport:
    """Examine a store, or all stores and the hub.

    Args:
        store: default: all stores and the hub.
        deep: compare all read models with the log; otherwise a long log is sampled.
    """
    stores: list[StoreId] = []
    in_hub: list[Finding] = []
    if store:
        stores.append(store)
    else:
        # First, because opening a store makes the home folder private and replaces a damaged template
        in_hub = examine_hub(deep=deep)
        stores = all_stores()
    findings: list[Finding] = []
    compared: dict[str, str] = {}
    for store_id in stores:
        examination = examine_store(store_id, deep=deep)
        findings += examination.findings
        if examination.compared:
            compared[JobTarget(store_id).title] = examination.compared
    checked = ""
    if machines.SHARED and not examine_server():
        checked = machines.server_address()
    return DoctorReport(findings + in_hub, len(stores), compared, checked)


def _answers() -> bool:
    try:
        stores.exists(GLOBAL_STORE)
    except DatabaseError:
        return False
    return True
