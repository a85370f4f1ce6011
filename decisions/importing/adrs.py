"""Import a folder of decision records: read them, resolve the edges between them, record what has changed."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from itertools import chain, product
from pathlib import Path, PurePath
from typing import Any

from decisions.edges import heads_of
from decisions.events import DECISION_MARKED, DECISION_RECORDED, DECISION_UNLINKED, IMPORT_KEY
from decisions.importing.links import RecordLink
from decisions.importing.reading import Adr, read_adr, shorten
from decisions.models import LINEAGE, Decision, DecisionEdge, DecisionStatus, EdgeRelation
from decisions.schemas import DecisionLink, DecisionMark, DecisionRecord
from decisions.services import link_decisions, mark_decision, record_decision
from memories.importing import define_known_files, delete_sections
from memories.importing.files import MARKDOWN, find_files, left_out, modified_at, path_of_folder, read_text
from memoryhub.core import log
from memoryhub.core.errors import ConflictError, Gone, HubError
from memoryhub.core.schemas import MAX_AUTHOR
from memoryhub.core.secrets.sanitize import sanitize, sanitize_text
from memoryhub.core.stores.dialect import begins_with
from memoryhub.core.text import flat
from memoryhub.core.validation import command_from
from sessions_app.git import first_commits

# Stored as the reason of a mark: by it an import recognises the statuses that it set itself.
STATUS_OF_FILE = "its file says so"

DecisionEdgeKey = tuple[int, EdgeRelation, int]


def _prefix_of(path: str) -> str:
    return f"{IMPORT_KEY}{_digest(path)}:"


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


@dataclass(slots=True)
class Imported:
    # Decision ids by the prefix of their idempotency keys, the latest last.
    versions: dict[str, list[int]] = field(default_factory=dict)
    paths: set[str] = field(default_factory=set)
    # The status that each decision's file had at the last import.
    statuses: dict[int, DecisionStatus] = field(default_factory=dict)
    # Decisions that have not been erased.
    existing: dict[int, Decision] = field(default_factory=dict)

    def versions_of(self, path: str) -> list[int]:
        return self.versions.get(_prefix_of(path), [])

    def latest(self, path: str) -> int | None:
        for version in reversed(self.versions_of(path)):
            if version in self.existing:
                return version
        return None

    def add(self, path: str, decision_id: int, status: DecisionStatus) -> None:
        self.versions.setdefault(_prefix_of(path), []).append(decision_id)
        self.existing[decision_id] = Decision(id=decision_id, status=status)  # only these fields are used
        self.statuses[decision_id] = status


def read_imported() -> Imported:
    imported = Imported()
    recorded = log.events().of_type(DECISION_RECORDED).filter(begins_with("idempotency_key", IMPORT_KEY))
    for position, key, text in recorded.values_list("position", "idempotency_key", "payload_json"):
        prefix = str(key).rpartition(":")[0]
        imported.versions.setdefault(f"{prefix}:", []).append(position)
        payload = json.loads(text or "{}")
        imported.statuses[position] = DecisionStatus(payload.get("status", DecisionStatus.ACCEPTED))
        imported.paths.add(payload.get("source", ""))
    imported.existing = Decision.objects.in_bulk(list(imported.statuses))
    for payload in log.events().of_type(DECISION_MARKED).payloads().values():
        if payload.get("reason") == STATUS_OF_FILE and payload["decision_id"] in imported.statuses:
            imported.statuses[payload["decision_id"]] = DecisionStatus(payload["status"])
    return imported


# Edges that a person removed: an import leaves them out
def _removed_edges(imported: Imported) -> set[DecisionEdgeKey]:
    edges: set[DecisionEdgeKey] = set()
    for payload in log.events().of_type(DECISION_UNLINKED).payloads().values():
        start, end = payload["decision_id"], payload["edge"]["to"]
        if start in imported.existing and end in imported.existing:
            edges.add((start, EdgeRelation(payload["edge"]["relation"]), end))
    return edges


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
    removed = _removed_edges(imported)
    edges = {edge for edge in edges if not _joins_versions(edge, imported, removed)}
    run = _Import(imported, records, edges, AdrReport(problems=records.problems, skipped=records.skipped))
    for count, path in enumerate(in_order(records.adrs, edges), 1):
        if path in records.adrs:
            run.file(path)
        if progress:
            progress(count)
    run.link()
    run.report.sections_deleted = delete_sections([path for path in records.adrs if imported.versions_of(path)])
    return run.report


def _imported_records(paths: Sequence[str]) -> Mapping[str, str]:
    imported = read_imported()
    return {path: "imported as a decision" for path in paths if imported.versions_of(path)}


# A record's sections have no status: a superseded one would come back as a fact
define_known_files(_imported_records)


# Whether one of the edges is between any versions of the two files
def _joins_versions(edge: FileEdge, imported: Imported, edges: Collection[DecisionEdgeKey]) -> bool:
    starts, ends = imported.versions_of(edge.path), imported.versions_of(edge.to)
    return any((start, edge.relation, end) in edges for start, end in product(starts, ends))


@dataclass(slots=True)
class _Import:
    imported: Imported
    records: Records
    edges: Collection[FileEdge]
    report: AdrReport

    def file(self, path: str) -> None:
        try:
            self._import(path, self.records.adrs[path])
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
        fields = {
            "title": adr.title,
            "context": adr.context,
            "rationale": adr.rationale,
            "status": adr.status,
            "author": adr.author,
            "alternatives": [alternative.model_dump() for alternative in adr.alternatives],
            "decided_at": adr.decided_at,
            "topic": topic_of(path, self.records.adrs, self.edges),
            "source": path,
            **adr.more,
        }
        if adr.chosen.strip():
            fields["chosen"] = adr.chosen
        command = command_from(DecisionRecord, fields)
        return command.model_dump(exclude_unset=True) | command.model_dump(include=set(_CONTENT))

    def _is_unchanged(self, earlier: int, fields: dict[str, Any]) -> bool:
        content = sanitize({name: fields[name] for name in _CONTENT})[0]
        return bool(content == {name: getattr(self.imported.existing[earlier], name) for name in _CONTENT})

    # A decision that replaced the file's by hand takes precedence; one that another file became does not.
    def _refuse_superseded(self, earlier: int) -> None:
        imported = set(chain.from_iterable(self.imported.versions.values()))
        replacements = [head for head in heads_of(earlier) if head not in imported]
        if replacements:
            raise ConflictError(
                f"its text has changed, but #{replacements[0]} supersedes its decision #{earlier}; supersede that by "
                "hand"
            )

    def _record(self, path: str, fields: dict[str, Any], earlier: int | None) -> int:
        named = self._named(path, is_first=earlier is None)
        if earlier is not None:
            named["supersedes"] = [earlier]
        content = json.dumps([earlier, named, [fields[name] for name in _CONTENT]], ensure_ascii=False, sort_keys=True)
        key = f"{_prefix_of(path)}{_digest(content)}"
        filled = {name: value for name, value in fields.items() if name != "chosen" or value}
        command = command_from(DecisionRecord, {**filled, **named, "branch": True, "idempotency_key": key})
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
        ids = self.imported.existing
        edges = DecisionEdge.objects.filter(from_id__in=ids, to_id__in=ids).values_list("from_id", "relation", "to_id")
        existing = {(start, EdgeRelation(relation), end) for start, relation, end in edges}
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
    def _exists(self, edge: FileEdge, end: int, existing: Collection[DecisionEdgeKey]) -> bool:
        if edge.relation is not EdgeRelation.SUPERSEDES:
            return _joins_versions(edge, self.imported, existing)
        return any((start, edge.relation, end) in existing for start in self.imported.versions_of(edge.path))


_ENDINGS = (*MARKDOWN, ".rst")
_NOT_RECORDS = {"readme", "index", "toc", "template", "adr-template", "changelog", "contributing"}
# `20201028-name.md`, `2020-10-28-name.md`
_DATE_IN_NAME = re.compile(r"\A(?:adr[-_ ]?)?((?:19|20)\d\d)-?(\d\d)-?(\d\d)(?!\d)", re.IGNORECASE)
_NUMBER = re.compile(r"\A(?:adr[-_ ]?)?0*(\d+)(?=\D|\Z)", re.IGNORECASE)
_NO_RECORD = "not a decision record by its name"


@dataclass(frozen=True, slots=True, order=True)
class FileEdge:
    path: str
    relation: EdgeRelation
    to: str


@dataclass(slots=True)
class Records:
    adrs: dict[str, Adr] = field(default_factory=dict)
    # File and message.
    problems: list[tuple[str, str]] = field(default_factory=list)
    # File or folder, and the reason.
    skipped: list[tuple[str, str]] = field(default_factory=list)


def record_names(directory: Path) -> list[str]:
    """Return the Markdown and reStructuredText files below a folder, without those that are no records by name."""
    return [name for name in find_files(directory) if _is_record(PurePath(name))]


def _is_record(path: PurePath) -> bool:
    names = {path.stem.lower(), _words_of(path.name).lower()}
    return path.suffix.lower() in _ENDINGS and not names & _NOT_RECORDS


def read_records(directory: Path, within: str = "") -> Records:
    """Read every record below a folder; paths are relative to the git worktree, if it is in one."""
    records = Records(skipped=left_out(directory))
    above = path_of_folder(directory, within)
    for name in find_files(directory):
        if not _is_record(PurePath(name)):
            records.skipped.append((name, _NO_RECORD))
            continue
        path = flat(above + PurePath(name).as_posix())
        try:
            text = sanitize_text(read_text(directory / name))[0]
            ending = PurePath(path).suffix.lower()
            records.adrs[path] = read_adr(text, otherwise_title=_title_of(path), ending=ending)
        except HubError as error:
            records.problems.append((path, error.message))
    records.skipped.sort()
    _complete(records.adrs, directory, above)
    return records


# What a record leaves open is known from the name of its file and from git. Without them its date is that of the file.
def _complete(adrs: dict[str, Adr], directory: Path, above: str) -> None:
    incomplete = [path for path, adr in adrs.items() if not (adr.decided_at and adr.author)]
    commits = first_commits(directory) if incomplete else {}
    for path in incomplete:
        adr, name = adrs[path], path.removeprefix(above)
        adr.decided_at = adr.decided_at or _date_in(name)
        commit = commits.get(name)
        if commit:
            adr.author = adr.author or flat(commit.author)[:MAX_AUTHOR]
            adr.decided_at = adr.decided_at or commit.committed_at
        adr.author = adr.author or "unknown"
        adr.decided_at = adr.decided_at or modified_at(directory / name)


def _date_in(name: str) -> datetime | None:
    if match := _DATE_IN_NAME.match(PurePath(name).name):
        with suppress(ValueError):
            return datetime.strptime("".join(match.groups()), "%Y%m%d").replace(tzinfo=UTC)
    return None


def resolve(records: Records, earlier: Collection[str]) -> set[FileEdge]:
    """Return the edges between records, declared by either file; links without a target are reported.

    A superseded record whose successor is missing or not accepted counts as deprecated.
    """
    edges: set[FileEdge] = set()
    paths = [*records.adrs, *(path for path in earlier if path not in records.adrs)]
    for path, adr in records.adrs.items():
        for link in adr.links:
            if link.subject and _paths_of(link.subject, path, paths) != [path]:
                continue
            targets = _paths_of(link.target, path, paths)
            if len(targets) != 1:
                _report(records, path, link, targets)
            elif targets != [path] and link.is_backward:
                edges.add(FileEdge(targets[0], link.relation, path))
            elif targets != [path]:
                edges.add(FileEdge(path, link.relation, targets[0]))
    _settle_superseded(records, edges)
    return edges


# A record that calls itself superseded was accepted if its successor, or a later one, is accepted, and proposed if that
# is proposed. Otherwise it is not in force, and nothing retires it.
def _settle_superseded(records: Records, edges: Iterable[FileEdge]) -> None:
    below: dict[str, list[str]] = {}
    for edge in sorted(edges):
        if edge.relation is EdgeRelation.SUPERSEDES:
            below.setdefault(edge.path, []).append(edge.to)
    for status in (DecisionStatus.ACCEPTED, DecisionStatus.PROPOSED):
        _hand_down(status, records.adrs, below)
    replaced = set(chain.from_iterable(below.values()))
    for path, adr in records.adrs.items():
        if adr.status is DecisionStatus.SUPERSEDED:
            adr.status = DecisionStatus.DEPRECATED
            reason = "not accepted" if path in replaced else "missing"
            records.problems.append((path, f"the record that supersedes it is {reason}; it is imported as deprecated"))


# A record that is not in the folder was imported earlier and counts as accepted.
def _hand_down(status: DecisionStatus, adrs: Mapping[str, Adr], below: Mapping[str, Sequence[str]]) -> None:
    statuses = {path: adrs[path].status for path in below if path in adrs}
    successors = [path for path in below if statuses.get(path, DecisionStatus.ACCEPTED) is status]
    while successors:
        for path in below.get(successors.pop(), ()):
            if path in adrs and adrs[path].status is DecisionStatus.SUPERSEDED:
                adrs[path].status = status
                successors.append(path)


# A link without a word for its relation may lead to any document
def _report(records: Records, path: str, link: RecordLink, targets: Sequence[str]) -> None:
    if targets:
        problem = f"several records have that number: {', '.join(targets)}"
    elif link.relation is EdgeRelation.RELATES_TO:
        return
    else:
        problem = "which is not a record in this folder"
    verb = link.relation.label.lower()
    if link.is_backward:
        verb += ", inverse"
    records.problems.append((path, f"its link ({verb}) leads to {link.target}, {problem}"))


# By path, from the file or from the top of the repository, or by the number of the file's name.
def _paths_of(target: str, path: str, paths: Collection[str]) -> list[str]:
    folder = posixpath.dirname(path)
    if target.isdigit():
        numbered = []
        for name in paths:
            number = _NUMBER.match(PurePath(name).name)
            if number and int(number[1]) == int(target):
                numbered.append(name)
        return [name for name in numbered if posixpath.dirname(name) == folder] or numbered
    address = target.replace("%20", " ")
    here, top = posixpath.normpath(posixpath.join(folder, address)), posixpath.normpath(address.lstrip("/"))
    exact = [name for name in dict.fromkeys((here, top)) if name in paths]
    return exact[:1] or [name for name in paths if name.endswith(f"/{top}")][:2]


def topic_of(path: str, adrs: dict[str, Adr], edges: Collection[FileEdge]) -> str:
    """Return the record's own topic, else that of the record it supersedes, else its file name."""
    seen: set[str] = set()
    before = {edge.path: edge.to for edge in sorted(edges, reverse=True) if edge.relation is EdgeRelation.SUPERSEDES}
    while path not in seen:
        seen.add(path)
        topic = adrs[path].topic if path in adrs else None
        if topic is not None:
            return topic
        path = before.get(path, path)
    return _words_of(path)[:200]


def in_order(paths: Iterable[str], edges: Iterable[FileEdge]) -> Iterator[str]:
    """Yield the paths in their order, but each after the records that it follows from."""
    before: dict[str, list[str]] = {}
    for edge in sorted(edges, reverse=True):
        if edge.relation in LINEAGE:
            before.setdefault(edge.path, []).append(edge.to)
    yielded: set[str] = set()
    for first in list(paths):
        stack = [first]
        while stack:
            path = stack[-1]
            stack += [earlier for earlier in before.pop(path, ()) if earlier not in yielded]
            if stack[-1] == path:
                stack.pop()
                if path not in yielded:
                    yielded.add(path)
                    yield path


def _title_of(path: str) -> str:
    return _words_of(path).replace("-", " ").replace("_", " ").strip().capitalize()


def _words_of(path: str) -> str:
    stem = PurePath(path).stem
    return _NUMBER.sub("", stem).strip(" -_.") or stem
