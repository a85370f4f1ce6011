"""A power cut at any moment, on a disk that keeps only what was synced, loses no acknowledged write."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.test import tag

from tests.home import contents, run_home
from tests.programs import needs
from tests.support import HubTestCase
from tests.torture.acknowledged import expected
from tests.torture.aftermath import SECRETS, problems
from tests.torture.disk import Disk
from tests.torture.rounds import is_long, randomness, rounds
from tests.torture.strace import Call, read_calls, recording
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
        left = Path(tempfile.mkdtemp(prefix="left-", dir=self.folder))
        disk.write_after_power_cut(left, chance)
        thorough = is_long() or chance.random() < 0.25
        found = problems(left, expected(lines), thorough=thorough)
        self.assertEqual(found[:5], [])
        shutil.rmtree(left)

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
