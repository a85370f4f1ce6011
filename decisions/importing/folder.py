"""The records of a folder: which files they are, what each says, and how they stand to one another."""

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
from memories.importing.files import MARKDOWN, read_text
from memoryhub.core.errors import HubError
from memoryhub.core.secrets.sanitize import sanitize_text
from memoryhub.core.text import flat
from sessions_app import git

_NOT_RECORDS = {"readme", "index", "toc", "template", "adr-template", "changelog", "contributing"}
_NUMBER = re.compile(r"\A(?:adr[-_ ]?)?0*(\d+)(?=\D|\Z)", re.IGNORECASE)
_UNREADABLE = "binary, unreadable or larger than 2 MB"


@dataclass(frozen=True, slots=True, order=True)
class FileEdge:
    """How the record of one file stands to that of another."""

    path: str
    relation: EdgeRelation
    to: str


@dataclass(slots=True)
class Records:
    """The records that could be read, by path, and what is wrong with the others."""

    adrs: dict[str, Adr] = field(default_factory=dict)
    problems: list[tuple[str, str]] = field(default_factory=list)
    """File, and a sentence."""


def record_names(directory: Path) -> list[str]:
    """Return the Markdown files below a folder but for those that are no records by their name (``README.md``).

    Raises:
        Invalid: there is no such folder.
    """
    names = (PurePath(name) for name in find_files(directory))
    return [str(name) for name in names if name.suffix.lower() in MARKDOWN and name.stem.lower() not in _NOT_RECORDS]


def read_records(directory: Path) -> Records:
    """Read every record below a folder; each goes by its path in the git worktree, if it lies in one.

    Raises:
        Invalid: there is no such folder.
    """
    records = Records()
    above = git.path_in_worktree(directory)
    for name in record_names(directory):
        path = flat(above + PurePath(name).as_posix())
        text = read_text(directory / name)
        if text is None:
            records.problems.append((path, _UNREADABLE))
            continue
        try:
            records.adrs[path] = read_adr(sanitize_text(text)[0], otherwise_title=_title_of(path))
        except HubError as error:
            records.problems.append((path, error.message))
    return records


def resolve(records: Records, known: Collection[str]) -> set[FileEdge]:
    """Return the edges between records, whichever of the two files says so; links that lead nowhere are problems.

    A record that is superseded by nothing that is here counts as deprecated.
    """
    edges: set[FileEdge] = set()
    paths = [*records.adrs, *(path for path in known if path not in records.adrs)]
    for path, adr in records.adrs.items():
        for link in adr.links:
            to = _path_of(link.target, path, paths)
            if to is None:
                records.problems.append((path, f"it links to {link.target}, which is no record here ({_verb(link)})"))
            elif to != path:
                edges.add(FileEdge(to, link.relation, path) if link.is_backward else FileEdge(path, link.relation, to))
    _deprecate_left_alone(records, edges)
    return edges


def _deprecate_left_alone(records: Records, edges: Iterable[FileEdge]) -> None:
    replaced = {edge.to for edge in edges if edge.relation is EdgeRelation.SUPERSEDES}
    for path, adr in records.adrs.items():
        if adr.status is DecisionStatus.SUPERSEDED:
            adr.status = DecisionStatus.ACCEPTED if path in replaced else DecisionStatus.DEPRECATED
            if path not in replaced:
                records.problems.append((path, "what superseded it is not here, so it counts as deprecated"))


def _path_of(target: str, path: str, paths: Iterable[str]) -> str | None:
    """Return the path of the record that a link names, by its path or by the number of its file."""
    folder = posixpath.dirname(path)
    if not target.isdigit():
        wanted = posixpath.normpath(posixpath.join(folder, target.replace("%20", " ")))
        return next((each for each in paths if each == wanted), None)
    numbered = [each for each in paths if posixpath.dirname(each) == folder and _number_of(each) == int(target)]
    return numbered[0] if len(numbered) == 1 else None


def _number_of(path: str) -> int | None:
    found = _NUMBER.match(PurePath(path).name)
    return int(found[1]) if found else None


def topic_of(path: str, adrs: dict[str, Adr], edges: Collection[FileEdge]) -> str:
    """Return the topic that a record gives itself, else that of what it supersedes first, else its file's name."""
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
    """Yield paths as they are, but for those that follow from others: these come after them."""
    before: dict[str, list[str]] = {}
    for edge in sorted(edges, reverse=True):
        if edge.relation in LINEAGE:
            before.setdefault(edge.path, []).append(edge.to)
    wanted, done = list(paths), set[str]()
    for first in wanted:
        waiting = [first]
        while waiting:
            path = waiting[-1]
            waiting += [each for each in before.pop(path, ()) if each not in done]
            if waiting[-1] == path:
                waiting.pop()
                if path not in done:
                    done.add(path)
                    yield path


def _verb(link: Link) -> str:
    name = link.relation.label.lower()
    return f"{name}, the other way" if link.is_backward else name


def _title_of(path: str) -> str:
    return _words_of(path).replace("-", " ").replace("_", " ").strip().capitalize()


def _words_of(path: str) -> str:
    """Return the name of a file without its ending and its number."""
    stem = PurePath(path).stem
    return _NUMBER.sub("", stem).strip(" -_.") or stem
