"""A mirrored folder: edits on each side reach the other, and no text is lost where both have changed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from governance.redaction.schemas import RedactionRun, RedactionSelect
from governance.redaction.service import preview_redaction, redact
from memories.models import Memory
from memories.schemas import ConflictResolve, MemoryDelete, MemoryUpdate, MemoryWrite
from memories.schemas.links import RelationCreate
from memories.selectors.conflicts import open_conflicts
from memories.selectors.versions import versions_of
from memories.services import delete_memory, resolve_conflict, update_memory, write_memory
from memories.services.relations import create_relation
from memoryhub.core.errors import Conflict, Invalid, Locked
from memoryhub.transfer import mirror_state
from memoryhub.transfer.folder import Form
from memoryhub.transfer.mirror import Mirror, Report
from tests.support import HubTestCase


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
        old = self.write("No locks!")
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
