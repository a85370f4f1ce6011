"""What the data of tools that keep notes and facts becomes."""

from __future__ import annotations

import os
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

from django.test import SimpleTestCase

from memoryhub.transfer.records import LeftOut, MemoryRecord, Record
from memoryhub.transfer.sources import SOURCES

DATA = Path(__file__).parent / "data"


class NoteToolTestCase(SimpleTestCase):
    def setUp(self) -> None:
        self.home = Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()
        self.enterContext(patch.dict(os.environ, HOME=str(self.home)))

    def copy(self, data: str) -> Path:
        return Path(shutil.copytree(DATA / data, self.home / "copy" / Path(data).name))

    def read(self, source: str, path: Path) -> list[Record]:
        return list(SOURCES[source].read(path))

    def memories(self, source: str, path: Path) -> dict[str, MemoryRecord]:
        return {record.key: record for record in self.read(source, path) if isinstance(record, MemoryRecord)}


class BasicMemoryTests(NoteToolTestCase):
    def test_notes_become_memories_with_their_relations(self) -> None:
        folder = self.copy("basic-memory/harbour")
        os.utime(folder / "Harbour/Tide gauge.md", (1_772_352_000, 1_772_352_000))
        records = self.memories("basic-memory", folder)
        self.assertEqual(
            records["harbour:harbour/tide-gauge"],
            MemoryRecord(
                key="harbour:harbour/tide-gauge",
                title="Tide gauge",
                content="# Tide gauge\n\nThe gauge at Øster Hurup reads the level each minute.\n\n## Observations\n"
                "- [fact] Reads 0.8 m at 06:12 #level (after the repair)\n"
                "- [technique] Retry after an hour when the feed answers 429 #feed\n\n"
                "## Relations\n- depends_on [[Tide feed]]\n- part_of [[Berths]]\n- relates to [[Pier 9]]",
                type="note",
                tags=("gauges", "harbour", "level", "feed"),
                project="harbour",
                created=datetime(2026, 3, 1, 8, tzinfo=UTC),
                relations=(("depends_on", "harbour:harbour/tide-feed"), ("related_to", "harbour:harbour/berths")),
                place=str(folder / "Harbour/Tide gauge.md"),
            ),
        )
        self.assertEqual(
            {
                key: (record.type, record.relations)
                for key, record in records.items()
                if key != "harbour:harbour/tide-gauge"
            },
            {
                "harbour:harbour/berths": (
                    "note",
                    (("related_to", "harbour:harbour/tide-gauge"), ("related_to", "harbour:harbour/tide-feed")),
                ),
                "harbour:harbour/tide-feed": ("reference", (("related_to", "harbour:harbour/tide-gauge"),)),
                "harbour:harbour/decisions/metres-not-feet": ("decision", (("related_to", "harbour:harbour/berths"),)),
            },
        )
        left = [record for record in self.read("basic-memory", folder) if isinstance(record, LeftOut)]
        self.assertEqual(left, [LeftOut(str(folder), "links to notes that are not in this project: 2")])
