"""Compare the anchors of entries with the files of a working tree."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Protocol

from memories.events import AnchorRecord
from memories.validity.definitions import Definition
from memories.validity.marks import Mark, MarkKind
from memories.validity.working_files import (
    Signature,
    WorkingFile,
    defining_files,
    read_working_file,
    signature_of,
    tracked_files,
)
from memoryhub.core.errors import Unavailable
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, json_list
from sessions_app.git.process import run
from sessions_app.git.worktree import WorkingTree

_CHANGED, _GONE = 0.5, 0.4
# git compares commits, once for each pair
_SECONDS = 2.0
_MOST_RENAMES = 2_000
_MOST_FILES = 4_096


class State(StrEnum):
    FRESH = "fresh"
    MOVED = "moved"
    CHANGED = "changed"
    GONE = "gone"


class AnchorFinding(NamedTuple):
    """The state of an anchor, and where its lines are now."""

    state: State
    path: str
    first: int = 0
    last: int = 0


class AnchorPlace(Protocol):
    """Where an anchor is."""

    @property
    def path(self) -> str: ...
    @property
    def symbol(self) -> str: ...
    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...


# A row of the table; ``words`` is a JSON list
class _AnchorRow(NamedTuple):
    path: str
    symbol: str
    first: int
    last: int
    digest: str
    words: str


def check(anchor: AnchorRecord, tree: WorkingTree, commit: str = "") -> AnchorFinding:
    """Compare an anchor with a working tree.

    Args:
        anchor: of an entry.
        tree: where the caller works.
        commit: in which the entry was learnt; renames since are followed.
    """
    words = json.dumps(anchor.words)
    part = _AnchorRow(anchor.path, anchor.symbol, anchor.first, anchor.last, anchor.digest, words)
    return _check(part, _findings_at(anchor.path, tree), tree, commit)


def _check(part: _AnchorRow, findings: _Findings | None, tree: WorkingTree, commit: str) -> AnchorFinding:
    if findings is None:
        return _elsewhere(part, tree, commit)
    finding = _finding(part, findings, tree)
    if finding.path == part.path:
        return finding
    # The definition is in another file, which may have changed since it was found there
    return _at_new_path(part, finding.path, tree) or finding


_Findings = dict[_AnchorRow, AnchorFinding]
_findings: dict[str, tuple[Signature, _Findings]] = {}


# What the anchors of a file were found to be since it changed; None if there is no such file
def _findings_at(path: str, tree: WorkingTree) -> _Findings | None:
    place = f"{tree.top}/{path}"
    signature = signature_of(place)
    if signature is None:
        return None
    cached = _findings.get(place)
    if cached is None or cached[0] != signature:
        if len(_findings) >= _MOST_FILES:
            _findings.clear()
        cached = _findings[place] = (signature, {})
    return cached[1]


def _finding(part: _AnchorRow, findings: _Findings, tree: WorkingTree) -> AnchorFinding:
    finding = findings.get(part)
    if finding is None:
        finding = findings[part] = _compared(part, tree)
    return finding


def _at_new_path(part: _AnchorRow, path: str, tree: WorkingTree) -> AnchorFinding | None:
    findings = _findings_at(path, tree)
    if findings is None:
        return None
    finding = _finding(part._replace(path=path), findings, tree)
    if finding.state is State.FRESH:
        return finding._replace(state=State.MOVED)
    return finding


def _compared(part: _AnchorRow, tree: WorkingTree) -> AnchorFinding:
    if not part.digest:
        return AnchorFinding(State.FRESH, part.path)
    file = read_working_file(tree.top, part.path)
    if file is None:
        return AnchorFinding(State.CHANGED, part.path, part.first, part.last)
    finding = compare(part, file)
    if finding.state is State.CHANGED and part.symbol and not _definitions(part.symbol, file):
        path = defining_files(tree, (part.symbol,)).get(part.symbol, "")
        home = read_working_file(tree.top, path) if path else None
        if home is not None and compare(part, home).state is State.MOVED:
            return compare(part, home)
    return finding


# A class may have another name, or a base
def _definitions(symbol: str, file: WorkingFile) -> list[Definition]:
    return file.definitions_of(symbol) or file.definitions_of(symbol.rpartition(".")[2])


def compare(part: AnchorRecord | _AnchorRow, file: WorkingFile) -> AnchorFinding:
    """Compare an anchor that has a digest with a file, which may be at another path."""
    place = (part.first, part.last)
    if file.digest(part.first or 1, part.last or len(file.lines)) == part.digest:
        return _at(part, file, place)
    if part.first and (moved := file.place_of(part.digest, part.first)):
        return _at(part, file, moved)
    claims = part.words
    if isinstance(claims, str):
        claims = json.loads(claims)
    if part.symbol:
        matches = _definitions(part.symbol, file)
        if len(matches) != 1:
            return AnchorFinding(State.CHANGED, file.path, *place)
        place = (matches[0].first, matches[0].last)
    if claims and all(_holds(claim, file, place if part.symbol else (0, 0)) for claim in claims):
        return _at(part, file, place)
    return AnchorFinding(State.CHANGED, file.path, *place)


# Two words of prose may be anywhere in the file
def _holds(claim: str, file: WorkingFile, place: tuple[int, int]) -> bool:
    return file.holds(claim, *place) or (" " in claim and _PROSE.fullmatch(claim) is not None and file.holds(claim))


_PROSE = re.compile(r"[^\W\d_]+ [^\W\d_]+")


def _at(part: AnchorRecord | _AnchorRow, file: WorkingFile, place: tuple[int, int]) -> AnchorFinding:
    is_same = (file.path, *place) == (part.path, part.first, part.last)
    return AnchorFinding(State.FRESH if is_same else State.MOVED, file.path, *place)


# Where a file that is no longer at its path has gone: git knows, or one file has its name and the lines
def _elsewhere(part: _AnchorRow, tree: WorkingTree, commit: str) -> AnchorFinding:
    renamed = ""
    if commit and tree.head and commit != tree.head:
        renamed = _renames(tree.top, commit, tree.head).get(part.path, "")
    for path in dict.fromkeys((renamed, tracked_files(tree.top).like(part.path))):
        finding = _at_new_path(part, path, tree) if path else None
        if finding is not None and (finding.state is State.MOVED or path == renamed):
            return finding
    return AnchorFinding(State.GONE, part.path)


@lru_cache(maxsize=64)
def _renames(top: Path, commit: str, head: str) -> dict[str, str]:
    options = ("--name-status", "--find-renames", "--diff-filter=R", "-z", "--no-ext-diff", "--no-textconv")
    try:
        answer = run(top, "diff-tree", "-r", *options, commit, head, "--", seconds=_SECONDS)
    except Unavailable:
        return {}
    names = list(map(os.fsdecode, answer.stdout.split(b"\0")))[: 3 * _MOST_RENAMES]
    return dict(zip(names[1::3], names[2::3], strict=False))


_ANCHORS = (
    'SELECT a.entity_id, a.path, a.symbol, a.first, a.last, a.digest, CAST(a.words AS text), p."commit" '
    "FROM memories_codeanchor a LEFT JOIN memories_provenance p ON p.id = a.entity_id "
    f"WHERE a.entity_id IN {IDS} ORDER BY a.entity_id, a.number"
)


def anchor_marks(ids: Sequence[int], tree: WorkingTree | None) -> dict[int, Mark]:
    """Map entries of the current store to a mark, where code that they are about has changed or is gone."""
    marks: dict[int, Mark] = {}
    if tree is None or not ids:
        return marks
    anchors = [(row[0], _AnchorRow._make(row[1:-1]), row[-1]) for row in rows.fetch(_ANCHORS, [json_list(ids)])]
    # One look at each file: entries are often about the same ones
    findings = {path: _findings_at(path, tree) for path in {part.path for _, part, _ in anchors}}
    for entity_id, part, commit in anchors:
        finding = _check(part, findings[part.path], tree, commit or "")
        if finding.state is State.CHANGED:
            marks.setdefault(entity_id, Mark(MarkKind.CHANGED, clause_of(part, finding), _CHANGED, withheld=True))
        elif finding.state is State.GONE and marks.get(entity_id, _NO_MARK).kind is not MarkKind.GONE:
            marks[entity_id] = Mark(MarkKind.GONE, clause_of(part, finding), _GONE, withheld=True)
    return marks


_NO_MARK = Mark(MarkKind.CHANGED, "")


def clause_of(anchor: AnchorPlace, finding: AnchorFinding) -> str:
    """Return what became of an anchor, as a clause: ``src/auth.py:10-24 has changed since``."""
    if finding.state is State.GONE:
        return f"{anchor.path} is gone"
    if finding.state is State.CHANGED:
        return f"{name_of(anchor)} has changed since"
    return f"{name_of(anchor)} is as it was"


def name_of(anchor: AnchorPlace) -> str:
    """Return an anchor as people write it: ``src/auth.py``, ``src/auth.py:10-24``, ``src/auth.py#Session.renew``."""
    if anchor.symbol:
        return f"{anchor.path}#{anchor.symbol}"
    return lines_of(anchor.path, anchor.first, anchor.last)


def lines_of(path: str, first: int, last: int) -> str:
    """Return lines of a file as people write them: ``src/auth.py:10-24``."""
    if not first:
        return path
    return f"{path}:{first}" if first == last else f"{path}:{first}-{last}"


def renewed(anchors: Sequence[AnchorRecord], tree: WorkingTree, commit: str = "") -> list[AnchorRecord]:
    """Return anchors as the working tree has their lines now; those whose file is gone are left out."""
    records: list[AnchorRecord] = []
    for anchor in anchors:
        finding = check(anchor, tree, commit)
        if finding.state is State.GONE:
            continue
        file = read_working_file(tree.top, finding.path)
        digest, words = anchor.digest, anchor.words
        if file is not None and digest:
            digest = file.digest(finding.first or 1, finding.last or len(file.lines))
            words = [claim for claim in words if file.holds(claim, finding.first, finding.last)]
        update = {"path": finding.path, "first": finding.first, "last": finding.last, "digest": digest, "words": words}
        records.append(anchor.model_copy(update=update))
    return records
