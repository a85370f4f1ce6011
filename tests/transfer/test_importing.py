"""What becomes of the records of a source: preview and import agree, and importing again changes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from governance.imports import preview_undo, undo_import
from memories.models import Memory, Relation
from memories.schemas import MemoryTouch, MemoryWrite
from memories.services import delete_memory, write_memory
from memoryhub.core import log
from memoryhub.core.log import table_digests
from memoryhub.transfer.importing import Report, preview_import, run_import
from memoryhub.transfer.records import LeftOut, MemoryRecord, Record
from tests.support import HubTestCase

TOKEN = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"


def memory(key: str, content: str, **fields: Any) -> MemoryRecord:
    return MemoryRecord(key=key, title=fields.pop("title", f"Note {key}"), content=content, **fields)


RECORDS: list[Record] = [
    memory("a", "Retry three times.", tags=("net",), relations=(("depends_on", "b"), ("depends_on", "gone"))),
    memory("b", "Wait a second.", kind="guideline"),
    memory("c", "Retry three times."),
    memory("d", "   "),
    memory("e", "Known already."),
    memory("f", f"The token is {TOKEN}."),
    memory("g", "Of no kind.", kind="recipe"),
    memory("h", "x" * 200_000),
    LeftOut("vectors", "vectors are made again"),
]


class ImportingTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="claude", source="mcp"))
        write_memory(command=MemoryWrite(title="Known", content="Known already."))

    def run_it(self, records: Iterable[Record] = RECORDS) -> Report:
        return run_import(records, tool="tool", place="/data/tool.db")

    def counts(self, report: Report) -> dict[str, int]:
        return {name: count for name, count in report.counts.items() if name != "relations"}

    def test_a_preview_says_what_the_import_does_and_changes_nothing(self) -> None:
        before = log.head()
        preview = preview_import(RECORDS, tool="tool")
        self.assertEqual(log.head(), before)
        self.assertEqual(preview.counts, {"created": 3, "duplicates": 2, "left_out_count": 4})
        report = self.run_it()
        self.assertEqual(self.counts(report), preview.counts)
        self.assertEqual((report.secrets, report.left_out), (preview.secrets, preview.left_out))
        self.assertEqual(sum(report.secrets.values()), 1)
        self.assertEqual(report.relations, 1)
        whys = [left.why for left in report.left_out]
        self.assertEqual(whys[0], "it has no text")
        self.assertIn("recipe", whys[1])

    def test_importing_again_changes_nothing_and_what_changed_is_revised(self) -> None:
        self.run_it()
        before = table_digests()
        again = self.run_it()
        self.assertEqual(self.counts(again), {"unchanged": 3, "duplicates": 2, "left_out_count": 4})
        self.assertEqual(table_digests(), before)
        changed = self.run_it([memory("a", "Retry five times."), *RECORDS[1:]])
        self.assertEqual((changed.revised, changed.unchanged), (1, 2))
        self.assertEqual(Memory.objects.get(topic_key="import:tool:a").content, "Retry five times.")

    def test_what_a_person_deleted_stays_deleted(self) -> None:
        self.run_it()
        delete_memory(command=MemoryTouch(id=Memory.objects.get(topic_key="import:tool:b").id))
        again = self.run_it()
        self.assertEqual((again.deleted, again.created), (1, 0))

    def test_an_import_is_undone_whole(self) -> None:
        before = table_digests()
        report = self.run_it()
        self.assertEqual(Relation.objects.count(), 1)
        assert report.batch
        undo_import(batch_id=report.batch, token=preview_undo(report.batch).token)
        self.assertEqual(table_digests(), before)

    def test_many_records_are_written_in_transactions(self) -> None:
        done: list[int] = []
        records = [memory(str(number), f"Note {number} of many.") for number in range(1_200)]
        report = run_import(records, tool="tool", place="", progress=done.append)
        self.assertEqual((report.created, done[-1]), (1_200, 1_200))
        self.assertGreater(len(done), 1)
