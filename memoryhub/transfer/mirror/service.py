"""Mirror a project to a folder of Markdown files, in both directions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from memories.models import Memory
from memories.selectors.versions import open_conflicts
from memoryhub.core.errors import ConflictError, HubError, Invalid
from memoryhub.core.log.read import last_erasure
from memoryhub.core.stores.store import current_store, use_store
from memoryhub.transfer.folder import FolderForm
from memoryhub.transfer.mirror import files
from memoryhub.transfer.mirror import scan as mirror_state
from memoryhub.transfer.mirror import store as mirror_store
from memoryhub.transfer.mirror.actions import TEMPORARY, Actions
from memoryhub.transfer.mirror.files import Stamp
from memoryhub.transfer.mirror.scan import (
    Did,
    MirrorEntry,
    MirrorFile,
    MirrorReport,
    MirrorState,
    MirrorStep,
    Paths,
    Scan,
    left_step,
    try_step,
)
from memoryhub.transfer.mirror.store import MirrorListing

# More vanished files than this, if they are more than half, are taken for another branch or an absent disk
_MOST_GONE = 10
# More files than this without an id are not taken for memories in a folder that was never mirrored
_MOST_FOREIGN = 10
# A run that is killed compares again what it did since
_SAVE_SECONDS = 5.0


@dataclass
class MirrorPass:
    """One comparison of a folder with the current store: finds the files, plans the steps and does them."""

    folder: Path
    form: FolderForm
    state: MirrorState
    adopt: bool
    allow_deletions: bool

    def __post_init__(self) -> None:
        self.scan = Scan(self.folder, self.state)

    def run(self, *, preview: bool) -> MirrorReport:
        reached = mirror_store.reached()
        self.scan.find()
        report = MirrorReport(str(self.folder), self.scan.skipped)
        if reached == self.state.reached and not self.scan.is_changed:
            if self.scan.is_touched and not preview:
                mirror_state.save(self.state)
            return report
        self.listing = MirrorListing()
        self.require_sane()
        self.bind_topics()
        self.actions = Actions(self.folder, self.form, self.state, self.listing, self.paths())
        plans = (self.plan_kept, self.plan_gone, self.plan_memories, self.plan_new, self.plan_decisions)
        planned = [step for plan in plans for step in plan()]
        if preview:
            report.steps += planned
            return report
        (self.folder / TEMPORARY).unlink(missing_ok=True)
        try:
            if self.apply(planned, report):  # what could not be done is tried again
                self.state.reached = reached
                self.state.erasure = self.erasure
            else:
                self.state.decided = ""
        finally:
            mirror_state.save(self.state)
        return report

    def paths(self) -> Paths:
        listing = self.listing
        state = self.state
        entries = (*state.memories.values(), *state.decisions.values())
        used = [*self.scan.paths, *(entry.path for entry in entries)]
        paths = Paths(self.folder, used, mirror_store.redacted_since(state.erasure))
        titles = {memory_id: row[mirror_store.TITLE] for memory_id, row in listing.memories.items()}
        paths.assign("memories", titles, listing.memory_ids, state.memories, self.scan.memories)
        paths.assign("decisions", listing.decisions, listing.decision_ids, state.decisions, self.scan.decisions)
        return paths

    # A file of another hub with the topic of a memory is that memory: both hubs have imported the same text
    def bind_topics(self) -> None:
        ids = self.listing.memory_ids
        state = self.state
        for uid, alias in state.aliases.items():
            if alias in ids:
                ids[uid] = ids.pop(alias)
        topics: dict[str, str] = {}
        for uid, file in self.scan.memories.items():
            if uid not in ids and file.document:
                topics[str(file.document.matter.get("topic_key") or "")] = uid
        owners = {memory_id: uid for uid, memory_id in ids.items()}
        for memory_id, topic in mirror_store.with_topics(topics):
            alias = owners[memory_id]
            uid = topics[topic]
            if alias not in self.scan.memories and alias not in state.memories:
                state.aliases[uid] = alias
                ids[uid] = ids.pop(alias)

    def apply(self, planned: list[MirrorStep], report: MirrorReport) -> bool:
        is_done = True
        saved = time.monotonic()
        for step in planned:
            why = try_step(step)
            if why:
                is_done = False
                step.did = Did.LEFT
                step.why = why
            report.steps.append(step)
            if time.monotonic() - saved > _SAVE_SECONDS:
                mirror_state.save(self.state)
                saved = time.monotonic()
        return is_done

    def require_sane(self) -> None:
        entries = self.state.memories
        gone = [uid for uid in entries if uid not in self.scan.memories and entries[uid].id in self.listing.memories]
        if len(gone) > _MOST_GONE and 2 * len(gone) > len(entries) and not self.allow_deletions:
            raise ConflictError(
                f"{len(gone):,} of {len(entries):,} files are gone from {self.folder}; bring them back, or pass "
                "--allow-deletions to delete their memories"
            )
        foreign = [file for file in self.scan.new if file.document and not file.document.memory]
        if self.state.is_new and len(foreign) > _MOST_FOREIGN and not self.adopt:
            raise ConflictError(
                f"{self.folder} has {len(foreign):,} Markdown files that are no memories; name a folder of its own, or "
                "pass --adopt to write each as a memory"
            )

    # Conflict files go when their conflict is resolved, and with text that was removed from the log
    def plan_kept(self) -> Iterator[MirrorStep]:
        conflicts = {entry.id: entry for entry in self.state.memories.values() if entry.conflicts}
        still_open = open_conflicts(list(conflicts))
        erasure = last_erasure()
        for memory_id, entry in conflicts.items():
            if memory_id not in still_open or erasure > self.state.erasure:
                for path in entry.conflicts:
                    yield MirrorStep(Did.REMOVED, path, partial(self.actions.remove_kept, entry=entry))
        orphans = self.state.orphans
        existing = set(Memory.objects.filter(id__in=orphans.values()).values_list("id", flat=True))
        for path, memory_id in orphans.items():
            if memory_id not in existing:
                yield MirrorStep(Did.REMOVED, path, self.actions.remove_orphan)
        if erasure > self.state.erasure:
            known_files = {path for entry in conflicts.values() for path in entry.conflicts}
            for path in self.scan.conflicts - known_files:
                yield left_step(path, "text was redacted or erased since; check whether this file has it")
        self.erasure = erasure

    def plan_gone(self) -> Iterator[MirrorStep]:
        entries = self.state.memories
        ids = [entry.id for entry in entries.values() if entry.id not in self.listing.memories]
        hidden = set(Memory.objects.filter(id__in=ids).values_list("id", flat=True))
        for uid, entry in entries.items():
            file = self.scan.memories.get(uid)
            if entry.id in self.listing.memories:
                if file is None and self.listing.version(entry.id) == entry.version:
                    yield MirrorStep(Did.DELETED, entry.path, partial(self.actions.delete, uid=uid, memory_id=entry.id))
            elif file is None:
                yield MirrorStep(Did.REMOVED, entry.path, partial(self.actions.forget, entries=entries, uid=uid))
            elif uid in self.listing.memory_ids and not file.is_skipped:
                yield self.gone(entries, uid, file, is_erased=entry.id not in hidden)

    def gone(self, entries: dict[str, MirrorEntry], uid: str, file: MirrorFile, *, is_erased: bool) -> MirrorStep:
        if file.document is None or is_erased:
            return MirrorStep(Did.REMOVED, file.path, partial(self.actions.remove, entries=entries, uid=uid, file=file))
        why = f"#{entries[uid].id} is deleted or set aside"
        act = partial(self.actions.set_aside, entries=entries, uid=uid, file=file, why=why)
        return MirrorStep(Did.CONFLICT, file.path, act, why)

    def plan_memories(self) -> Iterator[MirrorStep]:
        for memory_id in list(self.listing.memories):
            uid = self.actions.uids[memory_id]
            entry = self.state.memories.get(uid)
            file = self.scan.memories.get(uid)
            is_moved = file is not None and file.path != self.actions.paths.by_id[memory_id]
            is_changed = is_moved or entry is None or entry.stored != self.actions.digest(memory_id)
            if file and file.document:
                did = Did.UPDATED
                if entry and is_changed:
                    did = Did.CONFLICT
                yield MirrorStep(did, file.path, partial(self.actions.edit, uid=uid, memory_id=memory_id, file=file))
            elif entry and file is None and self.listing.version(memory_id) == entry.version:
                continue  # deleted in the folder
            elif is_changed and not (file and file.is_skipped):
                self.actions.queue.append(memory_id)
                path = file.path if file else self.actions.paths.by_id[memory_id]
                act = partial(self.actions.write, uid=uid, memory_id=memory_id, file=file)
                yield MirrorStep(Did.WRITTEN, path, act)

    def plan_new(self) -> Iterator[MirrorStep]:
        for uid, file in self.scan.memories.items():
            memory_id = self.listing.memory_ids.get(uid)
            if not file.document or memory_id in self.listing.memories:
                continue
            if memory_id is None:
                yield MirrorStep(Did.CREATED, file.path, partial(self.actions.create, uid=uid, file=file))
            elif uid not in self.state.memories:
                yield self.returned(uid, memory_id, file)
        for file in self.scan.new:
            yield self.new_file(file)

    def returned(self, uid: str, memory_id: int, file: MirrorFile) -> MirrorStep:
        memory = Memory.objects.filter(id=memory_id).first()
        if memory is None:
            return left_step(file.path, "its memory was permanently erased; remove its id to write it again")
        if memory.deleted_at is None:
            return left_step(file.path, f"its memory #{memory_id} was rejected, or is in quarantine")
        return MirrorStep(
            Did.RESTORED, file.path, partial(self.actions.restore, uid=uid, memory_id=memory_id, file=file)
        )

    def new_file(self, file: MirrorFile) -> MirrorStep:
        document = file.document
        if document is None:
            return left_step(file.path, "it was not read")
        if file.path.startswith("decisions/"):
            return left_step(file.path, "decisions are not read; `memory-hub import adr` imports records")
        original = self.scan.memories.get(document.memory)
        if original and self.actions.is_copy(document, original):
            return left_step(file.path, f"a copy of {original.path}")
        uid = files.new_id(file.path, document)
        memory_id = self.listing.memory_ids.get(uid)
        if memory_id is None:
            return MirrorStep(Did.CREATED, file.path, partial(self.actions.create, uid=uid, file=file))
        if memory_id in self.listing.memories:  # written by a run that was interrupted
            return MirrorStep(
                Did.CREATED, file.path, partial(self.actions.adopt, uid=uid, memory_id=memory_id, file=file)
            )
        return self.returned(uid, memory_id, file)

    def plan_decisions(self) -> Iterator[MirrorStep]:
        entries, actions, decided = self.state.decisions, self.actions, mirror_store.reached(of_memories=False)
        is_unread = all(uid in self.scan.decisions and not self.scan.decisions[uid].document for uid in entries)
        if is_unread and self.state.decided == decided:
            return
        self.state.decided = decided
        uids = {decision_id: uid for uid, decision_id in self.listing.decision_ids.items()}
        for decision_id, text in mirror_store.decision_texts(self.listing, uids, actions.paths.by_id, actions.form):
            uid = uids[decision_id]
            entry, file = entries.get(uid), self.scan.decisions.get(uid)
            if file and file.is_skipped:
                continue
            path = actions.paths.by_id[decision_id]
            is_moved = file is not None and file.path != path
            is_same = entry and file and not file.document and entry.stored == files.digest(text.encode())
            if is_moved or not is_same:
                act = partial(actions.write_decision, uid=uid, decision_id=decision_id, text=text, file=file)
                yield MirrorStep(Did.WRITTEN, path, act)
        for uid, entry in entries.items():
            if entry.id not in self.listing.decisions:
                file = self.scan.decisions.get(uid)
                if file and not file.is_skipped:
                    yield self.gone(entries, uid, file, is_erased=False)


WATCH_SECONDS = 1.0


class Mirror:
    """A folder and the current store."""

    def __init__(self, folder: Path, form: FolderForm, *, adopt: bool = False, allow_deletions: bool = False) -> None:
        self.folder, self.form = folder.resolve(), form
        self.adopt, self.allow_deletions = adopt, allow_deletions

    def run(self, *, preview: bool = False) -> MirrorReport:
        """Compare the folder with the store and write what differs; with ``preview`` only report it.

        Raises:
            ConflictError: many files are gone or new, which could be a mistake, or the folder mirrors another store.
            Invalid: there is no such folder.
            Locked: another mirror of it is running.
        """
        with self._locked(preview=preview):
            return self._run(preview=preview)

    def watch(self) -> Iterator[MirrorReport]:
        """Run whenever the folder or the store has changed; yield the reports that have something new.

        Raises:
            HubError: as ``run``, from the first run; errors of later ones are reported.
        """
        with self._locked(preview=False):
            report = self._run(preview=False)
            yield report
            seen: object = None
            before, skipped = self._look()[1], _left_in(report)
            while True:
                time.sleep(WATCH_SECONDS)
                now = self._look()
                if now != seen and now[1] == before:  # files are read when two looks in a row find them equal
                    report, is_done = self._try()
                    seen = now if is_done else None
                    skipped_before, skipped = skipped, _left_in(report)
                    report.steps = [step for step in report.steps if (step.path, step.why) not in skipped_before]
                    if report.steps:
                        yield report
                before = now[1]

    def _look(self) -> tuple[str, list[tuple[str, Stamp]]]:
        try:
            with use_store(current_store()):  # raises HubError where the database fails
                return mirror_store.reached(), sorted(files.find(self.folder))
        except (HubError, OSError):
            return "", []

    def _try(self) -> tuple[MirrorReport, bool]:
        try:
            with use_store(current_store()):
                return self._run(preview=False), True
        except HubError as error:
            why = error.message
        except OSError as error:
            why = f"can't use {error.filename}: {error.strerror}"
        return MirrorReport(str(self.folder), [left_step(".", why)]), False

    def _run(self, *, preview: bool) -> MirrorReport:
        state = mirror_state.load(self.folder, current_store().alias, self.form)
        self._require_folder(state, preview=preview)
        comparison = MirrorPass(self.folder, self.form, state, self.adopt, self.allow_deletions)
        return comparison.run(preview=preview)

    @contextmanager
    def _locked(self, *, preview: bool) -> Iterator[None]:
        self._require_folder(mirror_state.load(self.folder, current_store().alias, self.form), preview=preview)
        with mirror_state.locked(self.folder):
            yield

    def _require_folder(self, state: MirrorState, *, preview: bool) -> None:
        if self.folder.is_dir():
            return
        if not state.is_new:
            raise ConflictError(f"{self.folder} is gone; bring it back, or mirror to another folder")
        if preview or self.folder.exists():
            raise Invalid(f"{self.folder} is not a folder; name one, or leave out --preview to create it")
        self.folder.mkdir(parents=True)


def _left_in(report: MirrorReport) -> set[tuple[str, str]]:
    return {(step.path, step.why) for step in report.steps if step.did is Did.LEFT}
