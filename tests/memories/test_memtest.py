from __future__ import annotations

from io import StringIO
from pathlib import Path

from django.core.management import call_command
from django.core.management.base import CommandError

from memories.memtest import read_tests
from memories.schemas import MemoryWrite
from memories.schemas.links import RelationCreate
from memories.services import write_memories
from memories.services.relations import create_relation
from memoryhub.core import log
from memoryhub.core.errors import Invalid, NotFound
from tests.support import HubTestCase


class MemoryTestsTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        with self.store("alpha"):
            texts = {
                "Use jittered retries": "Waiting writers starve without jitter.",
                "Use exponential backoff": "Waiting writers back off exponentially.",
                "Port of the hub": "It listens on 8321.",
            }
            write_memories(commands=[MemoryWrite(title=title, content=text) for title, text in texts.items()])

    def file(self, text: str) -> Path:
        path = self.home / "memory.tests.yml"
        path.write_text(text)
        return path

    def run_file(self, text: str) -> str:
        out = StringIO()
        call_command("memtest", str(self.file(text)), project="alpha", stdout=out)
        return out.getvalue()

    def fails(self, text: str, sentence: str) -> None:
        out = StringIO()
        with self.assertRaises(CommandError) as caught:
            call_command("memtest", str(self.file(text)), project="alpha", stdout=out)
        self.assertEqual(caught.exception.returncode, 1)
        self.assertIn(sentence, out.getvalue())

    def test_passing_tests_are_ok_and_nothing_is_written(self):
        with self.store("alpha"):
            before = log.head()
        report = self.run_file(
            "tests:\n"
            "  - {query: jitter for waiting writers, expect: [Use jittered retries], within: 1}\n"
            "  - {query: which port, expect: ['#3'], never: [Use jittered retries]}\n"
            "  - {pack: port, contains: ['8321'], lacks: [password]}\n"
        )
        self.assertIn("ok  jitter for waiting writers\n", report)
        self.assertIn("3 of 3 passed", report)
        with self.store("alpha"):
            self.assertEqual(log.head(), before)

    def test_tests_are_not_written_through_a_link(self):
        outside, link = self.home / "outside.yml", self.home / "linked.yml"
        link.symlink_to(outside)
        with self.assertRaisesRegex(CommandError, "linked.yml exists"):
            call_command("memtest", str(link), "--write", project="alpha")
        self.assertFalse(outside.exists())

    def test_failing_tests_are_reported(self):
        for test, sentence in {
            "query: jitter, expect: [Port of the hub]": "'Port of the hub' is not among the first 3: #1",
            "query: waiting writers, never: ['#2']": "#2 Use exponential backoff is among the first 3",
            "query: which port, never: ['listens ON 8321']": "among the first 3, and contains 'listens ON 8321'",
            "pack: port, contains: ['9000']": "the pack does not contain '9000'",
            "pack: port, lacks: ['8321']": "the pack contains '8321'",
            "name: Nothing": "it has neither 'query' nor 'pack'",
        }.items():
            with self.subTest(test):
                self.fails(f"tests: [{{{test}}}]", sentence)

    def test_a_superseded_memory_must_not_come_first(self):
        with self.store("alpha"):
            create_relation(command=RelationCreate(source="1", relation="supersedes", target="2"))
        self.fails("tests: [{query: exponential}]", "#2 Use exponential backoff is superseded, and among the first 3")
        self.assertIn("1 of 1 passed", self.run_file("tests: [{query: exponential, allow_superseded: true}]"))

    def test_a_bad_file_is_reported_in_one_sentence(self):
        for text, sentence in {
            "tests: [": "is not valid YAML",
            "tests: " + "[" * 2_000: "is nested too deeply",
            "tests: []": "tests",
            "tests: [{qery: x}]": "qery",
            "- a": "memory.tests.yml",
        }.items():
            with self.subTest(text[:40]), self.assertRaisesRegex(Invalid, sentence):
                read_tests(self.file(text))
        with self.assertRaisesRegex(NotFound, "there is no .*absent.yml"):
            read_tests(self.home / "absent.yml")
