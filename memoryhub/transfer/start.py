"""Import what this machine knows of a repository as one batch, the newest first."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice

from governance.imports import (
    ImportRun,
    counts_of,
    hold_imports,
    note_complete_look,
)
from memories.importing import MAX_HEADINGS
from memories.lessons.service import propose_lessons
from memoryhub.config.current_settings import read_folder, use_folder
from memoryhub.config.identity import bind_project
from memoryhub.core import clock
from memoryhub.core.errors import Invalid, Unavailable
from memoryhub.core.stores.store import project_store, use_store
from memoryhub.core.text import flat
from memoryhub.transfer.file_imports import AdrImport, FileImport, MarkdownImport
from memoryhub.transfer.importing import session_name
from memoryhub.transfer.records import ImportReport, LeftOutRecord
from memoryhub.transfer.start_plan import EXCLUDED, MAX_COMMITS, TOOL, ProjectRecords, StartPlan, importer_of
from sessions_app.git import read_commits
from sessions_app.services import record_commits

# The newest commits come before the documents, which come before the older ones
_NEWEST_COMMITS = 1_000
_COMMITS_AT_ONCE, _SESSIONS_AT_ONCE = 500, 10
# Newest sessions whose lessons are proposed, until there are so many: more would fill the inbox
_SESSIONS_OF_LESSONS, _MOST_LESSONS = 10, 20
# Takes how many entries were read
Progress = Callable[[int], None]


@dataclass
class StartResult:
    """What an import has brought so far."""

    project: str
    # The number of the batch, None if there was nothing new
    batch: int | None = None
    # Entries that were read
    read: int = 0
    # Whether everything of the plan was imported
    is_complete: bool = True
    # What the batch has created so far, as an import counts it
    counts: dict[str, int] = field(default_factory=dict)
    # Types of masked secrets, with the number of texts
    secrets: Counter[str] = field(default_factory=Counter)
    # What was left out, with the reason
    left_out: list[LeftOutRecord] = field(default_factory=list)
    left_out_count: int = 0
    # Proposed from the sessions
    lessons: int = 0
    # Sentences on what is odd, or could not be read
    warnings: list[str] = field(default_factory=list)

    def add(self, reports: Sequence[ImportReport]) -> None:
        for report in reports:
            self.secrets.update(report.secrets)
            self.left_out += report.left_out
            self.left_out_count += report.left_out_count


def run_start(
    plan: StartPlan, *, progress: Progress = lambda _: None, seconds: float | None = None, batch: int | None = None
) -> StartResult:
    """Import a plan as one batch, which ``import undo`` takes back.

    Args:
        plan: from ``plan_start``.
        progress: takes the number of entries that were read.
        seconds: after which the import ends where it is, and another call continues the batch.
        batch: the number of the batch to continue.

    Raises:
        ConflictError: the batch was undone, or another process imports the same.
    """
    run = ImportRun(TOOL, str(plan.folder), store=project_store(plan.project), batch=batch)
    result = StartResult(plan.project)
    began = clock.now()
    with use_store(run.store, create=True), hold_imports():
        bind_project(plan.project, plan.folder)
        ends = None if seconds is None else time.monotonic() + seconds
        for count in _steps(plan, run, result):
            result.read += count
            progress(result.read)
            if run.batch and ends is not None and time.monotonic() > ends:
                result.is_complete = False
                break
        result.batch = run.batch
        if run.batch:
            result.counts = counts_of(run.batch)
        if run.batch and result.is_complete:
            with _recording(plan, run):
                run.end(result.counts | {"left_out_count": result.left_out_count + len(result.warnings)})
        if result.is_complete:
            note_complete_look(began)
    return result


@contextmanager
def _recording(plan: StartPlan, run: ImportRun) -> Iterator[None]:
    folder = use_folder(read_folder(plan.folder, plan.project))
    with use_store(project_store(plan.project), create=True), folder, run.recording():
        yield


# Each step writes in transactions of its own, and nothing is open between two of them
def _steps(plan: StartPlan, run: ImportRun, result: StartResult) -> Iterator[int]:
    sessions = _guarded(_session_steps(plan, run, result), result)
    yield from _guarded(_source_steps(plan, run, result), result)
    yield from islice(sessions, 2)
    # They say how the project is built and tested, which is asked first
    if plan.has_documents:
        yield from _guarded(_file_steps(MarkdownImport(plan.folder, _FILE_OPTIONS), plan, run, result), result)
    for folder in plan.record_folders:
        yield from _guarded(_file_steps(AdrImport(folder, _FILE_OPTIONS), plan, run, result), result)
    if plan.has_commits:
        yield from _guarded(_commit_steps(plan, run, result, _NEWEST_COMMITS), result)
    yield from islice(sessions, 4)
    yield from sessions
    if plan.has_commits:
        yield from _guarded(_commit_steps(plan, run, result, MAX_COMMITS), result)
    yield from _lesson_steps(plan, run, result)


# What cannot be read does not stop what can
def _guarded(steps: Iterator[int], result: StartResult) -> Iterator[int]:
    try:
        yield from steps
    except (Invalid, Unavailable) as error:
        if error.message not in result.warnings:
            result.warnings.append(error.message)


def _source_steps(plan: StartPlan, run: ImportRun, result: StartResult) -> Iterator[int]:
    for source, path in plan.sources:
        reports = importer_of(source, plan, run).run(ProjectRecords(source, path, plan), place=str(path))
        result.add(reports)
        yield sum(report.created + report.revised for report in reports)


_FILE_OPTIONS = {"tag": (), "max_headings": MAX_HEADINGS, "exclude": EXCLUDED, "project": None}


# Reasons that go without saying: another step imports it, or it is no text of the project
_EXPECTED = (": excluded", ": a decision record;", "imported as a", "not a decision record by its name")


def _file_steps(importer: FileImport, plan: StartPlan, run: ImportRun, result: StartResult) -> Iterator[int]:
    count = importer.count()
    importer.choose_project(plan.project)
    with _recording(plan, run):
        importer.run(lambda _: None)
    result.warnings += [warning for warning in importer.warnings if not any(reason in warning for reason in _EXPECTED)]
    yield count


def _session_steps(plan: StartPlan, run: ImportRun, result: StartResult) -> Iterator[int]:
    transcripts = iter(plan.transcripts)
    while batch := list(islice(transcripts, _SESSIONS_AT_ONCE)):
        for source in dict.fromkeys(source for source, _ in batch):
            reads = [transcript.records() for other, transcript in batch if other is source]
            result.add(importer_of(source, plan, run).run(chain.from_iterable(reads), place=str(plan.folder)))
        yield len(batch)


# Last, because rules also look for what several sessions do
def _lesson_steps(plan: StartPlan, run: ImportRun, result: StartResult) -> Iterator[int]:
    for source, transcript in plan.transcripts[:_SESSIONS_OF_LESSONS]:
        if result.lessons >= _MOST_LESSONS:
            return
        with _recording(plan, run):
            result.lessons += len(propose_lessons(session_name(source.name, transcript.key)))
        yield 0


def _commit_steps(plan: StartPlan, run: ImportRun, result: StartResult, limit: int) -> Iterator[int]:
    reasons: list[str] = []
    commits = read_commits(plan.folder, limit=limit, warn=reasons.append)
    while batch := list(islice(commits, _COMMITS_AT_ONCE)):
        with _recording(plan, run):
            recorded = record_commits(commits=batch)
        yield recorded
    result.warnings += [flat(reason) for reason in reasons if flat(reason) not in result.warnings]
