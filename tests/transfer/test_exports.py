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
from governance.imports import list_batches, preview_undo, undo_import
from memories.importing import import_markdown
from memories.importing.files import split_front_matter
from memories.models import Memory, Relation
from memories.schemas import MemoryWrite
from memories.schemas.links import RelationCreate
from memories.services import write_memory
from memories.services.links import create_relation
from memoryhub.core import log
from memoryhub.core.errors import ConflictError, Forbidden, Invalid
from memoryhub.core.events.event_types import event_types
from memoryhub.core.events.projection import read_models
from memoryhub.core.log.digests import canonical_json
from memoryhub.core.models import RawEvent
from memoryhub.core.permissions import Act, Grant, use_grant
from memoryhub.core.schemas import _renumbered_all, _renumbered_known, renumbered
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import current_store, use_store
from memoryhub.core.text import flat
from memoryhub.demo.project import demo_store, make_demo
from memoryhub.transfer.bundles.applying import Applied, BundleOutcome, apply_bundle
from memoryhub.transfer.bundles.archive import export_lines, open_bundle
from memoryhub.transfer.bundles.lines import MAX_LINE
from memoryhub.transfer.bundles.merging import MergeReport
from memoryhub.transfer.folder import ExportSelection, FolderForm, export_files, write_folder
from memoryhub.transfer.importing import Importer
from memoryhub.transfer.records import MemoryRecord, Record, SessionRecord
from sessions_app.models import Commit
from sessions_app.schemas import CommitRead
from sessions_app.services import record_commit
from sessions_app.services.past_sessions import PastTurn
from tests.governance.retaining import RetentionTestCase, Story
from tests.governance.rollback_case import DeedTestCase, random_steps
from tests.hostile import MARKUP
from tests.memories.base import MemoriesTestCase
from tests.secrets_made import SECRETS
from tests.support import HubTestCase

TITLES = ("../../etc/passwd", "CON", "Use WAL", "use wal", "a/b\\c:d*e?f", "漢字", "x" * 200, "- [x] | #^ ]] title")


class ExportTestCase(MemoriesTestCase):
    def relate(self, source: int, target: int) -> None:
        create_relation(command=RelationCreate(source=str(source), relation="related_to", target=str(target)))

    def decide(self, title: str, **fields: Any) -> int:
        return record_decision(command=DecisionRecord(**{"title": title, "chosen": "SQLite", **fields})).id


class FolderTests(ExportTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.folder = self.home / "out"

    def files(self, form: FolderForm = FolderForm.MARKDOWN, **selection: Any) -> dict[str, str]:
        return dict(export_files(form, ExportSelection(**selection)))

    def write_folder(self, folder: Path | None = None, **options: bool) -> int:
        return write_folder(folder or self.folder, FolderForm.MARKDOWN, ExportSelection(), **options)

    def test_file_names_are_unique_and_safe_on_every_system(self) -> None:
        ids = [self.write(title, content=f"---\nnot: matter\n---\n{number}") for number, title in enumerate(TITLES)]
        files = self.files()
        self.assertEqual(len({name.lower() for name in files}), len(TITLES))
        for name, memory_id in zip(files, ids, strict=True):
            self.assertRegex(name, rf"\Amemories/0*{memory_id}(-[a-z0-9]+)*\.md\Z")
            self.assertLess(len(name), 90)
        self.assertEqual(self.write_folder(), len(TITLES))
        paths = {path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file()}
        self.assertEqual(paths, set(files))

    def test_front_matter_and_decisions_are_read_back(self) -> None:
        self.write("Use WAL", "Text.", tags=["storage", "two words"], kind="guideline", topic_key="db/wal")
        self.decide("Keep it", rationale="It is small.")
        self.write_folder()
        matter, body = split_front_matter((self.folder / "memories/0001-use-wal.md").read_text())
        expected = {"id": "1", "title": "Use WAL", "tags": ["storage", "two words"], "topic_key": "db/wal"}
        self.assertLessEqual(expected.items(), matter.items())
        self.assertEqual(body.strip(), "# Use WAL\n\nText.")
        with self.store("beta"):
            import_markdown(directory=self.folder / "memories")
            import_adrs(directory=self.folder / "decisions")
            memory = Memory.objects.get()
            self.assertEqual(memory.content, "Text.")
            self.assertLessEqual({"storage", "two words"}, set(memory.tags))
            self.assertEqual(Decision.objects.get().rationale, "It is small.")

    def test_hostile_texts_are_read_back_by_a_parser_of_yaml(self) -> None:
        odd = ("a\x7f\x80\x9fb", "a\ufeffb\ufffe", "\U0001f600 \U000e0041", "a\x85b\u2028c\u2029d")
        texts = [*MARKUP.values(), *odd, "---\nproject: x\n---", "!!python/object:os.system x", "*a &a", "yes", "0x1F"]
        for text in texts:
            self.write(flat(text), f"{text}\n---\nid: 9\n", source=flat(text))
        self.decide(flat(odd[3]), chosen=odd[0], topic=flat(odd[1]))
        for form in FolderForm:
            files = self.files(form)
            self.assertEqual(len(files), len(texts) + 1)
            for name, file in files.items():
                with self.subTest(name, form=form):
                    matter = yaml.safe_load(re.split(r"^---$", file, maxsplit=2, flags=re.MULTILINE)[1])
                    if not name.startswith("decisions/"):
                        memory = Memory.objects.get(id=matter["id"])
                        self.assertEqual((matter["title"], matter["source"]), (memory.title, memory.source))
                    self.assertRegex(name, r"\A(memories|decisions)/[0-9]{4}(-[a-z0-9]+)*\.md\Z")

    def test_links_lead_to_files_of_the_export(self) -> None:
        wal, old = self.write("Use WAL"), self.write("No | locks")
        first = self.decide("Keep it")
        self.decide("Keep it small", refines=[first])
        for target in (old, first):
            self.relate(wal, target)
        texts = self.files()
        links = [(Path(name).parent, link) for name, text in texts.items() for link in re.findall(r"\]\((.*?)\)", text)]
        self.assertEqual({os.path.normpath(folder / link) for folder, link in links} - set(texts), set())
        self.assertIn(r"- related to [No \| locks](../memories/0002-no-locks.md)", texts["memories/0001-use-wal.md"])
        vault = self.files(FolderForm.OBSIDIAN)
        wiki = {link for text in vault.values() for link in re.findall(r"\[\[(.*?)(?:\|.*?)?\]\]", text)}
        self.assertEqual(wiki, {"0001-use-wal", "0002-no-locks", "0003-keep-it"})
        self.assertLessEqual(wiki, {Path(name).stem for name in vault})
        self.assertNotIn("](", "".join(vault.values()))
        self.assertIn("- related to Keep it (#3)", self.files(kind=["observation"])["memories/0001-use-wal.md"])

    def test_what_is_selected(self) -> None:
        self.write("One", tags=["a"])
        self.write("Two", tags=["a", "b"], kind="guideline")
        self.delete(self.write("Gone", tags=["a", "b"]))
        self.decide("Keep it")
        for selection, ids in (
            ({}, [1, 2, 5]),
            ({"tag": ["a", "b"]}, [2]),
            ({"kind": ["guideline", "decision"]}, [2, 5]),
            ({"until": "2020-01-01T00:00:00Z"}, []),
        ):
            names = self.files(**selection)
            self.assertEqual([int(name.split("/")[1][:4]) for name in names], ids, selection)

    def test_files_that_differ_and_links_are_left_alone(self) -> None:
        self.write("One")
        self.write("Two")
        changed = self.folder / "memories/0002-two.md"
        changed.parent.mkdir(parents=True)
        changed.write_text("mine")
        with self.assertRaisesRegex(ConflictError, "0002-two.md exists and differs"):
            self.write_folder()
        self.assertEqual([path.name for path in changed.parent.iterdir()], [changed.name])
        outside, linked = self.home / "outside.md", self.home / "linked"
        outside.write_text("outside")
        changed.unlink()
        changed.symlink_to(outside)
        self.write_folder(force=True)
        self.assertEqual((outside.read_text(), changed.is_symlink()), ("outside", False))
        linked.mkdir()
        (linked / "memories").symlink_to(self.folder)
        with self.assertRaisesRegex(Invalid, "is a link"):
            self.write_folder(linked, force=True)


# Columns with ids, beside primary keys, which all are
IDS = {
    *("placed_by", "end_position", "iteration_id", "memory_id", "source_id", "target_id", "split_id", "decision_id"),
    *("from_id", "to_id", "commit_id", "event", "entity_id", "newer_id", "older_id", "id"),
}
# Each describes its store as a whole; a store with events of its own keeps its own.
LOCAL = {"sessions_app_setting", "sessions_app_profile", "memories_contextpack", "governance_rollback"}
# Derived from texts that name ids, which no import changes
FROM_TEXT = {"memories_memoryuse", "memories_memorycitation"}


def first_form() -> list[str]:
    """Return the lines of an export as they were before they had digests."""
    header, *events, _ = map(json.loads, export_lines())
    lines = [{"format": header["format"], "version": 1, "store": current_store().text, "made_by": "0.0.9"}]
    for event in events:
        digest = event.pop("payload_digest")
        if event["payload"] is None:
            event["erased_digest"] = digest
        lines.append({name: value for name, value in event.items() if name not in ("salt", "chain_digest")})
    return [canonical_json(line) + "\n" for line in (*lines, {"events": len(events)})]


def write_export(path: Path, *, is_old: bool = False) -> Path:
    path.write_text("".join(first_form() if is_old else export_lines()), encoding="utf-8")
    return path


def apply_export(path: Path) -> Applied:
    return apply_bundle(open_bundle(path), current_store())


def merged(path: Path) -> MergeReport:
    report = apply_export(path).merge
    assert report
    return report


def contents(ids: dict[int, int] | None = None, after: int = 0) -> dict[str, list[str]]:
    """Return the rows of every read model as text, with their ids replaced."""
    return {model._meta.db_table: sorted(_rows(model, ids or {}, after)) for model in read_models()}


def _rows(model: type[models.Model], ids: dict[int, int], after: int) -> Iterator[str]:
    columns = [field.column for field in model._meta.local_concrete_fields]
    names = ", ".join(f'"{column}"' for column in columns)
    key = next((name for name in ("id", "event", "memory_id", "commit_id") if name in columns), None)
    for values in rows.fetch(f'SELECT {names} FROM "{model._meta.db_table}"'):
        row = dict(zip(columns, values, strict=True))
        if key is None or row[key] > after:
            yield str({name: ids.get(value, value) if name in IDS else value for name, value in row.items()})


class ExactTests(HubTestCase):
    def assert_same_in_an_empty_store(self, name: str, *, is_old: bool = False) -> None:
        before, digests, lines = contents(), log.table_digests(), first_form()
        export = write_export(self.home / "export.jsonl", is_old=is_old)
        with self.store(name):
            report = merged(export)
            self.assertEqual((report.added, report.left_out), (report.events, {}))
            self.assertEqual((contents(), log.table_digests()), (before, digests))
            self.assert_sound()
            self.assertEqual(first_form()[1 : report.events + 1], lines[1:-1])
            self.assertEqual(apply_export(export).outcome, BundleOutcome.CONTAINED)

    def assert_same_in_a_filled_store(self, name: str, *, is_old: bool = False) -> MergeReport:
        export = write_export(self.home / "export.jsonl", is_old=is_old)
        positions = dict(RawEvent.objects.values_list("event_id", "position"))
        with self.store(name):
            for number in range(3):
                last = write_memory(command=MemoryWrite(title=f"own {number}", content=f"own {number}")).id
            report = merged(export)
            copied = RawEvent.objects.filter(event_id__in=positions).values_list("event_id", "position")
            ids = {positions[event_id]: position for event_id, position in copied}
            after = contents(after=last)
            self.assert_sound()
            head = log.head()
            self.assertEqual((apply_export(export).added, log.head()), (0, head))
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
        SessionRecord("s1", "Chart the harbour", (PastTurn("Where is the buoy?", "North of the pier."),)),
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
                self.assert_same_in_a_filled_store(f"filled-{seed}", is_old=bool(seed % 2))
                self.roll_back(session_id="", actor="mallory")
                self.assert_same_in_an_empty_store(f"copy-{seed}", is_old=bool(seed % 2))


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
Change = Callable[[Lines], Lines | bytes]


def changed(number: int, **fields: Any) -> Change:
    """Return a function that changes fields of a line, or of its payload where that has them."""

    def change(lines: Lines) -> Lines:
        line = json.loads(lines[number])
        for name, value in fields.items():
            owner = line["payload"] if name in (line["payload"] or {}) else line
            owner[name] = value
        return [*lines[:number], json.dumps(line) + "\n", *lines[number + 1 :]]

    return change


def twice(lines: Lines) -> Lines | bytes:
    return changed(2, event_id=json.loads(lines[1])["event_id"])(lines)


NO_EXPORT, ERASURE = "the file is no export or bundle", "its payload is missing, and no event records"
HOSTILE: dict[str, tuple[Change, str]] = {
    "empty": (lambda _: b"", NO_EXPORT),
    "binary": (lambda _: bytes(range(256)) * 40, NO_EXPORT),
    "another format": (lambda _: b'{"type":"entity","name":"a"}\n', NO_EXPORT),
    "a list": (lambda _: b"[1]\n", NO_EXPORT),
    "another encoding": (lambda lines: "".join(lines).encode("utf-16"), NO_EXPORT),
    "a foreign version": (lambda lines: [lines[0].replace('"version":1', '"version":9'), *lines[1:]], "reads 2"),
    "an unknown field": (
        lambda lines: [lines[0].replace("{", '{"a":1,', 1), *lines[1:]],
        "line 1: the manifest is not valid: 'a' is not known",
    ),
    "cut between lines": (lambda lines: lines[:-1], "ends before the export does"),
    "cut in a line": (lambda lines: "".join(lines).encode()[:-40], "line 6: it is not one complete JSON object"),
    "a line less": (lambda lines: [*lines[:5], lines[-1]], "has 5 events, and the file has other lines"),
    "a line after the end": (lambda lines: [*lines, lines[-1]], "the file has other lines"),
    "two lines exchanged": (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], "its position is 2, not 1"),
    "a binary line": (lambda lines: "".join(lines[:2]).encode() + b"\xff\xfe\n", "line 3: it is not UTF-8"),
    "a huge line": (lambda lines: [lines[0], "x" * (MAX_LINE + 9)], "line 2: it is longer than"),
    "deep nesting": (lambda lines: [lines[0], '{"a":' * 100_000 + "\n"], "line 2: it is nested too deeply"),
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
    "an unrecorded erasure": (changed(1, payload=None, erased_digest="0" * 64), f"line 2: {ERASURE} an erasure"),
    "no payload and no digest": (changed(1, payload=None), "line 2: an event has either a payload or the digest"),
    "a time that is none": (changed(1, occurred_at="yesterday"), "line 2: 'occurred_at' is not valid"),
    "half a character": (lambda lines: "".join(lines).encode().replace(b"Use WAL", b"\\ud800"), "line 2: "),
}
# A store with events assigns new numbers, and leaves out an event that it has
FITTING = ("a number twice in a stream", "the same event twice")


class HostileExportTests(ExportTestCase):
    def setUp(self) -> None:
        super().setUp()
        first = self.write("Use WAL")
        self.update(first, content="More text")
        self.relate(first, self.write("Locks"))
        self.decide("Keep it")
        self.lines = first_form()

    def assert_refused(self, name: str, project: str) -> None:
        change, reason = HOSTILE[name]
        data, path = change(self.lines), self.home / "export.jsonl"
        path.write_bytes(data if isinstance(data, bytes) else "".join(data).encode())
        with self.assertRaises(CommandError) as refused:
            call_command("import", "jsonl", str(path), "--project", project, stdout=StringIO())
        message = str(refused.exception)
        self.assertIn(reason, message)
        self.assertEqual((message.count("\n"), len(message) < 400), (0, True))

    def test_each_is_refused_with_one_sentence_and_changes_nothing(self) -> None:
        with self.store("filled"):
            self.write("Own")
            before = log.head()
        for name in HOSTILE:
            for project in ("empty", "filled"):
                if project == "empty" or name not in FITTING:
                    with self.subTest(name, project=project):
                        self.assert_refused(name, project)
        with self.store("filled", create=False):
            self.assertEqual((log.head(), Memory.objects.count()), (before, 1))
        with self.store("empty"):
            self.assertEqual(log.head()[0], 0)

    def test_a_file_that_cannot_be_imported_creates_no_project(self) -> None:
        for name in ("a binary line", "an id from the future", "deep nesting"):
            self.assert_refused(name, "new")
        self.assertFalse((self.home / "projects/new").exists())


@tag("backend")
class FilledStoreTests(ExportTestCase):
    """Exports of alpha are imported into beta, which changes too."""

    def setUp(self) -> None:
        super().setUp()
        self.write("One", "Text of One.", topic_key="t/one")
        self.write("Two", "Text of Two.")

    def merge(self, project: str = "beta", replacing: tuple[str, str] = ("", "")) -> MergeReport:
        """Import alpha's export, in which a text is replaced, into another project."""
        export = write_export(self.home / "export.jsonl", is_old=bool(replacing[0]))
        export.write_text(export.read_text().replace(*replacing))
        with self.store(project, actor="bob"):
            report = merged(export)
            self.assert_sound()
        return report

    def fill(self, *titles: str) -> None:
        """Write memories of beta itself."""
        with self.store("beta"):
            for title in titles or ["Own"]:
                self.write(title, f"Text of {title}.")

    def texts(self, project: str = "beta") -> dict[str, str]:
        with self.store(project):
            return dict(Memory.objects.order_by("id").values_list("title", "content"))

    def payloads(self, project: str = "beta") -> str:
        with self.store(project):
            return str(list(RawEvent.objects.values_list("payload_json", flat=True)))

    def test_what_was_imported_before_goes_on(self) -> None:
        self.fill()
        self.assertEqual(self.merge().added, 2)
        self.write("Three", "Text of Three.")
        self.update(1, content="Later.")
        log.erase_streams(["memory:2"], reason="asked for")
        report = self.merge()
        self.assertEqual((report.added, report.known, report.left_out), (3, 2, {}))
        self.assertEqual(self.texts(), {"Own": "Text of Own.", "One": "Later.", "Three": "Text of Three."})
        self.assertNotIn("Text of Two", self.payloads())

    def test_text_that_was_redacted_since_is_named(self) -> None:
        self.fill()
        self.merge()
        payload = json.loads(RawEvent.objects.get(position=2).payload_json)
        log.redact_payloads({2: {**payload, "content": "[removed]"}}, what="a name")
        self.assertEqual((self.merge().unredacted, self.merge("gamma").unredacted), ([3], []))
        self.assertEqual(self.texts("gamma")["Two"], "[removed]")

    def test_what_both_have_changed_is_kept_twice_and_a_conflict(self) -> None:
        self.fill()
        self.merge()
        with self.store("beta"):
            self.update(2, content="Beta's.")
        for text in ("Alpha's.", "Alpha's again."):
            self.update(1, content=text)
        self.relate(1, 2)
        report = self.merge()
        self.assertEqual((report.added, report.left_out, report.conflicts), (3, {}, [2]))
        self.assertEqual(self.texts()["One"], "Beta's.")

    def test_a_topic_that_is_taken_keeps_its_memory_and_gets_a_conflict(self) -> None:
        self.relate(1, 2)
        self.update(1, content="Alpha's.")
        with self.store("beta"):
            own = self.write("Own", "Text of Own.", topic_key="t/one")
        report = self.merge()
        self.assertEqual((report.added, report.left_out, report.conflicts), (4, {}, [own]))
        self.assertEqual(self.texts(), {"Own": "Text of Own.", "Two": "Text of Two."})
        with self.store("beta"):
            self.assertEqual(Relation.objects.get().source_id, own)

    def test_secrets_are_masked_by_the_rules_of_today(self) -> None:
        secret, text = SECRETS["github"]
        report = self.merge(replacing=("Text of Two.", text.format(secret)))
        self.assertEqual((report.added, sum(report.redactions.values())), (2, 1))
        self.assertNotIn(secret, self.payloads())
        with self.assertRaisesRegex(Invalid, "line 2: actor must have"):
            self.merge("gamma", ('"actor":"ada"', f'"actor":"{secret}"'))

    def test_a_commit_names_the_decisions_by_their_new_ids(self) -> None:
        message = f"Store\n\nDecision: #{self.decide('Keep it')}\nRefs: #99"
        record_commit(command=CommitRead(sha="a" * 40, message=message, files=["a.py"]))
        self.fill("Own", "Another")
        with self.store("beta"):
            self.decide("Not this")
        self.merge()
        with self.store("beta"):
            linked = CommitLink.objects.get().decision_id
            self.assertEqual(Decision.objects.get(id=linked).title, "Keep it")
            self.assertEqual(Commit.objects.get().message, message)

    def test_only_an_owner_imports_a_store(self) -> None:
        self.fill()
        with use_grant(Grant(frozenset({Act.VIEW, Act.WRITE}))), self.assertRaises(Forbidden):
            self.merge()


class DeclaredReferenceTests(HubTestCase):
    """Integers of payloads: an import renumbers positions, so each field is declared as one or is none."""

    NUMBERS: ClassVar = {
        *("ack_seconds", "exit_code", "insertions", "deletions", "version", "base_version", "conflicts_with", "stands"),
        *("accepted_version", "before_version", "uses", "events", "bytes", "counts", "first", "last"),
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
