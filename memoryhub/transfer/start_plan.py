"""Find what this machine knows of a repository, and the hub does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path

from governance.imports import (
    ImportRun,
    last_complete_look,
    list_batches,
)
from memories.importing.files import find_files, record_reason
from memoryhub.config.clients import all_clients
from memoryhub.config.identity import bound_folders, identify_project, renamed_hint
from memoryhub.config.repository import find_worktree, resolved
from memoryhub.core.errors import HubError, Invalid
from memoryhub.core.stores.store import list_projects, project_store, use_store
from memoryhub.core.text import counted, first_of, flat
from memoryhub.transfer.importing import Importer, project_of, session_name
from memoryhub.transfer.records import ImportSource, LeftOutRecord, MemoryRecord, Record, Transcript
from memoryhub.transfer.sources import SOURCES
from memoryhub.transfer.sources.rules import READERS
from sessions_app.git import count_commits, list_commits
from sessions_app.models import Commit
from sessions_app.services.past_sessions import imported_sessions

# The tool of the batches
TOOL = "start"
MAX_COMMITS = 10_000
# Files that are no documents of the project
EXCLUDED = ("tests/*", "test/*", "*/tests/*", "*/test/*", "*/testdata/*", "*/fixtures/*", "vendor/*", "third_party/*")
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class PlanPart:
    """One kind of thing that an import would bring, with its number."""

    # Where it is from, "" if that is plain
    title: str
    # For one, and for several
    nouns: tuple[str, str]
    count: int
    # Bytes; 0 where they say nothing
    size: int = 0
    newest: datetime | None = None

    @property
    def text(self) -> str:
        return counted(self.count, *self.nouns)


@dataclass
class StartPlan:
    """What this machine knows of a repository and the hub does not."""

    project: str
    # The top of the working tree, without links in its path
    folder: Path
    parts: list[PlanPart] = field(default_factory=list)
    # A sentence on another project that this may be, "" if there is none
    hint: str = ""
    # Sentences on what is left out, and how to import it
    remarks: list[str] = field(default_factory=list)
    sources: list[tuple[ImportSource, Path]] = field(default_factory=list)
    record_folders: list[Path] = field(default_factory=list)
    # With their source, the newest first
    transcripts: list[tuple[ImportSource, Transcript]] = field(default_factory=list)
    has_commits: bool = False
    has_documents: bool = False

    def has(self, path: Path) -> bool:
        """Return whether a file or folder is in the repository."""
        return resolved(path).is_relative_to(self.folder)

    @property
    def total(self) -> int:
        return sum(part.count for part in self.parts)

    @property
    def sentence(self) -> str:
        """The parts in a few words: "40 sessions, 3 decision records"."""
        counts: Counter[tuple[str, str]] = Counter()
        for part in self.parts:
            counts[part.nouns] += part.count
        return ", ".join(counted(count, *nouns) for nouns, count in counts.items())


def plan_start(folder: Path, project: str | None = None) -> StartPlan:
    """Return what can be imported for the repository of a folder; changes nothing, and creates no project.

    What has not changed since the last import of this kind is not looked at again.

    Raises:
        Invalid: the folder is in no git repository, or is no project's.
    """
    repository = find_worktree(folder)
    if repository is None:
        raise Invalid(f"{flat(str(folder))} is in no git repository; change to the folder of a project")
    plan = StartPlan(identify_project(project=project, directory=folder), repository.top)
    if project is None:
        plan.hint = renamed_hint(folder, plan.project)
    finder = _Finder(plan)
    finder.add_transcripts()
    finder.add_sources()
    finder.add_files()
    finder.add_commits()
    return plan


def plan_of_project(project: str) -> StartPlan:
    """Return what can be imported for the repository of a project, whose folder the hub knows.

    Raises:
        Invalid: the hub knows no folder of it on this machine that is in a git repository.
    """
    for folder in bound_folders(project):
        if find_worktree(folder):
            return plan_start(folder, project)
    raise Invalid(f"no repository of {project} on this machine is known; run `memory-hub start` in its folder")


def offer_start(folder: Path, project: str) -> str:
    """Return a line for the agent in the first session of a project: what is not in memory yet, "" if nothing is.

    Only what the clients and the repository have is counted, because the client waits.
    """
    repository = find_worktree(folder)
    if repository is None:
        return ""
    plan = StartPlan(project, repository.top)
    finder = _Finder(plan)
    finder.add_transcripts()
    finder.add_sources(is_inside_only=True)
    finder.add_files()
    if not plan.total:
        return ""
    return (
        f"Memory Hub has nothing of this project yet: {plan.sentence} here are not in memory. "
        "Tell the user once that `memory-hub start` brings them in."
    )


class _Finder:
    """Looks for the parts of a plan."""

    def __init__(self, plan: StartPlan) -> None:
        self._plan = plan
        self._store = _StoreState(plan.project)
        self._project_of_folder: dict[str, str] = {}
        self._places = {name: list(source.find(plan.folder)) for name, source in SOURCES.items()}
        self._rule_files: set[Path] = set()

    def add_transcripts(self) -> None:
        elsewhere = 0
        for source in SOURCES.values():
            if source.transcripts is None:
                continue
            transcripts = []
            for transcript in chain.from_iterable(map(source.transcripts, self._places[source.name])):
                if self._is_of_project(transcript.folder):
                    transcripts.append(transcript)
                else:
                    elsewhere += bool(transcript.size)
            fresh = self._store.fresh_transcripts(source, transcripts)
            self._plan.transcripts += [(source, transcript) for transcript in fresh]
            if fresh:
                newest = max(transcript.changed for transcript in fresh)
                size = sum(transcript.size for transcript in fresh)
                self._plan.parts.append(PlanPart(_title(source), ("session", "sessions"), len(fresh), size, newest))
        self._plan.transcripts.sort(key=lambda item: item[1].changed, reverse=True)
        if elsewhere:
            self._plan.remarks.append(
                f"{counted(elsewhere, 'session')} of other folders: run `memory-hub start` in their repositories"
            )

    def _is_of_project(self, folder: str) -> bool:
        if folder not in self._project_of_folder:
            self._project_of_folder[folder] = project_of(folder, "")
        return self._project_of_folder[folder] == self._plan.project

    def add_sources(self, *, is_inside_only: bool = False) -> None:
        for source in SOURCES.values():
            for path in self._places[source.name]:
                if self._plan.has(path):
                    if source.name not in READERS[1:]:
                        self._add_source(source, path, ("rule", "rules"))
                elif not is_inside_only:
                    self._add_source(source, path, ("memory", "memories"))

    def _add_source(self, source: ImportSource, path: Path, nouns: tuple[str, str]) -> None:
        records = ProjectRecords(source, path, self._plan)
        try:
            reports = importer_of(source, self._plan).preview(records)
        except HubError as error:
            if not self._plan.has(path):  # a repository need not have the files of each client
                self._plan.remarks.append(f"{_title(source)}: {error.message}")
            return
        self._rule_files |= records.files
        if count := sum(report.created + report.revised for report in reports):
            self._plan.sources.append((source, path))
            self._plan.parts.append(PlanPart(_title(source), nouns, count))
        if records.unnamed:
            what = f"{counted(records.unnamed, 'memory', 'memories')} of {source.name} in {flat(str(path))}"
            self._plan.remarks.append(f"{what}, without a project: run `memory-hub import {source.name}`")

    def add_files(self) -> None:
        records: dict[Path, int] = {}
        documents: list[Path] = []
        for name in find_files(self._plan.folder):
            path = self._plan.folder / name
            if is_excluded(name) or not self._store.is_fresh(path):
                continue
            if record_reason(name):
                records[path.parent] = records.get(path.parent, 0) + 1
            elif path not in self._rule_files:
                documents.append(path)
        if records:
            folders = [folder for folder in records if not any(above in records for above in folder.parents)]
            self._plan.record_folders = folders
            names = [flat(str(folder.relative_to(self._plan.folder))) for folder in folders]
            title = first_of(names, _MOST_NAMED)
            self._plan.parts.append(PlanPart(title, ("decision record", "decision records"), sum(records.values())))
        if documents:
            self._plan.has_documents = True
            size = sum(path.stat().st_size for path in documents)
            self._plan.parts.append(PlanPart("", ("document", "documents"), len(documents), size))

    def add_commits(self) -> None:
        count = count_commits(self._plan.folder)
        if count > MAX_COMMITS:
            self._plan.remarks.append(
                f"{counted(count - MAX_COMMITS, 'commit')} before the newest {MAX_COMMITS:,}: `memory-hub import git`"
            )
        fresh = self._store.count_fresh(list_commits(self._plan.folder, limit=MAX_COMMITS))
        if fresh:
            self._plan.has_commits = True
            self._plan.parts.append(PlanPart("git", ("commit", "commits"), fresh))


class _StoreState:
    """What a project has of earlier imports."""

    def __init__(self, project: str) -> None:
        self._project = project
        self._exists = project in list_projects()
        # When the last complete import began: what is older was looked at
        self._since: datetime | None = None
        self._began: datetime | None = None
        if not self._exists:
            return
        with use_store(project_store(project)):
            batches = [batch for batch in list_batches() if batch.tool == TOOL and not batch.is_undone]
            complete = [batch.began_at for batch in batches if batch.counts is not None]
            look = last_complete_look()
        if complete and look:
            complete.append(look)
        self._began = max((batch.began_at for batch in batches), default=None)
        self._since = max(complete, default=None)

    def is_fresh(self, path: Path) -> bool:
        return self._since is None or path.stat().st_mtime >= self._since.timestamp()

    def fresh_transcripts(self, source: ImportSource, transcripts: Sequence[Transcript]) -> list[Transcript]:
        names = {session_name(source.name, transcript.key): transcript for transcript in transcripts}
        present: dict[str, bool] = {}
        if self._exists and names:
            with use_store(project_store(self._project)):
                present = imported_sessions(list(names))
        fresh = []
        for name, transcript in names.items():
            is_captured = not present.get(name, True)
            since = self._began if name in present else self._since
            if not is_captured and (since is None or transcript.changed >= since):
                fresh.append(transcript)
        return fresh

    def count_fresh(self, shas: Sequence[str]) -> int:
        if not self._exists:
            return len(shas)
        with use_store(project_store(self._project)):
            return len(set(shas).difference(Commit.objects.values_list("sha", flat=True)))


def is_excluded(name: str) -> bool:
    """Return whether a path below the repository is no document or rule of the project."""
    return any(fnmatchcase(name, pattern) for pattern in EXCLUDED)


class ProjectRecords:
    """The records of a source that are about one project, and the number of those that name none.

    A record without a project is this one's if its file is in the project's folder.
    """

    def __init__(self, source: ImportSource, path: Path, plan: StartPlan) -> None:
        self._source = source
        self._path = path
        self._plan = plan
        self.unnamed = 0
        # That are in the project's folder
        self.files: set[Path] = set()

    def __iter__(self) -> Iterator[Record]:
        if self._plan.has(self._path):
            for record in self._source.read(self._path):
                if not self._is_excluded(record.place):
                    self.files.add(Path(record.place))
                    yield record
            return
        for record in self._source.read(self._path):
            if isinstance(record, LeftOutRecord):
                continue
            if record.project:
                yield record
            else:
                self.unnamed += isinstance(record, MemoryRecord)

    def _is_excluded(self, place: str) -> bool:
        path = resolved(Path(place))
        return self._plan.has(path) and is_excluded(path.relative_to(self._plan.folder).as_posix())


def _title(source: ImportSource) -> str:
    client = all_clients().get(source.name)
    return client.name if client else source.name


def importer_of(source: ImportSource, plan: StartPlan, run: ImportRun | None = None) -> Importer:
    return Importer(source.name, plan.project, only=plan.project, batch=run)
