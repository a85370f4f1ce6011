"""Record the state of the working tree in which an entry is written, and the code that it is about."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memories.events import GOVERNS, AnchorRecord, MemoryState, ProvenanceRecord
from memories.models import MemoryScope
from memories.validity.anchoring import anchors_named
from memories.validity.anchors import CodeChange, anchors_of_text, edits_of_commits
from memoryhub.config.current_settings import current_folder
from memoryhub.core import log
from memoryhub.core.log.quarantine import OUTSIDE
from memoryhub.core.origin import PERSONS_DOORS, current_origin
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import json_text
from sessions_app.events import COMMIT_RECORDED
from sessions_app.events.client import FILE_EDITED, TOOL_MESSAGE
from sessions_app.git.worktree import WorkingTree
from sessions_app.selectors import caller_tree

# What people write, and what was written elsewhere, was not learnt on the branch that is checked out
NOT_LEARNT_HERE = PERSONS_DOORS | {"cli", "import", "job"}


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where entries are written: the working tree, and what the session did there."""

    tree: WorkingTree
    # Whether the session edited files since its last commit
    has_edits: bool
    # Whether what is written now was learnt on the branch that is checked out
    is_learnt_here: bool
    # The newest edits of the session, committed or not, and the files that it read
    edits: Sequence[CodeChange] = ()
    # Whether git looks for the code that a note states; for many entries that would take too long
    searches: bool = True


def current_workplace(scope: MemoryScope = MemoryScope.PROJECT, *, searches: bool = True) -> Workplace | None:
    """Return the caller's workplace; None outside a working tree, and for scopes wider than a project."""
    if scope in (MemoryScope.ORG, MemoryScope.GLOBAL):
        return None
    tree = caller_tree()
    if tree is None:
        return None
    origin = current_origin()
    # A script without a session and a folder works anywhere
    has_place = bool(origin.session_id or current_folder().directory)
    is_learnt_here = has_place and origin.source not in NOT_LEARNT_HERE
    return Workplace(tree, _has_uncommitted_edits(), is_learnt_here, _newest_edits(), searches)


def provenance_of_memory(
    state: MemoryState, workplace: Workplace | None, names: Sequence[str] | None = None
) -> ProvenanceRecord | None:
    """Return where a memory with this text and these links is learnt, and the code that it is about."""
    files = [link.uri for link in state.resource_links if link.type == GOVERNS]
    return provenance_of(f"{state.title}\n\n{state.content}", workplace, files=files, names=names)


def provenance_of(
    text: str,
    workplace: Workplace | None,
    *,
    files: Sequence[str] = (),
    commits: Sequence[str] = (),
    names: Sequence[str] | None = None,
) -> ProvenanceRecord | None:
    """Return where an entry with this text is learnt, and the code that it is about.

    Args:
        text: of the entry.
        workplace: where it is written.
        files: paths that it governs.
        commits: full hashes of those that implement it; their changes count instead of the session's.
        names: the code that the caller names, such as ``src/auth.py:10-24``; it counts instead of all that is found.

    Raises:
        Invalid: there is no such code in the working tree.
    """
    anchors: list[AnchorRecord] = []
    if names is not None:
        anchors = anchors_named(names, text, workplace.tree if workplace else None)
    if workplace is None:
        return ProvenanceRecord(anchors=anchors) if names is not None else None
    tree = workplace.tree
    if names is None:
        edits = edits_of_commits(tree, commits) or workplace.edits
        anchors = anchors_of_text(text, tree, edits, files, searches=workplace.searches)
    if workplace.is_learnt_here and tree.head:
        return ProvenanceRecord(commit=tree.head, branch=tree.branch, has_edits=workplace.has_edits, anchors=anchors)
    if anchors or names is not None:
        return ProvenanceRecord(anchors=anchors)
    return None


def _has_uncommitted_edits() -> bool:
    session_id = current_origin().session_id
    if not session_id:
        return False
    events = log.events().of_session(session_id)
    committed = events.of_type(COMMIT_RECORDED).order_by("-position").values_list("position", flat=True).first() or 0
    return bool(events.of_type(FILE_EDITED).window(after=committed).readable().exists())


# An entry is about what its session did last
_MOST_EDITS = 40


def _newest_edits() -> list[CodeChange]:
    session_id = current_origin().session_id
    if not session_id:
        return []
    newest = log.events().of_session(session_id).of_type(FILE_EDITED).order_by("-position")[:_MOST_EDITS]
    edits: dict[str, list[str]] = {}
    for edit in newest.payloads().values():
        edits.setdefault(edit["path"], []).append(edit.get("change", ""))
    for path in _newest_reads(session_id):
        edits.setdefault(path, [])
    return [CodeChange(path, "\n".join(changes)) for path, changes in edits.items()]


# Only the input of tools: their output is long
_READS = (
    f"SELECT {json_text('payload_json', 'input')} FROM raw_events WHERE session_id = %s AND event_type = %s "
    f"AND payload_json IS NOT NULL AND position {OUTSIDE} ORDER BY position DESC LIMIT %s"
)
_MOST_READS = 20
_PATH_FIELDS = ("file_path", "path", "filePath", "absolute_path")


def _newest_reads(session_id: str) -> Iterator[str]:
    for text in rows.column(_READS, [session_id, TOOL_MESSAGE.name, _MOST_READS]):
        try:
            tool_input = json.loads(text or "null")
        except ValueError:
            continue
        if isinstance(tool_input, dict):
            yield from (path for name in _PATH_FIELDS if isinstance(path := tool_input.get(name), str) and path)
