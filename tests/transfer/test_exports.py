"""Exports, as JSON lines and as folders of Markdown, and what comes back from them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any, ClassVar, get_args

import yaml
from django.core.management import CommandError, call_command
from django.db import models
from django.test import tag
from pydantic import AfterValidator, BaseModel

from decisions.importing import import_adrs
from decisions.models import CommitLink, Decision
from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from governance.imports.batches import list_batches
from governance.imports.undo import preview_undo, undo_import
from memories.importing import import_markdown
from memories.importing.files import split_front_matter
from memories.models import Memory, Relation
from memories.schemas import MemoryDelete, MemoryUpdate, MemoryWrite
from memories.schemas.links import RelationCreate
from memories.services import delete_memory, update_memory, write_memory
from memories.services.relations import create_relation
from memoryhub.core import log
from memoryhub.core.errors import Conflict, Forbidden, Invalid
from memoryhub.core.events.event_types import event_types
from memoryhub.core.events.projection import read_models
from memoryhub.core.models import RawEvent
from memoryhub.core.permissions import Act, Grant, use_grant
from memoryhub.core.schemas import _renumbered_all, _renumbered_known, renumbered
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import current_store, use_store
from memoryhub.core.text import flat
from memoryhub.demo.project import demo_store, make_demo
from memoryhub.transfer import jsonl
from memoryhub.transfer.folder import Form, Selection, export_files, write_folder
from memoryhub.transfer.importing import Importer
from memoryhub.transfer.jsonl import Export, export_lines
from memoryhub.transfer.records import MemoryRecord, Record, SessionRecord, TurnRecord
from memoryhub.transfer.replaying import ReplayReport, replay_export
from sessions_app.models import Commit
from sessions_app.schemas import CommitRead
from sessions_app.services import record_commit
from tests.governance.retaining import RetentionTestCase, Story
from tests.governance.rollback_case import DeedTestCase, random_steps
from tests.hostile import MARKUP
from tests.secrets_made import SECRETS
from tests.support import HubTestCase

TITLES = ("../../etc/passwd", "CON", "Use WAL", "use wal", "a/b\\c:d*e?f", "漢字", "x" * 200, "- [x] | #^ ]] title")


class FolderTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="ada"))
        self.folder = self.home / "out"

    def write(self, title: str, **fields: Any) -> int:
        return write_memory(command=MemoryWrite(**{"title": title, "content": f"Text of {title}.", **fields})).id

    def files(self, form: Form = Form.MARKDOWN, **selection: Any) -> dict[str, str]:
        return dict(export_files(form, Selection(**selection)))

    def test_file_names_are_unique_and_safe_on_every_system(self) -> None:
        ids = [self.write(title, content=f"---\nnot: matter\n---\n{number}") for number, title in enumerate(TITLES)]
        files = self.files()
        self.assertEqual(len({name.lower() for name in files}), len(TITLES))
        for name, memory_id in zip(files, ids, strict=True):
            self.assertRegex(name, rf"\Amemories/0*{memory_id}(-[a-z0-9]+)*\.md\Z")
            self.assertLess(len(name), 90)
        self.assertEqual(write_folder(self.folder, Form.MARKDOWN, Selection()), len(TITLES))
        written = {path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file()}
        self.assertEqual(written, set(files))

    def test_front_matter_and_decisions_are_read_back(self) -> None:
        self.write("Use WAL", tags=["storage", "two words"], kind="guideline", topic_key="db/wal")
        record_decision(command=DecisionRecord(title="Keep it", chosen="SQLite", rationale="It is small."))
        write_folder(self.folder, Form.MARKDOWN, Selection())
        matter, body = split_front_matter((self.folder / "memories/0001-use-wal.md").read_text())
        self.assertEqual(
            {name: matter[name] for name in ("id", "title", "tags", "topic_key")},
            {"id": "1", "title": "Use WAL", "tags": ["storage", "two words"], "topic_key": "db/wal"},
        )
        self.assertEqual(body.strip(), "# Use WAL\n\nText of Use WAL.")
        with self.store("beta"):
            import_markdown(directory=self.folder / "memories")
            import_adrs(directory=self.folder / "decisions")
            memory = Memory.objects.get()
            self.assertEqual(memory.content, "Text of Use WAL.")
            self.assertLessEqual({"storage", "two words"}, set(memory.tags))
            self.assertEqual(Decision.objects.get().rationale, "It is small.")

    def test_hostile_texts_are_read_back_by_a_parser_of_yaml(self) -> None:
        odd = ("a\x7f\x80\x9fb", "a\ufeffb\ufffe", "\U0001f600 \U000e0041", "a\x85b\u2028c\u2029d")
        texts = [*MARKUP.values(), *odd, "---\nproject: x\n---", "!!python/object:os.system x", "*a &a", "yes", "0x1F"]
        titles = {self.write(flat(text), source=flat(text), content=f"{text}\n---\nid: 9\n"): text for text in texts}
        record_decision(command=DecisionRecord(title=flat(odd[3]), chosen=odd[0], topic=flat(odd[1])))
        for form in Form:
            files = self.files(form)
            self.assertEqual(len(files), len(texts) + 1)
            for name, file in files.items():
                with self.subTest(name, form=form):
                    matter = yaml.safe_load(re.split(r"^---$", file, maxsplit=2, flags=re.MULTILINE)[1])
                    if not name.startswith("decisions/"):
                        memory_id = matter["id"]
                        self.assertEqual(matter["title"], Memory.objects.get(id=memory_id).title)
                        self.assertEqual(matter["source"], Memory.objects.get(id=memory_id).source)
                        self.assertIn(memory_id, titles)
                    self.assertRegex(name, r"\A(memories|decisions)/[0-9]{4}(-[a-z0-9]+)*\.md\Z")

    def test_links_lead_to_files_of_the_export(self) -> None:
        wal, old = self.write("Use WAL"), self.write("No | locks")
        first = record_decision(command=DecisionRecord(title="Keep it", chosen="SQLite")).id
        record_decision(command=DecisionRecord(title="Keep it small", chosen="SQLite", refines=[first]))
        for target in (old, first):
            create_relation(command=RelationCreate(source=str(wal), relation="related_to", target=str(target)))
        texts = self.files()
        links = {
            str(Path(name).parent / link) for name, text in texts.items() for link in re.findall(r"\]\((.*?)\)", text)
        }
        self.assertEqual({os.path.normpath(link) for link in links} - set(texts), set())
        self.assertIn(r"- related to [No \| locks](../memories/0002-no-locks.md)", texts["memories/0001-use-wal.md"])
        vault = self.files(Form.OBSIDIAN)
        stems = {Path(name).stem for name in vault}
        wiki = {link for text in vault.values() for link in re.findall(r"\[\[(.*?)(?:\|.*?)?\]\]", text)}
        self.assertEqual(wiki, {"0001-use-wal", "0002-no-locks", "0003-keep-it"})
        self.assertLessEqual(wiki, stems)
        self.assertNotIn("](", "".join(vault.values()))
        self.assertIn("- related to Keep it (#3)", self.files(kind=["observation"])["memories/0001-use-wal.md"])

    def test_what_is_selected(self) -> None:
        self.write("One", tags=["a"])
        self.write("Two", tags=["a", "b"], kind="guideline")
        delete_memory(command=MemoryDelete(id=self.write("Gone", tags=["a", "b"])))
        record_decision(command=DecisionRecord(title="Keep it", chosen="SQLite"))
        ids = {
            str(selection): [int(name.split("/")[1][:4]) for name in self.files(**selection)]
            for selection in (
                {},
                {"tag": ["a", "b"]},
                {"kind": ["guideline", "decision"]},
                {"until": "2020-01-01T00:00:00Z"},
            )
        }
        self.assertEqual(list(ids.values()), [[1, 2, 5], [2], [2, 5], []])

    def test_files_that_differ_and_links_are_left_alone(self) -> None:
        self.write("One")
        self.write("Two")
        changed = self.folder / "memories/0002-two.md"
        changed.parent.mkdir(parents=True)
        changed.write_text("mine")
        with self.assertRaisesRegex(Conflict, "0002-two.md exists and differs"):
            write_folder(self.folder, Form.MARKDOWN, Selection())
        self.assertEqual([path.name for path in changed.parent.iterdir()], [changed.name])
        outside = self.home / "outside.md"
        outside.write_text("outside")
        changed.unlink()
        changed.symlink_to(outside)
        write_folder(self.folder, Form.MARKDOWN, Selection(), force=True)
        self.assertEqual((outside.read_text(), changed.is_symlink()), ("outside", False))
        (self.home / "linked").mkdir()
        (self.home / "linked/memories").symlink_to(self.folder)
        with self.assertRaisesRegex(Invalid, "is a link"):
            write_folder(self.home / "linked", Form.MARKDOWN, Selection(), force=True)


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


Lines = list[str]


def changed(number: int, **fields: Any) -> Callable[[Lines], bytes]:
    """Return a function that changes fields of a line, or of its payload where that has them."""

    def change(lines: Lines) -> bytes:
        line = json.loads(lines[number])
        for name, value in fields.items():
            owner = line["payload"] if name in (line["payload"] or {}) else line
            owner[name] = value
        return joined([*lines[:number], json.dumps(line) + "\n", *lines[number + 1 :]])

    return change


def joined(lines: Lines) -> bytes:
    return "".join(lines).encode()


def twice(lines: Lines) -> bytes:
    return changed(2, event_id=json.loads(lines[1])["event_id"])(lines)


def nested(lines: Lines) -> bytes:
    return joined([lines[0], '{"a":' * 100_000 + "\n", *lines[1:]])


HOSTILE: dict[str, tuple[Callable[[Lines], bytes], str]] = {
    "empty": (lambda _: b"", "the file is no export of a store"),
    "binary": (lambda _: bytes(range(256)) * 40, "the file is no export of a store"),
    "another format": (lambda _: b'{"type":"entity","name":"a"}\n', "the file is no export of a store"),
    "a list": (lambda _: b"[1]\n", "the file is no export of a store"),
    "another encoding": (lambda lines: "".join(lines).encode("utf-16"), "the file is no export of a store"),
    "a foreign version": (
        lambda lines: joined([lines[0].replace('"version":1', '"version":9'), *lines[1:]]),
        "reads 1",
    ),
    "an unknown field": (
        lambda lines: joined([lines[0].replace("{", '{"a":1,', 1), *lines[1:]]),
        "line 1: 'a' is not known",
    ),
    "cut between lines": (lambda lines: joined(lines[:-1]), "ends before the export does"),
    "cut in a line": (lambda lines: joined(lines)[:-40], "line 6: it is not one complete JSON object"),
    "a line less": (lambda lines: joined([*lines[:5], lines[-1]]), "has 5 events, and the file has other lines"),
    "a line after the end": (lambda lines: joined([*lines, lines[-1]]), "the file has other lines"),
    "two lines exchanged": (
        lambda lines: joined([lines[0], lines[2], lines[1], *lines[3:]]),
        "its position is 2, not 1",
    ),
    "a binary line": (lambda lines: joined(lines[:2]) + b"\xff\xfe\n" + joined(lines[2:]), "line 3: it is not UTF-8"),
    "a huge line": (lambda lines: joined([lines[0], "x" * (jsonl.MAX_LINE + 9)]), "line 2: it is longer than"),
    "deep nesting": (nested, "line 2: it is nested too deeply"),
    "NaN": (changed(1, content=float("nan")), "line 2: "),
    "an unknown type": (changed(1, event_type="memory.dreamt"), "line 2: this version does not know events of type"),
    "a later version of a type": (changed(1, event_version=99), "in version 99"),
    "a field of another version": (changed(1, dreamt=1), "line 2: 'dreamt' is not known"),
    "an id from the future": (changed(2, memory_id=4), "line 3: it names #4, and there is no such event before it"),
    "itself": (changed(4, source_id=5), "line 5: it names #5, and there is no such event"),
    "a huge id": (changed(2, memory_id=2**70), "line 3: "),
    "a stream that does not exist": (changed(2, stream_id="memory:99"), "line 3: it names #99"),
    "the same event twice": (twice, "does not fit the events before it"),
    "a number twice in a stream": (changed(2, stream_seq=1), "does not fit the events before it"),
    "an erasure that nothing records": (
        changed(1, payload=None, erased_digest="0" * 64),
        "line 2: its payload is missing, and no event of the export records an erasure",
    ),
    "no payload and no digest": (changed(1, payload=None), "line 2: an event has either a payload or the digest"),
    "a time that is none": (changed(1, occurred_at="yesterday"), "line 2: 'occurred_at' is not valid"),
    "half a character": (lambda lines: joined(lines).replace(b"Use WAL", b"\\ud800"), "line 2: "),
}


class HostileExportTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.path = self.home / "export.jsonl"
        with self.store("alpha", actor="ada"):
            first = write_memory(command=MemoryWrite(title="Use WAL", content="Text")).id
            update_memory(command=MemoryUpdate(id=first, content="More text"))
            second = write_memory(command=MemoryWrite(title="Locks", content="Other text")).id
            create_relation(command=RelationCreate(source=str(first), relation="related_to", target=str(second)))
            record_decision(command=DecisionRecord(title="Keep it", chosen="SQLite"))
            self.lines = list(export_lines())

    def import_bytes(self, data: bytes, project: str) -> str:
        self.path.write_bytes(data)
        with self.assertRaises(CommandError) as refused:
            call_command("import", "jsonl", str(self.path), "--project", project, stdout=StringIO())
        return str(refused.exception)

    def test_each_is_refused_with_one_sentence_and_changes_nothing(self) -> None:
        with self.store("filled"):
            write_memory(command=MemoryWrite(title="Own", content="Own text"))
            before = log.head()
        for name, (make, expected) in HOSTILE.items():
            data = make(self.lines)
            for project in ("empty", "filled"):
                with self.subTest(name, project=project):
                    if name in ("a number twice in a stream", "the same event twice") and project == "filled":
                        continue  # numbers are assigned anew there, and an event that is known is left out
                    sentence = self.import_bytes(data, project)
                    self.assertIn(expected, sentence)
                    self.assertNotIn("\n", sentence)
                    self.assertLess(len(sentence), 400)
        with self.store("filled", create=False):
            self.assertEqual((log.head(), Memory.objects.count()), (before, 1))
        with self.store("empty"):
            self.assertEqual(log.head()[0], 0)

    def test_a_file_that_cannot_be_imported_creates_no_project(self) -> None:
        for make, _ in (HOSTILE["a binary line"], HOSTILE["an id from the future"], HOSTILE["deep nesting"]):
            self.import_bytes(make(self.lines), "new")
        self.assertFalse((self.home / "projects/new").exists())


@tag("backend")
class FilledStoreTests(HubTestCase):
    """Exports of alpha are imported into beta, which changes too."""

    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="ada"))
        self.write("One", topic_key="t/one")
        self.write("Two")

    def write(self, title: str, **fields: Any) -> int:
        return write_memory(command=MemoryWrite(title=title, content=f"Text of {title}.", **fields)).id

    def export(self) -> Export:
        export = Export(self.home / "export.jsonl")
        export.path.write_text("".join(export_lines()))
        return export

    def texts(self) -> dict[str, str]:
        return {memory.title: memory.content for memory in Memory.objects.order_by("id")}

    def test_what_was_imported_before_goes_on(self) -> None:
        export = self.export()
        with self.store("beta", actor="bob"):
            self.write("Own")
            self.assertEqual(replay_export(export).added, 2)
        self.write("Three")
        update_memory(command=MemoryUpdate(id=1, content="Later."))
        log.erase_streams(["memory:2"], reason="asked for")
        export = self.export()
        with self.store("beta", actor="bob"):
            report = replay_export(export)
            self.assertEqual((report.added, report.known, report.left_out), (3, 2, {}))
            self.assertEqual(self.texts(), {"Own": "Text of Own.", "One": "Later.", "Three": "Text of Three."})
            self.assertNotIn("Text of Two", str(list(RawEvent.objects.values_list("payload_json", flat=True))))
            self.assertTrue(log.verify().ok)
            self.assertTrue(log.rebuild().identical)

    def test_text_that_was_redacted_since_is_named(self) -> None:
        export = self.export()
        with self.store("beta"):
            self.write("Own")
            replay_export(export)
        written = json.loads(RawEvent.objects.get(position=2).payload_json)
        log.redact_payloads({2: {**written, "content": "[removed]"}}, what="a name")
        export = self.export()
        with self.store("beta"):
            self.assertEqual(replay_export(export).unredacted, [3])
            self.assertTrue(log.verify().ok)
        with self.store("gamma"):
            self.assertEqual(replay_export(export).unredacted, [])
            self.assertEqual(self.texts()["Two"], "[removed]")
            self.assertTrue(log.verify().ok)

    def test_what_both_have_changed_stays_as_it_is_here(self) -> None:
        export = self.export()
        with self.store("beta"):
            self.write("Own")
            replay_export(export)
            update_memory(command=MemoryUpdate(id=2, content="Beta's."))
        for text in ("Alpha's.", "Alpha's again."):
            update_memory(command=MemoryUpdate(id=1, content=text))
        create_relation(command=RelationCreate(source="1", relation="related_to", target="2"))
        with self.store("beta"):
            with self.store("alpha"):
                export = self.export()
            report = replay_export(export)
            self.assertEqual((report.added, sum(report.left_out.values())), (1, 2))
            self.assertEqual(self.texts()["One"], "Beta's.")

    def test_a_topic_that_is_taken_keeps_its_memory(self) -> None:
        create_relation(command=RelationCreate(source="1", relation="related_to", target="2"))
        update_memory(command=MemoryUpdate(id=1, content="Alpha's."))
        export = self.export()
        with self.store("beta"):
            own = self.write("Own", topic_key="t/one")
            report = replay_export(export)
            self.assertEqual(self.texts(), {"Own": "Text of Own.", "Two": "Text of Two."})
            self.assertEqual((report.added, sum(report.left_out.values())), (2, 2))
            self.assertEqual(Relation.objects.get().source_id, own)
            self.assertTrue(log.rebuild().identical)

    def test_secrets_are_masked_by_the_rules_of_today(self) -> None:
        export = self.export()
        secret, text = SECRETS["github"]
        export.path.write_text(export.path.read_text().replace("Text of Two.", text.format(secret)))
        with self.store("beta"):
            report = replay_export(export)
            self.assertEqual((report.added, sum(report.redactions.values())), (2, 1))
            self.assertNotIn(secret, str(list(RawEvent.objects.values_list("payload_json", flat=True))))
        export.path.write_text(export.path.read_text().replace('"actor":"ada"', f'"actor":"{secret}"'))
        with self.store("gamma"), self.assertRaisesRegex(Invalid, "line 2: actor must have"):
            replay_export(export)

    def test_a_commit_names_the_decisions_by_their_new_ids(self) -> None:
        decision = record_decision(command=DecisionRecord(title="Keep it", chosen="SQLite")).id
        message = f"Store\n\nDecision: #{decision}\nRefs: #99"
        record_commit(command=CommitRead(sha="a" * 40, message=message, files=["a.py"]))
        export = self.export()
        with self.store("beta"):
            self.write("Own")
            record_decision(command=DecisionRecord(title="Not this", chosen="Nothing"))
            self.write("Another")
            replay_export(export)
            (linked,) = CommitLink.objects.values_list("decision_id", flat=True)
            self.assertEqual(Decision.objects.get(id=linked).title, "Keep it")
            self.assertEqual(Commit.objects.get().message, message)
            self.assertTrue(log.rebuild().identical)

    def test_only_an_owner_imports_a_store(self) -> None:
        export = self.export()
        with self.store("beta"), use_grant(Grant(frozenset({Act.VIEW, Act.WRITE}))), self.assertRaises(Forbidden):
            replay_export(export)


class DeclaredReferenceTests(HubTestCase):
    """Integers of payloads: an import renumbers positions, so each field is declared as one or is none."""

    NUMBERS: ClassVar = {
        *("ack_seconds", "exit_code", "insertions", "deletions", "version", "base_version", "conflicts_with", "stands"),
        *("accepted_version", "before_version", "uses", "events", "bytes", "counts"),
    }

    def test_every_integer_is_declared(self) -> None:
        undeclared = {
            f"{kind.name}.{name}"
            for kind in event_types()
            if not kind.is_local
            for name, field in integer_fields(kind.schema)
            if name not in self.NUMBERS and not is_reference(field)
        }
        self.assertEqual(undeclared, set())


def integer_fields(schema: type[BaseModel]) -> Iterator[tuple[str, Any]]:
    for name, field in schema.model_fields.items():
        parts = list(parts_of(field.annotation))
        for part in parts:
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from integer_fields(part)
        if int in parts:
            yield name, field


def parts_of(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in get_args(annotation):
        yield from parts_of(part)


def is_reference(field: Any) -> bool:
    marks = [*field.metadata, *(part for part in parts_of(field.annotation) if isinstance(part, AfterValidator))]
    return any(getattr(mark, "func", None) in (renumbered, _renumbered_all, _renumbered_known) for mark in marks)
