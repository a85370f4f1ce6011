"""Find out whether work that was done on a branch is part of what a working tree has checked out.

It is if its commit is an ancestor of HEAD, or if HEAD has the same change by another commit: after a rebase, a
cherry-pick, an amendment, or as a part of one commit that the branch was squashed to.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from memoryhub.core.errors import Unavailable
from memoryhub.core.foreign_files import read_foreign
from sessions_app.git.commits import DIFF_OPTIONS
from sessions_app.git.patches import (
    CommitChange,
    Content,
    Pair,
    Patch,
    is_in_files,
    is_most,
    read_changes_of,
    read_patches_of,
)
from sessions_app.git.process import MAIN_BRANCHES, run, text_of
from sessions_app.git.worktree import WorkingTree, branch_tip, main_of_remote

# Seconds for all questions at once, and bytes of one answer
_SECONDS, _MAX_OUTPUT = 2.0, 16 * 2**20
# Calls of git that fail, as each may in a partial clone, before no more are made
_MOST_FAILURES = 8
# What git could not tell is asked again after so many seconds
_AGAIN_SECONDS = 60.0
_MOST_CACHED = 20_000
# Commits of HEAD that are compared with a branch, and those whose lines are
_MOST_COMMITS, _MOST_CANDIDATES = 5_000, 40
_PATCHES = ("log", "--no-merges", "--patch", "--max-count=200", "--format=@@ %s", *DIFF_OPTIONS)
_MAX_TEXT = 2**20
_SHALLOW_BYTES = 2**20
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
# What git allows in the name of a branch, without what a pattern could mean
_BRANCH_NAME = re.compile(r"(?!-)[^\s~^:?*\[\\\x00-\x20\x7f]{1,250}")


# Git takes `./` and `../` from the folder that it works in
_PATH = re.compile(r"(?!\.{0,2}/)[^\n\0]+")


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


_Key = tuple[str, str, BranchWork, str]
# Answers, and until when one holds: for ever if git could tell
_states: dict[_Key, tuple[BranchStatus, float]] = {}
_unchanged: dict[tuple[str, str, str], bool] = {}
_changes: dict[tuple[str, str, str], CommitChange] = {}
# The last HEAD of a working tree, and commits that it has
_merged: dict[Path, tuple[str, set[str]]] = {}


def branch_states(
    tree: WorkingTree, works: Collection[BranchWork], every_work: Callable[[], Collection[BranchWork]] = tuple
) -> dict[BranchWork, BranchStatus]:
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


def main_of(tree: WorkingTree) -> tuple[str, str] | None:
    """Return the newest commit and the name of the main branch: that of the remote, or of the usual names."""
    for name in filter(None, (main_of_remote(tree), *MAIN_BRANCHES)):
        if tip := branch_tip(tree, name):
            return tip, name
    return None


def patches_of_branch(tree: WorkingTree, commit: str) -> str:
    """Return the beginning of the patches of a commit and those before it, as far as HEAD lacks them.

    Before each patch is a line with the subject of its commit, which begins with ``@@``.
    """
    if not _SHA.fullmatch(commit) or not tree.head:
        return ""
    output = _Git(tree).ask((*_PATCHES, commit, "--not", tree.head, "--")) or b""
    return text_of(output[:_MAX_TEXT])


def unchanged_files(tree: WorkingTree, files: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the files, as commits and paths, that are in HEAD exactly as they were in the commit."""
    asked = [(sha, path) for sha, path in dict.fromkeys(files) if _SHA.fullmatch(sha) and _PATH.fullmatch(path)]
    unread = [file for file in asked if (tree.head, *file) not in _unchanged]
    if unread and tree.head:
        names = "".join(f"{sha}:{path}\n{tree.head}:{path}\n" for sha, path in unread)
        output = _Git(tree).ask(("cat-file", "--batch-check=%(objectname)"), os.fsencode(names)) or b""
        names_of_contents = output.split(b"\n")
        if len(names_of_contents) == 2 * len(unread) + 1:
            pairs = zip(names_of_contents[::2], names_of_contents[1::2], strict=False)
            _unchanged.update({(tree.head, *file): old == new for file, (old, new) in zip(unread, pairs, strict=True)})
    return {file for file in asked if _unchanged.get((tree.head, *file))}


def _cached_state(tree: WorkingTree, work: BranchWork) -> BranchStatus | None:
    if work.commit == tree.head and not _is_elsewhere(tree, work):
        return BranchStatus.MERGED
    state, until = _states.get(_key(tree, work), (None, 0.0))
    if until and until < time.monotonic():
        return None
    return state


def _store(tree: WorkingTree, decided: dict[BranchWork, BranchStatus]) -> None:
    for cache in (_states, _unchanged, _changes, _merged):
        if len(cache) + len(decided) > _MOST_CACHED:
            cache.clear()
    for work, state in decided.items():
        until = time.monotonic() + _AGAIN_SECONDS if state is BranchStatus.UNKNOWN else 0.0
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
class _Subject:
    """A commit that HEAD lacks, the newest commit of its branch that is known, and where both leave HEAD's history."""

    sha: str
    base: str
    tip: str
    base_of_tip: str

    def pairs(self) -> list[Pair]:
        """Return what may be in HEAD as one commit: the commit itself, and the branch up to it and up to its tip."""
        pairs = [(self.sha, "")]
        pairs += [(sha, base) for sha, base in ((self.sha, self.base), (self.tip, self.base_of_tip)) if base]
        return list(dict.fromkeys(pairs))


@dataclass(slots=True)
class _History:
    """The commits that HEAD has since a branch left it, and what they change."""

    changes: dict[str, CommitChange]
    # False for the history of a shallow clone that ends before, and one that is too long
    is_complete: bool
    contents: set[Content] = field(default_factory=set)
    _by_path: dict[bytes, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for sha, change in self.changes.items():
            self.contents.add(change.content)
            for path in change.files:
                self._by_path.setdefault(path, set()).add(sha)

    def touching(self, change: CommitChange) -> list[str]:
        """Return the commits that change nearly all files of a change, those with the fewest files first."""
        counts = Counter(sha for path in change.files for sha in self._by_path.get(path, ()))
        commits = [sha for sha, count in counts.items() if is_most(count, len(change.files))]
        return sorted(commits, key=lambda sha: (len(self.changes[sha].files), sha))

    def touches(self, change: CommitChange) -> bool:
        """Return whether nearly all files of a change were changed since, as they were if HEAD has the change."""
        return is_most(sum(path in self._by_path for path in change.files), len(change.files))


class _RecentCommits:
    """The newest commits of HEAD with their parents."""

    def __init__(self, output: bytes | None) -> None:
        lines = (output or b"").decode("ascii").splitlines()
        self._parents = {sha: parents for sha, *parents in (line.split(" ") for line in lines)}
        self._has_all = output is not None and len(lines) < _MOST_COMMITS
        # Numbers from the newest
        self.ages = {sha: age for age, sha in enumerate(self._parents)}

    def since(self, base: str) -> tuple[list[str], bool]:
        """Return the commits that are no merges and that HEAD has besides a base, and whether these are all."""
        before, pending = {base}, [base]
        while pending:
            for parent in self._parents.get(pending.pop(), ()):
                if parent not in before:
                    before.add(parent)
                    pending.append(parent)
        commits = [sha for sha, parents in self._parents.items() if sha not in before and len(parents) < 2]
        return commits, self._has_all or base in self._parents


class _Decisions:
    def __init__(self, tree: WorkingTree) -> None:
        self._tree = tree
        self._git = _Git(tree)
        # Commits that HEAD lacks, with their parents
        self._parents: dict[str, list[str]] = {}
        self._bases: dict[str, str] = {}
        self._common = str(tree.common_dir)
        self._histories: dict[str, _History] = {}
        self._patches: dict[Pair, Patch] = {}
        # Where a shallow clone ends: what these changed is not known
        self._shallow = _shallow_commits(tree)

    def of(self, works: Collection[BranchWork]) -> dict[BranchWork, BranchStatus]:
        states = dict.fromkeys(works, BranchStatus.UNKNOWN)
        valid = [work for work in works if _SHA.fullmatch(work.commit)]
        if not self._tree.head or not valid:
            return states
        tips = {work: branch_tip(self._tree, work.branch) or "" for work in valid if _is_elsewhere(self._tree, work)}
        present = self._present_among({work.commit for work in valid}, set(filter(None, tips.values())))
        subjects: dict[BranchWork, str] = {}
        for work in valid:
            if work.commit not in present:
                continue
            decided = self._decided_by_ancestry(work, tips.get(work, ""))
            if isinstance(decided, BranchStatus):
                states[work] = decided
            else:
                subjects[work] = decided
        by_commit = self._compared({sha: work.branch for work, sha in subjects.items()})
        return states | {work: by_commit.get(sha, BranchStatus.UNKNOWN) for work, sha in subjects.items()}

    # The commits that git knows. Those that HEAD had before are not asked for again if it still has the one before.
    def _present_among(self, commits: set[str], tips: set[str]) -> set[str]:
        head, merged = _merged.get(self._tree.top, ("", set[str]()))
        if head and self._git.ask(("merge-base", "--is-ancestor", head, self._tree.head)) is None:
            merged = set()
        unread = commits - merged
        if not self._read_parents(unread | tips):
            return commits & merged
        absent = unread.difference(self._parents)
        if absent:
            output = self._git.ask(("rev-list", "--no-walk=unsorted", "--ignore-missing", *absent)) or b""
            merged = merged | absent.intersection(output.decode("ascii").split())
        _merged[self._tree.top] = self._tree.head, merged
        return commits.intersection(merged.union(self._parents))

    # Children come before their parents
    def _read_parents(self, shas: Collection[str]) -> bool:
        if not shas:
            return True
        head = self._tree.head
        output = self._git.ask(("rev-list", "--topo-order", "--parents", "--ignore-missing", *shas, "--not", head))
        lines = (output or b"").decode("ascii").splitlines()
        self._parents = {sha: parents for sha, *parents in (line.split(" ") for line in lines)}
        return output is not None

    # The state, or the commit that HEAD has to be compared with
    def _decided_by_ancestry(self, work: BranchWork, tip: str) -> BranchStatus | str:
        if work.commit in self._parents:
            return work.commit
        if tip == work.commit:
            return BranchStatus.UNCOMMITTED
        if tip not in self._parents:
            return BranchStatus.MERGED
        # The edits are in the branch's next commit, which is none of these if it was rebased since
        following = [sha for sha in self._line_of(tip, set()) if work.commit in self._parents[sha]]
        return following[0] if following else BranchStatus.UNKNOWN

    def _line_of(self, tip: str, visited: set[str]) -> set[str]:
        """Return the commits of a branch up to its tip that HEAD lacks, without those visited before."""
        line, pending = {tip}, [tip]
        while pending:
            for parent in self._parents[pending.pop()]:
                if parent in self._parents and parent not in visited and parent not in line:
                    line.add(parent)
                    pending.append(parent)
        return line

    # Where a commit leaves HEAD's history; "" if it shares nothing with it. Of several places the newest is taken, as
    # a merge base is.
    def _base_of(self, sha: str) -> str:
        pending = [sha]
        while sha not in self._bases:
            parents = self._parents[pending[-1]]
            unread = [parent for parent in parents if parent in self._parents and parent not in self._bases]
            if unread:
                pending += unread
                continue
            bases = {self._bases.get(parent, parent) for parent in parents} - {""}
            self._bases[pending.pop()] = min(bases, key=self._age) if len(bases) > 1 else "".join(bases)
        return self._bases[sha]

    def _age(self, sha: str) -> tuple[int, str]:
        return self._recent.ages.get(sha, _MOST_COMMITS), sha

    def _compared(self, branches: dict[str, str]) -> dict[str, BranchStatus]:
        """Map commits that HEAD lacks to their states, given their branches."""
        if not branches:
            return {}
        tips = self._tips_of(set(branches.values()))
        if not self._read_parents(set(branches).union(*tips.values())):
            return {}
        subjects = self._subjects(branches, tips)
        candidates = [subject for subject in subjects if self._history(subject.base).changes]
        self._read_changes((subject.sha, "") for subject in candidates)
        # Without a commit that touches the same files, HEAD has no commit of the whole branch either
        touched = filter(self._is_touched, candidates)
        self._read_changes(pair for subject in touched for pair in subject.pairs())
        states = {subject.sha: self._by_names(subject) for subject in subjects}
        open_subjects = [subject for subject in subjects if states[subject.sha] is None]
        pairs: dict[Pair, None] = {}
        for subject in open_subjects:
            for pair, shas in self._candidates(subject).items():
                pairs |= dict.fromkeys([pair, *((sha, "") for sha in shas)])
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

    # The newest commit of a branch is that of a ref, or the newest one that is asked for
    def _subjects(self, branches: dict[str, str], tips: dict[str, list[str]]) -> list[_Subject]:
        names: dict[str, set[str]] = {}
        tip_names = [(branch, sha) for branch, shas in tips.items() for sha in shas]
        for branch, sha in [*((branch, sha) for sha, branch in branches.items()), *tip_names]:
            names.setdefault(sha, set()).add(branch)
        visited: dict[str, set[str]] = {}
        subjects = []
        for tip in self._parents:
            for branch in names.get(tip, ()):
                seen = visited.setdefault(branch, set())
                if tip in seen:
                    continue
                line = self._line_of(tip, seen)
                seen |= line
                for sha in line:
                    if branches.get(sha) == branch and sha not in self._shallow:
                        subjects.append(_Subject(sha, self._base_of(sha), tip, self._base_of(tip)))
        return subjects

    def _history(self, base: str) -> _History:
        if base not in self._histories:
            shas, is_complete = self._recent.since(base)
            self._read_changes((sha, "") for sha in shas if sha not in self._shallow)
            changes = {sha: change for sha in shas if (change := self._change((sha, "")))}
            is_complete = is_complete and len(changes) == len(shas)
            self._histories[base] = _History(changes, is_complete)
        return self._histories[base]

    def _read_changes(self, pairs: Iterable[Pair]) -> None:
        unread = [pair for pair in dict.fromkeys(pairs) if (self._common, *pair) not in _changes]
        if unread:
            changes = read_changes_of(self._git.ask, unread)
            _changes.update({(self._common, *pair): change for pair, change in changes.items()})

    def _change(self, pair: Pair) -> CommitChange | None:
        return _changes.get((self._common, *pair))

    @cached_property
    def _recent(self) -> _RecentCommits:
        command = ("rev-list", "--parents", f"--max-count={_MOST_COMMITS}", self._tree.head)
        return _RecentCommits(self._git.ask(command))

    def _is_touched(self, subject: _Subject) -> bool:
        change = self._change((subject.sha, ""))
        return change is None or not change.files or self._history(subject.base).touches(change)

    # None where the lines have to be compared
    def _by_names(self, subject: _Subject) -> BranchStatus | None:
        history = self._history(subject.base)
        changes = list(filter(None, map(self._change, subject.pairs())))
        if any(change.content in history.contents for change in changes if change.files):
            return BranchStatus.MERGED
        if any(map(history.touches, changes)):
            return None
        return self._not_in(history, subject)

    # What git could not read might have shown that it is merged
    def _not_in(self, history: _History, subject: _Subject) -> BranchStatus:
        is_read = not history.changes or not self._is_touched(subject) or all(map(self._change, subject.pairs()))
        if history.is_complete and is_read:
            return BranchStatus.UNMERGED
        return BranchStatus.UNKNOWN

    def _candidates(self, subject: _Subject) -> dict[Pair, list[str]]:
        history = self._history(subject.base)
        candidates: dict[Pair, list[str]] = {}
        for pair in subject.pairs():
            change = self._change(pair)
            if change and history.touches(change):
                candidates[pair] = history.touching(change)[:_MOST_CANDIDATES]
        return candidates

    def _by_lines(self, subject: _Subject) -> BranchStatus:
        history, is_unread = self._history(subject.base), False
        for pair, shas in self._candidates(subject).items():
            patch = self._patches.get(pair)
            for sha in shas:
                other = self._patches.get((sha, ""))
                if patch is None or other is None:
                    is_unread = True
                elif patch.is_part_of(other) or self._is_rewritten(pair, patch, sha, other):
                    return BranchStatus.MERGED
        change = self._change((subject.sha, subject.base))
        if change and history.touches(change):
            is_present = is_in_files(self._git.ask, change, self._tree.head)
            if is_present:
                return BranchStatus.MERGED
            is_unread |= is_present is None
        return BranchStatus.UNKNOWN if is_unread else self._not_in(history, subject)

    # A rebase with conflicts and an amendment leave author, time and subject, and most of the lines
    def _is_rewritten(self, pair: Pair, patch: Patch, sha: str, other: Patch) -> bool:
        change, change_of_head = self._change(pair), self._change((sha, ""))
        if not change or not change_of_head or change.identity != change_of_head.identity:
            return False
        return not pair[1] and 2 * len(patch.added & other.added) > len(patch.added)


def _shallow_commits(tree: WorkingTree) -> frozenset[str]:
    try:
        return frozenset(read_foreign(tree.common_dir / "shallow", limit=_SHALLOW_BYTES).decode("ascii").split())
    except (OSError, ValueError):
        return frozenset()
