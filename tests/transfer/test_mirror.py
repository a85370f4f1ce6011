"""A mirrored folder: edits on each side reach the other, and no text is lost where both change, or by a kill."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path
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
from memories.selectors.conflicts import open_conflicts
from memories.selectors.versions import versions_of
from memories.services import delete_memory, resolve_conflict, restore_memory, update_memory, write_memory
from memories.services.relations import create_relation
from memoryhub.core import log
from memoryhub.core.errors import ConfirmationRequired, Conflict, HubError, Invalid, Locked
from memoryhub.core.models import RawEvent
from memoryhub.transfer.folder import Form
from memoryhub.transfer.mirror import files
from memoryhub.transfer.mirror import state as mirror_state
from memoryhub.transfer.mirror.run import Mirror
from memoryhub.transfer.mirror.steps import Report
from tests import forks
from tests.secrets_made import SECRETS
from tests.support import HubTestCase
from tests.transfer.mirror_process import WORD, User
from tests.web.server import poll

ROOT = Path(__file__).parents[2]


class MirrorTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="ada"))
        self.folder = self.home / "out"

    def write(self, title: str = "Use WAL", content: str = "One.\n\nTwo.", **fields: Any) -> int:
        return write_memory(command=MemoryWrite(title=title, content=content, **fields)).id

    def change(self, memory_id: int, **fields: Any) -> None:
        update_memory(command=MemoryUpdate(id=memory_id, **fields))

    def run_mirror(self, form: Form = Form.MARKDOWN, *, preview: bool = False, **options: bool) -> Report:
        return Mirror(self.folder, form, **options).run(preview=preview)

    def done(self, **options: Any) -> list[tuple[str, str]]:
        return [(step.did, step.path) for step in self.run_mirror(**options).steps]

    def assert_quiet(self) -> None:
        self.assertEqual(self.done(), [])

    def path(self, name: str = "memories/use-wal.md") -> Path:
        return self.folder / name

    def text(self, name: str = "memories/use-wal.md") -> str:
        return self.path(name).read_text()

    def edit(self, old: str, new: str, name: str = "memories/use-wal.md") -> None:
        text = self.text(name)
        self.assertIn(old, text)
        self.path(name).write_text(text.replace(old, new))

    def content(self, memory_id: int) -> str:
        return str(Memory.objects.get(id=memory_id).content)

    def contents(self, memory_id: int) -> list[str]:
        return [version["content"] for version in versions_of([memory_id])[memory_id]]


class OneSideTests(MirrorTestCase):
    def test_the_store_is_written_to_the_folder(self) -> None:
        wal = self.write(tags=["storage"], kind="guideline", topic_key="db/wal")
        old = self.write("No locks", "Nothing.")
        create_relation(command=RelationCreate(source=str(wal), relation="related_to", target=str(old)))
        self.assertEqual({did for did, _ in self.done()}, {"written"})
        self.assertIn('related_to: ["memories/no-locks.md"]', self.text())
        self.assertTrue(self.text().endswith("# Use WAL\n\nOne.\n\nTwo.\n"))
        self.assert_quiet()
        self.change(old, title="Few locks", content="Three.")
        self.assertEqual(self.done(), [("written", "memories/no-locks.md")])
        self.assertIn("# Few locks\n\nThree.\n", self.text("memories/no-locks.md"))
        delete_memory(command=MemoryDelete(id=old))
        self.assertEqual(sorted(self.done()), [("removed", "memories/no-locks.md"), ("written", "memories/use-wal.md")])
        self.assertNotIn("related_to", self.text())
        self.assert_quiet()

    def test_an_edit_becomes_a_version(self) -> None:
        wal = self.write(tags=["storage"])
        self.run_mirror()
        self.edit("Two.", "Two, and three.")
        self.edit('tags: ["storage"]', "tags:\n  - Storage\n  - sqlite\nmood: good")
        self.edit("# Use WAL", "# Use WAL mode")
        before = self.text()
        self.assertEqual(self.done(), [("updated", "memories/use-wal.md")])
        memory = Memory.objects.get()
        self.assertEqual(
            (memory.title, memory.content, memory.tags),
            ("Use WAL mode", "One.\n\nTwo, and three.", ["sqlite", "storage"]),
        )
        [version, _] = versions_of([wal])[wal]
        self.assertEqual((version["base_version"], version["actor"]), (1, "ada"))
        self.assertEqual(version["reason"], "edited in out/memories/use-wal.md")
        self.assertEqual(self.text(), before)
        self.assert_quiet()
        self.change(wal, content="Four.")
        self.run_mirror()
        self.assertIn("mood: good\n", self.text())
        self.assertIn("# Use WAL mode\n\nFour.\n", self.text())

    def test_a_new_file_becomes_a_memory_and_gets_its_id(self) -> None:
        self.write()
        self.run_mirror()
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
        wal, old = self.write(), self.write("No locks", "Nothing.")
        create_relation(command=RelationCreate(source=str(wal), relation="related_to", target=str(old)))
        self.run_mirror()
        self.path("memories/no-locks.md").rename(self.folder / "locks.md")
        self.edit("No locks", "Few locks", "locks.md")
        self.assertEqual(sorted(self.done()), [("updated", "locks.md"), ("written", "memories/use-wal.md")])
        self.assertIn('related_to: ["locks.md"]', self.text())
        self.assertEqual(Memory.objects.get(id=old).title, "Few locks")
        self.change(old, content="Three.")
        self.assertEqual(self.done(), [("written", "locks.md")])
        self.assert_quiet()

    def test_a_new_file_at_the_place_of_a_moved_one_is_new(self) -> None:
        wal = self.write()
        self.run_mirror()
        self.path().rename(self.folder / "wal.md")
        self.path().write_text("# Use WAL again\n\nAll new.\n")
        self.assertEqual(self.done(), [("created", "memories/use-wal.md")])
        self.assertEqual((self.contents(wal), Memory.objects.count()), (["One.\n\nTwo."], 2))
        self.assert_quiet()

    def test_a_copy_is_named_until_it_differs(self) -> None:
        self.write()
        self.run_mirror()
        self.path("copy.md").write_text(self.text())
        [step] = self.run_mirror().steps
        self.assertEqual((step.did, step.path, step.why), ("left", "copy.md", "a copy of memories/use-wal.md"))
        self.edit("Two.", "Two of the copy.", "copy.md")
        self.assertEqual(self.done(), [("created", "copy.md")])
        self.assertEqual(
            sorted(Memory.objects.values_list("content", flat=True)), ["One.\n\nTwo of the copy.", "One.\n\nTwo."]
        )
        self.assert_quiet()

    def test_front_matter_that_was_removed_is_written_again(self) -> None:
        wal = self.write()
        self.run_mirror()
        self.path().write_text("# Use WAL\n\nAll new.\n")
        self.run_mirror()
        self.assertEqual(self.contents(wal), ["All new.", "One.\n\nTwo."])
        self.assertIn("\nmemory: ", self.text())
        self.assert_quiet()

    def test_a_deleted_file_deletes_its_memory_and_can_come_back(self) -> None:
        wal = self.write()
        self.run_mirror()
        text = self.text()
        self.path().unlink()
        self.assertEqual(self.done(), [("deleted", "memories/use-wal.md")])
        self.assertIsNotNone(Memory.objects.get(id=wal).deleted_at)
        self.assert_quiet()
        self.path().write_text(text)
        self.assertEqual(self.done(), [("restored", "memories/use-wal.md")])
        self.assertIsNone(Memory.objects.get(id=wal).deleted_at)
        self.assert_quiet()

    def test_many_missing_files_are_refused(self) -> None:
        for number in range(21):
            self.write(f"Memory {number}", f"Text {number}.")
        self.run_mirror()
        files = sorted(self.path("memories").iterdir())
        for path in files[:11]:
            path.unlink()
        with self.assertRaisesRegex(
            Conflict, "11 of 21 files are gone from .*; bring them back, or pass --allow-deletions"
        ):
            self.run_mirror()
        self.assertEqual(Memory.objects.live().count(), 21)
        self.assertEqual(len(self.done(allow_deletions=True)), 11)
        self.assertEqual(Memory.objects.live().count(), 10)
        for path in files[11:]:
            path.unlink()
        self.path("memories").rmdir()
        self.folder.rmdir()
        with self.assertRaisesRegex(Conflict, "is gone; bring it back"):
            self.run_mirror(allow_deletions=True)

    def test_decisions_are_written_but_not_read(self) -> None:
        record_decision(command=DecisionRecord(title="Keep it", chosen="SQLite", rationale="It is small."))
        self.run_mirror()
        name, before = "decisions/keep-it.md", self.text("decisions/keep-it.md")
        self.assert_quiet()
        self.edit("small", "tiny", name)
        [step] = self.run_mirror().steps
        self.assertEqual(
            step.why, "decisions are superseded, not edited; the edit is in decisions/keep-it.conflict-1.md"
        )
        self.assertEqual(self.text(name), before)
        self.assertIn("It is tiny.", self.text("decisions/keep-it.conflict-1.md"))
        self.path(name).unlink()
        self.path("decisions/own.md").write_text("# Own\n\n## Decision\n\nText.\n")
        self.assertEqual(self.done(), [("left", "decisions/own.md"), ("written", name)])
        self.assertEqual(self.text(name), before)

    def test_obsidian_has_wiki_links_and_tags_without_spaces(self) -> None:
        wal, old = self.write(tags=["two words"]), self.write("No locks", "Nothing.")
        create_relation(command=RelationCreate(source=str(wal), relation="related_to", target=str(old)))
        self.path(".obsidian").mkdir(parents=True)
        self.path(".obsidian/notes.md").write_text("# Not read")
        self.run_mirror(Form.OBSIDIAN)
        self.assertIn('related_to: ["[[memories/no-locks]]"]', self.text())
        self.assertIn('tags: ["two-words"]', self.text())
        self.edit("Two.", "Three.")
        self.assertEqual(self.done(form=Form.OBSIDIAN), [("updated", "memories/use-wal.md")])
        self.assertEqual((Memory.objects.get(id=wal).tags, Memory.objects.count()), (["two words"], 2))
        with self.assertRaisesRegex(Conflict, "is a mirror of .*alpha in the form obsidian"):
            self.run_mirror(Form.MARKDOWN)


class BothSidesTests(MirrorTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.wal = self.write()
        self.run_mirror()

    @tag("backend")
    def test_both_texts_are_kept_when_both_sides_change(self) -> None:
        self.change(self.wal, content="Of the store.")
        self.edit("Two.", "Of the folder.")
        [step] = self.run_mirror().steps
        self.assertEqual((step.did, step.path), ("conflict", "memories/use-wal.md"))
        self.assertIn("the other one in memories/use-wal.conflict-1.md", step.why)
        self.assertEqual(self.contents(self.wal), ["One.\n\nOf the folder.", "Of the store.", "One.\n\nTwo."])
        self.assertIn("Of the store.", self.text("memories/use-wal.conflict-1.md"))
        [conflict] = open_conflicts([self.wal])[self.wal]
        self.assert_quiet()
        resolve_conflict(command=ConflictResolve(id=conflict, resolution="keep_a"))
        self.assertEqual({path for _, path in self.done()}, {"memories/use-wal.conflict-1.md", "memories/use-wal.md"})
        self.assertIn("Of the store.", self.text())
        self.assertEqual(len(list(self.path("memories").iterdir())), 1)
        self.assert_quiet()

    def test_a_save_from_an_old_version_is_a_conflict(self) -> None:
        opened = self.text()
        self.change(self.wal, content="Of the store.")
        self.run_mirror()
        self.path().write_text(opened.replace("Two.", "Of the editor."))
        self.assertEqual(self.done(), [("conflict", "memories/use-wal.md")])
        self.assertEqual(self.contents(self.wal)[0], "One.\n\nOf the editor.")
        self.assertEqual(list(open_conflicts([self.wal])), [self.wal])

    def test_an_old_version_that_git_brings_back_becomes_current(self) -> None:
        first = self.text()
        self.change(self.wal, content="Of the store.")
        self.run_mirror()
        self.path().write_text(first)
        self.assertEqual(self.done(), [("updated", "memories/use-wal.md")])
        self.assertEqual((self.content(self.wal), open_conflicts([self.wal])), ("One.\n\nTwo.", {}))

    def test_a_save_while_the_file_is_written_is_not_lost(self) -> None:
        for hook in ("os.fsync", "_exchange"):
            with self.subTest(hook=hook):
                self.change(self.wal, content=f"Of the store, at {hook}.")
                real = os.fsync if hook == "os.fsync" else files._exchange
                saves = iter([f"Saved at {hook}."])

                def save(*given: Any, real: Any = real, saves: Any = saves) -> Any:
                    for text in saves:
                        self.path().write_text(f"{self.text()}\n{text}\n")
                    return real(*given)

                with mock.patch(f"memoryhub.transfer.mirror.files.{hook}", save):
                    [step] = self.run_mirror().steps
                self.assertEqual((step.did, step.why), ("left", "it changed while it was to be written"))
                self.assertEqual(self.done(), [("conflict", "memories/use-wal.md")])
                self.assertIn(f"Saved at {hook}.", self.content(self.wal))
                self.assertIn(f"Of the store, at {hook}.", self.contents(self.wal))
                self.assert_quiet()

    def test_the_same_change_on_both_sides_is_none(self) -> None:
        self.change(self.wal, content="Same.")
        self.edit("One.\n\nTwo.", "Same.")
        self.run_mirror()
        self.assertEqual(self.contents(self.wal), ["Same.", "One.\n\nTwo."])
        self.assertEqual(open_conflicts([self.wal]), {})
        self.assert_quiet()

    def test_the_edit_of_a_deleted_memory_is_kept_beside(self) -> None:
        delete_memory(command=MemoryDelete(id=self.wal))
        self.edit("Two.", "Of the folder.")
        self.assertEqual(self.done(), [("conflict", "memories/use-wal.md")])
        self.assertFalse(self.path().exists())
        self.assertIn("Of the folder.", self.text("memories/use-wal.conflict-1.md"))
        self.assert_quiet()

    def test_a_file_deleted_while_the_store_changed_comes_back(self) -> None:
        self.change(self.wal, content="Of the store.")
        self.path().unlink()
        self.assertEqual(self.done(), [("written", "memories/use-wal.md")])
        self.assertIn("Of the store.", self.text())

    @tag("backend")
    def test_without_its_state_the_mirror_compares_by_revision(self) -> None:
        other = self.write("No locks", "Nothing.")
        stale = self.write("Stale", "Old.")
        self.run_mirror()
        self.change(stale, content="Of the store.")
        self.change(other, content="Of the store.")
        self.edit("Nothing.", "Of the folder.", "memories/no-locks.md")
        self.forget_state()
        self.assertEqual(
            sorted(self.done()),
            [("conflict", "memories/no-locks.md"), ("read", "memories/use-wal.md"), ("written", "memories/stale.md")],
        )
        self.assertEqual(len(self.contents(other)), 3)
        self.assertIn("Of the store.", self.text("memories/stale.md"))
        self.assertEqual(len(self.contents(stale)), 2)
        self.assert_quiet()

    def forget_state(self) -> None:
        for path in (self.home / "mirrors").iterdir():
            path.unlink()

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
        self.change(self.wal, content="Zanzibar in the store.")
        self.edit("Two.", "Zanzibar in the folder.")
        self.run_mirror()
        self.edit("Keep.", "Kept, and edited.", "memories/zanzibar-plans.md")
        select = {"text": "Zanzibar", "ignore_case": True}
        token = preview_redaction(command=RedactionSelect(**select)).confirm_token
        done = redact(command=RedactionRun(**select, confirm_token=token))
        self.assertIn(f"3 files of the mirror {self.folder}", [place.where for place in done.left])
        self.run_mirror()
        self.assertIn("Kept, and edited.\n\n[REDACTED:removed", self.content(other))
        self.run_mirror()
        texts = {str(path): path.read_text() for path in self.folder.rglob("*") if path.is_file()}
        self.assertNotIn("zanzibar", str(texts).lower())
        self.assert_quiet()

    def test_an_erased_memory_takes_its_files_along(self) -> None:
        self.change(self.wal, content="Of the store.")
        self.edit("Two.", "Of the folder.")
        self.run_mirror()
        self.edit("Of the folder.", "Edited again.")
        delete_memory(command=MemoryDelete(id=self.wal))
        with self.assertRaises(ConfirmationRequired) as asked:
            delete_memory(command=MemoryDelete(id=self.wal, permanent=True))
        token = asked.exception.data["confirm_token"]
        delete_memory(command=MemoryDelete(id=self.wal, permanent=True, confirm_token=token))
        self.run_mirror()
        self.assertEqual(list(self.path("memories").iterdir()), [])


class UnusualFilesTests(MirrorTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.wal = self.write()
        self.run_mirror()

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
        self.assertEqual((Memory.objects.count(), outside.read_text()), (1, "# Outside\n\nText.\n"))

    def test_an_emptied_file_changes_nothing(self) -> None:
        self.path().write_text("")
        self.assertEqual({did for did, _ in self.done()}, {"left"})
        self.assertEqual(self.contents(self.wal), ["One.\n\nTwo."])

    def test_nothing_is_written_through_a_link(self) -> None:
        (self.home / "elsewhere").mkdir()
        self.path().unlink()
        self.path("memories").rmdir()
        self.path("memories").symlink_to(self.home / "elsewhere")
        self.change(self.wal, content="Three.")
        [step] = self.run_mirror().steps
        self.assertEqual(step.did, "left")
        self.assertIn("leads out of the folder", step.why)
        self.assertEqual(list((self.home / "elsewhere").iterdir()), [])
        self.path("memories").unlink()
        self.assertEqual(self.done(), [("written", "memories/use-wal.md")])

    def test_a_preview_changes_nothing(self) -> None:
        self.change(self.wal, content="Three.")
        self.path("note.md").write_text("Text.\n")
        state = (next((self.home / "mirrors").iterdir())).read_bytes()
        self.assertEqual(sorted(self.done(preview=True)), [("created", "note.md"), ("written", "memories/use-wal.md")])
        self.assertEqual((self.text("note.md"), Memory.objects.count()), ("Text.\n", 1))
        self.assertEqual((next((self.home / "mirrors").iterdir())).read_bytes(), state)
        self.assertIn("Two.", self.text())

    def test_one_mirror_at_a_time(self) -> None:
        with mirror_state.locked(self.folder.resolve()), self.assertRaisesRegex(Locked, "another mirror of"):
            self.run_mirror()

    def test_a_folder_of_notes_is_not_taken_for_memories(self) -> None:
        notes = self.home / "notes"
        notes.mkdir()
        for number in range(11):
            (notes / f"{number}.md").write_text(f"Text {number}.\n")
        with self.assertRaisesRegex(Conflict, "has 11 Markdown files that are no memories"):
            Mirror(notes, Form.MARKDOWN).run()
        self.assertEqual(Memory.objects.count(), 1)
        self.assertEqual(Mirror(notes, Form.MARKDOWN, adopt=True).run().counts, {"written": 1, "created": 11})
        with self.assertRaisesRegex(Invalid, "is not a folder"):
            Mirror(notes / "0.md", Form.MARKDOWN).run()

    def test_another_hub_reads_the_files_as_its_own_memories(self) -> None:
        self.write("No locks", "Nothing.", topic_key="db/locks")
        self.run_mirror()
        texts = {path.name: path.read_text() for path in self.path("memories").iterdir()}
        state = next((self.home / "mirrors").iterdir())
        ours = state.read_bytes()
        state.unlink()
        with self.store("beta", actor="ben"):
            self.write("Few locks", "Of Ben, too.", topic_key="db/locks")
            self.assertEqual(self.run_mirror().counts, {"created": 1, "updated": 1})
            self.assertEqual(Memory.objects.get(topic_key="db/locks").content, "Nothing.")
            self.assertEqual({path.name: path.read_text() for path in self.path("memories").iterdir()}, texts)
            self.assert_quiet()
            bens = Memory.objects.get(title="Use WAL")
            self.change(bens.id, content="Of Ben.")
            self.run_mirror()
            self.assertEqual(len(list(self.path("memories").iterdir())), 2)
        state.write_bytes(ours)
        self.assertEqual(self.done(), [("updated", "memories/use-wal.md")])
        self.assertEqual(self.contents(self.wal), ["Of Ben.", "One.\n\nTwo."])
        self.assert_quiet()


class MirrorCommandTests(MirrorTestCase):
    def test_the_command_and_its_watch(self) -> None:
        wal = self.write()
        code, printed, _ = self.command("--json")
        self.assertEqual((code, json.loads(printed)["counts"]), (0, {"written": 1}))
        self.assertIn("nothing has changed", self.command()[1])
        process = self.enterContext(forks.Fork(forks.COMMAND, *self.arguments("--watch")))
        self.addCleanup(process.kill)
        self.assertIn("nothing has changed", process.stdout.readline())
        code, printed, errors = self.command()
        self.assertEqual((code, printed), (7, ""))
        self.assertIn("another mirror of", errors)
        self.edit("Two.", "Of the folder.")
        poll(lambda: self.content(wal) == "One.\n\nOf the folder.", what="the edit is in the store")
        self.change(wal, content="Of the store.")
        poll(lambda: "Of the store." in self.text(), what="the change is in the folder")
        os.kill(process.pid, signal.SIGINT)
        output, errors = process.communicate()
        self.assertIn("updated  memories/use-wal.md\n", output)
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
            killed += self.mirror(folder, 1000 * seed + round_number, chance) == -9
        self.assertGreater(killed, 0)
        self.settle(folder)
        self.assertEqual((user.expected() | agent.written) - self.found(folder), set())
        self.assertTrue(log.verify().ok)

    def mirror(self, folder: Path, seed: int, chance: random.Random) -> int:
        counts = [str(int(10 ** chance.uniform(1.5, 4.5))), str(int(10 ** chance.uniform(1.5, 4.5)))]
        code, _, errors = forks.run_module("tests.transfer.mirror_process", str(folder), str(seed), *counts)
        self.assertIn(code, (0, -9), errors)
        return code

    # A run leaves what it read to the next one where a file was being saved
    def settle(self, folder: Path) -> None:
        for _ in range(5):
            report = Mirror(folder, Form.MARKDOWN, adopt=True, allow_deletions=True).run()
            if set(report.counts) <= {"left"}:
                return
        self.fail(f"the mirror doesn't settle: {report.steps}")

    def found(self, folder: Path) -> set[str]:
        texts = [path.read_text() for path in folder.rglob("*.md")]
        payloads = RawEvent.objects.filter(stream_id__startswith="memory:").values_list("payload_json", flat=True)
        texts += [json.dumps(json.loads(payload or "{}")) for payload in payloads]
        return {word for text in texts for word in WORD.findall(text)}


class Agent:
    """Writes to the store at random, as agents do. What is in the log cannot be lost; its words must stay readable."""

    def __init__(self, chance: random.Random, name: str) -> None:
        self.chance, self.name, self.count = chance, name, 0
        self.written: set[str] = set()

    def word(self) -> str:
        self.count += 1
        word = f"w{self.name[0]}{self.name[1:]}x{self.count}"
        self.written.add(word)
        return word

    def act(self) -> None:
        ids = sorted(Memory.objects.live().values_list("id", flat=True))
        actions = [self.change, self.change, self.change, self.delete, self.restore]
        if len(ids) < _FEWEST:
            self.write()
        else:
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
        if deleted:
            try:
                restore_memory(command=MemoryTouch(id=deleted.id))
            except HubError:
                return  # its title is taken
