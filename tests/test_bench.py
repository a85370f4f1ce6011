"""The benchmark that users run, once at a tiny size: what it prints and what it leaves behind."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from unittest import mock

from django.core.management import CommandError, call_command

from memoryhub.core.errors import Unavailable
from memoryhub.management import bench
from tests.home import UNMEASURED
from tests.support import HubTestCase


class BenchTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(mock.patch.dict(os.environ, UNMEASURED))
        self.temporary = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.enterContext(mock.patch.object(tempfile, "tempdir", str(self.temporary)))
        self.addCleanup(signal.signal, signal.SIGTERM, signal.getsignal(signal.SIGTERM))

    def bench(self, *options: str) -> str:
        out = io.StringIO()
        call_command("bench", "--memories=10", *options, stdout=out)
        return out.getvalue()

    def test_every_operation_is_timed_and_the_users_home_is_not_touched(self):
        with mock.patch.multiple(bench, STARTS=2, CALLS=3):
            timings = json.loads(self.bench("--json"))
        samples = {timing["operation"]: timing["samples"] for timing in timings}
        self.assertEqual(samples, {"start": 2, "write": 3, "search": 3, "pack": 3})
        for timing in timings:
            self.assertTrue(0 < timing["median"] <= timing["p95"], timing)
        self.assertEqual(list(self.temporary.iterdir()), [])
        self.assertEqual([path.name for path in self.home.iterdir()], ["templates"])

    def test_the_table_has_a_row_for_each_operation(self):
        timing = bench.Timing("write", 2.96, 6.54, 100)
        with mock.patch("memoryhub.management.commands.bench.measure", return_value=[timing]) as measured:
            said = self.bench()
        measured.assert_called_once_with(10)
        self.assertIn("10 memories", said)
        self.assertRegex(said, r"write +3\.0 +6\.5 +100")

    def test_a_refused_call_is_an_error_in_one_sentence(self):
        with bench.Client(self.home) as client:
            client.open()
            with self.assertRaisesRegex(Unavailable, "memory_write failed: .*content"):
                client.call("memory_write", {"title": "t"})
        with (
            mock.patch.object(bench, "command_words", return_value=[sys.executable, "-c", "exit('no disk')"]),
            bench.Client(self.home) as client,
            self.assertRaisesRegex(Unavailable, "^mcp ended: no disk$"),
        ):
            client.open()

    def test_a_size_that_makes_no_sense_is_refused(self):
        with self.assertRaisesRegex(CommandError, "'0' is not a whole number from 1 to 1,000,000"):
            call_command("bench", "--memories=0")
