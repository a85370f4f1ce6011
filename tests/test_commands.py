"""Commands as a shell meets them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from memories.schemas import MemoryWrite
from memories.services import write_memories
from tests.support import HubTestCase

ROOT = Path(__file__).parents[1]


class PipeTests(HubTestCase):
    def test_a_reader_that_leaves_early_ends_the_command_without_a_word(self):
        with self.store("alpha"):
            write_memories(commands=[MemoryWrite(title=f"T{n}", content=f"{n} " + "x" * 2_000) for n in range(300)])
        command = [sys.executable, str(ROOT / "manage.py"), "replay", "--project", "alpha"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout
            assert process.stderr
            self.assertIn(b'"event_type":"memory.written"', process.stdout.readline())
            process.stdout.close()
            said = process.stderr.read()
            self.assertEqual((process.wait(60), said), (0, b""))
