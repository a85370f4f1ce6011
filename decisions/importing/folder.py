"""The records of a folder and the edges between them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePath

from decisions.importing.links import Link
from decisions.importing.reading import Adr, read_adr
from decisions.models import LINEAGE, DecisionStatus, EdgeRelation
from memories.importing import find_files
from memories.importing.files import MARKDOWN, left_out, modified_at, path_of_folder, read_text
from memoryhub.core.errors import HubError
from memoryhub.core.schemas import MAX_AUTHOR
from memoryhub.core.secrets.sanitize import sanitize_text
from memoryhub.core.text import flat
from sessions_app.git import first_commits

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
    others = [(name, _NO_RECORD) for name in find_files(directory) if not _is_record(PurePath(name))]
    records = Records(skipped=sorted([*left_out(directory), *others]))
    above = path_of_folder(directory, within)
    for name in record_names(directory):
        path = flat(above + PurePath(name).as_posix())
        try:
            text = sanitize_text(read_text(directory / name))[0]
            ending = PurePath(path).suffix.lower()
            records.adrs[path] = read_adr(text, otherwise_title=_title_of(path), ending=ending)
        except HubError as error:
            records.problems.append((path, error.message))
    _complete(records.adrs, directory, above)
    return records


# What a record leaves open is known from the name of its file and from git. Without them its date is that of the file.
def _complete(adrs: dict[str, Adr], directory: Path, above: str) -> None:
    incomplete = [path for path, adr in adrs.items() if not (adr.decided_at and adr.author)]
    commits = first_commits(directory) if incomplete else {}
    for path in incomplete:
        adr, name = adrs[path], path.removeprefix(above)
        commit = commits.get(name)
        adr.author = adr.author or (flat(commit.author)[:MAX_AUTHOR] if commit else "") or "unknown"
        committed_at = commit.committed_at if commit else None
        adr.decided_at = adr.decided_at or _date_in(name) or committed_at or modified_at(directory / name)


def _date_in(name: str) -> datetime | None:
    match = _DATE_IN_NAME.match(PurePath(name).name)
    try:
        return datetime.strptime("".join(match.groups()), "%Y%m%d").replace(tzinfo=UTC) if match else None
    except ValueError:
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
            elif targets != [path]:
                ends = (targets[0], path) if link.is_backward else (path, targets[0])
                edges.add(FileEdge(ends[0], link.relation, ends[1]))
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
    replaced = {path for paths in below.values() for path in paths}
    for path, adr in records.adrs.items():
        if adr.status is DecisionStatus.SUPERSEDED:
            adr.status = DecisionStatus.DEPRECATED
            reason = "not accepted" if path in replaced else "missing"
            records.problems.append((path, f"the record that supersedes it is {reason}; it is imported as deprecated"))


# A record that is not in the folder was imported earlier and counts as accepted.
def _hand_down(status: DecisionStatus, adrs: Mapping[str, Adr], below: Mapping[str, Sequence[str]]) -> None:
    successors = [path for path in below if (adrs[path].status if path in adrs else DecisionStatus.ACCEPTED) is status]
    while successors:
        for path in below.get(successors.pop(), ()):
            if path in adrs and adrs[path].status is DecisionStatus.SUPERSEDED:
                adrs[path].status = status
                successors.append(path)


# A link without a word for its relation may lead to any document
def _report(records: Records, path: str, link: Link, targets: Sequence[str]) -> None:
    if targets:
        problem = f"several records have that number: {', '.join(targets)}"
    elif link.relation is EdgeRelation.RELATES_TO:
        return
    else:
        problem = "which is not a record in this folder"
    records.problems.append((path, f"its link ({_verb(link)}) leads to {link.target}, {problem}"))


# By path, from the file or from the top of the repository, or by the number of the file's name.
def _paths_of(target: str, path: str, paths: Collection[str]) -> list[str]:
    folder = posixpath.dirname(path)
    if target.isdigit():
        numbered = [name for name in paths if _number_of(name) == int(target)]
        return [name for name in numbered if posixpath.dirname(name) == folder] or numbered
    address = target.replace("%20", " ")
    here, top = posixpath.normpath(posixpath.join(folder, address)), posixpath.normpath(address.lstrip("/"))
    exact = [name for name in dict.fromkeys((here, top)) if name in paths]
    return exact[:1] or [name for name in paths if name.endswith(f"/{top}")][:2]


def _number_of(path: str) -> int | None:
    found = _NUMBER.match(PurePath(path).name)
    return int(found[1]) if found else None


def topic_of(path: str, adrs: dict[str, Adr], edges: Collection[FileEdge]) -> str:
    """Return the record's own topic, else that of the record it supersedes, else its file name."""
    seen: set[str] = set()
    before = {edge.path: edge.to for edge in sorted(edges, reverse=True) if edge.relation is EdgeRelation.SUPERSEDES}
    while path not in seen:
        seen.add(path)
        given = adrs[path].topic if path in adrs else None
        if given is not None:
            return given
        path = before.get(path, path)
    return _words_of(path)[:200]


def in_order(paths: Iterable[str], edges: Iterable[FileEdge]) -> Iterator[str]:
    """Yield the paths in their order, but each after the records that it follows from."""
    before: dict[str, list[str]] = {}
    for edge in sorted(edges, reverse=True):
        if edge.relation in LINEAGE:
            before.setdefault(edge.path, []).append(edge.to)
    done: set[str] = set()
    for first in list(paths):
        stack = [first]
        while stack:
            path = stack[-1]
            stack += [earlier for earlier in before.pop(path, ()) if earlier not in done]
            if stack[-1] == path:
                stack.pop()
                if path not in done:
                    done.add(path)
                    yield path


def _verb(link: Link) -> str:
    name = link.relation.label.lower()
    return f"{name}, inverse" if link.is_backward else name


def _title_of(path: str) -> str:
    return _words_of(path).replace("-", " ").replace("_", " ").strip().capitalize()


def _words_of(path: str) -> str:
    stem = PurePath(path).stem
    return _NUMBER.sub("", stem).strip(" -_.") or stem
