"""Find out whether work that was done on a branch is part of what a working tree has checked out.

It is if its commit is an ancestor of HEAD, or if HEAD has the same change by another commit: after a rebase, a
cherry-pick, an amendment, or as a part of one commit that the branch was squashed to.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from memoryhub.core.errors import Unavailable
from memoryhub.core.foreign_files import read_foreign
from sessions_app.git.patches import Change, Content, Pair, Patch, is_in_files, read_changes_of, read_patches_of
from sessions_app.git.process import run
from sessions_app.git.worktree import WorkingTree, branch_tip

# Seconds for all questions at once, and bytes of one answer
_SECONDS, _MAX_OUTPUT = 2.0, 16 * 2**20
# Calls of git that fail, as each may in a partial clone, before no more are made
_MOST_FAILURES = 8
# What git could not tell is asked again after so many seconds
_AGAIN_SECONDS = 60.0
_MOST_CACHED = 20_000
# Commits of HEAD that are compared with a branch, and those whose lines are
_MOST_COMMITS, _MOST_CANDIDATES = 5_000, 40
_SHALLOW_BYTES = 2**20
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
# What git allows in the name of a branch, without what a pattern could mean
_BRANCH_NAME = re.compile(r"(?!-)[^\s~^:?*\[\\\x00-\x20\x7f]{1,250}")


class BranchStatus(StrEnum):
    MERGED = "merged"
    # Edited on another branch, whose newest commit is still the one before
    UNCOMMITTED = "uncommitted"
    UNMERGED = "unmerged"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class BranchWork:
    """The commit that was checked out at some work, its branch, and whether files were edited and not committed."""

    commit: str
    branch: str = ""
    has_edits: bool = False


@dataclass(frozen=True, slots=True)
class BranchState:
    status: BranchStatus
    # Files that an unmerged branch changes, from the top of the repository
    paths: frozenset[str] = frozenset()


_MERGED, _UNKNOWN = BranchState(BranchStatus.MERGED), BranchState(BranchStatus.UNKNOWN)
_Key = tuple[str, str, BranchWork, str]
# Answers, and until when one holds: for ever if git could tell
_states: dict[_Key, tuple[BranchState, float]] = {}
_changes: dict[tuple[str, str, str], Change] = {}
_present: set[tuple[str, str]] = set()


def branch_states(
    tree: WorkingTree, works: Collection[BranchWork], every_work: Callable[[], Collection[BranchWork]] = tuple
) -> dict[BranchWork, BranchState]:
    """Map works to their states in a working tree; git is only asked about what it was not asked before.

    Args:
        tree: where the caller works.
        works: what is asked for.
        every_work: returns all that may be asked for later, which git is then asked about with the same calls.
    """
    states = {work: state for work in works if (state := _cached_state(tree, work))}
    if len(states) < len(set(works)):
        pending = [work for work in {*works, *every_work()} if _cached_state(tree, work) is None]
        decided = _Decisions(tree).of(pending)
        _store(tree, decided)
        states |= {work: decided[work] for work in works if work in decided}
    return states


def dropped_commits(tree: WorkingTree, commits: Collection[str]) -> set[str]:
    """Return the commits that git knows and no branch, tag or working tree holds; none if git fails to tell."""
    shas = [sha for sha in commits if _SHA.fullmatch(sha)]
    if not shas:
        return set()
    output = _Git(tree).ask(("rev-list", "--ignore-missing", *shas, "--not", "--all"))
    return set(shas).intersection((output or b"").decode("ascii").split())


def _cached_state(tree: WorkingTree, work: BranchWork) -> BranchState | None:
    if work.commit == tree.head and not _is_elsewhere(tree, work):
        return _MERGED
    state, until = _states.get(_key(tree, work), (None, 0.0))
    return state if not until or until > time.monotonic() else None


def _store(tree: WorkingTree, decided: dict[BranchWork, BranchState]) -> None:
    for cache in (_states, _changes, _present):
        if len(cache) + len(decided) > _MOST_CACHED:
            cache.clear()
    for work, state in decided.items():
        until = time.monotonic() + _AGAIN_SECONDS if state.status is BranchStatus.UNKNOWN else 0.0
        _states[_key(tree, work)] = state, until


# What is not committed is gone from its branch with the next commit
def _key(tree: WorkingTree, work: BranchWork) -> _Key:
    tip = branch_tip(tree, work.branch) or "" if _is_elsewhere(tree, work) else ""
    return str(tree.common_dir), tree.head, work, tip


def _is_elsewhere(tree: WorkingTree, work: BranchWork) -> bool:
    return work.has_edits and work.branch not in ("", tree.branch)


class _Git:
    """Questions to git, which end together at a time."""

    def __init__(self, tree: WorkingTree) -> None:
        self._top = tree.top
        self._until = time.monotonic() + _SECONDS
        self._failures = 0

    def ask(self, command: Sequence[str], standard_input: bytes = b"") -> bytes | None:
        seconds = self._until - time.monotonic()
        if seconds <= 0 or self._failures >= _MOST_FAILURES:
            return None
        try:
            answer = run(self._top, *command, standard_input=standard_input, max_output=_MAX_OUTPUT, seconds=seconds)
        except Unavailable:
            self._failures += 1
            return None
        if answer.returncode:
            self._failures += 1
            return None
        return answer.stdout


@dataclass(slots=True)
class _Line:
    """The commits of a branch up to one of them that HEAD lacks, and where they leave HEAD's history."""

    commits: set[str]
    base: str


@dataclass(slots=True)
class _Subject:
    """A commit that HEAD lacks, with the newest commit of its branch that is known."""

    sha: str
    line: _Line
    tip: str
    tip_line: _Line

    def pairs(self) -> list[Pair]:
        """Return what may be in HEAD as one commit: the commit itself, and the branch up to it and up to its tip."""
        pairs = [(self.sha, "")]
        pairs += [(sha, line.base) for sha, line in ((self.sha, self.line), (self.tip, self.tip_line)) if line.base]
        return list(dict.fromkeys(pairs))


@dataclass(slots=True)
class _History:
    """The commits that HEAD has since a branch left it, and what they change."""

    changes: dict[str, Change]
    # False for the history of a shallow clone that ends before, and one that is too long
    is_complete: bool
    contents: set[Content] = field(default_factory=set)
    _by_path: dict[bytes, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for sha, change in self.changes.items():
            self.contents.add(change.content)
            for path in change.files:
                self._by_path.setdefault(path, set()).add(sha)

    def touching(self, change: Change) -> list[str]:
        """Return the commits that change all files of a change, those with the fewest files first."""
        commits = set.intersection(*(self._by_path.get(path, set()) for path in change.files))
        return sorted(commits, key=lambda sha: (len(self.changes[sha].files), sha))


class _Decisions:
    def __init__(self, tree: WorkingTree) -> None:
        self._tree = tree
        self._git = _Git(tree)
        # Commits that HEAD lacks, with their parents
        self._parents: dict[str, list[str]] = {}
        self._lines: dict[str, _Line] = {}
        self._common = str(tree.common_dir)
        self._histories: dict[str, _History] = {}
        self._patches: dict[Pair, Patch] = {}
        self._shallow = _shallow_commits(tree)

    def of(self, works: Collection[BranchWork]) -> dict[BranchWork, BranchState]:
        states = dict.fromkeys(works, _UNKNOWN)
        valid = [work for work in works if _SHA.fullmatch(work.commit)]
        if not self._tree.head or not valid:
            return states
        tips = {work: branch_tip(self._tree, work.branch) or "" for work in valid if _is_elsewhere(self._tree, work)}
        if not self._read_parents([*(work.commit for work in valid), *filter(None, tips.values())]):
            return states
        present = self._present_among([work.commit for work in valid])
        subjects: dict[BranchWork, str] = {}
        for work in valid:
            if work.commit not in present:
                continue
            decided = self._decided_by_ancestry(work, tips.get(work, ""))
            if isinstance(decided, BranchState):
                states[work] = decided
            else:
                subjects[work] = decided
        by_commit = self._compared({sha: work.branch for work, sha in subjects.items()})
        return states | {work: by_commit.get(sha, _UNKNOWN) for work, sha in subjects.items()}

    def _read_parents(self, shas: Iterable[str]) -> bool:
        names = [sha for sha in dict.fromkeys(shas) if sha not in self._parents]
        if not names:
            return True
        output = self._git.ask(("rev-list", "--parents", "--ignore-missing", *names, "--not", self._tree.head))
        for line in (output or b"").decode("ascii").splitlines():
            sha, *parents = line.split(" ")
            self._parents[sha] = parents
        return output is not None

    def _present_among(self, shas: Sequence[str]) -> set[str]:
        present = {sha for sha in shas if sha in self._parents or (self._common, sha) in _present}
        absent = [sha for sha in dict.fromkeys(shas) if sha not in present]
        if absent:
            output = self._git.ask(("rev-list", "--no-walk=unsorted", "--ignore-missing", *absent)) or b""
            present.update(output.decode("ascii").split())
        _present.update((self._common, sha) for sha in present)
        return present

    # The state, or the commit that HEAD has to be compared with
    def _decided_by_ancestry(self, work: BranchWork, tip: str) -> BranchState | str:
        if work.commit in self._parents:
            return work.commit
        if tip == work.commit:
            return BranchState(BranchStatus.UNCOMMITTED)
        if tip not in self._parents:
            return _MERGED
        # The edits are in the branch's next commit, which is none of these if it was rebased since
        following = [sha for sha in self._line_to(tip).commits if work.commit in self._parents[sha]]
        return following[0] if following else _UNKNOWN

    def _line_to(self, tip: str) -> _Line:
        if tip not in self._lines:
            commits, outside, pending = {tip}, set[str](), [tip]
            while pending:
                for parent in self._parents[pending.pop()]:
                    if parent not in self._parents:
                        outside.add(parent)
                    elif parent not in commits:
                        commits.add(parent)
                        pending.append(parent)
            self._lines[tip] = _Line(commits, self._base(tip, outside))
        return self._lines[tip]

    # "" for a history that shares nothing with HEAD
    def _base(self, tip: str, outside: set[str]) -> str:
        if len(outside) < 2:
            return next(iter(outside), "")
        output = self._git.ask(("merge-base", tip, self._tree.head))
        return (output or b"").decode("ascii").strip()

    def _compared(self, branches: dict[str, str]) -> dict[str, BranchState]:
        """Map commits that HEAD lacks to their states, given their branches."""
        if not branches:
            return {}
        tips = self._tips_of(set(branches.values()))
        self._read_parents(tip for shas in tips.values() for tip in shas)
        subjects = [self._subject(sha, branch, branches, tips) for sha, branch in branches.items()]
        self._read_changes([pair for subject in subjects for pair in subject.pairs()])
        states = {subject.sha: self._by_names(subject) for subject in subjects}
        open_subjects = [subject for subject in subjects if states[subject.sha] is None]
        pairs: dict[Pair, None] = {}
        for subject in open_subjects:
            pairs |= dict.fromkeys([*subject.pairs(), *((sha, "") for sha in self._candidates(subject))])
        self._patches = read_patches_of(self._git.ask, list(pairs))
        states |= {subject.sha: self._by_lines(subject) for subject in open_subjects}
        return {sha: state for sha, state in states.items() if state}

    def _tips_of(self, branches: set[str]) -> dict[str, list[str]]:
        names = sorted(name for name in branches if _BRANCH_NAME.fullmatch(name))
        tips: dict[str, list[str]] = {}
        if not names:
            return tips
        patterns = [pattern for name in names for pattern in (f"refs/heads/{name}", f"refs/remotes/*/{name}")]
        output = self._git.ask(("for-each-ref", "--format=%(objectname) %(refname)", *patterns)) or b""
        for line in os.fsdecode(output).splitlines():
            sha, _, ref = line.partition(" ")
            _, kind, name = ref.split("/", 2)
            name = name if kind == "heads" else name.partition("/")[2]
            tips.setdefault(name, []).append(sha)
        return tips

    def _subject(self, sha: str, branch: str, branches: dict[str, str], tips: dict[str, list[str]]) -> _Subject:
        line = self._line_to(sha)
        later = [*tips.get(branch, ()), *(other for other, name in branches.items() if name == branch)]
        lines = {tip: self._line_to(tip) for tip in later if tip in self._parents}
        tip = max((tip for tip in lines if sha in lines[tip].commits), key=lambda tip: len(lines[tip].commits))
        return _Subject(sha, line, tip, lines[tip])

    def _history(self, base: str) -> _History:
        if base not in self._histories:
            window = [self._tree.head]
            if base:
                window += ["--not", base]
            output = self._git.ask(("rev-list", "--no-merges", f"--max-count={_MOST_COMMITS}", *window))
            shas = (output or b"").decode("ascii").split()
            self._read_changes((sha, "") for sha in shas)
            changes = {sha: change for sha in shas if (change := self._change((sha, "")))}
            is_complete = output is not None and len(changes) == len(shas) < _MOST_COMMITS
            self._histories[base] = _History(changes, is_complete and self._shallow.isdisjoint(shas))
        return self._histories[base]

    def _read_changes(self, pairs: Iterable[Pair]) -> None:
        unread = [pair for pair in dict.fromkeys(pairs) if (self._common, *pair) not in _changes]
        if unread:
            changes = read_changes_of(self._git.ask, unread)
            _changes.update({(self._common, *pair): change for pair, change in changes.items()})

    def _change(self, pair: Pair) -> Change | None:
        return _changes.get((self._common, *pair))

    # None where the lines have to be compared
    def _by_names(self, subject: _Subject) -> BranchState | None:
        history = self._history(subject.line.base)
        changes = map(self._change, subject.pairs())
        if any(change.content in history.contents for change in changes if change and change.files):
            return _MERGED
        return None

    def _candidates(self, subject: _Subject) -> list[str]:
        history = self._history(subject.line.base)
        candidates: list[str] = []
        for change in map(self._change, subject.pairs()):
            if change and change.files:
                candidates += history.touching(change)[:_MOST_CANDIDATES]
        return list(dict.fromkeys(candidates))

    def _by_lines(self, subject: _Subject) -> BranchState:
        history = self._history(subject.line.base)
        candidates = self._candidates(subject)
        patches = [self._patches.get(pair) for pair in subject.pairs()]
        patches_of_head = [self._patches.get((sha, "")) for sha in candidates]
        for patch in filter(None, patches):
            if any(patch.is_part_of(other) for other in patches_of_head if other):
                return _MERGED
        own, own_change = patches[0], self._change((subject.sha, ""))
        for sha, other in zip(candidates, patches_of_head, strict=True):
            is_rewritten = own_change and history.changes[sha].identity == own_change.identity
            if own and other and is_rewritten and 2 * len(own.added & other.added) > len(own.added):
                return _MERGED
        change = self._change((subject.sha, subject.line.base))
        is_present = change and is_in_files(self._git.ask, change, self._tree.head)
        if is_present:
            return _MERGED
        if is_present is None or None in (*patches, *patches_of_head) or not history.is_complete:
            return _UNKNOWN
        return BranchState(BranchStatus.UNMERGED, frozenset(map(os.fsdecode, change.files if change else ())))


def _shallow_commits(tree: WorkingTree) -> frozenset[str]:
    try:
        return frozenset(read_foreign(tree.common_dir / "shallow", limit=_SHALLOW_BYTES).decode("ascii").split())
    except (OSError, ValueError):
        return frozenset()
