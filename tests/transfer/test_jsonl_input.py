from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any, ClassVar, get_args

from django.core.management import CommandError, call_command
from pydantic import AfterValidator, BaseModel

from decisions.models import CommitLink, Decision
from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from memories.models import Memory, Relation
from memories.schemas import MemoryUpdate, MemoryWrite
from memories.schemas.links import RelationCreate
from memories.services import update_memory, write_memory
from memories.services.relations import create_relation
from memoryhub.core import log
from memoryhub.core.errors import Forbidden, Invalid
from memoryhub.core.events.event_types import event_types
from memoryhub.core.models import RawEvent
from memoryhub.core.permissions import Act, Grant, use_grant
from memoryhub.core.schemas import _renumbered_all, renumbered
from memoryhub.transfer import jsonl
from memoryhub.transfer.jsonl import Export, export_lines
from memoryhub.transfer.replaying import replay_export
from sessions_app.models import Commit
from sessions_app.schemas import CommitRead
from sessions_app.services import record_commit
from tests.secrets_made import SECRETS
from tests.support import HubTestCase

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


class HostileTests(HubTestCase):
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
    return any(getattr(mark, "func", None) in (renumbered, _renumbered_all) for mark in marks)
