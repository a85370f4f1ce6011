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

from memoryhub import __version__
from memoryhub.core.errors import Unavailable
from memoryhub.management import bench
from tests.home import UNMEASURED
from tests.support import HubTestCase


class BenchCase(HubTestCase):
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


class BenchTests(BenchCase):
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
        with bench.hub_client(self.home) as client:
            client.open()
            with self.assertRaisesRegex(Unavailable, "memory_write failed: .*content"):
                client.call("memory_write", {"title": "t"})
        with (
            mock.patch.object(bench, "command_words", return_value=[sys.executable, "-c", "exit('no disk')"]),
            bench.hub_client(self.home) as client,
            self.assertRaisesRegex(Unavailable, "^memory-hub ended: no disk$"),
        ):
            client.open()

    def test_a_size_that_makes_no_sense_is_refused(self):
        with self.assertRaisesRegex(CommandError, "'0' is not a whole number from 1 to 1,000,000"):
            call_command("bench", "--memories=0")


# A memory server of three tools, whose memories are lines of a file
SERVER = """
import json, sys
if sys.argv[2:] == ["dies"]:
    sys.exit("no such database")
path = sys.argv[1] + "/memories"
tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("store", "find", "refuse")]
for line in sys.stdin:
    request = json.loads(line)
    params = request.get("params") or {}
    text, failed = "stored", False
    if request["method"] == "tools/call" and params["name"] == "store":
        with open(path, "a") as memories:
            memories.write(params["arguments"]["notes"][0]["text"] + chr(10))
    elif request["method"] == "tools/call":
        failed = params["name"] == "refuse"
        text = "".join(line for line in open(path) if params["arguments"]["text"] in line)
    answer = {"content": [{"type": "text", "text": text}], "isError": failed, "tools": tools}
    answer["serverInfo"] = {"name": "notes", "version": "1.2"}
    if "id" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": answer}), flush=True)
"""
STORE = 'store {"notes": [{"text": "{title}: {content}"}]}'
FIND = 'find {"text": "{query}"}'


class AgainstTests(BenchCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(mock.patch.multiple(bench, STARTS=2, CALLS=3))
        self.server = self.home.parent / f"{self.home.name}-server.py"
        self.server.write_text(SERVER)
        self.addCleanup(self.server.unlink)

    def compare(self, *options: str, command: str = "", write: str = STORE, search: str = FIND) -> str:
        command = command or f"{sys.executable} {self.server} {{folder}}"
        return self.bench(f"--against={command}", f"--against-write={write}", f"--against-search={search}", *options)

    def test_another_server_is_measured_beside_the_hub(self):
        hub, other = json.loads(self.compare("--json"))
        self.assertEqual((hub["server"], hub["tools"], other["tools"]), (f"memory-hub {__version__}", 8, 3))
        self.assertEqual(other["server"], "notes 1.2")
        self.assertEqual((hub["found"], other["found"]), (3, 3))
        for side in (hub, other):
            samples = {timing["operation"]: timing["samples"] for timing in side["timings"]}
            self.assertEqual(samples, {"start and lists": 2, "write": 3, "search": 3})
            self.assertGreater(side["tools_tokens"], 10)
            self.assertGreater(side["peak_resident_bytes"] or 10**7, 10**6)
        self.assertEqual(list(self.temporary.iterdir()), [])

    def test_what_cannot_be_compared_is_refused_in_one_sentence(self):
        refusals = {
            "has no tool 'put'; it has: store, find, refuse": {"write": STORE.replace("store", "put", 1)},
            "refuse failed: ": {"search": FIND.replace("find", "refuse")},
            "'find query' is not a tool's name and a JSON object": {"search": "find query"},
            r"the arguments of find do not contain \{query\}": {"search": 'find {"text": "all"}'},
            "ended: no such database$": {"command": f"{sys.executable} {self.server} {{folder}} dies"},
            "'/no/such/server' can't be started: No such file": {"command": "/no/such/server"},
            "printed a line that is not a message: 'ready'": {"command": f"{sys.executable} -c 'print(\"ready\")'"},
            "the command of the other server is not": {"command": "a 'b"},
        }
        for sentence, given in refusals.items():
            with self.subTest(sentence), self.assertRaisesRegex(CommandError, sentence):
                self.compare(**given)
        with self.assertRaisesRegex(CommandError, "--against, --against-write, --against-search"):
            self.bench("--against=server")
        self.assertEqual(list(self.temporary.iterdir()), [])
