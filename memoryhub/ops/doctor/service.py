"""Examine a hub: its databases, files, server and jobs, and every store."""

from __future__ import annotations

import difflib
import os
import re
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
from memoryhub.core.backends.selected import anchors, faults, machines, stores
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.backends.sqlite.structure import template_file, template_problem
from memoryhub.core.errors import Moved, NotFound, Unavailable
from memoryhub.core.secret_files import REDACTION_KEY, SECRET_FILES, secret_problem
from memoryhub.core.stores.store import GLOBAL_STORE, SLUG, StoreId, folder_of, org_store, project_store, require_stayed
from memoryhub.core.text import counted, first_of
from memoryhub.ops.backups.service import backups_of, hub_problem, is_alive
from memoryhub.ops.doctor.store import (
    Finding,
    blamed_on_disk,
    examine_backups,
    examine_store,
    option,
    restore_command,
    set_aside,
)
from memoryhub.ops.jobs.running import JobTarget, all_stores, worker_is_running
from memoryhub.ops.jobs.status import JobStatus, job_statuses
from memoryhub.ops.serving.process import find_running, log_lines
from memoryhub.teams.sending import team_states

_STOP = "stop `memory-hub serve`"


def examine_server() -> list[Finding]:
    return [Finding(*problem) for problem in machines.server_problems()]


def _hub() -> Iterator[Finding]:
    path = env.home() / "hub.db"
    problem = _database_problem(path, used=bool(backups_of(None)))
    if not problem or (problem == "the file is empty" and not backups_of(None)):
        return  # commands that only read it leave an empty file; the finding on jobs has the repair
    repair = f"{_remove_files(path)}, then `memory-hub jobs` creates it; people and tokens must be added again"
    for backup in reversed(backups_of(None)):
        if not hub_problem(backup):
            repair = f"`memory-hub restore {quote(str(backup))} --hub` puts the newest sound backup in its place"
            break
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
    if machines.SHARED:
        databases = examine_server()
    else:
        databases = [*_hub(), *_jobs_database(), *_template()]
    findings = [*_examine_settings(), *_private(), *_examine_secrets()]
    paths = sorted(env.home().rglob("*"))
    findings += [*_linked_paths(paths), *_leftovers(paths), *_misnamed(), *_lost(), *_disk(), *databases]
    if not machines.SHARED:  # otherwise the hub's own tables are backed up with the database
        findings += [Finding("the hub's backups", *problem) for problem in examine_backups(None, whole=True, deep=deep)]
    findings += [*_serving(), *_spool(), *_teams()]
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
        what = f"other users of this machine can open private files: {_listed(open_to_others)}"
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
        what = f"the last one that a client started ended: {problem}"
        yield Finding("the hub", what, "`memory-hub serve` shows more")
    waiting = spool.count_waiting()
    if waiting and not is_allowed():
        what = f"{counted(waiting, 'hook event')} waiting, no hub runs, and clients may not start it"
        repair = "`memory-hub serve`, or let clients start it: `memory-hub setup CLIENT --autostart`"
        yield Finding("the hub", what, repair)


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
    limit = clock.now() - _OVERDUE
    names = [one.job.slug for one in statuses if one.last is None and one.next_run and one.next_run < limit]
    if names and not worker_is_running():
        what = f"no hub has run for {_OVERDUE.days} days, so these have never run: {', '.join(names)}"
        repair = "let `memory-hub serve` run, or `memory-hub service install` starts it with each sign-in"
        yield Finding("the jobs", what, repair)
    for status in statuses:
        yield from _job(status)


def _job(status: JobStatus) -> Iterator[Finding]:
    job = status.job
    for failure in status.failures:
        if failure.last:
            what = f"the last run of {job.slug} was {failure.last.result}: {failure.last.message}"
            yield Finding(failure.target.title, what, f"`memory-hub jobs {job.slug}` runs it now and shows details")
    if status.is_off:
        repair = f"`memory-hub jobs {job.slug} --default` switches it on again"
        yield Finding(f"job {job.slug}", "it is switched off", repair)


_FOLDERS = {"projects": project_store, "orgs": org_store}
# The file beside a store, or in its place in the home, that says that its log has events
_ANCHOR_FILE = "acknowledged" if machines.SHARED else "head"
# Drafts begin with a dot and name the process that writes them: `.events.db.<pid>.<ns>`, `.<name>.<pid>.draft`, …
_PID = re.compile(r"[.-](\d+)(?:[.-]\d+)?(?:\.draft)?(?:-wal|-shm|-journal)?$")


# The target of a link is outside the home, with unchecked permissions
def _linked_paths(paths: list[Path]) -> Iterator[Finding]:
    for path in paths:
        if not path.is_symlink() or path.is_dir():
            continue
        store = _store_at(path)
        if not path.exists():
            repair = f"`rm {quote(str(path))}`"
        elif store and path.name == "events.db" and not machines.SHARED:
            repair = f"`memory-hub restore {quote(str(path.resolve()))} {option(store)} --replace` copies it here"
        else:
            repair = f"stop `memory-hub serve`; `mv {quote(str(path.resolve()))} {quote(str(path))}`"
        link = f"{path.relative_to(env.home())} is a symbolic link to {path.readlink()}"
        yield Finding("the home folder", f"{link}, where it is not protected", repair)


# Drafts can contain text that was erased since
def _leftovers(paths: list[Path]) -> Iterator[Finding]:
    leftovers = []
    for path in paths:
        match = _PID.search(path.name)
        if path.name.startswith(".") and match and not is_alive(match[1]):
            leftovers.append(path)
    if leftovers:
        repair = f"`rm -r {' '.join(quote(str(path)) for path in leftovers)}`"
        yield Finding("the home folder", f"a killed process left {_listed(leftovers)}", repair)


def _misnamed() -> Iterator[Finding]:
    for kind in _FOLDERS:
        for path in sorted((env.home() / kind).glob("*/events.db")):
            if not SLUG.fullmatch(path.parent.name):
                repair = f"nothing reads this folder; {set_aside(path.parent)}"
                yield Finding(f"{kind}/{path.parent.name}", f"{path.parent.name!r} is not a valid store id", repair)


def _lost() -> Iterator[Finding]:
    for store in sorted({*_anchored(), *_backed_up()}, key=lambda store: store.alias):
        if stores.exists(store) or (path_of(store).is_symlink() and not machines.SHARED):
            continue
        where = str(folder_of(store).relative_to(env.home()))
        try:
            require_stayed(store)
        except Moved:
            continue
        except Unavailable as error:
            what, _, repair = error.message.partition("; ")
            yield Finding(where, what, repair or "correct that, and run doctor again")
            continue
        restore, none = restore_command(store)
        repair = f"{restore} puts the newest sound backup in its place{none}"
        repair += f"; where no backup is left, `memory-hub doctor --accept-loss {option(store)}` starts an empty store"
        on_purpose = f"; if it was deleted on purpose, remove its folder in backups/ and its file `{_ANCHOR_FILE}`"
        yield Finding(where, f"the store's {stores.THING} is gone", repair + on_purpose)


def _anchored() -> Iterator[StoreId]:
    for pattern in ("projects/*", "orgs/*", "global"):
        for path in env.home().glob(f"{pattern}/{_ANCHOR_FILE}"):
            store = _store_at(path)
            # With a database, a store that was deleted on another machine has no anchor there
            if store and (anchors.exists(store) or not machines.SHARED):
                yield store


def _backed_up() -> Iterator[StoreId]:
    for folder in sorted((env.home() / "backups").glob("*")):
        kind, _, name = folder.name.partition("-")
        make = _FOLDERS.get(f"{kind}s")
        if folder.name == "global-global":
            store = GLOBAL_STORE
        elif make and SLUG.fullmatch(name):
            store = make(name)
        else:
            continue
        if backups_of(store):
            yield store


def _store_at(path: Path) -> StoreId | None:
    folder = path.parent
    if path.name not in ("events.db", _ANCHOR_FILE):
        return None
    if folder == env.home() / "global":
        return GLOBAL_STORE
    make = _FOLDERS.get(folder.parent.name)
    if make and folder.parent.parent == env.home() and SLUG.fullmatch(folder.name):
        return make(folder.name)
    return None


def _listed(paths: list[Path]) -> str:
    return first_of([str(path.relative_to(env.home())) for path in paths], 3)


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
    if unusable:
        try:
            stores.exists(GLOBAL_STORE)
        except DatabaseError:
            return DoctorReport(unusable)
    if not env.home().is_dir():
        raise NotFound(f"the home folder {env.home()} does not exist yet")
    if store and not stores.exists(store):
        require_stayed(store)
        if not folder_of(store).is_dir():
            raise NotFound(f"there is no {store.scope} {store.name!r} in this hub")
    return None


def examine(store: StoreId | None = None, *, deep: bool = False) -> DoctorReport:
    """Examine a store, or all stores and the hub; ``deep`` compares all read models, even if the log is long."""
    # First, because opening a store makes the home folder private and replaces a damaged template
    in_hub = [] if store else examine_hub(deep=deep)
    stores = [store] if store else all_stores()
    findings: list[Finding] = []
    compared: dict[str, str] = {}
    for store_id in stores:
        findings_of_store, what = examine_store(store_id, deep=deep)
        findings += findings_of_store
        if what:
            compared[JobTarget(store_id).title] = what
    checked = ""
    if machines.SHARED and not examine_server():
        checked = machines.server_address()
    return DoctorReport(findings + in_hub, len(stores), compared, checked)
