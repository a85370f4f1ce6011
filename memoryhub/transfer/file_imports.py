"""Import files, decision records, git history or an exported store into the current store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from decisions.importing import import_adrs, record_names
from decisions.importing.adrs import read_records
from memories.importing import import_markdown, preview_new
from memories.importing.files import find_files
from memoryhub.config.identity import bound_folders, identify_project
from memoryhub.config.repository import find_repository, working_folder
from memoryhub.core.errors import Invalid
from memoryhub.core.stores.store import current_store
from memoryhub.core.text import counted, flat
from memoryhub.transfer.bundles.applying import apply_bundle, describe_merge, describe_secrets
from memoryhub.transfer.bundles.archive import check, open_bundle
from sessions_app.git import count_commits, read_commits
from sessions_app.services import record_commits

Progress = Callable[[int], None]

# Commits that are recorded in one transaction
_BATCH = 500
# Skipped files of one reason, and positions, that are listed by name
_MOST_NAMED = 5


@dataclass
class FileImport:
    path: Path
    # Options of the command by name
    options: Mapping[str, Any]
    project: str = ""
    # The name before paths of another project's files, which would replace this project's of the same path
    within: str = ""
    # Whether the files are not the project's, whose people have not reviewed them then
    is_foreign: bool = False
    # Lines on what was left out or is odd, and on what has happened
    warnings: list[str] = field(default_factory=list)
    news: list[str] = field(default_factory=list)
    # What progress counts
    unit: ClassVar[str] = "files"

    def choose_project(self, project: str) -> None:
        """Set the project; call this before the working folder is bound to it, which changes whose files these are."""
        self.project = project
        with suppress(Invalid):
            if identify_project(project=None, directory=self.path) == project:
                return
        folder = self.path.resolve()
        repository = find_repository(folder)
        if not self.options["project"]:
            self.within = flat(repository.folder_name if repository else folder.name)
        folders = [working_folder(), *bound_folders(project)]
        if around := find_repository(working_folder()):
            folders.append(around.folder)
        self.is_foreign = not any(folder.is_relative_to(place.resolve()) for place in folders)

    def count(self) -> int:
        """Return how much there is to import; raises Invalid if it cannot be read."""
        raise NotImplementedError

    def run(self, advance: Progress) -> tuple[str, dict[str, int]]:
        """Import, and return a sentence on it and the counts of the batch."""
        raise NotImplementedError

    def describe_new(self, total: int) -> str:
        """Return what would be imported into a project that does not exist yet: all of it."""
        raise NotImplementedError

    def _name_skipped(self, skipped: list[tuple[str, str]]) -> None:
        names: dict[str, list[str]] = {}
        for name, reason in skipped:
            names.setdefault(reason, []).append(flat(name))
        for reason, alike in names.items():
            if len(alike) > _MOST_NAMED:
                alike = [f"{alike[0]} and {counted(len(alike) - 1, 'other file')}"]  # noqa: PLW2901 - shortened
            for name in alike:
                self.warnings.append(f"skipped {name}: {reason}")


class MarkdownImport(FileImport):
    def count(self) -> int:
        return len(find_files(self.path))

    def run(self, advance: Progress) -> tuple[str, dict[str, int]]:
        report = import_markdown(
            directory=self.path,
            tags=self.options["tag"],
            max_headings=self.options["max_headings"],
            progress=advance,
            within=self.within,
            is_foreign=self.is_foreign,
            exclude=self.options["exclude"],
        )
        self._name_skipped(report.skipped)
        counts = {
            "created": report.created,
            "revised": report.updated,
            "unchanged": report.unchanged,
            "removed": report.deleted,
            "left_out_count": len(report.skipped),
        }
        what = f"{report.created} new, {report.updated} revised, {report.unchanged} unchanged, {report.deleted} removed"
        if report.left_deleted:
            what += f", {report.left_deleted} left deleted"
        sections = f"{counted(report.sections, 'section')} of {counted(report.files, 'file')}"
        return f"imported {sections} ({what}) into {self.project}", counts

    def describe_new(self, total: int) -> str:
        report = preview_new(
            directory=self.path, max_headings=self.options["max_headings"], exclude=self.options["exclude"]
        )
        self._name_skipped(report.skipped)
        return f"{counted(report.sections, 'section')} of {counted(report.files, 'file')}"


class AdrImport(FileImport):
    def count(self) -> int:
        return len(record_names(self.path))

    def run(self, advance: Progress) -> tuple[str, dict[str, int]]:
        report = import_adrs(directory=self.path, progress=advance, within=self.within)
        self._name_skipped(report.skipped)
        for name, reason in report.problems:
            self.warnings.append(flat(f"{name}: {reason}"))
        for name, now, before in report.superseding:
            self.news.append(f"{name} has changed: #{now} supersedes #{before}")
        counts = {
            "created": report.created,
            "revised": len(report.superseding) + report.marked,
            "unchanged": report.unchanged,
            "relations": report.edges,
            "removed": report.sections_deleted,
            "left_out_count": len(report.skipped) + len(report.problems),
        }
        line = (
            f"imported {counted(report.decisions, 'decision')} ({report.created} new, "
            f"{len(report.superseding)} superseding the file's earlier text, {report.marked} marked, "
            f"{report.unchanged} unchanged) and {counted(report.edges, 'edge')}"
        )
        if report.sections_deleted:
            line += f", removed {counted(report.sections_deleted, 'section')} of their files"
        return f"{line} into {self.project}", counts

    def describe_new(self, total: int) -> str:
        records = read_records(self.path, self.within)
        self._name_skipped([*records.skipped, *records.problems])
        return counted(len(records.adrs), "decision")


class GitImport(FileImport):
    unit = "commits"

    def count(self) -> int:
        return count_commits(self.path, limit=self.options["limit"], since=self.options["since"])

    def run(self, advance: Progress) -> tuple[str, dict[str, int]]:
        recorded = repeated = 0
        options = self.options
        commits = read_commits(
            self.path,
            limit=options["limit"],
            since=options["since"],
            warn=lambda reason: self.warnings.append(flat(reason)),
        )
        while batch := list(islice(commits, _BATCH)):
            added = record_commits(commits=batch)
            recorded += added
            repeated += len(batch) - added
            advance(recorded + repeated)
        line = f"imported {counted(recorded, 'commit')} ({repeated} already known) into {self.project}"
        return line, {"created": recorded, "unchanged": repeated}

    def describe_new(self, total: int) -> str:
        return counted(total, "commit")


class JsonlImport(FileImport):
    unit = "events"

    def count(self) -> int:
        return check(open_bundle(self.path)).events

    def run(self, advance: Progress) -> tuple[str, dict[str, int]]:
        applied = apply_bundle(open_bundle(self.path), current_store(), advance)
        self.warnings += describe_secrets(applied)
        events = applied.contents.events
        left_out = 0
        if applied.merge:
            self.warnings += describe_merge(applied.merge)
            left_out = sum(applied.merge.left_out.values())
        what = f"{applied.added} new, {events - applied.added - left_out} already known, {left_out} left out"
        return f"imported {counted(events, 'event')} ({what}) into {self.project}", {}


# By the command's word for them
FILE_IMPORTS: dict[str, type[FileImport]] = {
    "markdown": MarkdownImport,
    "adr": AdrImport,
    "git": GitImport,
    "jsonl": JsonlImport,
}
