"""Find the files of a mirror, and which of them have changed since the last run."""

from __future__ import annotations

from pathlib import Path

from memoryhub.transfer.mirror import files
from memoryhub.transfer.mirror.files import Skipped
from memoryhub.transfer.mirror.paths import Found
from memoryhub.transfer.mirror.state import Entry, State
from memoryhub.transfer.mirror.steps import Step, left_step


class Scan:
    """What a folder has, by the ids of memories and decisions."""

    def __init__(self, folder: Path, state: State) -> None:
        self.folder, self.state = folder, state
        self.left: list[Step] = []
        self.memories: dict[str, Found] = {}
        self.decisions: dict[str, Found] = {}
        # Files without an id, and copies of a file with one
        self.new: list[Found] = []
        self.taken: set[str] = set()
        # Conflict files
        self.kept: set[str] = set()
        self.is_changed = self.is_touched = False

    def find(self) -> None:
        owners = {entry.path: (False, uid, entry) for uid, entry in self.state.memories.items()}
        owners |= {entry.path: (True, uid, entry) for uid, entry in self.state.decisions.items()}
        claims: dict[tuple[bool, str], list[Found]] = {}
        for path, stamp in sorted(files.find(self.folder)):
            if path != path.encode("utf-8", "replace").decode():
                self.left.append(left_step(ascii(path), "its name is not UTF-8"))
                continue
            self.taken.add(path)
            if files.is_conflict(path):
                self.kept.add(path)
                continue
            is_decision, uid, entry = owners.get(path, (False, "", None))
            found = Found(path, stamp)
            if entry is None or entry.stamp != stamp:
                self.read(found, entry)
                document = found.document
                if document and (document.uid or not entry):
                    is_decision, uid = bool(document.decision), document.uid
            if uid:
                claims.setdefault((is_decision, uid), []).append(found)
            elif found.document:
                self.new.append(found)
        for (is_decision, uid), rivals in claims.items():
            self.claim(uid, rivals, is_decision=is_decision)
        self.is_changed |= len(self.memories) < len(self.state.memories)
        self.is_changed |= len(self.decisions) < len(self.state.decisions)

    def read(self, found: Found, entry: Entry | None) -> None:
        try:
            document = files.read(self.folder / found.path, found.stamp)
        except Skipped as why:
            self.left.append(left_step(found.path, str(why)))
            found.is_skipped = self.is_changed = True
            return
        if entry and document.digest == entry.file:
            entry.stamp, self.is_touched = files.settled(found.stamp), True
        else:
            found.document, self.is_changed = document, True

    # Of several files with one id, the one at the known place has it; the others are copies
    def claim(self, uid: str, rivals: list[Found], *, is_decision: bool) -> None:
        entries, found = (self.state.decisions, self.decisions) if is_decision else (self.state.memories, self.memories)
        known = entries[uid].path if uid in entries else ""
        named = [
            rival for rival in rivals if not rival.document or uid in (rival.document.memory, rival.document.decision)
        ]
        found[uid] = min(named or rivals, key=lambda rival: (rival.path != known, rival.path))
        moved = found[uid].document
        if moved and uid in entries and moved.digest == entries[uid].file:
            found[uid].document, entries[uid].stamp = None, files.settled(found[uid].stamp)
        copies = [rival for rival in rivals if rival is not found[uid]]
        if is_decision:
            self.left += [left_step(copy.path, f"a copy of {found[uid].path}, which is a decision") for copy in copies]
        else:
            self.new += [copy for copy in copies if copy.document]
