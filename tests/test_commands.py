from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tempfile
import unicodedata
from argparse import ArgumentParser, _SubParsersAction
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import TestCase, mock

from django.core.management import CommandError, call_command, load_command_class

from memories.schemas import MemoryWrite
from memories.services import write_memories
from memoryhub import __version__
from memoryhub.management import parsers
from memoryhub.ops.jobs.runs import Outcome
from tests.hostile import fill, forged_lines, forging
from tests.support import HubTestCase, forget_all_stores
from tests.web.server import Shell

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
        self.assertEqual(lines["verify"], "Verify the hash chain of a store's log")
        self.assertEqual(self.said_to("--help"), said)
        self.assertEqual(self.said_to("help"), said)

    def test_each_command_shows_the_help_of_its_own_parser(self):
        for name, described in parsers.read_commands()["commands"].items():
            with self.subTest(command=name):
                parser = load_command_class("memoryhub", name).create_parser("memory-hub", name)
                built = parsers.build(f"memory-hub {name}", described)
                self.assertEqual(helps(built), helps(parser))
        self.assertEqual(self.said_to("help", "token", "create"), self.said_to("token", "create", "--help"))

    def test_help_wrong_names_and_completion_import_no_django(self):
        completing = {"_ARGCOMPLETE": "1", "COMP_LINE": "memory-hub ver", "COMP_POINT": "14", "_ARGCOMPLETE_IFS": " "}
        for arguments, environment in (
            (["--help"], {}),
            (["help", "search"], {}),
            (["retention", "plan", "--help"], {}),
            (["mcp", "--help"], {}),
            (["serch"], {}),
            (["search"], {}),
            (["completion", "bash"], {}),
            ([], completing),
        ):
            with self.subTest(arguments=arguments):
                command = [sys.executable, "-X", "importtime", str(ROOT / "manage.py"), *arguments]
                with tempfile.TemporaryFile() as file:
                    done = subprocess.run(
                        ["bash", "-c", '"$@" 8>/dev/null', "bash", *command],
                        stdout=file,
                        stderr=subprocess.PIPE,
                        text=True,
                        check=False,
                        timeout=120,
                        env={**os.environ, **environment},
                    )
                imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
                self.assertIn("memoryhub.management.parsers", imported)
                self.assertEqual(
                    {name for name in imported if name.split(".")[0] in ("django", "pydantic", "mcp")}, set()
                )

    def test_a_wrong_name_is_answered_with_the_nearest(self):
        for arguments, sentence in (
            (["serch", "x"], r"memory-hub: there is no command 'serch' \(did you mean 'search'\?\); "),
            (["colour"], r"memory-hub: there is no command 'colour'; `memory-hub help` lists"),
            (
                ["token", "lst"],
                r"manage.py token: .*'lst' is not one of create, list, revoke \(did you mean 'list'\?\); ",
            ),
            (["search", "x", "--lmit=3"], r"manage.py search: unknown option '--lmit' \(did you mean '--limit'\?\); "),
            (
                ["retention", "plan", "--jsn"],
                r"manage.py retention: unknown option '--jsn' \(did you mean '--json'\?\); ",
            ),
            (["search", "x", "--limit", "abc"], r"manage.py search: error: argument --limit: invalid int value: 'abc'"),
            (["get"], r"manage.py get: the following arguments are required: ID\|NAME; "),
        ):
            with self.subTest(arguments=arguments):
                command = [sys.executable, str(ROOT / "manage.py"), *arguments]
                done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertRegex(done.stderr, sentence)
                self.assertEqual(done.stderr.count("\n"), 1)

    def test_djangos_own_commands_still_run(self):
        self.assertIn("No changes detected", self.said_to("makemigrations", "--check", "--dry-run"))
        self.assertLessEqual({"migrate", "verify"}, set(self.said_to("help", "--commands").split()))

    def test_the_version_is_the_hubs(self):
        self.assertEqual(self.said_to("--version"), f"{__version__}\n")


# The help texts of a parser and of its sub-commands
def helps(parser: ArgumentParser) -> list[str]:
    nested = (action for action in parser._actions if isinstance(action, _SubParsersAction))
    subcommands = [text for action in nested for command in action.choices.values() for text in helps(command)]
    return [parser.format_help(), *subcommands]


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
        with self.assertRaisesRegex(
            CommandError, "there is no context pack #99999 here; leave the id out to get a new one"
        ):
            self.context("--since", "#99999")


class ImpossibleHomeTests(TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "file").write_text("no folder")
        (self.folder / "lost").symlink_to(self.folder / "nowhere")

    def run_in(self, home: str, *arguments: str, text: str = "") -> tuple[int, list[str]]:
        done = subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), *arguments],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            cwd=self.folder,
            env={**os.environ, "MEMORY_HUB_HOME": home},
        )
        return done.returncode, [*done.stdout.splitlines(), *done.stderr.splitlines()]

    def impossible(self) -> dict[str, str]:
        file = self.folder / "file"
        return {
            str(file): f"the home folder {file} is not a folder; ",
            str(file / "sub"): f"can't use the home folder {file}/sub: Not a directory; ",
            str(self.folder / "lost"): f"the home folder {self.folder}/lost is a broken link; ",
            str(self.folder / ("a" * 300)): ": File name too long; ",
            "relative/home": "MEMORY_HUB_HOME is 'relative/home', but must be an absolute path: ",
        }

    def test_every_command_says_so_in_one_sentence(self) -> None:
        commands = {path.stem for path in (ROOT / "memoryhub/management/commands").glob("[a-z]*.py")}
        commands.remove("completion")
        words = {"hook": ["claude-code", "Stop"], "mcp": ["--http", "0"]}
        home, reason = next(iter(self.impossible().items()))
        with ThreadPoolExecutor(2) as pool:
            done = pool.map(
                lambda command: (command, *self.run_in(home, command, *words.get(command, ()), text="{}")), commands
            )
            for command, code, said in done:
                with self.subTest(command=command):
                    self.assertEqual((code, len(said)), (0 if command == "hook" else 8, 1), said)
                    self.assertIn(reason, said[0])

    def test_whatever_is_wrong_with_it_is_said_by_commands_and_hooks(self) -> None:
        for home, reason in self.impossible().items():
            for command in (["search", "x"], ["serve", "--port", "0"], ["verify"], ["hook", "claude-code", "Stop"]):
                with self.subTest(home=home, command=command):
                    code, said = self.run_in(home, *command, text='{"cwd": "/"}')
                    self.assertEqual((code, len(said)), (0 if "hook" in command else 8, 1), said)
                    self.assertIn(reason, said[0])
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["file", "lost"])

    def test_a_folder_that_cannot_be_made_is_said_by_what_would_make_it(self) -> None:
        reason = "can't use the home folder /proc/hub: No such file or directory; "
        for command in (["serve", "--port", "0"], ["token", "list"], ["bootstrap"], ["hook", "claude-code", "Stop"]):
            with self.subTest(command=command):
                code, said = self.run_in("/proc/hub", *command, text='{"cwd": "/"}')
                self.assertEqual((code, len(said)), (0 if "hook" in command else 8, 1), said)
                self.assertIn(reason, said[0])
        code, said = self.run_in("/proc/hub", "doctor")
        self.assertEqual((code, said), (3, ["memory-hub: the home folder /proc/hub does not exist yet"]))

    def test_a_command_that_only_reads_makes_no_home(self) -> None:
        home = self.folder / "new"
        shell = Shell(home)
        self.addCleanup(shell.close)
        for command in (["search", "x"], ["verify"], ["get", "1"], ["doctor"], ["signin"], ["backup"]):
            _, said = shell.run(*command)
            self.assertNotIn("Traceback", said)
            self.assertFalse(home.exists(), command)


class DamagedHubTests(HubTestCase):
    def test_a_hub_db_that_is_no_database_is_told_in_one_sentence(self):
        (self.home / "hub.db").write_bytes(b"no database at all" * 100)
        command = [sys.executable, str(ROOT / "manage.py"), "token", "list"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        sentence = "memory-hub: hub.db or jobs.db is unavailable: file is not a database; run `memory-hub doctor`"
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


CONTROLS = "\x1b[31m\x07\x08\x7f\x9b2J\u202e\u2066\u200f\u061c"
REORDERING = "LRE RLE LRO RLO PDF LRI RLI FSI PDI L R AL".split()


def obeyed_by_terminals(text: str) -> set[str]:
    found = {
        character
        for character in text
        if unicodedata.category(character) in ("Cc", "Zl", "Zp") and character not in "\n\t"
    }
    marks = {character for character in text if unicodedata.category(character) == "Cf"}
    return found | {mark for mark in marks if unicodedata.bidirectional(mark) in REORDERING}


class HostileTextTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.text = forging("\r\n\x1b[2K\r") + CONTROLS
        with self.store("alpha", actor="ada", session_id="s-hostile"):
            self.known = fill(self.text)

    def run_command(self, *arguments: str) -> str:
        out = io.StringIO()
        try:
            call_command(*arguments, stdout=out, stderr=out)
        except CommandError as error:
            out.write(f"memory-hub: {error}\n")
        except SystemExit:
            pass
        return out.getvalue()

    def test_no_command_prints_what_a_terminal_obeys_or_a_line_that_is_forged(self) -> None:
        folder = self.home / "notes\n#987654321 guideline x"
        folder.mkdir()
        (folder / "a\r#987654321.md").write_text(f"---\ntags: [one]\n---\n# H\x0b{CONTROLS}\n\nA text.\n")
        (folder / "binary\u2028#987654321 x.md").write_bytes(b"\0")
        (self.home / "memory.tests.yml").write_text(
            'tests: [{name: "a\\n#987654321 x \\e[2J", query: none, finds: [x]}]'
        )
        alpha = ("--project", "alpha")
        for arguments in (
            ("search", "guideline", *alpha),
            ("get", str(self.known.memory), "--versions", *alpha),
            ("get", str(self.known.guideline), *alpha),
            ("get", "no such \x1b[31m title", *alpha),
            ("context", *alpha),
            ("replay", *alpha),
            ("project", "list"),
            ("project", "show", "alpha"),
            ("settings", *alpha),
            ("verify", *alpha),
            ("redact", "--pattern", "guideline", *alpha),
            ("retention", "plan", "--now", "2040-01-01T00:00:00Z", *alpha),
            ("retention", "hold", "memory:2", "--reason", self.text, *alpha),
            ("retention", "holds", *alpha),
            ("rollback", "--actor", "ada", *alpha),
            ("rollback", "--actor", "ada", "--yes", *alpha),
            ("export", "adr", *alpha),
            ("import", "markdown", str(folder), *alpha),
            ("import", "adr", str(folder), *alpha),
            ("memtest", str(self.home / "memory.tests.yml"), *alpha),
            ("doctor", *alpha),
        ):
            with self.subTest(arguments=arguments):
                printed = self.run_command(*arguments)
                self.assertTrue(printed.strip())
                self.assertEqual(obeyed_by_terminals(printed), set(), printed)
                self.assertEqual(forged_lines(printed), [], printed)

    def test_a_log_that_an_earlier_version_wrote_verifies_and_is_rebuilt_the_same(self) -> None:
        self.assertIn("the chain holds", self.run_command("verify", "--project", "alpha"))
        printed = self.run_command("rebuild", "--project", "alpha")
        self.assertIn("identical", printed)
        self.assertNotIn("DIFFERENT", printed)

    def test_what_a_job_says_is_printed_on_its_line(self) -> None:
        outcome = mock.Mock(spec=Outcome, result="failed", message=self.text)
        outcome.target.title = "project alpha"
        with mock.patch("memoryhub.ops.jobs.run_job", return_value=[outcome]):
            printed = self.run_command("jobs", "verify-stores", "--project", "alpha")
        self.assertIn("project alpha: failed: #987654321", printed)
        self.assertEqual((obeyed_by_terminals(printed), forged_lines(printed)), (set(), []))

    def test_json_stays_json_and_says_the_same(self) -> None:
        printed = self.run_command("replay", "--type", "memory.written", "--project", "alpha")
        payloads = [json.loads(line)["payload"] for line in printed.splitlines()]
        self.assertIn(self.text, [payload["author"] for payload in payloads])
        for arguments in (("settings", "--json"), ("retention", "plan", "--json"), ("doctor", "--json")):
            printed = self.run_command(*arguments, "--project", "alpha")
            json.loads(printed)
            self.assertEqual(obeyed_by_terminals(printed), set())

    def test_it_holds_for_a_pipe_too(self) -> None:
        forget_all_stores()
        for arguments in (("search", "guideline"), ("get", "no \u202e such")):
            command = [sys.executable, str(ROOT / "manage.py"), *arguments, "--project", "alpha"]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
            printed = done.stdout + done.stderr
            self.assertTrue(printed)
            self.assertEqual((obeyed_by_terminals(printed), forged_lines(printed)), (set(), []), printed)


class LogTests(HubTestCase):
    def test_a_record_is_one_line_whatever_it_quotes(self) -> None:
        program = (
            "import logging; from memoryhub import logs; logs.configure({}); logging.warning('%s', 'a\\nb\\x1b[2J')"
        )
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
        self.assertRegex(done.stderr, r"\A\S+ \S+ WARNING root: a b\\u001b\[2J\n\Z")
