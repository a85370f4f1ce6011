"""Records of a source become memories and sessions: previews, batches, repeated imports and their undo."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

from django.test import tag

from governance.imports.batches import begin_import, end_import, find_batch, in_batch, list_batches
from governance.imports.undo import preview_undo, undo_import
from memories.models import Memory, Relation
from memories.pack import compose_pack
from memories.schemas import MemoryTouch, MemoryUpdate, MemoryWrite
from memories.schemas.links import RelationCreate
from memories.schemas.query import ContextPackRequest
from memories.services import delete_memory, update_memory, write_memories, write_memory
from memories.services.relations import create_relation
from memoryhub.core import log
from memoryhub.core.errors import Conflict, Invalid, NotFound, PreconditionFailed
from memoryhub.core.log import table_digests
from memoryhub.core.models import RawEvent
from memoryhub.core.stores.store import list_projects
from memoryhub.transfer.importing import Importer, project_of
from memoryhub.transfer.records import LeftOut, MemoryRecord, Record, Report, SessionRecord, TurnRecord
from memoryhub.transfer.sources import SOURCES
from sessions_app.models import Session, Turn
from sessions_app.schemas import TurnBegin
from sessions_app.services.turns import begin_turn
from tests.support import HubTestCase

WRITTEN = datetime(2024, 3, 1, 8, 30, tzinfo=UTC)
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


def session(key: str, *prompts: str, **fields: Any) -> SessionRecord:
    turns = tuple(TurnRecord(prompt, f"Answer to {prompt}", WRITTEN) for prompt in prompts)
    return SessionRecord(key=key, purpose="Chart the harbour", turns=turns, started=WRITTEN, **fields)


class ImportTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="claude", source="mcp"))
        write_memory(command=MemoryWrite(title="Known", content="Known already."))

    def preview(self, records: Iterable[Record]) -> Report:
        (report,) = Importer("tool", "alpha").preview(records)
        return report

    def run_it(self, records: Iterable[Record]) -> Report:
        (report,) = Importer("tool", "alpha").run(records, place="/data/tool.db")
        return report

    def counts(self, report: Report) -> dict[str, int]:
        return {name: count for name, count in report.counts.items() if name != "relations"}

    def undo(self, report: Report) -> None:
        assert report.batch
        undo_import(batch_id=report.batch, token=preview_undo(report.batch).token)


class MemoryImportTests(ImportTestCase):
    @tag("backend")
    def test_a_preview_says_what_the_import_does_and_changes_nothing(self) -> None:
        before = log.head()
        preview = self.preview(RECORDS)
        self.assertEqual(log.head(), before)
        self.assertEqual(preview.counts, {"created": 3, "duplicates": 2, "left_out_count": 4})
        report = self.run_it(RECORDS)
        self.assertEqual(self.counts(report), preview.counts)
        self.assertEqual((report.secrets, report.left_out), (preview.secrets, preview.left_out))
        self.assertEqual(sum(report.secrets.values()), 1)
        self.assertEqual(report.relations, 1)
        whys = [left.why for left in report.left_out]
        self.assertEqual(whys[0], "it has no text")
        self.assertIn("recipe", whys[1])

    def test_importing_again_changes_nothing_and_what_changed_is_revised(self) -> None:
        self.run_it(RECORDS)
        before = log.head()
        again = self.run_it(RECORDS)
        self.assertEqual(self.counts(again), {"unchanged": 3, "duplicates": 2, "left_out_count": 4})
        self.assertEqual((log.head(), again.batch), (before, None))
        changed = self.run_it([memory("a", "Retry five times."), *RECORDS[1:]])
        self.assertEqual((changed.revised, changed.unchanged), (1, 2))
        self.assertEqual(self.imported("a").content, "Retry five times.")

    def imported(self, key: str) -> Memory:
        found: Memory = Memory.objects.get(topic_key=f"import:tool:{key}")
        return found

    def test_what_a_person_deleted_stays_deleted(self) -> None:
        self.run_it(RECORDS)
        delete_memory(command=MemoryTouch(id=self.imported("b").id))
        again = self.run_it(RECORDS)
        self.assertEqual((again.deleted, again.created), (1, 0))

    def test_what_was_changed_here_since_is_not_overwritten(self) -> None:
        self.run_it(RECORDS)
        mine = self.imported("a")
        update_memory(command=MemoryUpdate(id=mine.id, base_version=1, content="Retry four times."))
        again = self.run_it(RECORDS)
        self.assertEqual((again.unchanged, again.conflicts), (3, 0))
        changed = self.run_it([memory("a", "Retry five times."), *RECORDS[1:]])
        self.assertEqual((changed.unchanged, changed.conflicts), (2, 1))
        self.assertIn(
            f"it was changed in #{mine.id} since it was imported, too", [left.why for left in changed.left_out]
        )
        self.assertEqual(self.imported("a").content, "Retry four times.")

    @tag("backend")
    def test_an_import_is_undone_whole(self) -> None:
        before = table_digests()
        report = self.run_it([*RECORDS, session("s1", "Where is the buoy?")])
        self.assertEqual((Relation.objects.count(), Session.objects.count()), (1, 1))
        self.undo(report)
        self.assertEqual(table_digests(), before)

    def test_times_and_sessions_of_the_source_are_kept(self) -> None:
        key = "0a1b2c3d-0000-4000-8000-00000000000a"
        self.run_it([session(key, "Why?"), memory("a", "Because.", created=WRITTEN, session=key)])
        found = self.imported("a")
        self.assertEqual((found.created_at, found.session_id), (WRITTEN, key))
        self.assertGreater(found.updated_at, WRITTEN)
        self.run_it([memory("b", "From a fast clock.", created=datetime(2999, 1, 1, tzinfo=UTC))])
        self.assertLess(self.imported("b").created_at, datetime(2999, 1, 1, tzinfo=UTC))

    def test_tags_that_the_hub_cannot_hold_are_cut(self) -> None:
        self.run_it([memory("a", "Many tags.", tags=("x" * 90, "two\nlines", " ", *map(str, range(60))))])
        tags = self.imported("a").tags
        self.assertEqual(len(tags), 32)
        self.assertIn("two lines", tags)

    def test_many_records_are_written_in_transactions(self) -> None:
        done: list[int] = []
        records = [memory(str(number), f"Note {number} of many.") for number in range(1_200)]
        (report,) = Importer("tool", "alpha").run(records, place="", progress=done.append)
        self.assertEqual((report.created, done[-1]), (1_200, 1_200))
        self.assertGreater(len(done), 1)


class SessionImportTests(ImportTestCase):
    def test_a_session_becomes_turns_with_prompts_and_answers(self) -> None:
        records = [session("s1", "Where is the buoy?", "And now?", summary="Found it."), session("s2")]
        preview = self.preview(records)
        report = self.run_it(records)
        self.assertEqual(preview.counts, {"sessions": 1, "left_out_count": 1})
        self.assertEqual(report.counts, preview.counts)
        found = Session.objects.get()
        self.assertEqual((found.session_id, found.status, found.summary), ("tool:s1", "completed", "Found it."))
        self.assertEqual((found.started_at, found.ended_at), (WRITTEN, WRITTEN))
        turns = Turn.objects.order_by("id").values_list("turn_id", "status", "began_at", "event_count")
        self.assertEqual(list(turns), [("1", "closed", WRITTEN, 2), ("2", "closed", WRITTEN, 2)])
        prompts = RawEvent.objects.filter(event_type="message.user").values_list("payload_json", flat=True)
        self.assertIn("And now?", "".join(prompts))
        self.assertNotIn("And now?", compose_pack(command=ContextPackRequest()))  # it is not what was asked lately

    def test_a_session_that_went_on_gets_its_new_turns_only(self) -> None:
        self.run_it([session("s1", "First?")])
        before = log.head()
        self.assertEqual(self.run_it([session("s1", "First?")]).counts, {"sessions_known": 1})
        self.assertEqual(log.head(), before)
        again = self.run_it([session("s1", "First?", "Second?")])
        self.assertEqual(again.counts, {"sessions_extended": 1})
        self.assertEqual(RawEvent.objects.filter(event_type="message.user").count(), 2)
        self.assertEqual(Turn.objects.count(), 2)

    @tag("backend")
    def test_a_session_that_went_on_since_is_kept_by_an_undo(self) -> None:
        first = self.run_it(
            [session("s1", "First?"), session("s2", "Other?"), memory("a", "Said in it.", session="s1")]
        )
        second = self.run_it([session("s1", "First?", "Second?"), session("s2", "Other?"), memory("a", "Said in it.")])
        assert first.batch
        plan = preview_undo(first.batch)
        self.assertEqual([kept.why for kept in plan.kept], ["it went on since"])
        self.assertEqual(plan.items, {"session": 1, "turn": 1, "memory": 1})
        self.undo(second)
        self.assertEqual(preview_undo(first.batch).items, {"session": 2, "turn": 2, "memory": 1})
        self.undo(first)
        self.assertEqual((Session.objects.count(), Turn.objects.count()), (0, 0))

    def test_a_session_that_the_hub_has_recorded_is_left_alone(self) -> None:
        key = "0a1b2c3d-0000-4000-8000-00000000000a"
        begin_turn(command=TurnBegin(session_id=key))
        before = log.head()
        self.assertEqual(self.run_it([session(key, "Asked and recorded?")]).counts, {"sessions_known": 1})
        self.assertEqual(log.head(), before)

    def test_a_secret_in_a_prompt_is_masked_and_counted(self) -> None:
        records = [session("s1", f"Use {TOKEN}, please.", "<private>all of it</private>")]
        preview = self.preview(records)
        self.assertIn("github-token", preview.secrets)
        self.assertEqual(self.run_it(records).secrets, preview.secrets)
        self.assertFalse(RawEvent.objects.filter(payload_json__contains=TOKEN).exists())


class ProjectsTests(ImportTestCase):
    def test_records_go_to_the_projects_that_they_name(self) -> None:
        records = [
            memory("a", "Of none."),
            memory("b", "Of another.", project="/home/me/Tide Charts"),
            memory("c", "Of the same.", project="tide-charts"),
        ]
        preview = Importer("tool", "alpha").preview(records)
        self.assertEqual({report.project: report.created for report in preview}, {"alpha": 1, "tide-charts": 2})
        self.assertNotIn("tide-charts", list_projects())
        reports = Importer("tool", "alpha").run(records, place="")
        self.assertEqual({report.project: report.created for report in reports}, {"alpha": 1, "tide-charts": 2})
        (one,) = Importer("tool", "alpha", only="tide-charts").preview(records)
        self.assertEqual((one.project, one.unchanged), ("tide-charts", 2))
        (forced,) = Importer("tool", "alpha", is_only=True).preview(records)
        self.assertEqual((forced.project, forced.created, forced.unchanged), ("alpha", 2, 1))

    def test_one_import_creates_at_most_so_many_projects(self) -> None:
        records = [memory(str(number), f"Text {number}.", project=f"p{number}") for number in range(501)]
        before = list_projects()
        with self.assertRaisesRegex(Invalid, r"more than 500 projects; import one of them with --only ID"):
            Importer("tool", "alpha").preview(records)
        self.assertEqual(list_projects(), before)
        (report,) = Importer("tool", "alpha", only="p7").preview(records)
        self.assertEqual(report.created, 1)

    def test_a_name_of_a_project_can_be_a_folder(self) -> None:
        for name, wanted in {
            "": "alpha",
            "Tide Charts": "tide-charts",
            "C:\\work\\tides\\": "tides",
            "/srv/no-such-folder/tides": "tides",
            "\u6f6e": "alpha",
            "/": "alpha",
        }.items():
            with self.subTest(name):
                self.assertEqual(project_of(name, "alpha"), wanted)


@tag("backend")
class BatchTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="claude", source="mcp"))
        self.old = self.write("How we retry", "Three times.", topic_key="import:tool:retry").id
        self.write("Use tabs", "In every file.", tags=["style"])
        self.before = table_digests()

    def write(self, title: str, content: str, **fields: Any) -> Any:
        return write_memory(command=MemoryWrite(title=title, content=content, **fields))

    def load(self, *texts: str, keys: str = "abcdef") -> tuple[int, list[int]]:
        batch = begin_import(tool="tool", place="/data/tool.db")
        with in_batch("tool", batch):
            commands = [
                MemoryWrite(title=f"From the tool: {key}", content=text, topic_key=f"import:tool:{key}", tags=["tool"])
                for key, text in zip(keys, texts, strict=False)
            ]
            results = write_memories(commands=commands)
            end_import(batch, {"created": len(results)})
        return batch, [result.id for result in results]

    def undo(self, batch: int) -> Any:
        return undo_import(batch_id=batch, token=preview_undo(batch).token)

    def test_a_batch_has_its_provenance(self) -> None:
        batch, ids = self.load("one", "two")
        found = find_batch(batch)
        self.assertEqual((found.tool, found.place, found.counts), ("tool", "/data/tool.db", {"created": 2}))
        self.assertEqual((found.actor, found.is_undone), ("claude", False))
        self.assertEqual(len(ids), 2)

    def test_after_an_undo_the_store_is_as_before(self) -> None:
        batch, _ = self.load("one", "two", "three")
        second = begin_import(tool="tool", place="")
        with in_batch("tool", second):
            self.write("How we retry", "Five times.", topic_key="import:tool:retry")
        self.undo(second)
        done = self.undo(batch)
        self.assertEqual((done.events, done.items, done.kept), (3, {"memory": 3}, []))
        self.assertEqual(table_digests(), self.before)
        self.assertTrue(log.rebuild().identical)
        self.assertEqual([found.is_undone for found in list_batches()], [True, True])

    def test_what_others_changed_or_built_on_since_is_kept_and_named(self) -> None:
        batch, (first, second, third) = self.load("one", "two", "three")
        update_memory(command=MemoryUpdate(id=first, base_version=1, content="one, corrected"))
        built = self.write("A conclusion", "From the second.").id
        create_relation(command=RelationCreate(source=built, relation="derived_from", target=second))
        done = self.undo(batch)
        self.assertEqual(
            [(kept.id, kept.why) for kept in done.kept], [(first, "changed since"), (second, f"#{built} builds on it")]
        )
        self.assertEqual(done.items, {"memory": 1})
        self.assertNotIn(third, self.ids())
        self.assertLessEqual({first, second, built}, self.ids())
        self.assertTrue(log.rebuild().identical)

    def ids(self) -> set[int]:
        return set(Memory.objects.values_list("id", flat=True))

    def test_what_was_undone_can_be_imported_again(self) -> None:
        batch, ids = self.load("one")
        self.undo(batch)
        _, again = self.load("one")
        self.assertNotEqual(ids, again)
        self.assertLessEqual(set(again), self.ids())

    def test_an_undo_that_was_interrupted_is_completed_by_a_rebuild(self) -> None:
        batch, _ = self.load("one")
        with self.assertRaises(RuntimeError), self.failing_rebuild():
            self.undo(batch)
        with self.assertRaisesRegex(Conflict, "if that was interrupted, `memory-hub rebuild` completes it"):
            preview_undo(batch)
        self.assertFalse(log.rebuild().identical)
        self.assertEqual(table_digests(), self.before)

    def failing_rebuild(self) -> Any:
        return mock.patch("governance.imports.undo.log.rebuild", side_effect=RuntimeError("killed"))

    def test_bad_input_changes_nothing(self) -> None:
        batch, _ = self.load("one")
        with self.assertRaisesRegex(NotFound, "there is no import #1;"):
            preview_undo(1)
        with self.assertRaisesRegex(PreconditionFailed, "changed since the preview"):
            undo_import(batch_id=batch, token="0" * 16)
        self.undo(batch)
        with self.assertRaisesRegex(Conflict, "undone already"):
            preview_undo(batch)


# The data of every source, as its tool has written it, and how many memories it becomes
DATA = Path(__file__).parent / "data"
MEMORIES = {
    "agents-md": 4,
    "basic-memory/harbour": 4,
    "claude-code": 2,
    "claude-mem/claude-mem.db": 4,
    "cursor-rules": 5,
    "engram/engram.db": 5,
    "mcp-memory-service/sqlite_vec.db": 5,
    "mem0/get_all.json": 4,
    "mem0/history.db": 5,
    "obsidian": 6,
    "server-memory/memory.jsonl": 2,
}


class SourceTests(HubTestCase):
    def test_every_source_adds_nothing_when_repeated_and_is_undone_whole(self) -> None:
        self.enterContext(self.store("alpha", actor="maya", source="cli"))
        self.assertEqual({place.partition("/")[0] for place in MEMORIES}, set(SOURCES))
        for place, expected in MEMORIES.items():
            source = place.partition("/")[0]
            path = self.home / source  # outside this repository, so that its name is in no key
            if not path.exists():
                shutil.copytree(DATA / source, path)
            path = self.home / place
            with self.subTest(place=place):
                before = table_digests()
                (report,) = self.importer(source).run(SOURCES[source].read(path), place=str(path))
                self.assertEqual((report.created, report.duplicates), (expected, 0))
                imported = table_digests()
                (again,) = self.importer(source).run(SOURCES[source].read(path), place=str(path))
                self.assertEqual((again.changes, again.unchanged, table_digests()), (0, expected, imported))
                assert report.batch
                undo_import(batch_id=report.batch, token=preview_undo(report.batch).token)
                self.assertEqual(table_digests(), before)

    def importer(self, source: str) -> Importer:
        return Importer(source, "alpha", is_only=True)
