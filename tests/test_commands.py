"""Commands as a shell meets them."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

from django.core.management import CommandError, call_command

from memories.schemas import MemoryWrite
from memories.services import write_memories
from memoryhub import __version__
from tests.support import HubTestCase

ROOT = Path(__file__).parents[1]


class OverviewTests(HubTestCase):
    def said_to(self, *arguments: str) -> str:
        command = [sys.executable, str(ROOT / "manage.py"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout

    def test_the_overview_says_of_each_command_of_the_hub_what_it_does(self):
        said = self.said_to()
        names = {path.stem for path in (ROOT / "memoryhub/management/commands").glob("[a-z]*.py")}
        lines = dict(line.split(maxsplit=1) for line in said.splitlines() if line.startswith("  "))
        self.assertEqual(set(lines), names)
        self.assertEqual(lines["verify"], "Walk the chain of a store's log")
        self.assertEqual(self.said_to("--help"), said)

    def test_the_version_is_the_hubs(self):
        self.assertEqual(self.said_to("--version"), f"{__version__}\n")


class ContextTests(HubTestCase):
    def context(self, *words: str) -> str:
        out = io.StringIO()
        call_command("context", *words, "--project", "alpha", stdout=out)
        return out.getvalue()

    def test_a_pack_is_named_as_it_names_itself(self):
        with self.store("alpha"):
            write_memories(commands=[MemoryWrite(title="Port", content="It listens on 8321.")])
        sent = self.context()
        (pack,) = re.findall(r"context pack (#\d+)", sent)
        self.assertEqual(self.context("--replay", pack), sent)
        self.assertEqual(self.context("--replay", pack.removeprefix("#")), sent)
        with self.assertRaisesRegex(CommandError, "there is no context pack #99999 here; without its id you get one"):
            self.context("--since", "#99999")


class DamagedHubTests(HubTestCase):
    def test_a_hub_db_that_is_no_database_is_told_in_one_sentence(self):
        (self.home / "hub.db").write_bytes(b"no database at all" * 100)
        command = [sys.executable, str(ROOT / "manage.py"), "token", "list"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        sentence = "memory-hub: the hub's own database is unavailable: file is not a database; `memory-hub doctor` says"
        self.assertEqual((done.returncode, done.stdout, done.stderr[: len(sentence)]), (8, "", sentence))
        self.assertEqual(done.stderr.count("\n"), 1)


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
            self.assertEqual((process.wait(120), said), (0, b""))
