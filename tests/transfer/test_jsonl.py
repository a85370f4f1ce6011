from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from random import Random
from typing import ClassVar

from django.db import models

from governance.imports.batches import list_batches
from governance.imports.undo import preview_undo, undo_import
from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub.core import log
from memoryhub.core.events.projection import read_models
from memoryhub.core.models import RawEvent
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import current_store, use_store
from memoryhub.demo.project import demo_store, make_demo
from memoryhub.transfer.importing import Importer
from memoryhub.transfer.jsonl import Export, export_lines
from memoryhub.transfer.records import MemoryRecord, Record, SessionRecord, TurnRecord
from memoryhub.transfer.replaying import ReplayReport, replay_export
from tests.governance.retaining import RetentionTestCase, Story
from tests.governance.rollback_case import DeedTestCase, random_steps
from tests.support import HubTestCase

# Columns with ids, beside primary keys, which all are
IDS = {
    *("placed_by", "end_position", "iteration_id", "memory_id", "source_id", "target_id", "split_id", "decision_id"),
    *("from_id", "to_id", "commit_id", "event", "entity_id", "id"),
}
# Each describes its store as a whole; a store with events of its own keeps its own.
LOCAL = {"sessions_app_setting", "sessions_app_profile", "memories_contextpack", "governance_rollback"}
# Derived from texts that name ids, which no import changes
FROM_TEXT = {"memories_memoryuse", "memories_memorycitation"}


def write_export(path: Path) -> Export:
    path.write_text("".join(export_lines()), encoding="utf-8")
    return Export(path)


def contents(ids: dict[int, int] | None = None, after: int = 0) -> dict[str, list[str]]:
    """Return the rows of every read model as text, with their ids replaced."""
    return {model._meta.db_table: sorted(_rows(model, ids or {}, after)) for model in read_models()}


def _rows(model: type[models.Model], ids: dict[int, int], after: int) -> list[str]:
    columns = [field.column for field in model._meta.local_concrete_fields]
    names = ", ".join(f'"{column}"' for column in columns)
    found = [
        dict(zip(columns, row, strict=True)) for row in rows.fetch(f'SELECT {names} FROM "{model._meta.db_table}"')
    ]
    own = next(iter(name for name in ("id", "event", "memory_id", "commit_id") if name in columns), None)
    return [
        str({name: ids.get(value, value) if name in IDS else value for name, value in row.items()})
        for row in found
        if own is None or row[own] > after
    ]


class ExactTests(HubTestCase):
    def assert_same_in_an_empty_store(self, name: str) -> None:
        before, digests = contents(), log.table_digests()
        export = write_export(self.home / "export.jsonl")
        with self.store(name):
            report = replay_export(export)
            self.assertEqual((report.added, report.left_out), (report.events, {}))
            self.assertEqual(contents(), before)
            self.assertEqual(log.table_digests(), digests)
            self.assertTrue(log.verify().ok)
            self.assertTrue(log.rebuild().identical)
            self.assertEqual(list(export_lines())[1:], export.path.read_text().splitlines(keepends=True)[1:])
            self.assertEqual(replay_export(export), ReplayReport(events=report.events, known=report.events))

    def assert_same_in_a_filled_store(self, name: str) -> ReplayReport:
        export = write_export(self.home / "export.jsonl")
        events = dict(RawEvent.objects.values_list("event_id", "position"))
        before = None
        with self.store(name):
            own = [
                write_memory(command=MemoryWrite(title=f"own {each}", content=f"own {each}")).id for each in range(3)
            ]
            report = replay_export(export)
            ids = {
                events[key]: new for key, new in RawEvent.objects.values_list("event_id", "position") if key in events
            }
            after = contents(after=own[-1])
            self.assertTrue(log.verify().ok)
            self.assertTrue(log.rebuild().identical)
            head = log.head()
            self.assertEqual(replay_export(export).added, 0)
            self.assertEqual(log.head(), head)
        before = contents(ids)
        for table in before.keys() - LOCAL - FROM_TEXT:
            self.assertEqual(after[table], before[table], table)
        return report


class DemoTests(ExactTests):
    def test_the_sample_project(self) -> None:
        make_demo()
        with use_store(demo_store()):
            self.assert_same_in_an_empty_store("copy")


class UndoneImportTests(ExactTests):
    RECORDS: ClassVar[list[Record]] = [
        SessionRecord("s1", "Chart the harbour", (TurnRecord("Where is the buoy?", "North of the pier."),)),
        MemoryRecord("a", "Buoy", "It lies north of the pier.", session="s1", relations=(("related_to", "b"),)),
        MemoryRecord("b", "Pier", "It is closed in winter."),
    ]

    def bring(self) -> int:
        (report,) = Importer("tool", current_store().name).run(self.RECORDS, place="")
        assert report.batch
        return report.batch

    def test_what_was_undone_and_imported_again(self) -> None:
        with self.store("alpha"):
            batch = self.bring()
            undo_import(batch_id=batch, token=preview_undo(batch).token)
            self.bring()
            self.assert_same_in_an_empty_store("copy")
            report = self.assert_same_in_a_filled_store("filled")
            self.assertEqual(list(report.left_out), ["their import was undone"])
        with self.store("filled"):
            second, first = list_batches()
            self.assertEqual((first.is_undone, second.is_undone), (True, False))
            self.assertEqual(preview_undo(second.id).items, {"memory": 2, "relation": 1, "session": 1, "turn": 1})


class RandomStoreTests(ExactTests, DeedTestCase):
    def test_random_changes_and_a_roll_back(self) -> None:
        for seed in range(3):
            with self.subTest(seed=seed), self.store(f"random-{seed}"):
                chance = Random(seed)
                self.prepare([(chance.random() < 0.3, step) for step in random_steps(chance, 90)])
                self.assert_same_in_a_filled_store(f"filled-{seed}")
                self.roll_back(session_id="", actor="mallory")
                self.assert_same_in_an_empty_store(f"copy-{seed}")


class RandomRetentionTests(ExactTests, RetentionTestCase):
    def test_random_sessions_and_erasures(self) -> None:
        for seed in range(2):
            with self.subTest(seed=seed), self.store(f"random-{seed}"):
                Story(seed, 90)
                self.settings(retention=[{"what": "captured", "after_days": 1}, {"what": "deleted", "after_days": 1}])
                with suppress(AssertionError):  # nothing is old enough in some
                    self.run_plan()
                self.assert_same_in_an_empty_store(f"copy-{seed}")
