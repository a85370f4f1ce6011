"""Records of a source become memories and sessions: previews, batches, repeated imports and their undo."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from django.test import tag

from governance.imports import ImportRun, find_batch, list_batches, preview_undo, undo_import
from governance.models import RollbackAction
from governance.rollback.schemas import RollbackMake, RollbackPlan, RollbackUndo
from governance.rollback.service import preview, roll_back, undo_rollback
from memories.importing import import_markdown
from memories.models import Memory, Relation, SearchDocument
from memories.pack import preview_pack
from memories.schemas import MemoryList, MemoryWrite
from memories.schemas.links import RelationCreate
from memories.schemas.query import ContextPackRequest
from memories.selectors import list_memories
from memories.services import write_memories
from memories.services.links import create_relation
from memoryhub.core import clock, log
from memoryhub.core.errors import ConflictError, Invalid, NotFound, PreconditionFailed
from memoryhub.core.log import table_digests
from memoryhub.core.models import Quarantine, RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import list_projects
from memoryhub.transfer.importing import Importer, project_of
from memoryhub.transfer.records import ImportReport, LeftOutRecord, MemoryRecord, Record, SessionRecord
from memoryhub.transfer.sources import SOURCES
from sessions_app.models import Session, Turn
from sessions_app.schemas import TurnBegin
from sessions_app.services.past_sessions import PastCommand, PastTurn
from sessions_app.services.turns import begin_turn
from sessions_app.timeline import session_events, timeline_page
from tests.memories.base import MemoriesTestCase
from tests.support import HubTestCase

WRITTEN = datetime(2024, 3, 1, 8, 30, tzinfo=UTC)
CHANGED = datetime(2024, 5, 1, 8, 30, tzinfo=UTC)
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
    LeftOutRecord("vectors", "vectors are made again"),
]


def session(key: str, *prompts: str, **fields: Any) -> SessionRecord:
    turns = tuple(PastTurn(prompt, f"Answer to {prompt}", WRITTEN) for prompt in prompts)
    return SessionRecord(key=key, purpose="Chart the harbour", turns=turns, started=WRITTEN, **fields)


KEY = "0a1b2c3d-0000-4000-8000-00000000000a"


class BatchTestCase(MemoriesTestCase):
    origin: ClassVar = {"actor": "claude", "source": "mcp"}

    def undo(self, batch: int | None) -> Any:
        assert batch
        return undo_import(batch_id=batch, token=preview_undo(batch).token)


class ImportTestCase(BatchTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.write("Known", "Known already.")

    def preview(self, *records: Record) -> ImportReport:
        (report,) = Importer("tool", "alpha").preview(records)
        return report

    def run_import(self, *records: Record) -> ImportReport:
        (report,) = Importer("tool", "alpha").run(records, place="/data/tool.db")
        return report

    def counts(self, report: ImportReport) -> dict[str, int]:
        return {name: count for name, count in report.counts.items() if name != "relations"}

    def imported(self, key: str) -> Memory:
        entry: Memory = Memory.objects.get(topic_key=f"import:tool:{key}")
        return entry


class MemoryImportTests(ImportTestCase):
    @tag("backend")
    def test_a_preview_says_what_the_import_does_and_changes_nothing(self) -> None:
        before = log.head()
        preview = self.preview(*RECORDS)
        self.assertEqual(log.head(), before)
        self.assertEqual(preview.counts, {"created": 3, "duplicates": 2, "left_out_count": 4})
        report = self.run_import(*RECORDS)
        self.assertEqual(self.counts(report), preview.counts)
        self.assertEqual((report.secrets, report.left_out), (preview.secrets, preview.left_out))
        self.assertEqual((sum(report.secrets.values()), report.relations), (1, 1))
        first, second, *_ = [left.why for left in report.left_out]
        self.assertEqual(first, "it has no text")
        self.assertIn("recipe", second)

    def test_importing_again_changes_nothing_but_what_has_changed_in_one_place(self) -> None:
        self.run_import(*RECORDS)
        before = log.head()
        again = self.run_import(*RECORDS)
        self.assertEqual(self.counts(again), {"unchanged": 3, "duplicates": 2, "left_out_count": 4})
        self.assertEqual((log.head(), again.batch), (before, None))
        revised = self.run_import(memory("a", "Retry five times."), *RECORDS[1:])
        self.assertEqual((revised.revised, revised.unchanged), (1, 2))
        self.assertEqual(self.imported("a").content, "Retry five times.")
        # What was changed here since is not overwritten
        mine = self.imported("a").id
        self.update(mine, base_version=2, content="Retry four times.")
        same = self.run_import(memory("a", "Retry five times."), *RECORDS[1:])
        self.assertEqual((same.revised, same.conflicts), (0, 0))
        report = self.run_import(memory("a", "Retry six times."), *RECORDS[1:])
        self.assertEqual((report.revised, report.conflicts), (0, 1))
        why = f"it was changed in #{mine} since it was imported, too"
        self.assertIn(why, [left.why for left in report.left_out])
        self.assertEqual(self.imported("a").content, "Retry four times.")
        # What was deleted here stays deleted
        self.delete(self.imported("b").id)
        report = self.run_import(*RECORDS)
        self.assertEqual((report.deleted, report.created), (1, 0))

    @tag("backend")
    def test_an_import_is_undone_whole(self) -> None:
        before = table_digests()
        report = self.run_import(*RECORDS, session("s1", "Where is the buoy?"))
        self.assertEqual((Relation.objects.count(), Session.objects.count()), (1, 1))
        self.undo(report.batch)
        self.assertEqual(table_digests(), before)

    def test_times_sessions_and_tags_of_the_source_are_kept_as_far_as_the_hub_holds_them(self) -> None:
        self.run_import(session(KEY, "Why?"), memory("a", "Because.", created=WRITTEN, session=KEY))
        entry = self.imported("a")
        self.assertEqual((entry.created_at, entry.session_id), (WRITTEN, KEY))
        fast_clock = datetime(2999, 1, 1, tzinfo=UTC)
        self.run_import(memory("b", "From a fast clock.", created=fast_clock))
        self.assertLess(self.imported("b").created_at, fast_clock)
        self.run_import(memory("c", "Many tags.", tags=("x" * 90, "two\nlines", " ", *map(str, range(60)))))
        tags = self.imported("c").tags
        self.assertEqual((len(tags), "two lines" in tags), (32, True))

    @tag("backend")
    def test_what_is_imported_is_as_old_as_it_was_in_the_other_tool(self) -> None:
        self.run_import(session("s1", "Where is the buoy?"), memory("a", "Old.", created=WRITTEN))
        self.run_import(memory("b", "Changed there.", created=WRITTEN, updated=CHANGED))
        updated = {key: self.imported(key).updated_at for key in ("a", "b")}
        self.assertEqual(updated, {"a": WRITTEN, "b": CHANGED})
        last = list_memories(command=MemoryList()).results[-2:]
        self.assertEqual([item["id"] for item in last], [self.imported("b").id, self.imported("a").id])
        self.run_import(memory("a", "New text.", created=WRITTEN, updated=CHANGED))
        self.assertEqual((self.imported("a").updated_at, self.imported("a").created_at), (CHANGED, WRITTEN))
        messages = SearchDocument.objects.filter(source="message").values_list("created_at", flat=True)
        self.assertEqual(set(messages), {WRITTEN})
        days = [day.date for day in timeline_page(session_events(Session.objects.get())).days]
        self.assertEqual(days, [WRITTEN.date()])
        self.assert_rebuilds()

    def test_the_notes_of_a_file_give_way_to_its_guidelines(self) -> None:
        folder = self.home / "harbour"
        folder.mkdir()
        (folder / "AGENTS.md").write_text("# Tests\n\nUse recorded gauges.\n")
        (folder / "other.md").write_text("# Tests\n\nMoor at noon.\n")
        import_markdown(directory=folder)
        records = list(SOURCES["agents-md"].read(folder))
        (preview,) = Importer("agents-md", "alpha").preview(records)
        self.assertEqual(preview.counts, {"created": 1, "replaced": 1})
        (report,) = Importer("agents-md", "alpha").run(records, place="")
        self.assertEqual(report.counts, preview.counts)
        contents = {memory.content: memory.kind for memory in Memory.objects.live()}
        self.assertEqual(contents["Use recorded gauges."], "guideline")
        self.assertEqual(len(contents), 3)
        again = import_markdown(directory=folder)
        self.assertEqual((again.created, again.unchanged, again.skipped[0][1]), (0, 1, "imported as a guideline"))
        self.undo(report.batch)
        self.assertEqual(Memory.objects.live().filter(kind="observation", content="Use recorded gauges.").count(), 1)

    def test_notes_of_another_file_of_that_name_stay(self) -> None:
        for name, text in (("harbour", "Use recorded gauges."), ("other", "Moor at noon.")):
            (self.home / name).mkdir()
            (self.home / name / "AGENTS.md").write_text(f"# Tests\n\n{text}\n")
        import_markdown(directory=self.home / "harbour")
        records = list(SOURCES["agents-md"].read(self.home / "other"))
        (report,) = Importer("agents-md", "alpha").run(records, place="")
        self.assertEqual(report.counts, {"created": 1})
        contents = {memory.content: memory.kind for memory in Memory.objects.live()}
        self.assertEqual(contents["Use recorded gauges."], "observation")
        again = import_markdown(directory=self.home / "harbour")
        self.assertEqual((again.unchanged, again.deleted), (1, 0))

    @tag("backend")
    def test_memories_that_an_earlier_version_imported_get_the_time_of_the_other_tool(self) -> None:
        self.run_import(memory("a", "Old.", created=WRITTEN))
        rows.execute("UPDATE memories_memory SET updated_at = %s WHERE id = %s", [clock.now(), self.imported("a").id])
        migration = import_module("memories.migrations.0011_updated_when_written").Migration
        rows.execute(migration.operations[0].sql, [])
        self.assertEqual(self.imported("a").updated_at, WRITTEN)
        self.assert_rebuilds()

    def test_many_records_are_written_in_transactions(self) -> None:
        done: list[int] = []
        records = [memory(str(number), f"Note {number} of many.") for number in range(1_200)]
        (report,) = Importer("tool", "alpha").run(records, place="", progress=done.append)
        self.assertEqual((report.created, done[-1]), (1_200, 1_200))
        self.assertGreater(len(done), 1)


class SessionImportTests(ImportTestCase):
    def test_a_session_becomes_turns_with_prompts_and_answers(self) -> None:
        records = [session("s1", "Where is the buoy?", "And now?", summary="Found it."), session("s2")]
        preview = self.preview(*records)
        self.assertEqual(preview.counts, {"sessions": 1, "left_out_count": 1})
        self.assertEqual(self.run_import(*records).counts, preview.counts)
        imported = Session.objects.get()
        self.assertEqual((imported.session_id, imported.status), ("tool:s1", "completed"))
        self.assertEqual((imported.started_at, imported.ended_at, imported.summary), (WRITTEN, WRITTEN, "Found it."))
        turns = Turn.objects.order_by("id").values_list("turn_id", "status", "began_at", "event_count")
        self.assertEqual(list(turns), [("1", "closed", WRITTEN, 2), ("2", "closed", WRITTEN, 2)])
        prompts = RawEvent.objects.filter(event_type="message.user").values_list("payload_json", flat=True)
        self.assertIn("And now?", "".join(prompts))
        self.assertNotIn("And now?", preview_pack(command=ContextPackRequest()).text)  # it is not what was asked lately

    def test_its_failed_commands_are_found_by_their_errors(self) -> None:
        runs = (PastCommand("make chart", "x" * 9_000 + "KeyError: 'tide'", 2, WRITTEN), PastCommand(" ", "", 1))
        turn = PastTurn("Draw the chart.", "Done.", WRITTEN, actions=(*runs, PastCommand("make chart", "", 0)))
        self.run_import(SessionRecord(key="s1", purpose="Charts", turns=(turn,), started=WRITTEN))
        (hit,) = self.search("KeyError tide").results
        self.assertEqual((hit["source"], hit["type"], hit["title"]), ("command", "failed", "make chart"))
        self.assertEqual(hit["created_at"], clock.to_text(WRITTEN))
        self.assertEqual(self.titles("KeyError tide", sources=["message"]), [])
        self.assert_rebuilds()

    def test_a_session_that_went_on_gets_its_new_turns_only(self) -> None:
        self.run_import(session("s1", "First?"))
        with self.unchanged():
            self.assertEqual(self.run_import(session("s1", "First?")).counts, {"sessions_known": 1})
        self.assertEqual(self.run_import(session("s1", "First?", "Second?")).counts, {"sessions_extended": 1})
        self.assertEqual(RawEvent.objects.filter(event_type="message.user").count(), 2)
        self.assertEqual(Turn.objects.count(), 2)
        # A session that the hub has recorded itself is left alone
        begin_turn(command=TurnBegin(session_id=KEY))
        with self.unchanged():
            self.assertEqual(self.run_import(session(KEY, "Asked and recorded?")).counts, {"sessions_known": 1})

    @tag("backend")
    def test_a_session_that_went_on_since_is_kept_by_an_undo(self) -> None:
        other, said = session("s2", "Other?"), memory("a", "Said in it.", session="s1")
        first = self.run_import(session("s1", "First?"), other, said).batch or 0
        second = self.run_import(session("s1", "First?", "Second?"), other, memory("a", "Said in it.")).batch
        plan = preview_undo(first)
        self.assertEqual([kept.why for kept in plan.kept_items], ["it went on since"])
        self.assertEqual(plan.items, {"session": 1, "turn": 1, "memory": 1})
        self.undo(second)
        self.assertEqual(preview_undo(first).items, {"session": 2, "turn": 2, "memory": 1})
        self.undo(first)
        self.assertEqual((Session.objects.count(), Turn.objects.count()), (0, 0))

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        before = log.head()
        yield
        self.assertEqual(log.head(), before)

    def test_a_secret_in_a_prompt_is_masked_and_counted(self) -> None:
        record = session("s1", f"Use {TOKEN}, please.", "<private>all of it</private>")
        preview = self.preview(record)
        self.assertIn("github-token", preview.secrets)
        self.assertEqual(self.run_import(record).secrets, preview.secrets)
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
            self.preview(*records)
        self.assertEqual(list_projects(), before)
        (report,) = Importer("tool", "alpha", only="p7").preview(records)
        self.assertEqual(report.created, 1)

    def test_a_name_of_a_project_can_be_a_folder(self) -> None:
        names = {
            "": "alpha",
            "Tide Charts": "tide-charts",
            "C:\\work\\tides\\": "tides",
            "\u6f6e": "project-0ca1910a",
            "/": "alpha",
        }
        for name, project in {**names, "/srv/no-such-folder/tides": "tides"}.items():
            self.assertEqual(project_of(name, "alpha"), project, name)


@tag("backend")
class BatchTests(BatchTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.write("How we retry", "Three times.", topic_key="import:tool:retry")
        self.write("Use tabs", "In every file.", tags=["style"])
        self.before = table_digests()

    def load(self, *texts: str) -> tuple[int, list[int]]:
        run = ImportRun("tool", "/data/tool.db")
        with run.recording():
            commands = [
                MemoryWrite(title=f"From the tool: {key}", content=text, topic_key=f"import:tool:{key}", tags=["tool"])
                for key, text in zip("abcdef", texts, strict=False)
            ]
            results = write_memories(commands=commands)
        return run.end({"created": len(results)}) or 0, [result.id for result in results]

    def ids(self) -> set[int]:
        return set(Memory.objects.values_list("id", flat=True))

    def test_a_batch_has_its_provenance_and_an_undo_leaves_the_store_as_before(self) -> None:
        batch, ids = self.load("one", "two", "three")
        record = find_batch(batch)
        self.assertEqual((record.tool, record.place, record.counts), ("tool", "/data/tool.db", {"created": 3}))
        self.assertEqual((record.actor, record.is_undone), ("claude", False))
        second = ImportRun("tool", "")
        with second.recording():
            self.write("How we retry", "Five times.", topic_key="import:tool:retry")
        self.undo(second.end({"revised": 1}))
        plan = self.undo(batch)
        self.assertEqual((plan.events, plan.items, plan.kept_items), (3, {"memory": 3}, []))
        self.assertEqual(table_digests(), self.before)
        self.assert_rebuilds()
        self.assertEqual([record.is_undone for record in list_batches()], [True, True])
        # It can be imported again
        _, again = self.load("one")
        self.assertEqual(set(again) & {*ids}, set())
        self.assertLessEqual(set(again), self.ids())

    def test_a_roll_back_does_not_reach_what_an_undo_has_left_out(self) -> None:
        batch, (first, *_) = self.load("one", "two")
        self.write("How we retry", "Five times.", topic_key="import:tool:retry")
        self.undo(batch)
        everything = preview(command=RollbackPlan(since=1, action=RollbackAction.UNDO))
        reached = {thing.id for group in everything.trace.direct for thing in group.shown}
        self.assertFalse({first, first + 1} & (reached | {step.id for step in everything.steps}))
        with use_origin(actor="ada", source="admin"):
            made = roll_back(
                command=RollbackMake(since=1, confirm_token=preview(command=RollbackPlan(since=1)).confirm_token)
            )
            self.assertFalse({first, first + 1} & set(Quarantine.objects.values_list("id", flat=True)))
            undo_rollback(command=RollbackUndo(id=made.id))
        self.assert_rebuilds()

    def test_what_others_changed_or_built_on_since_is_kept_and_named(self) -> None:
        batch, (first, second, third) = self.load("one", "two", "three")
        self.update(first, base_version=1, content="one, corrected")
        built = self.write("A conclusion", "From the second.")
        create_relation(command=RelationCreate(source=built, relation="derived_from", target=second))
        plan = self.undo(batch)
        reasons = [(first, "changed since"), (second, f"#{built} builds on it")]
        self.assertEqual([(kept.id, kept.why) for kept in plan.kept_items], reasons)
        self.assertEqual(plan.items, {"memory": 1})
        self.assertEqual({first, second, third, built} - self.ids(), {third})
        self.assert_rebuilds()

    def test_an_undo_that_was_interrupted_is_completed_by_a_rebuild(self) -> None:
        batch, _ = self.load("one")
        killed = mock.patch("governance.imports.log.rebuild", side_effect=RuntimeError("killed"))
        with self.assertRaises(RuntimeError), killed:
            self.undo(batch)
        with self.assertRaisesRegex(ConflictError, "if that was interrupted, `memory-hub rebuild` completes it"):
            preview_undo(batch)
        self.assertFalse(log.rebuild().identical)
        self.assertEqual(table_digests(), self.before)

    def test_bad_input_changes_nothing(self) -> None:
        batch, _ = self.load("one")
        with self.refuses(NotFound, "there is no import #1;"):
            preview_undo(1)
        with self.refuses(PreconditionFailed, "changed since the preview"):
            undo_import(batch_id=batch, token="0" * 16)
        self.undo(batch)
        with self.refuses(ConflictError, "undone already"):
            preview_undo(batch)


# The data of every source, as its tool has written it, and how many memories it becomes
DATA = Path(__file__).parent / "data"
MEMORIES = {
    "agents-md": 4,
    "basic-memory/harbour": 4,
    "claude-code": 2,
    "codex": 2,
    "copilot-cli": 2,
    "gemini-cli": 2,
    "opencode": 1,
    "qwen-code": 2,
    "claude-mem/claude-mem.db": 4,
    "cline": 0,
    "cursor/User": 0,
    "cursor/agent": 0,
    "cursor-rules": 5,
    "engram/engram.db": 5,
    "kilo": 0,
    "mcp-memory-service/sqlite_vec.db": 5,
    "mem0/get_all.json": 4,
    "mem0/history.db": 5,
    "mem0/memories_export_maya.zip": 2,
    "obsidian": 6,
    "roo": 0,
    "rules": 8,
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
            with self.subTest(place=place):
                before = table_digests()
                report = self.run_import(source, self.home / place)
                self.assertEqual((report.created, report.duplicates), (expected, 0))
                imported = table_digests()
                again = self.run_import(source, self.home / place)
                self.assertEqual((again.changes, again.unchanged, table_digests()), (0, expected, imported))
                assert report.batch
                undo_import(batch_id=report.batch, token=preview_undo(report.batch).token)
                self.assertEqual(table_digests(), before)

    def run_import(self, source: str, path: Path) -> ImportReport:
        (report,) = Importer(source, "alpha", is_only=True).run(SOURCES[source].records(path), place=str(path))
        return report
