"""Record the state of the working tree in which an entry is written, and the code that it is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memories.events import AnchorRecord, ProvenanceRecord
from memories.models import MemoryScope
from memoryhub.config.current_settings import current_folder
from memoryhub.core import log
from memoryhub.core.origin import current_origin
from sessions_app.events import COMMIT_RECORDED
from sessions_app.events.client import FILE_EDITED
from sessions_app.git.worktree import WorkingTree
from sessions_app.selectors import caller_tree

# What people write, and what was written elsewhere, was not learnt on the branch that is checked out
_NOT_LEARNT_HERE = frozenset({"admin", "cli", "import", "job"})


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where entries are written: the working tree, and the files that the session edited since its last commit."""

    tree: WorkingTree
    edited: Sequence[str]
    # Whether what is written now was learnt on the branch that is checked out
    is_learnt_here: bool


def current_workplace(scope: MemoryScope = MemoryScope.PROJECT) -> Workplace | None:
    """Return the caller's workplace; None outside a working tree, and for scopes wider than a project."""
    if scope in (MemoryScope.ORG, MemoryScope.GLOBAL):
        return None
    tree = caller_tree()
    if tree is None:
        return None
    origin = current_origin()
    # A script without a session and a folder works anywhere
    has_place = bool(origin.session_id or current_folder().directory)
    return Workplace(tree, _uncommitted_edits(), has_place and origin.source not in _NOT_LEARNT_HERE)


def provenance_of(text: str, workplace: Workplace | None) -> ProvenanceRecord | None:  # noqa: ARG001
    """Return where an entry with this text is learnt, and the code that it is about."""
    if workplace is None:
        return None
    anchors: list[AnchorRecord] = []
    tree = workplace.tree
    if workplace.is_learnt_here and tree.head:
        edits = bool(workplace.edited)
        return ProvenanceRecord(commit=tree.head, branch=tree.branch, has_edits=edits, anchors=anchors)
    return ProvenanceRecord(anchors=anchors) if anchors else None


def _uncommitted_edits() -> list[str]:
    session_id = current_origin().session_id
    if not session_id:
        return []
    events = log.events().of_session(session_id)
    committed = events.of_type(COMMIT_RECORDED).order_by("-position").values_list("position", flat=True).first() or 0
    edits = events.of_type(FILE_EDITED).window(after=committed).payloads()
    return list(dict.fromkeys(edit["path"] for edit in edits.values()))
