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

from memoryhub.core.errors import Invalid, Unavailable
from memoryhub.management import against, bench
from tests.home import UNMEASURED
from tests.support import HubTestCase

# A memory server in a few lines: it keeps notes in a file, and prints a line that is not JSON
NOTES = """
import json, pathlib, sys
print("ready", flush=True)
notes = pathlib.Path(sys.argv[1])
for line in sys.stdin:
    request = json.loads(line)
    params = request.get("params", {})
    arguments = params.get("arguments", {})
    if "id" not in request:
        continue
    answer = {"content": []}
    if request["method"] == "tools/list":
        answer = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("keep", "find")]}
    elif params.get("name") == "keep":
        notes.open("a").write(arguments["note"]["text"][0] + "\\n")
    elif params.get("name") == "find" and arguments["words"] not in notes.read_text():
        answer = {"isError": True, "content": [{"type": "text", "text": "nothing found"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": answer}), flush=True)
"""
KEEP, FIND = 'keep {"note": {"text": ["{title}"]}}', 'find {"words": "{query}"}'


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

    def against(self, *options: str, write: str = KEEP, search: str = FIND, command: str = "") -> str:
        server = self.temporary / "notes.py"
        server.write_text(NOTES)
        command = command or f"{sys.executable} {server} {{folder}}/notes.txt"
        return self.bench("--against", command, "--write", write, "--search", search, *options)

    def test_another_server_is_measured_with_the_same_calls(self):
        with mock.patch.multiple(against, STARTS=2, CALLS=3):
            rows = json.loads(self.against("--json"))
        ours, theirs = (
            {row["operation"]: row for row in rows if (row["server"] == "memory-hub") is own} for own in (True, False)
        )
        self.assertEqual(list(ours), ["start", "write", "search", "tools/list, tokens", "peak memory, MB"])
        self.assertEqual(list(ours), list(theirs))
        for row in rows[:6]:
            self.assertTrue(0 < row["median"] <= row["p95"], row)
        self.assertGreater(ours["tools/list, tokens"]["value"], theirs["tools/list, tokens"]["value"])
        self.assertEqual([path.name for path in self.temporary.iterdir()], ["notes.py"])

    def test_the_table_has_a_column_for_each_server(self):
        rows = [against.Row("memory-hub", "write", 2.96, 6.54), against.Row("notes", "write", 1.0, 1.5)]
        rows += [against.Row("memory-hub", "peak memory, MB", value=90), against.Row("notes", "peak memory, MB")]
        with mock.patch("memoryhub.management.commands.bench.compare", return_value=rows):
            said = self.against()
        self.assertRegex(said, r"memory-hub +notes\b")
        self.assertRegex(said, r"write, ms +3\.0 / 6\.5 +1\.0 / 1\.5")
        self.assertRegex(said, r"peak memory, MB +90 +–")

    def test_bad_options_are_refused_in_one_sentence(self):
        for options, sentence in (
            ({"write": "keep"}, "--write takes a tool and its arguments as a JSON object, such as 'add_note"),
            ({"write": 'keep {"a": "b"}'}, "--write needs {title} or {content} in its arguments"),
            ({"search": "find [1]"}, "--search takes a tool and its arguments as a JSON object"),
            ({"write": 'drop {"a": "{title}"}'}, "has no tool 'drop'; it has keep, find"),
            ({"command": "'"}, "--against has an unfinished quotation"),
            ({"command": "no-such-server"}, "cannot start 'no-such-server': No such file or directory"),
            ({"command": f"{sys.executable} -c \"exit('no disk')\""}, "ended: no disk"),
        ):
            with self.subTest(sentence), self.assertRaises((CommandError, Invalid, Unavailable)) as caught:
                self.against(**options)
            self.assertIn(sentence, str(caught.exception))
        with self.assertRaisesRegex((CommandError, Invalid), "belong together"):
            self.bench("--against", "server")

    def test_a_server_that_never_answers_is_ended(self):
        with (
            mock.patch.object(bench, "_SECONDS_TO_ANSWER", 0.5),
            self.assertRaisesRegex(Unavailable, "ended: it was silent"),
            bench.Client(self.temporary, ["sleep", "60"]) as client,
        ):
            client.open()
