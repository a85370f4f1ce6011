"""What the working tree has against entries: the code that they are about has changed, or their branch was dropped."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import NamedTuple

from governance.staleness.governed_files import LIVE_DECISION, LIVE_MEMORY, fetch_among, short_diff
from governance.staleness.schemas import Why
from memories.models import CodeAnchor
from memories.validity.anchoring import record_of
from memories.validity.branches import dropped_entries
from memories.validity.freshness import State, check, clause_of
from memories.validity.models import Provenance
from memoryhub.core import clock, log
from memoryhub.core.errors import Unavailable
from memoryhub.core.foreign_files import read_foreign
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import greatest
from memoryhub.core.stores.store import StoreId, current_store
from sessions_app import git
from sessions_app.git.worktree import WorkingTree


class Reason(NamedTuple):
    """Why an item is stale, and since when."""

    why: Why
    # In the store's format, which compares and sorts; parsed only for display
    since: str
    says: str
    # A file or a branch, whose entries are judged together
    name: str = ""

    @property
    def moment(self) -> datetime:
        return moment_of(self.since)


TreeReasons = dict[int, list[Reason]]
# Edits that are not committed are noticed after that time
_MOST_AGE = timedelta(minutes=3)
_MOST_CACHED = 8
_ENTRIES = ("memory", "decision")


@dataclass(slots=True)
class _Comparison:
    """What a working tree has against the entries of a store, in force or not."""

    at: datetime
    # Position of the last event before it
    position: int
    differences: dict[int, list[_Difference]]
    # The branch, "" for a detached HEAD
    dropped: dict[int, str]


_comparisons: dict[tuple[StoreId, WorkingTree], _Comparison] = {}


def tree_reasons(tree: WorkingTree | None, among: Collection[int] | None = None) -> TreeReasons:
    """Map entries in force, all or some, to what the working tree has against them.

    For all, every anchor of the store is compared. That is repeated when HEAD moves and after three minutes; before,
    only entries that have events since are compared again.
    """
    if tree is None:
        return {}
    if among is not None:
        return _reasons(_differences(tree, among), _dropped(tree, among), tree)
    comparison = _comparison(tree)
    return _reasons(comparison.differences, comparison.dropped, tree)


def _comparison(tree: WorkingTree) -> _Comparison:
    key = (current_store(), tree)
    now, position = clock.now(), log.head()[0]
    comparison = _comparisons.get(key)
    if comparison is None or abs(now - comparison.at) >= _MOST_AGE or position < comparison.position:
        _comparisons.pop(key, None)
        comparison = _Comparison(now, position, _differences(tree), _dropped(tree))
    elif position > comparison.position:
        comparison = _renewed(comparison, position, tree)
    _comparisons[key] = comparison
    while len(_comparisons) > _MOST_CACHED:
        _comparisons.pop(next(iter(_comparisons)), None)
    return comparison


def _renewed(comparison: _Comparison, position: int, tree: WorkingTree) -> _Comparison:
    streams = log.events().window(after=comparison.position).order_by().values_list("stream_id", flat=True).distinct()
    names = [stream.partition(":") for stream in streams]
    ids = {int(number) for kind, _, number in names if kind in _ENTRIES}
    if not ids:
        return replace(comparison, position=position)
    differences = {key: parts for key, parts in comparison.differences.items() if key not in ids}
    return _Comparison(comparison.at, position, differences | _differences(tree, ids), _dropped(tree))


def _differences(tree: WorkingTree, among: Collection[int] | None = None) -> dict[int, list[_Difference]]:
    commits = dict(Provenance.objects.values_list("id", "commit"))
    anchors = CodeAnchor.objects.order_by("entity_id", "number")
    if among is not None:
        anchors = anchors.filter(entity_id__in=among)
    differences: dict[int, list[_Difference]] = {}
    for anchor in anchors:
        finding = check(record_of(anchor), tree, commits.get(anchor.entity_id, ""))
        if finding.state in _WHY:
            difference = _Difference(_WHY[finding.state], anchor.path, clause_of(anchor, finding))
            differences.setdefault(anchor.entity_id, []).append(difference)
    return differences


def _dropped(tree: WorkingTree, among: Collection[int] | None = None) -> dict[int, str]:
    dropped: dict[int, str] = {}
    for branch, ids in dropped_entries(tree).items():
        dropped |= {entity_id: branch for entity_id in ids if among is None or entity_id in among}
    return dropped


def _reasons(differences: dict[int, list[_Difference]], dropped: dict[int, str], tree: WorkingTree) -> TreeReasons:
    reasons: TreeReasons = {}
    for entity_id, looked_at in _looked_at({*differences, *dropped}).items():
        against = []
        for why, path, says in differences.get(entity_id, ()):
            since = rows.time_value(max(looked_at, _touched_at(tree, path)))
            against.append(Reason(why, str(since), says, path))
        if entity_id in dropped:
            branch = dropped[entity_id]
            place = f"on the branch {branch}" if branch else f"on a {_DETACHED}"
            says = f"it was learnt {place}, which was dropped"
            against.append(Reason(Why.DROPPED, str(rows.time_value(looked_at)), says, branch or _DETACHED))
        reasons[entity_id] = against
    return reasons


# Label of a branch without a name
_DETACHED = "detached HEAD"
_WHY = {State.CHANGED: Why.CHANGED, State.GONE: Why.GONE}


class _Difference(NamedTuple):
    why: Why
    path: str
    says: str


# When the file, or the nearest folder that there still is, was written last
def _touched_at(tree: WorkingTree, path: str) -> datetime:
    for part in (path, *map(str, PurePosixPath(path).parents)):
        try:
            seconds = os.lstat(tree.top / part).st_mtime
        except (OSError, ValueError):
            continue
        return min(datetime.fromtimestamp(seconds, UTC), clock.now())
    return datetime.min.replace(tzinfo=UTC)


_AT = greatest("{at}", "coalesce(a.affirmed_at, {at})")
_LIVE = """
SELECT {id}, {looked_at} || '' FROM {table} LEFT JOIN governance_affirmation a ON a.entity_id = {id}
WHERE {live} {{among}}"""
_MEMORIES = _LIVE.format(
    id="m.id", looked_at=_AT.format(at="m.updated_at"), table="memories_memory m", live=LIVE_MEMORY
)
_DECISIONS = _LIVE.format(
    id="d.id", looked_at=_AT.format(at="d.decided_at"), table="decisions_decision d", live=LIVE_DECISION
)


def _looked_at(ids: Collection[int]) -> dict[int, datetime]:
    if not ids:
        return {}
    stored = [*fetch_among(_MEMORIES, "m.id", ids), *fetch_among(_DECISIONS, "d.id", ids)]
    return {entity_id: moment_of(at) for entity_id, at in stored}


def moment_of(stored: str) -> datetime:
    return clock.from_text(rows.time_text(stored))


# Bytes of a file whose changes are shown
_MAX_BYTES = 512 * 1024


def diff_of_file(tree: WorkingTree, path: str, ids: Sequence[int]) -> str | None:
    """Return how a file has changed since the first of some entries was learnt, as ``add_diffs`` shows commits.

    None where that commit is not known, or not in the repository.
    """
    commits = Provenance.objects.filter(id__in=ids).exclude(commit="").order_by("id")
    commit = commits.values_list("commit", flat=True).first()
    if commit is None:
        return None
    try:
        content = read_foreign(tree.top / path, limit=_MAX_BYTES)
    except FileNotFoundError:
        content = b""
    except OSError:
        return None
    try:
        diff = git.changes_since(tree.top, commit, path, content)
    except Unavailable:
        return None
    return None if diff is None else short_diff(diff)
