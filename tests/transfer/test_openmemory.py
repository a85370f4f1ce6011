"""The export of OpenMemory, which `import mem0` reads."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import zipfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from memoryhub.core.errors import Invalid
from memoryhub.transfer.records import LeftOutRecord, MemoryRecord
from tests.transfer.test_text_sources import DATA, SourceTestCase

EXPORT = DATA / "mem0/memories_export_maya.zip"
FIRST = "6f1f2a01-0000-4a7b-9c55-000000000001"


class OpenMemoryTests(SourceTestCase):
    def test_the_export_becomes_memories_with_apps_and_categories_as_tags(self) -> None:
        feed, depths = self.memories("mem0", EXPORT).values()
        self.assert_record(
            feed,
            key=FIRST,
            content="The tide feed answers 429 for an hour.",
            tags=("cursor", "feeds"),
            project="",
            created=datetime(2026, 2, 3, 8, 30, tzinfo=UTC),
            updated=datetime(2026, 2, 4, 9, tzinfo=UTC),
        )
        self.assertEqual((depths.tags, depths.project), (("claude", "charts"), "charts"))
        self.assertEqual(self.reasons("mem0", EXPORT), ["memories that were deleted or archived there: 2"])

    def test_each_of_its_files_has_the_same_memories(self) -> None:
        expected = [replace(record, place="") for record in self.memories("mem0", EXPORT).values()]
        with zipfile.ZipFile(EXPORT) as archive:
            archive.extractall(self.home)
        (self.home / "memories.jsonl").write_bytes(gzip.decompress((self.home / "memories.jsonl.gz").read_bytes()))
        tables = self.home / "tables.zip"
        with zipfile.ZipFile(tables, "w") as archive:
            archive.write(self.home / "memories.json", "export/memories.json")
        for name in ("memories.json", "memories.jsonl.gz", "memories.jsonl", "tables.zip"):
            records = [replace(record, place="") for record in self.memories("mem0", self.home / name).values()]
            self.assertEqual(records, expected, name)

    def test_damaged_foreign_and_endless_exports_are_refused(self) -> None:
        path = self.home / "export.zip"
        raw = EXPORT.read_bytes()
        lines = gzip.compress(b'[1]\n{"id": 1}\n' + b"[" * 100_000)
        for content, why in (
            (raw[:200], "is damaged"),
            (self.zipped("notes.json", b"{}"), "is no export of OpenMemory"),
            (self.zipped("memories.jsonl.gz", b"x"), "is damaged, or not compressed"),
            (self.zipped("memories.json", b"["), "is no JSON"),
            (
                self.zipped("memories.jsonl.gz", lines),
                "have no id and memory",
            ),
        ):
            path.write_bytes(content)
            self.assert_refused("mem0", path, why)
        with patch("memoryhub.transfer.sources.openmemory.MAX_FILE", 1_000):
            path.write_bytes(self.zipped("memories.json", b" " * 100_000))
            self.assert_refused("mem0", path, "unpacks to more than")

    def zipped(self, name: str, content: bytes) -> bytes:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, content)
        return file.getvalue()

    @given(st.integers(0, EXPORT.stat().st_size - 1), st.binary(min_size=1, max_size=20))
    def test_an_export_that_was_damaged_at_random_is_read_or_refused(self, at: int, noise: bytes) -> None:
        path = Path(shutil.copy(EXPORT, self.folder()))
        raw = path.read_bytes()
        path.write_bytes(raw[:at] + noise + raw[at + len(noise) :])
        try:
            records = self.read("mem0", path)
        except Invalid:
            return
        self.assertTrue(all(isinstance(record, MemoryRecord | LeftOutRecord) for record in records))

    def test_a_line_that_is_cut_off_leaves_the_others(self) -> None:
        path = self.home / "memories.jsonl"
        line = json.dumps({"id": "1", "content": "Depths in metres.", "state": "active"})
        path.write_text(f"{line}\n\n{line[:20]}\n")
        self.assertEqual(list(self.memories("mem0", path)), ["1"])
        self.assertEqual(self.reasons("mem0", path), ["entries that have no id and memory, or the id of another: 1"])
