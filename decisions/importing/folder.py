"""The records of a folder and the edges between them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from decisions.importing.links import Link
from decisions.importing.reading import Adr, read_adr
from decisions.models import LINEAGE, DecisionStatus, EdgeRelation
from memories.importing import find_files
from memories.importing.files import MARKDOWN, left_out, path_of_folder, read_text
from memoryhub.core.errors import HubError
from memoryhub.core.secrets.sanitize import sanitize_text
from memoryhub.core.text import flat

_NOT_RECORDS = {"readme", "index", "toc", "template", "adr-template", "changelog", "contributing"}
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
    """Return the Markdown files below a folder, without those that are no records by name (``README.md``)."""
    return [name for name in find_files(directory) if _is_record(PurePath(name))]


def _is_record(path: PurePath) -> bool:
    return path.suffix.lower() in MARKDOWN and path.stem.lower() not in _NOT_RECORDS


def read_records(directory: Path, within: str = "") -> Records:
    """Read every record below a folder; paths are relative to the git worktree, if it is in one."""
    others = [(name, _NO_RECORD) for name in find_files(directory) if not _is_record(PurePath(name))]
    records = Records(skipped=sorted([*left_out(directory), *others]))
    above = path_of_folder(directory, within)
    for name in record_names(directory):
        path = flat(above + PurePath(name).as_posix())
        try:
            text = sanitize_text(read_text(directory / name))[0]
            records.adrs[path] = read_adr(text, otherwise_title=_title_of(path))
        except HubError as error:
            records.problems.append((path, error.message))
    return records


def resolve(records: Records, earlier: Collection[str]) -> set[FileEdge]:
    """Return the edges between records, declared by either file; links without a target are reported.

    A superseded record whose successor is missing or not accepted counts as deprecated.
    """
    edges: set[FileEdge] = set()
    paths = [*records.adrs, *(path for path in earlier if path not in records.adrs)]
    for path, adr in records.adrs.items():
        for link in adr.links:
            to = _path_of(link.target, path, paths)
            if to is None:
                records.problems.append(
                    (path, f"its link ({_verb(link)}) leads to {link.target}, which is not a record in this folder")
                )
            elif to != path:
                edges.add(FileEdge(to, link.relation, path) if link.is_backward else FileEdge(path, link.relation, to))
    _settle_superseded(records, edges)
    return edges


# A record that calls itself superseded was accepted if its successor, or a later one, is accepted. Otherwise it is not
# in force, and nothing retires it.
def _settle_superseded(records: Records, edges: Iterable[FileEdge]) -> None:
    below: dict[str, list[str]] = {}
    for edge in sorted(edges):
        if edge.relation is EdgeRelation.SUPERSEDES:
            below.setdefault(edge.path, []).append(edge.to)
    adrs = records.adrs
    accepted = [path for path in below if path not in adrs or adrs[path].status is DecisionStatus.ACCEPTED]
    while accepted:
        for path in below.get(accepted.pop(), ()):
            if path in adrs and adrs[path].status is DecisionStatus.SUPERSEDED:
                adrs[path].status = DecisionStatus.ACCEPTED
                accepted.append(path)
    replaced = {path for paths in below.values() for path in paths}
    for path, adr in adrs.items():
        if adr.status is DecisionStatus.SUPERSEDED:
            adr.status = DecisionStatus.DEPRECATED
            reason = "not accepted" if path in replaced else "missing"
            records.problems.append((path, f"the record that supersedes it is {reason}; it is imported as deprecated"))


# By path, or by the number of the file's name.
def _path_of(target: str, path: str, paths: Collection[str]) -> str | None:
    folder = posixpath.dirname(path)
    if not target.isdigit():
        wanted = posixpath.normpath(posixpath.join(folder, target.replace("%20", " ")))
        return wanted if wanted in paths else None
    numbered = [name for name in paths if posixpath.dirname(name) == folder and _number_of(name) == int(target)]
    return numbered[0] if len(numbered) == 1 else None


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
