"""Import the records of a source: a preview, or a batch in each project that can be undone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from memoryhub.config.identity import identify_project
from memoryhub.core.errors import Invalid
from memoryhub.core.slugs import project_id_of
from memoryhub.transfer.project_import import ProjectImport
from memoryhub.transfer.records import LeftOut, MemoryRecord, Record, Report, SessionRecord

# Records that are compared with the store at once; fewer if their texts are long
_BATCH = 500
_BATCH_CHARACTERS = 8_000_000
# Projects that one import may create: each is a database
_MAX_PROJECTS = 500
Progress = Callable[[int], None]


def project_of(name: str, default: str) -> str:
    """Return the project for a source's name of one, which may be a folder; ``default`` if it yields no id."""
    if not name:
        return default
    last = re.split(r"[/\\]", name.rstrip("/\\"))[-1]
    try:
        if Path(name).is_absolute() and Path(name).is_dir():
            return identify_project(project=None, directory=Path(name))
    except (Invalid, OSError, ValueError):
        pass  # it is named like the folder, as on a machine that has no such folder
    return project_id_of(last) or default


@dataclass
class Importer:
    """Imports the records of one source.

    Args:
        tool: the source's name.
        project: of records that name none.
        is_only: whether all records go there, whatever they name.
        only: import only what goes to this project, "" for everything.
    """

    tool: str
    project: str
    is_only: bool = False
    only: str = ""
    _plans: dict[str, ProjectImport] = field(default_factory=dict, init=False)

    def preview(self, records: Iterable[Record]) -> list[Report]:
        """Return what ``run`` would do; writes nothing, and creates no project."""
        for project, group in self._groups(records):
            self._plan(project).preview(group)
        return self._reports()

    def run(self, records: Iterable[Record], *, place: str, progress: Progress = lambda _: None) -> list[Report]:
        """Import records as one batch a project. Records of an earlier import are revised where they differ.

        What was written before an error stays, and can be undone with the batch; importing again writes the rest.
        """
        done = 0
        for project, group in self._groups(records):
            self._plan(project).write(group, place)
            progress(done := done + len(group))
        for plan in self._plans.values():
            plan.finish()
        return self._reports()

    def _groups(self, records: Iterable[Record]) -> Iterator[tuple[str, list[Record]]]:
        for chunk in _chunks(records):
            groups: dict[str, list[Record]] = {}
            for record in chunk:
                groups.setdefault(self._target(record), []).append(record)
            yield from ((project, group) for project, group in groups.items() if self.only in ("", project))

    def _target(self, record: Record) -> str:
        name = "" if self.is_only or isinstance(record, LeftOut) else record.project
        return project_of(name, self.project)

    def _plan(self, project: str) -> ProjectImport:
        if project not in self._plans and len(self._plans) >= _MAX_PROJECTS:
            raise Invalid(
                f"the data names more than {_MAX_PROJECTS} projects; "
                "import one of them with --only ID, or all into one with --project ID"
            )
        return self._plans.setdefault(project, ProjectImport(self.tool, project))

    def _reports(self) -> list[Report]:
        return [plan.report for plan in self._plans.values()]


def _chunks(records: Iterable[Record]) -> Iterator[list[Record]]:
    chunk: list[Record] = []
    size = 0
    for record in records:
        chunk.append(record)
        size += _characters(record)
        if len(chunk) == _BATCH or size > _BATCH_CHARACTERS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _characters(record: Record) -> int:
    if isinstance(record, SessionRecord):
        return sum(len(turn.prompt) + len(turn.answer) for turn in record.turns)
    return len(record.content) if isinstance(record, MemoryRecord) else 0
