from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from decisions.importing.folder import FileEdge, Records, in_order, read_records, resolve, topic_of
from decisions.importing.links import STATUS_OF_FILE, Imported, existing_edges, key_of, read_imported, removed_edges
from decisions.importing.reading import Adr, shorten
from decisions.models import DecisionStatus, EdgeRelation
from decisions.schemas import DecisionLink, DecisionMark, DecisionRecord
from decisions.selectors.edges import heads
from decisions.services import link_decisions, mark_decision, record_decision
from memories.importing import define_known_files, delete_sections
from memoryhub.core.errors import Conflict, Gone, HubError
from memoryhub.core.secrets.sanitize import sanitize
from memoryhub.core.validation import explain

# A change of one of these makes a new decision.
_CONTENT = ("title", "context", "chosen", "alternatives", "rationale", "impact", "phase")
Progress = Callable[[int], None]


@dataclass(slots=True)
class AdrReport:
    created: int = 0
    unchanged: int = 0
    # Unchanged except for their status.
    marked: int = 0
    edges: int = 0
    # Changed files: file, new decision, the decision that it supersedes.
    superseding: list[tuple[str, int, int]] = field(default_factory=list)
    # File and message.
    problems: list[tuple[str, str]] = field(default_factory=list)
    # File or folder, and the reason.
    skipped: list[tuple[str, str]] = field(default_factory=list)
    # Memories deleted: sections of the same files.
    sections_deleted: int = 0

    @property
    def decisions(self) -> int:
        return self.created + self.unchanged + self.marked + len(self.superseding)


def import_adrs(*, directory: Path, progress: Progress | None = None, within: str = "") -> AdrReport:
    """Record each architecture decision record below a folder as a decision, with its links as edges.

    Files are identified by path. An unchanged file is skipped; a changed text becomes a decision that supersedes the
    earlier one; a changed status alone is marked. Marks, superseding and erasure by a person take precedence. An
    unreadable file is reported, and the others are imported. Memories of the same files' sections are deleted.
    ``within`` is put before the paths of another project.
    """
    imported, records = read_imported(), read_records(directory, within)
    edges = resolve(records, imported.paths)
    removed = removed_edges(imported)
    edges = {edge for edge in edges if not _joins_versions(edge, imported, removed)}
    run = _Import(imported, records, edges, AdrReport(problems=records.problems, skipped=records.skipped))
    for done, path in enumerate(in_order(records.adrs, edges), 1):
        if path in records.adrs:
            run.file(path)
        if progress:
            progress(done)
    run.link()
    run.report.sections_deleted = delete_sections([path for path in records.adrs if imported.versions_of(path)])
    return run.report


def _imported_records(paths: Sequence[str]) -> Mapping[str, str]:
    imported = read_imported()
    return {path: "imported as a decision" for path in paths if imported.versions_of(path)}


# A record's sections have no status: a superseded one would come back as a fact
define_known_files(_imported_records)


# Whether one of the edges is between any versions of the two files
def _joins_versions(edge: FileEdge, imported: Imported, edges: Collection[tuple[int, EdgeRelation, int]]) -> bool:
    starts, ends = imported.versions_of(edge.path), imported.versions_of(edge.to)
    return any((start, edge.relation, end) in edges for start in starts for end in ends)


@dataclass(slots=True)
class _Import:
    imported: Imported
    records: Records
    edges: Collection[FileEdge]
    report: AdrReport

    def file(self, path: str) -> None:
        try:
            self._import(path, self.records.adrs[path])
        except ValidationError as error:
            self.report.problems.append((path, explain(error)))
        except HubError as error:
            self.report.problems.append((path, error.message))

    def _import(self, path: str, adr: Adr) -> None:
        earlier = self.imported.latest(path)
        if earlier is None and self.imported.versions_of(path):
            raise Gone(f"its decision #{self.imported.versions_of(path)[-1]} has been erased and is not imported again")
        self.report.problems.extend((path, cut) for cut in shorten(adr, path))
        fields = self._fields(path, adr)
        if earlier is not None and self._is_unchanged(earlier, fields):
            self._mark(earlier, adr.status)
            return
        if earlier is not None:
            self._refuse_superseded(earlier)
            self._mark_earlier(earlier, adr.status)
        decision_id = self._record(path, fields, earlier)
        if earlier is None:
            self.report.created += 1
        else:
            self.report.superseding.append((path, decision_id, earlier))
        self.imported.add(path, decision_id, adr.status)

    def _fields(self, path: str, adr: Adr) -> dict[str, Any]:
        command = DecisionRecord.model_validate(
            {
                **{name: getattr(adr, name) for name in ("title", "context", "rationale", "status", "author")},
                **({"chosen": adr.chosen} if adr.chosen.strip() else {}),
                "alternatives": [alternative.model_dump() for alternative in adr.alternatives],
                "decided_at": adr.decided_at,
                "topic": topic_of(path, self.records.adrs, self.edges),
                "source": path,
                **adr.more,
            }
        )
        return command.model_dump(exclude_unset=True) | command.model_dump(include=set(_CONTENT))

    def _is_unchanged(self, earlier: int, fields: dict[str, Any]) -> bool:
        content = sanitize({name: fields[name] for name in _CONTENT})[0]
        return bool(content == {name: getattr(self.imported.existing[earlier], name) for name in _CONTENT})

    # A decision that replaced the file's by hand takes precedence; one that another file became does not.
    def _refuse_superseded(self, earlier: int) -> None:
        imported = {version for versions in self.imported.versions.values() for version in versions}
        others = [head for head in heads([earlier]).get(earlier, []) if head not in imported]
        if others:
            raise Conflict(
                f"its text has changed, but #{others[0]} supersedes its decision #{earlier}; supersede that by hand"
            )

    def _record(self, path: str, fields: dict[str, Any], earlier: int | None) -> int:
        named = self._named(path, is_first=earlier is None)
        if earlier is not None:
            named["supersedes"] = [earlier]
        key = key_of(path, earlier, named, [fields[name] for name in _CONTENT])
        filled = {name: value for name, value in fields.items() if name != "chosen" or value}
        command = DecisionRecord.model_validate({**filled, **named, "branch": True, "idempotency_key": key})
        return record_decision(command=command).id

    # A changed file does not supersede again what its first version superseded.
    def _named(self, path: str, *, is_first: bool) -> dict[str, list[int]]:
        named: dict[str, list[int]] = {}
        for edge in sorted(edge for edge in self.edges if edge.path == path):
            to = self.imported.latest(edge.to)
            if to is not None and (is_first or edge.relation is not EdgeRelation.SUPERSEDES):
                named.setdefault(edge.relation, []).append(to)
        self.report.edges += sum(map(len, named.values()))
        return named

    def _mark(self, decision_id: int, status: DecisionStatus) -> None:
        if self._is_marked(decision_id, status):
            self.report.unchanged += 1
            return
        mark_decision(command=DecisionMark(id=decision_id, status=status, reason=STATUS_OF_FILE))
        self.report.marked += 1

    # Only an accepted text retires an accepted one; the file's earlier text is not in force in any case.
    def _mark_earlier(self, decision_id: int, status: DecisionStatus) -> None:
        if status is not DecisionStatus.ACCEPTED and not self._is_marked(decision_id, status):
            mark_decision(command=DecisionMark(id=decision_id, status=status, reason=STATUS_OF_FILE))

    def _is_marked(self, decision_id: int, status: DecisionStatus) -> bool:
        current = self.imported.existing[decision_id].status
        return self.imported.statuses[decision_id] == status or current in (status, DecisionStatus.SUPERSEDED)

    def link(self) -> None:
        existing = existing_edges(self.imported)
        for edge in sorted(self.edges):
            start, end = self.imported.latest(edge.path), self.imported.latest(edge.to)
            if start is None or end is None or self._exists(edge, end, existing):
                continue
            try:
                link_decisions(command=DecisionLink(id=start, relation=edge.relation, to=end, branch=True))
                self.report.edges += 1
            except HubError as error:
                self.report.problems.append((edge.path, error.message))

    # An edge between any versions of the two files counts; a superseding edge must end at the latest.
    def _exists(self, edge: FileEdge, end: int, existing: Collection[tuple[int, EdgeRelation, int]]) -> bool:
        ends = [end] if edge.relation is EdgeRelation.SUPERSEDES else self.imported.versions_of(edge.to)
        starts = self.imported.versions_of(edge.path)
        return any((first, edge.relation, last) in existing for first in starts for last in ends)
