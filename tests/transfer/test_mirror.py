"""A mirrored folder: edits on each side reach the other, and no text is lost where both change, or by a kill."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

from django.test import tag

from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from governance.redaction.schemas import RedactionRun, RedactionSelect
from governance.redaction.service import preview_redaction, redact
from memories.models import Memory
from memories.schemas import ConflictResolve, MemoryDelete, MemoryTouch, MemoryUpdate, MemoryWrite
from memories.schemas.links import RelationCreate
from memories.selectors.versions import open_conflicts, versions_of
from memories.services import delete_memory, resolve_conflict, restore_memory, update_memory, write_memory
from memories.services.links import create_relation
from memoryhub.core import log
from memoryhub.core.errors import ConflictError, HubError, Invalid
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import project_store, use_store
from memoryhub.transfer.folder import FolderForm
from memoryhub.transfer.mirror import files
from memoryhub.transfer.mirror.scan import MirrorReport
from memoryhub.transfer.mirror.service import Mirror
from tests import forks
from tests.memories.base import MemoriesTestCase
from tests.secrets_made import SECRETS
from tests.support import HubTestCase
from tests.web.server import poll

WAL, LOCKS = "memories/use-wal.md", "memories/no-locks.md"
BESIDE = "memories/use-wal.conflict-1.md"


class MirrorTestCase(MemoriesTestCase):
    """The memory ``self.wal`` is mirrored in the file ``WAL`` of ``self.folder``."""

    def setUp(self) -> None:
        super().setUp()
        self.folder = self.home / "out"
        self.wal = self.write("Use WAL", "One.\n\nTwo.", tags=["storage"])
        self.run_mirror()

    def run_mirror(
        self, form: FolderForm = FolderForm.MARKDOWN, *, preview: bool = False, **options: bool
    ) -> MirrorReport:
        return Mirror(self.folder, form, **options).run(preview=preview)

    def done(self, **options: Any) -> list[tuple[str, str]]:
        return sorted((step.did, step.path) for step in self.run_mirror(**options).steps)

    def assert_quiet(self) -> None:
        self.assertEqual(self.done(), [])

    def path(self, name: str = WAL) -> Path:
        return self.folder / name

    def text(self, name: str = WAL) -> str:
        return self.path(name).read_text()

    def edit(self, old: str, new: str, name: str = WAL) -> None:
        text = self.text(name)
        self.assertIn(old, text)
        self.path(name).write_text(text.replace(old, new))

    def write_locks(self) -> int:
        """Write a second memory, to which the first one is related."""
        locks = self.write("No locks", "Nothing.")
        create_relation(command=RelationCreate(source=str(self.wal), relation="related_to", target=str(locks)))
        return locks

    def contents(self, memory_id: int = 0) -> list[str]:
        """Return the texts of all versions of a memory, the newest first."""
        memory_id = memory_id or self.wal
        return [version["content"] for version in versions_of([memory_id])[memory_id]]


class OneSideTests(MirrorTestCase):
    def test_the_store_is_written_to_the_folder(self) -> None:
        locks = self.write_locks()
        self.assertEqual(self.done(), [("written", LOCKS), ("written", WAL)])
        self.assertIn(f'related_to: ["{LOCKS}"]', self.text())
        self.assertTrue(self.text().endswith("# Use WAL\n\nOne.\n\nTwo.\n"))
        self.assert_quiet()
        self.update(locks, title="Few locks", content="Three.")
        self.assertEqual(self.done(), [("written", LOCKS)])
        self.assertIn("# Few locks\n\nThree.\n", self.text(LOCKS))
        self.delete(locks)
        self.assertEqual(self.done(), [("removed", LOCKS), ("written", WAL)])
        self.assertNotIn("related_to", self.text())
        self.assert_quiet()

    def test_a_memory_that_cannot_be_read_does_not_hinder_the_next_ones(self) -> None:
        damaged = self.write("No text", "Something.")
        self.write("No locks", "Nothing.")
        Memory.objects.filter(id=damaged).update(content="")
        self.assertEqual(self.done(), [("left", "memories/no-text.md"), ("written", LOCKS)])
        self.assertIn("Nothing.", self.text(LOCKS))

    def test_an_edit_becomes_a_version(self) -> None:
        self.edit("Two.", "Two, and three.")
        self.edit('tags: ["storage"]', "tags:\n  - Storage\n  - sqlite\nmood: good")
        self.edit("# Use WAL", "# Use WAL mode")
        before = self.text()
        self.assertEqual(self.done(), [("updated", WAL)])
        memory = Memory.objects.get()
        self.assertEqual((memory.title, memory.content), ("Use WAL mode", "One.\n\nTwo, and three."))
        self.assertEqual(memory.tags, ["sqlite", "storage"])
        [version, _] = versions_of([self.wal])[self.wal]
        provenance = (version["base_version"], version["actor"], version["reason"])
        self.assertEqual(provenance, (1, "ada", f"edited in out/{WAL}"))
        self.assertEqual(self.text(), before)
        self.assert_quiet()
        self.update(self.wal, content="Four.")
        self.run_mirror()
        self.assertIn("mood: good\n", self.text())
        self.assertIn("# Use WAL mode\n\nFour.\n", self.text())
        # Front matter that was removed is written again
        self.path().write_text("# Use WAL\n\nAll new.\n")
        self.run_mirror()
        self.assertEqual(self.contents()[0], "All new.")
        self.assertIn("\nmemory: ", self.text())
        self.assert_quiet()

    def test_a_new_file_becomes_a_memory_and_gets_its_id(self) -> None:
        for name, text in {
            "note.md": "Text without a heading.\n",
            "sub/named.md": "---\ntags: a b\nkind: guideline\nmood: good\n---\n# Named\n\nText.\n",
            "crlf.md": "---\r\nmood: good\r\n---\r\nLine one.\r\nLine two.\r\n",
            "taken.md": "# Use WAL\n\nAnother text.\n",
        }.items():
            self.path(name).parent.mkdir(exist_ok=True)
            self.path(name).write_bytes(text.encode())
        self.assertEqual({did for did, _ in self.done()}, {"created"})
        memories = {memory.title: memory for memory in Memory.objects.all()}
        self.assertEqual(memories["note"].content, "Text without a heading.")
        self.assertEqual((memories["Named"].kind, memories["Named"].tags), ("guideline", ["a", "b"]))
        self.assertEqual(memories["crlf"].content, "Line one.\nLine two.")
        self.assertRegex(self.text("note.md"), r"\A---\nmemory: [0-9a-f-]{36}\n---\n\nText without a heading.\n\Z")
        self.assertTrue(self.path("crlf.md").read_bytes().endswith(b"Line one.\r\nLine two.\r\n"))
        self.assertEqual(len(memories), 5)
        self.assert_quiet()

    def test_a_file_that_moves_stays_the_same_memory(self) -> None:
        locks = self.write_locks()
        self.run_mirror()
        self.path(LOCKS).rename(self.folder / "locks.md")
        self.edit("No locks", "Few locks", "locks.md")
        self.assertEqual(self.done(), [("updated", "locks.md"), ("written", WAL)])
        self.assertIn('related_to: ["locks.md"]', self.text())
        self.assertEqual(Memory.objects.get(id=locks).title, "Few locks")
        self.update(locks, content="Three.")
        self.assertEqual(self.done(), [("written", "locks.md")])
        # A new file at the place of a moved one is a new memory
        self.path().rename(self.folder / "wal.md")
        self.path().write_text("# Use WAL again\n\nAll new.\n")
        self.assertIn(("created", WAL), self.done())
        self.assertEqual((self.contents(), Memory.objects.count()), (["One.\n\nTwo."], 3))
        self.assert_quiet()

    def test_a_copy_is_named_until_it_differs(self) -> None:
        self.path("copy.md").write_text(self.text())
        [step] = self.run_mirror().steps
        self.assertEqual((step.did, step.path, step.why), ("left", "copy.md", f"a copy of {WAL}"))
        self.edit("Two.", "Two of the copy.", "copy.md")
        self.assertEqual(self.done(), [("created", "copy.md")])
        texts = sorted(Memory.objects.values_list("content", flat=True))
        self.assertEqual(texts, ["One.\n\nTwo of the copy.", "One.\n\nTwo."])
        self.assert_quiet()

    def test_a_deleted_file_deletes_its_memory_and_can_come_back(self) -> None:
        text = self.text()
        self.path().unlink()
        self.assertEqual(self.done(), [("deleted", WAL)])
        self.assertIsNotNone(Memory.objects.get(id=self.wal).deleted_at)
        self.assert_quiet()
        self.path().write_text(text)
        self.assertEqual(self.done(), [("restored", WAL)])
        self.assertIsNone(Memory.objects.get(id=self.wal).deleted_at)
        self.assert_quiet()

    def test_many_missing_files_are_refused(self) -> None:
        self.write_all({f"Memory {number}": f"Text {number}." for number in range(20)})
        self.run_mirror()
        paths = sorted(self.path("memories").iterdir())
        for path in paths[:11]:
            path.unlink()
        refusal = "11 of 21 files are gone from .*; bring them back, or pass --allow-deletions"
        with self.assertRaisesRegex(ConflictError, refusal):
            self.run_mirror()
        self.assertEqual(Memory.objects.live().count(), 21)
        self.assertEqual(len(self.done(allow_deletions=True)), 11)
        self.assertEqual(Memory.objects.live().count(), 10)
        for path in paths[11:]:
            path.unlink()
        self.path("memories").rmdir()
        self.folder.rmdir()
        with self.assertRaisesRegex(ConflictError, "is gone; bring it back"):
            self.run_mirror(allow_deletions=True)

    def test_decisions_are_written_but_not_read(self) -> None:
        record_decision(command=DecisionRecord(title="Keep it", chosen="SQLite", rationale="It is small."))
        self.run_mirror()
        name, beside = "decisions/keep-it.md", "decisions/keep-it.conflict-1.md"
        before = self.text(name)
        self.assert_quiet()
        self.edit("small", "tiny", name)
        [step] = self.run_mirror().steps
        self.assertEqual(step.why, f"decisions are superseded, not edited; the edit is in {beside}")
        self.assertEqual(self.text(name), before)
        self.assertIn("It is tiny.", self.text(beside))
        self.path(name).unlink()
        self.path("decisions/own.md").write_text("# Own\n\n## Decision\n\nText.\n")
        self.assertEqual(self.done(), [("left", "decisions/own.md"), ("written", name)])
        self.assertEqual(self.text(name), before)

    def test_obsidian_has_wiki_links_and_tags_without_spaces(self) -> None:
        with self.assertRaisesRegex(ConflictError, "is a mirror of .*alpha in the form markdown"):
            self.run_mirror(FolderForm.OBSIDIAN)
        self.folder = self.home / "vault"
        self.write_locks()
        self.update(self.wal, tags=["two words"])
        self.path(".obsidian").mkdir(parents=True)
        self.path(".obsidian/notes.md").write_text("# Not read")
        self.run_mirror(FolderForm.OBSIDIAN)
        self.assertIn('related_to: ["[[memories/no-locks]]"]', self.text())
        self.assertIn('tags: ["two-words"]', self.text())
        self.edit("Two.", "Three.")
        self.assertEqual(self.done(form=FolderForm.OBSIDIAN), [("updated", WAL)])
        self.assertEqual((Memory.objects.get(id=self.wal).tags, Memory.objects.count()), (["two words"], 2))


class BothSidesTests(MirrorTestCase):
    @tag("backend")
    def test_both_texts_are_kept_when_both_sides_change(self) -> None:
        self.update(self.wal, content="Of the store.")
        self.edit("Two.", "Of the folder.")
        [step] = self.run_mirror().steps
        self.assertEqual((step.did, step.path), ("conflict", WAL))
        self.assertIn(f"the other one in {BESIDE}", step.why)
        self.assertEqual(self.contents(), ["One.\n\nOf the folder.", "Of the store.", "One.\n\nTwo."])
        self.assertIn("Of the store.", self.text(BESIDE))
        [conflict] = open_conflicts([self.wal])[self.wal]
        self.assert_quiet()
        resolve_conflict(command=ConflictResolve(id=conflict, resolution="keep_a"))
        self.assertEqual({path for _, path in self.done()}, {BESIDE, WAL})
        self.assertIn("Of the store.", self.text())
        self.assertEqual(len(list(self.path("memories").iterdir())), 1)
        self.assert_quiet()

    def test_a_save_from_an_old_version_is_a_conflict_and_the_old_version_itself_becomes_current(self) -> None:
        opened = self.text()
        self.update(self.wal, content="Of the store.")
        self.run_mirror()
        self.path().write_text(opened)  # as git brings it back
        self.assertEqual(self.done(), [("updated", WAL)])
        self.assertEqual((self.contents()[0], open_conflicts([self.wal])), ("One.\n\nTwo.", {}))
        self.update(self.wal, content="Of the store, again.")
        self.run_mirror()
        self.path().write_text(opened.replace("Two.", "Of the editor."))
        self.assertEqual(self.done(), [("conflict", WAL)])
        self.assertEqual(self.contents()[0], "One.\n\nOf the editor.")
        self.assertEqual(list(open_conflicts([self.wal])), [self.wal])

    def test_a_save_while_the_file_is_written_is_not_lost(self) -> None:
        for hook, original in (("os.fsync", os.fsync), ("_exchange", files._exchange)):
            with self.subTest(hook=hook):
                self.update(self.wal, content=f"Of the store, at {hook}.")
                saves = [f"Saved at {hook}."]

                def save(*arguments: Any, original: Any = original, saves: list[str] = saves) -> Any:
                    if saves:
                        self.path().write_text(f"{self.text()}\n{saves.pop()}\n")
                    return original(*arguments)

                with mock.patch(f"memoryhub.transfer.mirror.files.{hook}", save):
                    [step] = self.run_mirror().steps
                self.assertEqual((step.did, step.why), ("left", "it changed while it was to be written"))
                self.assertEqual(self.done(), [("conflict", WAL)])
                self.assertIn(f"Saved at {hook}.", self.contents()[0])
                self.assertIn(f"Of the store, at {hook}.", self.contents())
                self.assert_quiet()

    def test_the_same_change_on_both_sides_is_none(self) -> None:
        self.update(self.wal, content="Same.")
        self.edit("One.\n\nTwo.", "Same.")
        self.run_mirror()
        self.assertEqual((self.contents(), open_conflicts([self.wal])), (["Same.", "One.\n\nTwo."], {}))
        self.assert_quiet()

    def test_a_file_or_memory_that_was_deleted_while_the_other_changed_is_kept(self) -> None:
        self.update(self.wal, content="Of the store.")
        self.path().unlink()
        self.assertEqual(self.done(), [("written", WAL)])
        self.assertIn("Of the store.", self.text())
        self.delete(self.wal)
        self.edit("Of the store.", "Of the folder.")
        self.assertEqual(self.done(), [("conflict", WAL)])
        self.assertFalse(self.path().exists())
        self.assertIn("Of the folder.", self.text(BESIDE))
        self.assert_quiet()

    @tag("backend")
    def test_without_its_state_the_mirror_compares_by_revision(self) -> None:
        other, stale = self.write("No locks", "Nothing."), self.write("Stale", "Old.")
        self.run_mirror()
        for memory in (stale, other):
            self.update(memory, content="Of the store.")
        self.edit("Nothing.", "Of the folder.", LOCKS)
        for path in (self.home / "mirrors").iterdir():
            path.unlink()
        self.assertEqual(self.done(), [("conflict", LOCKS), ("read", WAL), ("written", "memories/stale.md")])
        self.assertEqual((len(self.contents(other)), len(self.contents(stale))), (3, 2))
        self.assertIn("Of the store.", self.text("memories/stale.md"))
        self.assert_quiet()

    def test_secrets_are_masked_in_the_file_too(self) -> None:
        secret, text = SECRETS["github"]
        self.edit("Two.", text.format(secret))
        self.run_mirror()
        self.assertIn("[REDACTED:", self.text())
        self.assertNotIn(secret, self.text())
        self.assert_quiet()

    @tag("backend")
    def test_a_redaction_reaches_files_edits_and_conflict_files(self) -> None:
        other = self.write("Zanzibar plans", "Keep.\n\nZanzibar here.")
        self.run_mirror()
        self.update(self.wal, content="Zanzibar in the store.")
        self.edit("Two.", "Zanzibar in the folder.")
        self.run_mirror()
        self.edit("Keep.", "Kept, and edited.", "memories/zanzibar-plans.md")
        select = {"text": "Zanzibar", "ignore_case": True}
        token = preview_redaction(command=RedactionSelect(**select)).confirm_token
        redaction = redact(command=RedactionRun(**select, confirm_token=token))
        self.assertIn(f"3 files of the mirror {self.folder}", [place.where for place in redaction.left])
        self.run_mirror()
        self.assertIn("Kept, and edited.\n\n[REDACTED:removed", self.contents(other)[0])
        self.run_mirror()
        texts = {str(path): path.read_text() for path in self.folder.rglob("*") if path.is_file()}
        self.assertNotIn("zanzibar", str(texts).lower())
        self.assert_quiet()

    def test_an_erased_memory_takes_its_files_along(self) -> None:
        self.update(self.wal, content="Of the store.")
        self.edit("Two.", "Of the folder.")
        self.run_mirror()
        self.edit("Of the folder.", "Edited again.")
        self.erase(self.wal)
        self.run_mirror()
        self.assertEqual(list(self.path("memories").iterdir()), [])


class UnusualFilesTests(MirrorTestCase):
    def test_files_that_cannot_be_read_are_named_and_left(self) -> None:
        outside = self.home / "outside.md"
        outside.write_text("# Outside\n\nText.\n")
        self.path("link.md").symlink_to(outside)
        self.path("linked").symlink_to(self.home)
        self.path("memories/.use-wal.md.swp").write_text("swap")
        reasons = {
            "binary.md": (b"\0\1", "it is not text"),
            "deep.md": (b"---\na: " + b"[" * 40 + b"]" * 40 + b"\n---\n", "nested too deeply"),
            "empty.md": (b"", "content"),
            "huge.md": (b"x" * 2_000_001, "it is larger than"),
            "identity.md": (b"---\nmemory: mine\n---\nText.\n", "is not an id of a hub"),
            "kind.md": (b"---\nkind: sonnet\n---\nText.\n", "kind"),
            "latin.md": (b"caf\xe9", "it is not UTF-8 text"),
            "merge.md": (b"<<<<<<< HEAD\na\n=======\nb\n>>>>>>> other\n", "unresolved merge conflicts"),
            WAL: (b"", ""),
        }
        for name, (raw, _) in reasons.items():
            self.path(name).write_bytes(raw)
        Path(os.fsdecode(os.fsencode(self.folder) + b"/caf\xe9.md")).write_text("Text.\n")
        steps = {step.path: step for step in self.run_mirror().steps}
        self.assertEqual(steps.pop(r"'caf\udce9.md'").why, "its name is not UTF-8")
        self.assertEqual(set(steps), set(reasons))
        for name, (raw, why) in reasons.items():
            self.assertEqual(steps[name].did, "left")
            self.assertIn(why, steps[name].why)
            self.assertEqual(self.path(name).read_bytes(), raw)
        self.assertEqual((self.contents(), Memory.objects.count()), (["One.\n\nTwo."], 1))
        self.assertEqual(outside.read_text(), "# Outside\n\nText.\n")

    def test_nothing_is_written_through_a_link(self) -> None:
        elsewhere = self.home / "elsewhere"
        elsewhere.mkdir()
        self.path().unlink()
        self.path("memories").rmdir()
        self.path("memories").symlink_to(elsewhere)
        self.update(self.wal, content="Three.")
        [step] = self.run_mirror().steps
        self.assertEqual(step.did, "left")
        self.assertIn("leads out of the folder", step.why)
        self.assertEqual(list(elsewhere.iterdir()), [])
        self.path("memories").unlink()
        self.assertEqual(self.done(), [("written", WAL)])

    def test_a_preview_changes_nothing(self) -> None:
        self.update(self.wal, content="Three.")
        self.path("note.md").write_text("Text.\n")
        [state] = (self.home / "mirrors").iterdir()
        before = state.read_bytes()
        self.assertEqual(self.done(preview=True), [("created", "note.md"), ("written", WAL)])
        self.assertEqual((self.text("note.md"), Memory.objects.count()), ("Text.\n", 1))
        self.assertEqual(state.read_bytes(), before)
        self.assertIn("Two.", self.text())

    def test_a_folder_of_notes_is_not_taken_for_memories(self) -> None:
        notes = self.home / "notes"
        notes.mkdir()
        for number in range(11):
            (notes / f"{number}.md").write_text(f"Text {number}.\n")
        with self.assertRaisesRegex(ConflictError, "has 11 Markdown files that are no memories"):
            Mirror(notes, FolderForm.MARKDOWN).run()
        self.assertEqual(Memory.objects.count(), 1)
        self.assertEqual(Mirror(notes, FolderForm.MARKDOWN, adopt=True).run().counts, {"written": 1, "created": 11})
        with self.assertRaisesRegex(Invalid, "is not a folder"):
            Mirror(notes / "0.md", FolderForm.MARKDOWN).run()

    def test_another_hub_reads_the_files_as_its_own_memories(self) -> None:
        self.write("No locks", "Nothing.", topic_key="db/locks")
        self.run_mirror()
        texts = {path.name: path.read_text() for path in self.path("memories").iterdir()}
        [state] = (self.home / "mirrors").iterdir()
        ours = state.read_bytes()
        state.unlink()
        with self.store("beta", actor="ben"):
            self.write("Few locks", "Of Ben, too.", topic_key="db/locks")
            self.assertEqual(self.run_mirror().counts, {"created": 1, "updated": 1})
            self.assertEqual(Memory.objects.get(topic_key="db/locks").content, "Nothing.")
            self.assertEqual({path.name: path.read_text() for path in self.path("memories").iterdir()}, texts)
            self.assert_quiet()
            self.update(Memory.objects.get(title="Use WAL").id, content="Of Ben.")
            self.run_mirror()
            self.assertEqual(len(list(self.path("memories").iterdir())), 2)
        state.write_bytes(ours)
        self.assertEqual(self.done(), [("updated", WAL)])
        self.assertEqual(self.contents(), ["Of Ben.", "One.\n\nTwo."])
        self.assert_quiet()


class MirrorCommandTests(MirrorTestCase):
    def test_the_command_and_its_watch(self) -> None:
        self.update(self.wal, content="Two.")
        code, output, _ = self.command("--json")
        self.assertEqual((code, json.loads(output)["counts"]), (0, {"written": 1}))
        self.assertIn("nothing has changed", self.command()[1])
        process = self.enterContext(forks.Fork(forks.COMMAND, *self.arguments("--watch")))
        self.addCleanup(process.kill)
        self.assertIn("nothing has changed", process.stdout.readline())
        code, output, errors = self.command()
        self.assertEqual((code, output), (7, ""))
        self.assertIn("another mirror of", errors)
        self.edit("Two.", "Of the folder.")
        poll(lambda: self.contents()[0] == "Of the folder.", what="the edit is in the store")
        self.update(self.wal, content="Of the store.")
        poll(lambda: "Of the store." in self.text(), what="the change is in the folder")
        os.kill(process.pid, signal.SIGINT)
        output, errors = process.communicate()
        self.assertIn(f"updated  {WAL}\n", output)
        self.assertEqual((process.returncode, errors), (130, "memory-hub: stopped; the next run continues\n"))

    def command(self, *options: str) -> tuple[int, str, str]:
        return forks.run(*self.arguments(*options))

    def arguments(self, *options: str) -> list[str]:
        return ["mirror", str(self.folder), "--project", "alpha", *options]


EDITS = int(os.environ.get("MEMORY_HUB_TEST_MIRROR_EDITS", "40"))
SEEDS = [int(seed) for seed in os.environ.get("MEMORY_HUB_TEST_MIRROR_SEEDS", "1").split(",")]
# Edits between two mirrors, on each side together
_AT_ONCE = 8
# Few, so that both sides often change the same one
_FEWEST = 5
WORD = re.compile(r"\bw[a-z]+\d+x\d+\b")
WATCHED = ("memoryhub/transfer/mirror", "memories/services/", "memoryhub/core/log/append", "/pathlib.py")
# Mirrors a folder, and kills itself at a given call
INTERRUPTED = """
import sys
from tests.transfer.test_mirror import run_interrupted
run_interrupted(*sys.argv[1:])
"""


@tag("attack")
class KilledMirrorTests(HubTestCase):
    def test_no_text_is_lost(self) -> None:
        for seed in SEEDS:
            with self.subTest(seed=seed), self.store("alpha", actor="ada"):
                self.check(seed)

    def check(self, seed: int) -> None:
        chance = random.Random(seed)
        folder = self.home / f"out-{seed}"
        folder.mkdir()
        user, agent = User(folder, chance, f"f{seed}"), Agent(chance, f"s{seed}")
        for _ in range(_FEWEST):
            agent.write()
        user.create()
        killed = 0
        for round_number in range(EDITS // _AT_ONCE):
            for _ in range(_AT_ONCE):
                (user if chance.random() < 0.5 else agent).act()
            killed += self.mirror(folder, 1000 * seed + round_number, chance) == -signal.SIGKILL
        self.assertGreater(killed, 0)
        self.settle(folder)
        self.assertEqual((user.expected() | agent.words) - self.words(folder), set())
        self.assertTrue(log.verify().ok)

    def mirror(self, folder: Path, seed: int, chance: random.Random) -> int:
        calls = [str(int(10 ** chance.uniform(1.5, 4.5))) for _ in ("killed", "edited")]
        code, _, errors = forks.run_program(INTERRUPTED, str(folder), str(seed), *calls)
        self.assertIn(code, (0, -signal.SIGKILL), errors)
        return code

    # A run leaves what it read to the next one where a file was being saved
    def settle(self, folder: Path) -> None:
        for _ in range(5):
            report = Mirror(folder, FolderForm.MARKDOWN, adopt=True, allow_deletions=True).run()
            if set(report.counts) <= {"left"}:
                return
        self.fail(f"the mirror doesn't settle: {report.steps}")

    def words(self, folder: Path) -> set[str]:
        texts = [path.read_text() for path in folder.rglob("*.md")]
        payloads = RawEvent.objects.filter(stream_id__startswith="memory:").values_list("payload_json", flat=True)
        texts += [json.dumps(json.loads(payload or "{}")) for payload in payloads]
        return {word for text in texts for word in WORD.findall(text)}


class Writer:
    """Writes at random; each text has a word of its own."""

    def __init__(self, chance: random.Random, name: str) -> None:
        self.chance, self.name = chance, name
        self.words: set[str] = set()

    def word(self) -> str:
        word = f"w{self.name}x{len(self.words) + 1}"
        self.words.add(word)
        return word


class Agent(Writer):
    """Writes to the store, as agents do. What is in the log cannot be lost; its words must stay readable."""

    def act(self) -> None:
        ids = sorted(Memory.objects.live().values_list("id", flat=True))
        if len(ids) < _FEWEST:
            self.write()
        else:
            actions = [self.change, self.change, self.change, self.delete, self.restore]
            self.chance.choice(actions)(self.chance.choice(ids))

    def write(self) -> None:
        word = self.word()
        write_memory(command=MemoryWrite(title=f"Of the store {word}", content=f"Text {word}.\n\nMore."))

    def change(self, memory_id: int) -> None:
        content = Memory.objects.get(id=memory_id).content
        update_memory(command=MemoryUpdate(id=memory_id, content=f"Changed {self.word()}.\n{content}"))

    def delete(self, memory_id: int) -> None:
        delete_memory(command=MemoryDelete(id=memory_id))

    def restore(self, _: int) -> None:
        deleted = Memory.objects.filter(deleted_at__isnull=False).order_by("id").first()
        with suppress(HubError):  # its title is taken
            if deleted:
                restore_memory(command=MemoryTouch(id=deleted.id))


class User(Writer):
    """Edits files. Words that the user removes from a file are no longer expected anywhere.

    The journal is beside the folder and is written before the file, so that a killed process loses nothing of it.
    """

    def __init__(self, folder: Path, chance: random.Random, name: str) -> None:
        super().__init__(chance, name)
        self.folder = folder
        self.journal = folder.with_name(f"{folder.name}.journal")

    def note(self, *, wrote: str = "", removed: str = "") -> None:
        with self.journal.open("a") as file:
            file.write(json.dumps({"wrote": WORD.findall(wrote), "removed": WORD.findall(removed)}) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def act(self) -> None:
        paths = sorted(path for path in self.folder.rglob("*.md") if ".conflict-" not in path.name)
        often = [self.append, self.append, self.append, self.replace, self.replace]
        actions = [*often, *often, self.rename, self.rename, self.remove, self.copy, self.cut]
        if not paths or self.chance.random() < 0.05:
            self.create()
        else:
            self.chance.choice(actions)(self.chance.choice(paths))

    def create(self) -> None:
        text = f"# Note {self.word()}\n\nNew text {self.word()}.\n"
        self.save(self.folder / f"note-{self.chance.randrange(10**6)}.md", text, "")

    def append(self, path: Path) -> None:
        old = path.read_text()
        self.save(path, f"{old}\nAppended {self.word()}.\n", old)

    def replace(self, path: Path) -> None:
        old = path.read_text()
        head = re.match(r"---\n.*?^---\n", old, re.DOTALL | re.MULTILINE)
        self.save(path, f"{head[0] if head else ''}\n# Title {self.word()}\n\nReplaced {self.word()}.\n", old)

    def rename(self, path: Path) -> None:
        target = self.folder / self.chance.choice(["", "sub"]) / f"moved-{self.chance.randrange(10**6)}.md"
        target.parent.mkdir(exist_ok=True)
        path.rename(target)

    def remove(self, path: Path) -> None:
        self.note(removed=path.read_text())
        path.unlink()

    def copy(self, path: Path) -> None:
        text = path.read_text()
        self.save(self.folder / f"copy-{self.chance.randrange(10**6)}.md", f"{text}\nOf the copy {self.word()}.\n", "")

    # A save that was interrupted: the end is missing
    def cut(self, path: Path) -> None:
        old = path.read_text()
        self.save(path, old[: self.chance.randrange(len(old) + 1)], old)

    # As editors do: some write into the file, others replace it
    def save(self, path: Path, text: str, old: str) -> None:
        removed = set(WORD.findall(old)) - set(WORD.findall(text))
        self.note(wrote=text, removed=" ".join(removed))
        if self.chance.random() < 0.5:
            path.write_text(text)
        else:
            temporary = path.with_name(f".{path.name}.swp")
            temporary.write_text(text)
            temporary.replace(path)

    def expected(self) -> set[str]:
        """Return the words that must be found somewhere."""
        words: set[str] = set()
        for line in self.journal.read_text().splitlines():
            entry = json.loads(line)
            words = words - set(entry["removed"]) | set(entry["wrote"])
        return words


def run_interrupted(folder: str, seed: str, kill_at: str, edit_at: str) -> None:
    """Mirror a folder; edit a file at a call into the watched modules, and end the process at another."""
    user, calls = User(Path(folder), random.Random(int(seed)), f"m{seed}"), count(1)

    def interrupt(frame: FrameType, event: str, _: Any) -> None:
        if not any(name in frame.f_code.co_filename for name in WATCHED):
            return
        number = next(calls)
        if number == int(edit_at):
            sys.setprofile(None)
            user.act()
            sys.setprofile(interrupt)
        if number == int(kill_at):
            os.kill(os.getpid(), signal.SIGKILL)

    with use_store(project_store("alpha")), use_origin(source="service", actor="ada"):
        sys.setprofile(interrupt)
        Mirror(Path(folder), FolderForm.MARKDOWN, adopt=True, allow_deletions=True).run()
        sys.setprofile(None)
