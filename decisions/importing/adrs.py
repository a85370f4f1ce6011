"""Bring in a folder of architecture decision records: each file a decision, each link between them an edge."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from decisions.importing.folder import FileEdge, Records, in_order, read_records, resolve, topic_of
from decisions.importing.links import STATUS_OF_FILE, Known, edges_there, key_of, read_known
from decisions.importing.reading import Adr
from decisions.models import DecisionStatus, EdgeRelation
from decisions.schemas import DecisionLink, DecisionMark, DecisionRecord
from decisions.selectors.edges import heads
from decisions.services import link_decisions, mark_decision, record_decision
from memoryhub.core.errors import Conflict, Gone, HubError
from memoryhub.core.secrets.sanitize import sanitize
from memoryhub.core.validation import explain

_SAID = ("title", "context", "chosen", "alternatives", "rationale", "impact", "phase")
"""What makes a decision another one where it is changed."""
Progress = Callable[[int], None]


@dataclass(slots=True)
class AdrReport:
    """What an import did: files by what became of them, edges that were added, and what could not be brought in."""

    created: int = 0
    unchanged: int = 0
    marked: int = 0
    """Unchanged but for their status."""
    edges: int = 0
    superseding: list[tuple[str, int, int]] = field(default_factory=list)
    """Files whose text was changed: file, the new decision, and the one that it supersedes."""
    problems: list[tuple[str, str]] = field(default_factory=list)
    """File, and a sentence."""

    @property
    def decisions(self) -> int:
        """The files that are decisions now."""
        return self.created + self.unchanged + self.marked + len(self.superseding)


def import_adrs(*, directory: Path, progress: Progress | None = None) -> AdrReport:
    """Record each architecture decision record below a folder as a decision, with the edges that their links say.

    A file is known again by its path. One that says what it said before is left as it is; where its text has changed,
    a new decision supersedes the one that it was; where its status alone has changed, that is marked. What a person has
    marked, superseded or erased stays so. What cannot be read is a problem of that file, and the others go on.

    Raises:
        Invalid: there is no such folder.
    """
    known, records = read_known(), read_records(directory)
    edges = resolve(records, known.paths)
    bring_in = _Import(known, records, edges, AdrReport(problems=records.problems))
    for done, path in enumerate(in_order(records.adrs, edges), 1):
        if path in records.adrs:
            bring_in.file(path)
        if progress:
            progress(done)
    bring_in.link()
    return bring_in.report


@dataclass(slots=True)
class _Import:
    """One import under way."""

    known: Known
    records: Records
    edges: Collection[FileEdge]
    report: AdrReport

    def file(self, path: str) -> None:
        """Bring in one file; what is wrong with it is noted."""
        try:
            self._bring_in(path, self.records.adrs[path])
        except ValidationError as error:
            self.report.problems.append((path, explain(error)))
        except HubError as error:
            self.report.problems.append((path, error.message))

    def _bring_in(self, path: str, adr: Adr) -> None:
        earlier = self.known.latest(path)
        if earlier is None and self.known.versions_of(path):
            raise Gone(f"#{self.known.versions_of(path)[-1]}, which it was, has been erased, and stays so")
        fields = self._fields(path, adr)
        if earlier is not None and self._says_the_same(earlier, fields):
            self._mark(earlier, adr.status)
            return
        if earlier is not None:
            self._refuse_superseded(earlier)
        decision_id = self._record(path, fields, earlier)
        if earlier is None:
            self.report.created += 1
        else:
            self.report.superseding.append((path, decision_id, earlier))
        self.known.add(path, decision_id, adr.status)

    def _fields(self, path: str, adr: Adr) -> dict[str, Any]:
        command = DecisionRecord.model_validate(
            {
                **{
                    name: getattr(adr, name) for name in ("title", "context", "chosen", "rationale", "status", "author")
                },
                "alternatives": [each.model_dump() for each in adr.alternatives],
                "decided_at": adr.decided_at,
                "topic": topic_of(path, self.records.adrs, self.edges),
                "source": path,
                **adr.more,
            }
        )
        return command.model_dump(exclude_unset=True) | command.model_dump(include=set(_SAID))

    def _says_the_same(self, earlier: int, fields: dict[str, Any]) -> bool:
        said = sanitize({name: fields[name] for name in _SAID})[0]
        return bool(said == {name: getattr(self.known.there[earlier], name) for name in _SAID})

    def _refuse_superseded(self, earlier: int) -> None:
        """A person's decision stands over a file that is edited afterwards; another file's does not."""
        imported = {each for versions in self.known.versions.values() for each in versions}
        others = [head for head in heads([earlier]).get(earlier, []) if head not in imported]
        if others:
            raise Conflict(
                f"its text has changed, but #{others[0]} superseded #{earlier}, which it was; supersede that by hand"
            )

    def _record(self, path: str, fields: dict[str, Any], earlier: int | None) -> int:
        named = self._named(path, is_first=earlier is None)
        if earlier is not None:
            named["supersedes"] = [earlier]
        key = key_of(path, earlier, named, [fields[name] for name in _SAID])
        command = DecisionRecord.model_validate({**fields, **named, "branch": True, "idempotency_key": key})
        return record_decision(command=command).id

    def _named(self, path: str, *, is_first: bool) -> dict[str, list[int]]:
        """Return the ids that the new decision of a file names, by relation; what is replaced already is left."""
        named: dict[str, list[int]] = {}
        for edge in sorted(each for each in self.edges if each.path == path):
            to = self.known.latest(edge.to)
            if to is not None and (is_first or edge.relation is not EdgeRelation.SUPERSEDES):
                named.setdefault(edge.relation, []).append(to)
        self.report.edges += sum(map(len, named.values()))
        return named

    def _mark(self, decision_id: int, status: DecisionStatus) -> None:
        """Set the status that the file says, where it has not said so before."""
        if self.known.statuses[decision_id] == status or self.known.there[decision_id].status in (status, "superseded"):
            self.report.unchanged += 1
            return
        mark_decision(command=DecisionMark(id=decision_id, status=status, reason=STATUS_OF_FILE))
        self.report.marked += 1

    def link(self) -> None:
        """Add the edges that are not there yet."""
        there = edges_there(self.known)
        for edge in sorted(self.edges):
            start, end = self.known.latest(edge.path), self.known.latest(edge.to)
            if start is None or end is None or self._is_there(edge, end, there):
                continue
            try:
                link_decisions(command=DecisionLink(id=start, relation=edge.relation, to=end, branch=True))
                self.report.edges += 1
            except HubError as error:
                self.report.problems.append((edge.path, error.message))

    def _is_there(self, edge: FileEdge, end: int, there: Collection[tuple[int, EdgeRelation, int]]) -> bool:
        """Whether any decision of the one file names any of the other so; what is replaced must be the latest."""
        ends = [end] if edge.relation is EdgeRelation.SUPERSEDES else self.known.versions_of(edge.to)
        starts = self.known.versions_of(edge.path)
        return any((first, edge.relation, last) in there for first in starts for last in ends)
