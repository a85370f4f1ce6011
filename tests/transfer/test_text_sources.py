"""What files of text of other tools become, and what hostile ones do not."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from django.test import SimpleTestCase

from memoryhub.transfer.records import MemoryRecord, Record
from memoryhub.transfer.sources import SOURCES

DATA = Path(__file__).parent / "data"


class TextSourceTestCase(SimpleTestCase):
    def folder(self) -> Path:
        return Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()

    # Outside this repository, so that its name is in no key
    def copy(self, data: str) -> Path:
        return Path(shutil.copytree(DATA / data, self.folder() / "harbour"))

    def read(self, source: str, path: Path) -> list[Record]:
        return list(SOURCES[source].read(path))


class AgentsMdTests(TextSourceTestCase):
    def test_each_section_becomes_a_guideline(self) -> None:
        folder = self.copy("agents-md")
        first, build, tests, pilot = self.read("agents-md", folder)
        self.assertEqual(
            build,
            MemoryRecord(
                key="harbour/AGENTS.md#harbour/build",
                title="AGENTS.md › Harbour › Build",
                content="Run `make charts` before you commit a chart.",
                kind="guideline",
                place=str(folder / "AGENTS.md"),
            ),
        )
        keys = [record.key for record in (first, tests, pilot) if isinstance(record, MemoryRecord)]
        self.assertEqual(
            keys, ["harbour/AGENTS.md", "harbour/AGENTS.md#harbour/tests", "harbour/pilot/AGENTS.md#pilot"]
        )

    def test_keys_stay_when_another_section_changes(self) -> None:
        folder = self.copy("agents-md")
        before = {record.key: record for record in self.read("agents-md", folder) if isinstance(record, MemoryRecord)}
        file = folder / "AGENTS.md"
        file.write_text(
            file.read_text().replace("a second", "two seconds").replace("# Harbour", "# Harbour\n\n## New\n\nNew.")
        )
        after = {record.key: record for record in self.read("agents-md", folder) if isinstance(record, MemoryRecord)}
        changed = {key for key, record in after.items() if before.get(key) != record}
        self.assertEqual(changed, {"harbour/AGENTS.md#harbour/new", "harbour/AGENTS.md#harbour/tests"})
        self.assertLessEqual(before.keys(), after.keys())


class CursorRulesTests(TextSourceTestCase):
    def test_a_rule_becomes_a_guideline_that_names_its_files(self) -> None:
        folder = self.copy("cursor-rules")
        first, names, tides, depths, orders = self.read("cursor-rules", folder)
        self.assertEqual(
            tides,
            MemoryRecord(
                key="harbour/.cursor/rules/tides.mdc",
                title=".cursor/rules/tides.mdc › Reading the tide feed",
                content="Applies to `feeds/**/*.{py,toml}`, `gauges/*.csv`.\n\n"
                "# Tide feed\n\nRetry after an hour when the feed answers 429.",
                kind="guideline",
                place=str(folder / ".cursor/rules/tides.mdc"),
            ),
        )
        assert isinstance(depths, MemoryRecord)
        self.assertEqual((depths.title, depths.content), (".cursor/rules/charts/depths.mdc", "Write depths in metres."))
        self.assertEqual(
            [record.title for record in (first, names, orders) if isinstance(record, MemoryRecord)],
            [".cursorrules", ".cursorrules › Names", "pilot/.cursor/rules/orders.mdc"],
        )
