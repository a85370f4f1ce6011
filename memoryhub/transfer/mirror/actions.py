"""The steps of a mirror: what each writes to the store, to the folder and to the state, in this order.

A process that is killed between two of them repeats the step; it then finds that the store or the file is equal.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any

from memories.models import Memory
from memories.schemas import MemoryTouch, MemoryUpdate, MemoryWrite
from memories.selectors.versions import state_at
from memories.services import delete_memory, restore_memory, update_memory, write_memory
from memoryhub.core.errors import ConflictError, Invalid
from memoryhub.core.foreign_files import holds, read_foreign
from memoryhub.core.text import shortened
from memoryhub.transfer.folder import FolderForm
from memoryhub.transfer.mirror import files
from memoryhub.transfer.mirror import store as stores
from memoryhub.transfer.mirror.files import MirrorDocument, Skipped, Stamp
from memoryhub.transfer.mirror.scan import Did, MirrorEntry, MirrorFile, MirrorState, MirrorStep, Paths
from memoryhub.transfer.mirror.store import KEY, MirrorListing, Stored

# Memories that are loaded at once
_AHEAD = 200
_MAX_TITLE = 200
_MAX_REASON = 200
TEMPORARY = ".memory-hub-mirror.tmp"
_OPTIONAL = ("type", "topic_key", "source", "attributes")


@dataclass
class Actions:
    folder: Path
    form: FolderForm
    state: MirrorState
    listing: MirrorListing
    paths: Paths
    # Memories to write, in the order of their ids; the next ones are loaded together
    queue: list[int] = field(default_factory=list)
    _loaded: dict[int, Stored | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.uids = {memory_id: uid for uid, memory_id in self.listing.memory_ids.items()}

    def digest(self, memory_id: int) -> str:
        return self.listing.digest(memory_id, self.paths.by_id)

    def is_copy(self, document: MirrorDocument, original: MirrorFile) -> bool:
        other = original.document or files.read(self.folder / original.path, original.stamp)
        return (document.title, document.content) == (other.title, other.content)

    def write(self, step: MirrorStep, uid: str, memory_id: int, file: MirrorFile | None) -> None:
        """Write a memory to its file, and keep the keys of the front matter that are the user's."""
        stored = self._next(memory_id)
        if stored is None:
            return
        if file is None:
            self._put(stored, self.paths.by_id[memory_id], stored.text(None), None)
            return
        document = file.document or files.read(self.folder / file.path, file.stamp)
        self._put(stored, file.path, stored.text(document), file.stamp)

    def edit(self, step: MirrorStep, uid: str, memory_id: int, file: MirrorFile) -> None:
        """Write an edited file as a new version of its memory."""
        document = _document(file)
        stored = self._fresh(memory_id)
        if stored is None:
            return
        entry = self.state.memories.get(uid)
        base = self._base(entry, document, stored)
        changes = self._changes(entry, document, stored, base)
        step.did = Did.UPDATED
        if not stores.changes_of(document, stored.state):
            step.did = Did.READ
            self.adopt(step, uid, memory_id, file)
        elif not changes:
            step.did = Did.WRITTEN
            self._put(stored, file.path, stored.text(document), file.stamp)
        else:
            path = self.paths.by_id.get(memory_id, file.path)  # a restored one has no path yet
            conflict = {}
            if base != stored.version:
                conflict = self._keep_other(step, stored, path)
            reason = shortened(f"edited in {self.folder.name}/{file.path}", _MAX_REASON)
            command = MemoryUpdate(id=memory_id, base_version=base, change_reason=reason, **changes)
            update_memory(command=command, window=timedelta.max)
            self.adopt(step, uid, memory_id, file)
            if uid in self.state.memories:
                self.state.memories[uid].conflicts |= conflict

    # The version that an edit was made from
    def _base(self, entry: MirrorEntry | None, document: MirrorDocument, stored: Stored) -> int:
        if entry and document.revision == entry.revision:
            return min(entry.version, stored.version)
        named = stores.find_version(stored.id, document.revision)
        if named is None and entry:
            return min(entry.version, stored.version)
        if named is None:
            return stored.version
        if entry and entry.version == stored.version and not stores.changes_of(document, state_at(stored.id, named)):
            # An old version that was brought back, such as by git, is an edit of the current one
            return stored.version
        return named

    def _changes(
        self, entry: MirrorEntry | None, document: MirrorDocument, stored: Stored, base: int
    ) -> dict[str, Any]:
        state = stored.state
        if base != stored.version:
            state = state_at(stored.id, base)
        changes = stores.changes_of(document, state)
        if entry and base == entry.version and stores.revision(state) != entry.known:
            return stores.without_redacted(changes, state)
        return changes

    # The other side of a conflict, as a file beside the edited one; the same when the step is repeated
    def _keep_other(self, step: MirrorStep, stored: Stored, path: str) -> dict[str, str]:
        text = files.formatted(stored.matter, stored.state.title, stored.state.content)
        conflict = self.keep_beside(path, text)
        step.did = Did.CONFLICT
        step.why = f"#{stored.id} changed too; both versions are kept, the other one in {conflict}"
        return {conflict: files.digest(text.encode())}

    def keep_beside(self, path: str, text: str) -> str:
        """Write a text to a conflict file beside a file, unless one has it already; return its path."""
        number = 1
        while os.path.lexists(self.folder / (name := f"{path[:-3]}.conflict-{number}.md")):
            if holds(self.folder / name, text):
                return name
            number += 1
        self._write(name, text, None)
        return name

    def create(self, step: MirrorStep, uid: str, file: MirrorFile) -> None:
        """Write a file as a new memory, and its id into the file."""
        document = _document(file)
        memory_id = write_new(uid, document, file.path)
        self.listing.memory_ids[uid] = memory_id
        self.uids[memory_id] = uid
        self.adopt(step, uid, memory_id, file)

    def adopt(self, step: MirrorStep, uid: str, memory_id: int, file: MirrorFile) -> None:
        """Write the id of its memory into a file, unless it has it, and record that it was read."""
        document = _document(file)
        stamp = file.stamp
        if document.memory != uid:
            text = files.with_id(document, uid)
            stamp = self._write(file.path, text, stamp)
            document = files.parse(text.encode())
        self._settle(memory_id, file.path, document, stamp)

    def restore(self, step: MirrorStep, uid: str, memory_id: int, file: MirrorFile) -> None:
        restore_memory(command=MemoryTouch(id=memory_id, reason=f"its file came back to {self.folder.name}"))
        if _document(file).memory == uid:
            self.edit(step, uid, memory_id, file)
        else:
            self.adopt(step, uid, memory_id, file)
        step.did = Did.RESTORED

    def delete(self, step: MirrorStep, uid: str, memory_id: int) -> None:
        delete_memory(command=MemoryTouch(id=memory_id, reason=f"its file was deleted from {self.folder.name}"))
        self.forget(step, self.state.memories, uid)

    def forget(self, step: MirrorStep, entries: dict[str, MirrorEntry], uid: str) -> None:
        for path in list(entries[uid].conflicts):
            self.remove_kept(MirrorStep(Did.REMOVED, path, step.act), entries[uid])
        del entries[uid]

    def remove(self, step: MirrorStep, entries: dict[str, MirrorEntry], uid: str, file: MirrorFile) -> None:
        if not files.remove(self.folder / file.path, file.stamp, self.folder / TEMPORARY):
            raise Skipped("it changed while it was to be removed")
        self.forget(step, entries, uid)

    def remove_kept(self, step: MirrorStep, entry: MirrorEntry) -> None:
        """Remove a conflict file, unless it was edited."""
        digest = entry.conflicts.pop(step.path)
        stamp = files.stamp_of(self.folder / step.path)
        if stamp and _content_digest(self.folder / step.path) == digest:
            files.remove(self.folder / step.path, stamp, self.folder / TEMPORARY)
        elif stamp:
            raise Skipped("it was edited")

    def remove_orphan(self, step: MirrorStep) -> None:
        del self.state.orphans[step.path]
        (self.folder / step.path).unlink(missing_ok=True)

    def set_aside(
        self, step: MirrorStep, entries: dict[str, MirrorEntry], uid: str, file: MirrorFile, why: str
    ) -> None:
        """Keep the edit of a file whose memory is gone as a conflict file."""
        conflict = self.keep_beside(file.path, _document(file).text)
        self.state.orphans[conflict] = entries[uid].id
        self.remove(step, entries, uid, file)
        step.did = Did.CONFLICT
        step.why = f"{why}; the edit is in {conflict}"

    def write_decision(self, step: MirrorStep, uid: str, decision_id: int, text: str, file: MirrorFile | None) -> None:
        path = self.paths.by_id[decision_id]
        if file and file.document and file.document.text != text:
            conflict = self.keep_beside(path, file.document.text)
            step.did = Did.CONFLICT
            step.why = f"decisions are superseded, not edited; the edit is in {conflict}"
        if file:
            stamp = self._replace(file.path, path, text, file.stamp)
        else:
            stamp = self._write(path, text, None)
        digest = files.digest(text.encode())
        self.state.decisions[uid] = MirrorEntry(
            path, decision_id, stored=digest, file=digest, stamp=files.settled(stamp)
        )

    # Writes the file again if the store has its text in another form, such as masked
    def _settle(self, memory_id: int, path: str, document: MirrorDocument, stamp: Stamp) -> None:
        stored = self._fresh(memory_id)
        if stored is None:
            return
        if stores.changes_of(document, stored.state) or path != self.paths.by_id.get(memory_id, path):
            self._put(stored, path, stored.text(document), stamp)
        else:
            self._enter(stored, path, document, stamp)

    def _put(self, stored: Stored, path: str, text: str, expected: Stamp | None) -> None:
        new_path = self.paths.by_id.get(stored.id, path)
        stamp = self._replace(path, new_path, text, expected)
        self._enter(stored, new_path, files.parse(text.encode()), stamp)

    # A file whose name may have redacted words moves. The new one is first: a missing file is a deleted memory
    def _replace(self, old: str, path: str, text: str, expected: Stamp | None) -> Stamp:
        if old == path or expected is None:
            return self._write(path, text, expected)
        if files.stamp_of(self.folder / old) != expected:
            raise Skipped("it changed while it was to be written")
        stamp = self._write(path, text, None)
        if not files.remove(self.folder / old, expected, self.folder / TEMPORARY):
            raise Skipped("it changed while it was to be written")
        return stamp

    def _write(self, path: str, text: str, expected: Stamp | None) -> Stamp:
        target = self.folder / path
        if not target.parent.resolve().is_relative_to(self.folder):
            raise Invalid(f"{target.parent} is a link, which leads out of the folder")
        stamp = files.write(target, text, expected, self.folder / TEMPORARY)
        if stamp is None:
            raise Skipped("it changed while it was to be written")
        return stamp

    def _enter(self, stored: Stored, path: str, document: MirrorDocument, stamp: Stamp) -> None:
        old = self.state.memories.get(stored.uid)
        self.state.memories[stored.uid] = MirrorEntry(
            path=path,
            id=stored.id,
            version=stored.version,
            stored=self.digest(stored.id),
            file=document.digest,
            stamp=files.settled(stamp),
            revision=document.revision,
            known=stored.revision,
            conflicts=old.conflicts if old else {},
        )

    def _next(self, memory_id: int) -> Stored | None:
        if memory_id not in self._loaded:
            start = bisect_left(self.queue, memory_id)
            ahead = self.queue[start : start + _AHEAD]
            loaded: dict[int, Stored | None] = dict.fromkeys(ahead)
            loaded.update((stored.id, stored) for stored in self._load(ahead))
            self._loaded = loaded  # only when all are loaded: None says that a memory is gone
        return self._loaded.pop(memory_id)

    # The row first: if the memory changes in between, its file is written again by the next run
    def _fresh(self, memory_id: int) -> Stored | None:
        self.listing.refresh(memory_id)
        return next(self._load([memory_id]), None)

    def _load(self, ids: Sequence[int]) -> Iterator[Stored]:
        return stores.load(ids, self.uids, self.listing, self.paths.by_id, self.form)


def _document(file: MirrorFile) -> MirrorDocument:
    if file.document is None:
        raise Skipped("it was not read")
    return file.document


def write_new(uid: str, document: MirrorDocument, path: str) -> int:
    """Write a memory from a file without one, once for each id; return its id in this store.

    Raises:
        ConflictError: a memory has its topic.
        Invalid: the kind has no such type or attribute.
        ValidationError: a value of the front matter breaks a rule.
    """
    matter = document.matter
    topic = matter.get("topic_key")
    if topic:
        holder = Memory.objects.live().filter(topic_key=topic).values_list("id", flat=True).first()
        if holder:
            what = f"#{holder} has the topic {topic!r}"
            raise ConflictError(f"{what}; change that one, or remove topic_key from the file", id=holder)
    title = shortened(document.title or PurePosixPath(path).stem, _MAX_TITLE)
    fields = {name: matter[name] for name in _OPTIONAL if matter.get(name)}
    fields |= {"tags": stores.tags_of(document) or [], "kind": matter.get("kind") or "observation"}
    command = MemoryWrite(title=title, content=document.content, named=True, idempotency_key=KEY + uid, **fields)
    try:
        return write_memory(command=command).id
    except ConflictError as error:
        if "version" not in error.data:
            raise
    named = f"{title[: _MAX_TITLE - 11]} ({uid[:8]})"  # another memory has the title
    return write_memory(command=command.model_copy(update={"title": named})).id


# "" for what can't be read, and so is not a file of the hub
def _content_digest(path: Path) -> str:
    try:
        return files.digest(read_foreign(path, limit=files.MAX_BYTES, follows_links=False))
    except OSError:
        return ""
