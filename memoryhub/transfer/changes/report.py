"""What a branch changes in the memory of a project: the entries that it adds, changes and removes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from memoryhub.transfer.authorship import Authorship


class ChangeKind(StrEnum):
    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class EntryText:
    title: str
    # Kind, type, tags or status
    facts: str
    text: str

    @property
    def lines(self) -> list[str]:
        return [f"# {self.title}", self.facts, "", *self.text.splitlines()]


@dataclass(frozen=True, slots=True)
class EntryChange:
    change: ChangeKind
    # ``memory`` or ``decision``
    thing: str
    # The number in the store, 0 if it is not known; and the file of a mirror
    id: int
    path: str
    before: EntryText | None
    after: EntryText | None
    authorship: Authorship
    # Whether it waits for a review
    is_proposed: bool = False
    # Authors of the commits of its file
    committers: Sequence[str] = ()
    # Whether it was learnt at a commit that the other end of the range lacks, or from edits that are not committed
    is_bound: bool = True
    # Versions of a memory in the store: the one before the range, and the last one of the range
    base_version: int = 0
    version: int = 0
    # The id that is the same in each hub, which its file names
    uid: str = ""

    @property
    def text(self) -> EntryText:
        text = self.after or self.before
        assert text is not None  # noqa: S101  (every change has one of them)
        return text


@dataclass(slots=True)
class ChangeReport:
    range: str
    base: str
    head: str
    branch: str
    # The folder of a mirror, "" for the store
    folder: str
    results: list[EntryChange] = field(default_factory=list)
    # Files that could not be read, with the reason
    unread: list[tuple[str, str]] = field(default_factory=list)
    # Files beyond the number that is read
    omitted: int = 0

    @property
    def counts(self) -> dict[str, int]:
        counted = Counter(change.change for change in self.results)
        return {kind.value: counted[kind] for kind in ChangeKind}
