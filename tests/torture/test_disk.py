"""The simulated disk: what a power cut keeps, and what it may take."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable
from pathlib import Path
from unittest import TestCase

from django.test import tag

from tests.home import contents
from tests.torture.disk import Disk
from tests.torture.strace import Call

ROOT = Path("/home")
CUTS = 60


@tag("attack")
class DiskTests(TestCase):
    def setUp(self) -> None:
        self.disk = Disk(ROOT, sector=4)
        self.count = 0

    def call(
        self, name: str, *paths: str, data: bytes = b"", flags: str = "", number: int = 0, began: int = -1
    ) -> None:
        places = tuple(str(ROOT / path) if path else str(ROOT) for path in paths)
        self.disk.apply(Call(name, self.count if began < 0 else began, places, data, flags, number, len(data)))
        self.count += 1

    def make(self, path: str, data: bytes) -> None:
        self.call("openat", path, flags="O_RDWR|O_CREAT")
        self.call("write", path, data=data)

    def sync(self, *paths: str) -> None:
        for path in paths:
            self.call("fsync", path)

    def after_cuts(self) -> set[tuple[tuple[str, bytes], ...]]:
        return {self.after_cut(random.Random(seed)) for seed in range(CUTS)}

    def after_cut(self, chance: random.Random) -> tuple[tuple[str, bytes], ...]:
        with tempfile.TemporaryDirectory() as folder:
            self.disk.write_after_power_cut(Path(folder), chance)
            found = contents(Path(folder))
            return tuple(sorted((str(path.relative_to(folder)), content) for path, content in found.items()))

    def assert_outcomes(self, outcomes: Iterable[tuple[tuple[str, bytes], ...]]) -> None:
        self.assertEqual(self.after_cuts(), set(outcomes))

    def test_what_was_synced_with_its_folder_is_kept(self):
        self.make("a", b"12345678")
        self.sync("a", "")
        self.assert_outcomes([(("a", b"12345678"),)])

    def test_a_synced_file_is_lost_with_its_name(self):
        self.make("a", b"1234")
        self.sync("a")
        self.assert_outcomes([(), (("a", b"1234"),)])

    def test_each_sector_that_was_not_synced_is_old_or_new(self):
        self.make("a", b"oooooooo")
        self.sync("a", "")
        self.call("pwrite64", "a", data=b"nnnnnnnn")
        self.assert_outcomes(
            [(("a", first + second),) for first in (b"oooo", b"nnnn") for second in (b"oooo", b"nnnn")]
        )

    def test_a_sync_covers_no_write_that_came_after_it_began(self):
        self.make("a", b"oooo")
        self.sync("a", "")
        before = self.count
        self.call("pwrite64", "a", data=b"nnnn")
        self.call("fsync", "a", began=before)
        self.assert_outcomes([(("a", b"oooo"),), (("a", b"nnnn"),)])

    def test_a_rename_is_there_as_a_whole_or_not_at_all(self):
        self.make("draft", b"new ")
        self.make("a", b"old ")
        self.sync("draft", "a", "")
        self.call("rename", "draft", "a")
        self.assert_outcomes([(("a", b"old "), ("draft", b"new ")), (("a", b"new "),)])

    def test_a_rename_that_was_not_synced_may_lead_to_an_empty_file(self):
        self.make("draft", b"new ")
        self.call("rename", "draft", "a")
        self.sync("")
        self.assertIn((("a", b""),), self.after_cuts())

    def test_entries_of_a_folder_are_lost_from_the_last(self):
        self.call("mkdir", "folder")
        self.sync("")
        for name in ("1", "2", "3"):
            self.make(f"folder/{name}", b"")
        self.assert_outcomes([tuple((f"folder/{name}", b"") for name in "123"[:count]) for count in range(4)])
