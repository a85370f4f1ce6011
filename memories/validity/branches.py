"""Mark entries that were learnt in work on a branch which the caller's working tree does not have."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from math import log10
from pathlib import PurePosixPath
from typing import NamedTuple, Protocol

from memories.search.engine import documents_of, texts_of
from memories.validity.claims import PLAIN, VAGUE, words_of_text
from memories.validity.marks import Mark, MarkKind
from memories.validity.working_files import words_of_code
from memoryhub.core import log
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, json_list
from memoryhub.core.stores.store import current_store
from memoryhub.core.text import one_line, printable
from memoryhub.env import home_text
from sessions_app.events import COMMIT_RECORDED
from sessions_app.events.client import FILE_EDITED
from sessions_app.git.branches import (
    BranchStatus,
    BranchWork,
    branch_states,
    dropped_commits,
    patches_of_branch,
    unchanged_files,
)
from sessions_app.git.worktree import WorkingTree, branch_tip
from sessions_app.selectors import read_events

_UNMERGED_WEIGHT, _UNKNOWN_WEIGHT = 0.5, 0.8
# Commits of other entries that git is asked about with the same calls
_MOST_WORKS = 2_000
_MAX_NAME = 80
# Whether a session has committed its edits meanwhile is looked up again after so many seconds
_AGAIN_SECONDS = 60.0
# Events that say where an entry was learnt
_WRITTEN = ("memory.written", "memory.revised", "decision.recorded")

# Code between backticks, a call, a name with an underscore or capitals inside, an option, a path, a file, a version
_CODE = re.compile(
    r"`[^`\n]+`|\b\w+\(|[A-Za-z0-9]_[A-Za-z0-9]|\b_+[a-z]|[a-z0-9][A-Z]|(?<!\w)--?[a-z]{2}|\b[A-Z]{2,}[a-z]{2}|\w::\w|"
    r"\b[\w.-]+/[\w.-]+/|(?<![\w.])\.?[\w-]+/[\w-]+\.\w|\b[\w-]+\.[a-z]{1,4}\b(?!\.\w)|\w\s?(?:==?|[<>]=?)\s?[\w\"']|"
    r"\bv?\d+\.\d+"
)
# A large change shares words with many texts: what more is needed for ten times as many words as in a few lines
_FEW_WORDS, _PER_DECADE = 30, 0.8
# Edits of a session that are read, the newest first
_MOST_EDITS = 50


class Learnt(Protocol):
    """Where an entry was learnt, as the table Provenance has it."""

    @property
    def id(self) -> int: ...
    @property
    def commit(self) -> str: ...
    @property
    def branch(self) -> str: ...
    @property
    def has_edits(self) -> bool: ...


class LearntEntry(NamedTuple):
    id: int
    commit: str
    branch: str
    has_edits: bool


# Rows of what was learnt at another commit, or by edits on another branch
_LEARNT = (
    'SELECT p.id, p."commit", p.branch, p.has_edits FROM memories_provenance p WHERE {ids} '
    '(p."commit" <> %s OR (p.has_edits AND p.branch <> %s)) ORDER BY p.id DESC'
)
_EVERY_WORK = (
    'SELECT "commit", branch, has_edits FROM memories_provenance GROUP BY "commit", branch, has_edits '
    f"ORDER BY max(id) DESC LIMIT {_MOST_WORKS}"
)
_ANCHORED = f"SELECT entity_id, path FROM memories_codeanchor WHERE entity_id IN {IDS}"


# The commits that sessions made after they had written entries, "" where there is none, and until when that holds
_following: dict[tuple[str, str, LearntEntry], tuple[str, float]] = {}


def branch_marks(ids: Sequence[int], tree: WorkingTree | None) -> dict[int, Mark]:
    """Map entries of the current store that are bound to code which the tree may not have to a mark.

    Entries without provenance, such as imported ones and those that people wrote, have none.
    """
    if tree is None:
        return {}
    sql = _LEARNT.format(ids=f"p.id IN {IDS} AND")
    states = _states(_rows(sql, json_list(ids), tree.head, tree.branch), tree)
    return {row.id: _mark(row, states[row], tree) for row in _bound_to_code(states, tree)}


def dropped_entries(tree: WorkingTree) -> dict[str, list[int]]:
    """Map branches to entries that were learnt there and are bound to code that no branch, tag or HEAD has.

    The name of the branch is "" for work on a detached HEAD.
    """
    states = _states(_rows(_LEARNT.format(ids=""), tree.head, tree.branch), tree)
    unmerged = {row: state for row, state in states.items() if state is BranchStatus.UNMERGED}
    commits = dropped_commits(tree, {row.commit for row in unmerged})
    dropped = {row: state for row, state in unmerged.items() if row.commit in commits}
    branches: dict[str, list[int]] = {}
    for row in _bound_to_code(dropped, tree):
        branches.setdefault(row.branch, []).append(row.id)
    return branches


def where_merged(learnt: Iterable[Learnt], tree: WorkingTree) -> dict[int, bool | None]:
    """Map entries to whether a tree has the work in which they were learnt; None where that is not known.

    The tree may be one that is not checked out: ``head`` is any commit, ``branch`` the name of its branch or "".
    """
    listed = [LearntEntry(row.id, row.commit, row.branch, row.has_edits) for row in learnt]
    answers: dict[int, bool | None] = dict.fromkeys((row.id for row in listed), True)
    for row, state in _states(listed, tree).items():
        answers[row.id] = None if state is BranchStatus.UNKNOWN else False
    return answers


def _rows(sql: str, *parameters: str) -> list[LearntEntry]:
    learnt = rows.fetch(sql, parameters)
    return [LearntEntry(entity_id, commit, branch, bool(has_edits)) for entity_id, commit, branch, has_edits in learnt]


# Entries that the tree does not have for sure, with the commit that has their work
def _states(learnt: Sequence[LearntEntry], tree: WorkingTree) -> dict[LearntEntry, BranchStatus]:
    states = _states_of_commits(learnt, tree)
    lost = [entry for entry, state in states.items() if _is_lost(entry, state, tree)]
    if commits := _following_commits(lost):
        committed = [entry for entry in lost if entry.id in commits]
        located = {entry: entry._replace(commit=commits[entry.id], has_edits=False) for entry in committed}
        states = {entry: state for entry, state in states.items() if entry not in located}
        states |= _states_of_commits(list(located.values()), tree)
    return {entry: state for entry, state in states.items() if state is not BranchStatus.MERGED}


# Edits were committed to a branch that is gone, or was rebased
def _is_lost(entry: LearntEntry, state: BranchStatus, tree: WorkingTree) -> bool:
    if not entry.has_edits or entry.branch in ("", tree.branch):
        return False
    return state is BranchStatus.UNKNOWN or not branch_tip(tree, entry.branch)


def _states_of_commits(learnt: Collection[LearntEntry], tree: WorkingTree) -> dict[LearntEntry, BranchStatus]:
    if not learnt:
        return {}
    works = {entry: BranchWork(entry.commit, entry.branch, entry.has_edits) for entry in learnt}
    states = branch_states(tree, set(works.values()), _every_work)
    return {entry: states.get(work, BranchStatus.UNKNOWN) for entry, work in works.items()}


def _every_work() -> list[BranchWork]:
    return [BranchWork(commit, branch, bool(has_edits)) for commit, branch, has_edits in rows.fetch(_EVERY_WORK)]


# The commit that the session of an entry made next has the edits that it had made before
def _following_commits(edited: Sequence[LearntEntry]) -> dict[int, str]:
    if not edited:
        return {}
    now, store = time.monotonic(), (home_text(), str(current_store()))
    unread = [entry for entry in edited if _following.get((*store, entry), ("", 0.0))[1] < now]
    if len(_following) > _MOST_WORKS:
        _following.clear()
    commits = _recorded_commits(unread)
    _following.update({(*store, entry): (commits.get(entry.id, ""), now + _AGAIN_SECONDS) for entry in unread})
    following = {entry.id: _following.get((*store, entry), ("", 0.0))[0] for entry in edited}
    return {entry_id: commit for entry_id, commit in following.items() if commit}


def _recorded_commits(edited: Sequence[LearntEntry]) -> dict[int, str]:
    written = _written(edited)
    if not written:
        return {}
    sessions = {session_id for _, session_id in written.values()}
    commits = log.events().of_session(*sessions).of_type(COMMIT_RECORDED).order_by("-position")
    listed = list(commits.values_list("position", "session_id", "stream_id"))
    following: dict[int, str] = {}
    for entity_id, (position, session_id) in written.items():
        for committed, session, stream in listed:
            if session == session_id and committed > position:
                following[entity_id] = stream.removeprefix("commit:")
    return following


# Position and session of the event that wrote an entry's text
def _written(learnt: Iterable[LearntEntry]) -> dict[int, tuple[int, str]]:
    streams = [f"{kind}:{entry.id}" for entry in learnt for kind in ("memory", "decision")]
    written: dict[int, tuple[int, str]] = {}
    if not streams:
        return written
    # With the types as a condition, SQLite would read all events of these types
    events = log.events().of_stream(*streams).values_list("position", "stream_id", "session_id", "event_type")
    for position, stream, session_id, name in sorted(events):
        if session_id and name in _WRITTEN:
            written[int(stream.partition(":")[2])] = position, session_id
    return written


def _bound_to_code(states: Mapping[LearntEntry, BranchStatus], tree: WorkingTree) -> list[LearntEntry]:
    if not states:
        return []
    anchors: dict[int, list[str]] = {}
    for entity_id, path in rows.fetch(_ANCHORED, [json_list([row.id for row in states])]):
        anchors.setdefault(entity_id, []).append(path)
    # What an unmerged branch knows of files that it left as HEAD has them holds here too
    files = {row: {(row.commit, path) for path in anchors[row.id]} for row in states if row.id in anchors}
    unmerged = [row for row in files if states[row] is BranchStatus.UNMERGED and not row.has_edits]
    unchanged = unchanged_files(tree, {file for row in unmerged for file in files[row]})
    untouched = {row for row in unmerged if unchanged.issuperset(files[row])}
    pending = [row for row in states if row in untouched or row not in files]
    documents = documents_of([row.id for row in pending])
    texts = {entity_id: f"{documents[entity_id]['title']}\n{text}" for entity_id, text in texts_of(documents).items()}
    free = set()
    for row in pending:
        text = texts.get(row.id, "")
        is_bound = row not in untouched
        if not _CODE.search(text):
            is_bound = states[row] is not BranchStatus.UNKNOWN and _is_about_work(text, row, tree)
        if not is_bound:
            free.add(row)
    return [row for row in states if row not in free]


def _is_about_work(text: str, row: LearntEntry, tree: WorkingTree) -> bool:
    changed, beside = _words_of_commits(tree, row.commit)
    if row.has_edits:
        changed |= _words_of_edits(row)
    return _is_about(text, changed, beside)


# Whether a text is about work with these words of its lines and the names of its files, and of the lines beside
def _is_about(text: str, changed: frozenset[str], beside: frozenset[str]) -> bool:
    score = 0.0
    for word, weight in _weights(text).items():
        if len(word) == 1:
            weight = VAGUE if word in "01" else PLAIN  # noqa: PLW2901
        if word in changed:
            score += weight
        elif word in beside:
            score += weight / 2
    return score >= PLAIN + _PER_DECADE * log10(max(1, len(changed) / _FEW_WORDS))


@lru_cache(maxsize=1_024)
def _weights(text: str) -> dict[str, float]:
    return words_of_text(text).weights


@lru_cache(maxsize=64)
def _words_of_commits(tree: WorkingTree, commit: str) -> tuple[frozenset[str], frozenset[str]]:
    changed: set[str] = set()
    beside: set[str] = set()
    for line in patches_of_branch(tree, commit).split("\n"):
        if line.startswith(("--- a/", "+++ b/")):
            changed |= words_of_code(PurePosixPath(line[6:]).stem)
        elif line.startswith(("+", "-")):
            changed |= words_of_code(line[1:])
        elif line.startswith((" ", "@@")):
            beside |= words_of_code(line.rpartition("@@")[2])
    return frozenset(changed), frozenset(beside)


def _words_of_edits(row: LearntEntry) -> frozenset[str]:
    position, session_id = _written([row]).get(row.id, (0, ""))
    edits = log.events().of_session(session_id).of_type(FILE_EDITED).window(up_to=position)
    changed: set[str] = set()
    for edit in read_events(edits.order_by("-position"), _MOST_EDITS):
        changed |= words_of_code(PurePosixPath(edit.payload["path"]).stem)
        changed.update(*map(words_of_code, edit.payload.get("change", "").split("\n")))
    return frozenset(changed)


def _mark(row: LearntEntry, state: BranchStatus, tree: WorkingTree) -> Mark:
    branch = f"branch {printable(one_line(row.branch, _MAX_NAME))}" if row.branch else f"commit {row.commit[:10]}"
    if state is BranchStatus.UNKNOWN:
        place = f"on {branch}" if row.branch else f"at {branch}"
        return Mark(MarkKind.BRANCH, f"learnt {place}; whether it is merged is not known", _UNKNOWN_WEIGHT)
    text = f"from {branch}, not merged"
    if state is BranchStatus.UNCOMMITTED:
        text = f"from uncommitted work on {branch}"
    elif row.branch and row.branch == tree.branch:
        text = f"from a commit that {branch} no longer has"
    return Mark(MarkKind.BRANCH, text, _UNMERGED_WEIGHT, withheld=True)
