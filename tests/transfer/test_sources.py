"""What each tool's own files become, and what hostile files do not."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from django.test import SimpleTestCase

from memoryhub.core.errors import Invalid
from memoryhub.transfer.records import LeftOut, MemoryRecord
from memoryhub.transfer.sources import SOURCES

DATA = Path(__file__).parent / "data"


class SourceTestCase(SimpleTestCase):
    def file(self, content: bytes) -> Path:
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        (folder / "memory.jsonl").write_bytes(content)
        return folder / "memory.jsonl"


class ServerMemoryTests(SourceTestCase):
    def test_entities_become_memories_with_their_relations(self) -> None:
        path = DATA / "server-memory" / "memory.jsonl"
        feed, maya, harbour = SOURCES["server-memory"].read(path)
        self.assertEqual(
            feed,
            MemoryRecord(
                key="Tide gauge feed",
                title="Tide gauge feed",
                content="- Allows 30 requests a minute\n- Answers 429 for an hour afterwards\n- depends_on Øster Hurup",
                tags=("service",),
                relations=(("depends_on", "Øster Hurup"),),
                place=f"{path}:1",
            ),
        )
        assert isinstance(maya, MemoryRecord)
        assert isinstance(harbour, MemoryRecord)
        self.assertEqual(maya.relations, (("related_to", "Tide gauge feed"),))
        self.assertIn("- knows Nobody", maya.content)
        self.assertEqual(harbour.content, "")

    def test_relations_of_nothing_are_named(self) -> None:
        line = {"type": "relation", "from": "A", "to": "B", "relationType": "knows"}
        (left,) = SOURCES["server-memory"].read(self.file(json.dumps(line).encode()))
        assert isinstance(left, LeftOut)
        self.assertEqual(left.why, "relations of 'A', which is no entity: 1")


class HostileTests(SourceTestCase):
    def test_hostile_files_get_one_sentence(self) -> None:
        cases = {
            "binary": bytes(range(256)) * 20,
            "another encoding": '{"type": "entity"}'.encode("utf-16"),
            "truncated": b'{"type": "entity", "name": "A", "entity',
            "another schema": b'{"type": "node", "id": 1}',
            "a list": b"[1, 2]",
            "deep": b"[" * 100_000 + b"]" * 100_000,
            "huge": b'{"name": "' + b"x" * (5 * 2**20) + b'"}',
            "an entity without observations": b'{"type": "entity", "name": "A", "entityType": "t"}',
        }
        for name, content in cases.items():
            with self.subTest(name), self.assertRaises(Invalid) as refused:
                list(SOURCES["server-memory"].read(self.file(content)))
            self.assertLess(len(str(refused.exception)), 400, name)
        with self.assertRaisesRegex(Invalid, "can't read"):
            list(SOURCES["server-memory"].read(Path("/nowhere/memory.jsonl")))
        with self.assertRaisesRegex(Invalid, "can't read"):
            list(SOURCES["server-memory"].read(Path("/")))
