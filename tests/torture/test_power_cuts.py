"""A power cut at any moment, on a disk that keeps only what was synced, loses no acknowledged write."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from unittest import TestCase

from django.test import tag

from tests.home import contents, run_home
from tests.programs import needs
from tests.support import HubTestCase
from tests.torture.acknowledged import SECRETS, expected, problems
from tests.torture.disk import Call, Disk, read_calls, recording
from tests.torture.rounds import is_long, randomness, rounds
from tests.web.server import migrated_home

ROOT = Path(__file__).parents[2]
DEADLINE_SECONDS = 300
SECTORS = (512, 4096)


@needs("strace")
@tag("attack")
class PowerCutTests(HubTestCase):
    """Each test records one workload once, and cuts the power at random points of the recording.

    The long form begins without a home; the short one with migrated databases, which take most of a first start.
    """

    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(tempfile.mkdtemp(prefix="power-", dir=run_home()))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.before = self.folder / "before"
        shutil.copytree(migrated_home(), self.before)
        for name in SECRETS:
            (self.before / name).unlink(missing_ok=True)
        shutil.copytree(self.home / "templates", self.before / "templates", dirs_exist_ok=True)

    def test_two_agents_that_write_at_once_lose_nothing(self):
        self.cut_power("agents", rounds(6, long=250))

    def test_backup_rebuild_redaction_and_restore_lose_nothing(self):
        self.cut_power("upkeep", rounds(6, long=150))

    def test_a_servers_first_start_leaves_whole_secrets_and_loses_nothing(self):
        self.cut_power("web", rounds(6, long=100))

    def cut_power(self, workload: str, cuts: int) -> None:
        calls, ledger, home = self.record(workload)
        with randomness() as chance:
            points = sorted(chance.sample(range(1, len(calls) + 1), min(cuts, len(calls))))
            sectors = SECTORS if is_long() else [chance.choice(SECTORS)]
            for number, sector in enumerate(sectors):
                self.replay(calls, ledger, home, points[number :: len(sectors)], sector, chance)

    def record(self, workload: str) -> tuple[list[Call], Path, Path]:
        home, ledger, output = (self.folder / name for name in ("home", "ledger", "trace"))
        if not is_long():
            shutil.copytree(self.before, home)
        command = recording([sys.executable, "-m", "tests.torture.workload", workload, str(home), str(ledger)], output)
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        calls = list(read_calls(output, under=self.folder))
        output.unlink()
        return calls, ledger, home

    def replay(
        self, calls: list[Call], ledger: Path, home: Path, points: Sequence[int], sector: int, chance: random.Random
    ) -> None:
        """Apply the calls to a simulated disk, cut its power after those at the given points, and open what is left."""
        disk, acknowledged = Disk(home, sector=sector), Notes(ledger)
        if not is_long():
            disk.add_durable(self.before)
        waiting = iter([*points, len(calls) + 1])
        point = next(waiting)
        for number, call in enumerate(calls, start=1):
            disk.apply(call)
            acknowledged.take(call)
            if number == point:
                with self.subTest(cut=number, of=len(calls), sector=sector):
                    self.open_after_cut(disk, acknowledged.lines, chance)
                point = next(waiting)
        self.assert_same(disk, home)

    def open_after_cut(self, disk: Disk, lines: list[dict[str, Any]], chance: random.Random) -> None:
        home = Path(tempfile.mkdtemp(prefix="left-", dir=self.folder))
        disk.write_after_power_cut(home, chance)
        thorough = is_long() or chance.random() < 0.25
        self.assertEqual(problems(home, expected(lines), thorough=thorough)[:5], [])
        shutil.rmtree(home)

    def assert_same(self, disk: Disk, home: Path) -> None:
        """The calls, applied without a power cut, must give the files that the processes left."""
        recorded = disk.contents()
        real = {str(path.relative_to(home)): content for path, content in contents(home).items()}
        self.assertEqual(_without_shared_memory(recorded), _without_shared_memory(real))


class Notes:
    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self.lines: list[dict[str, Any]] = []

    def take(self, call: Call) -> None:
        if call.name == "write" and call.paths == (self._path,):
            self.lines.append(json.loads(call.data))


def _without_shared_memory(files: dict[str, bytes]) -> dict[str, bytes]:
    """SQLite writes the index of its WAL through mapped memory, and makes it again after a crash."""
    return {path: content for path, content in files.items() if not path.endswith("-shm")}


HOME = Path("/home")
CUTS = 60


@tag("attack")
class DiskTests(TestCase):
    def setUp(self) -> None:
        self.disk = Disk(HOME, sector=4)
        self.count = 0

    def call(
        self, name: str, *paths: str, data: bytes = b"", flags: str = "", number: int = 0, began: int = -1
    ) -> None:
        places = tuple(str(HOME / path) if path else str(HOME) for path in paths)
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

    def test_what_was_synced_is_kept_unless_its_folder_was_not(self):
        self.make("a", b"12345678")
        self.sync("a")
        self.assert_outcomes([(), (("a", b"12345678"),)])
        self.sync("")
        self.assert_outcomes([(("a", b"12345678"),)])

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
