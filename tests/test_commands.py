"""The command line: what it offers, refuses and prints."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unicodedata
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Mapping
from pathlib import Path
from unittest import TestCase, mock

from django.core.management import CommandError, call_command, load_command_class

from memories import services
from memories.models import Memory, MemoryScope
from memories.schemas import MemoryDelete, MemoryWrite
from memories.services import write_memories, write_memory
from memoryhub import __version__
from memoryhub.config.identity import bind_project
from memoryhub.core import log
from memoryhub.core.stores.store import GLOBAL_STORE, org_store, use_store
from memoryhub.demo.project import make_demo
from memoryhub.management import parsers
from memoryhub.management.overview import FIRST_COMMANDS
from memoryhub.management.parsers import read_commands
from memoryhub.ops.jobs.running import RunOutcome
from memoryhub.ops.serving import process as lock
from memoryhub.registry.organizations import OrgCreate, create_org
from tests.api.client import RestTestCase
from tests.home import run_home
from tests.hostile import fill, forged_lines, forging
from tests.memories.base import erase_deleted
from tests.programs import needs
from tests.support import Done, HubTestCase, run_command

ROOT = Path(__file__).parents[1]


WRONG_WORDS = {
    "serch x": ": there is no command 'serch' (did you mean 'search'?); ",
    "colour": ": there is no command 'colour'; `memory-hub help --all` lists",
    "token lst": " token: argument create|list|revoke: 'lst' is not one of create, list, revoke (did you mean 'list'?)",
    "search x --lmit=3": " search: unknown option '--lmit' (did you mean '--limit'?); ",
    "retention plan --jsn": " retention plan: unknown option '--jsn' (did you mean '--json'?); ",
    "import undo 3 --since x": " import undo: unknown option '--since', which `memory-hub import git` takes; ",
    "retention plan --reason x": " retention plan: unknown option '--reason', which `memory-hub retention hold` and ",
    "verify --now x": " verify: unknown option '--now', which `memory-hub retention` takes; ",
    "search x --limit abc": " search: error: argument --limit: 'abc' is not a whole number",
    "context --max-tokens abc": " context: error: argument --max-tokens: 'abc' is not a whole number",
    "import claude": " import: argument SOURCE|list|undo: 'claude' is not one of ",
    "setup claud": " setup: argument CLIENT: 'claud' is not one of claude-code, codex, ",
    "get": " get: the following arguments are required: ID|NAME; ",
}


class OverviewTests(HubTestCase):
    def said_to(self, *arguments: str) -> str:
        done = run_command(*arguments)
        self.assertEqual((done.code, done.errors), (0, ""))
        return done.output

    def test_the_overview_says_of_each_command_of_the_hub_what_it_does(self):
        said = self.said_to("--help", "--all")
        names = {path.stem for path in (ROOT / "memoryhub/management/commands").glob("[a-z]*.py")}
        lines = dict(line.split(maxsplit=1) for line in said.splitlines() if line.startswith("  "))
        self.assertEqual(set(lines), names)
        self.assertEqual(lines["verify"], "Verify the hash chain of a store's log")
        self.assertEqual(self.said_to("help", "--all"), said)

    def test_the_first_screen_has_the_commands_that_people_need_at_first(self):
        said = self.said_to()
        names = [line.split()[0] for line in said.splitlines() if line.startswith("  ")]
        commands = parsers.read_commands()["commands"]
        self.assertEqual(names, [name for name in FIRST_COMMANDS if name in commands])
        self.assertLessEqual({"setup", "status", "search", "remember", "show", "context", "open", "doctor"}, {*names})
        self.assertIn(f"\nmemory-hub --help --all lists the other {len(commands) - len(names)} commands.\n", said)
        self.assertEqual(self.said_to("--help"), said)
        self.assertEqual(self.said_to("help"), said)
        self.assertEqual(self.said_to("help", "--help"), said)

    def test_words_that_people_type_for_a_command_name_it(self):
        for word in ("write", "add", "note", "save"):
            self.assertIn(f"no command {word!r} (did you mean 'remember'?)", run_command(word).errors)
        for word, command in (("list", "search"), ("ls", "search"), ("login", "open"), ("srch", "search")):
            self.assertIn(f"no command {word!r} (did you mean {command!r}?)", run_command(word).errors)

    def test_each_command_shows_the_help_of_its_own_parser(self):
        for name, described in parsers.read_commands()["commands"].items():
            with self.subTest(command=name):
                parser = load_command_class("memoryhub", name).create_parser("memory-hub", name)
                built = parsers.build(f"memory-hub {name}", described)
                self.assertEqual(helps(built), helps(parser))
        self.assertEqual(self.said_to("help", "token", "create"), self.said_to("token", "create", "--help"))

    def test_help_wrong_names_and_completion_import_no_django(self):
        completing = {"_ARGCOMPLETE": "1", "COMP_LINE": "memory-hub ver", "COMP_POINT": "14", "_ARGCOMPLETE_IFS": " "}
        lines = (
            "--help",
            "--help --all",
            "help search",
            "retention plan --help",
            "mcp --help",
            "serch",
            "search",
            "completion bash",
            "",
        )
        for words in lines:
            with self.subTest(words):
                environment = {**os.environ, **({} if words else completing)}
                program = [sys.executable, "-X", "importtime", str(ROOT / "manage.py"), *words.split()]
                # Completion answers on descriptor 8
                shell = ["bash", "-c", '"$@" 8>/dev/null', "bash", *program]
                done = subprocess.run(shell, capture_output=True, text=True, timeout=120, env=environment, check=False)
                imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
                self.assertIn("memoryhub.management.parsers", imported)
                self.assertEqual([], [name for name in imported if name.split(".")[0] in ("django", "pydantic", "mcp")])

    def test_a_wrong_name_is_answered_with_the_nearest(self):
        for words, sentence in WRONG_WORDS.items():
            with self.subTest(words):
                done = run_command(*words.split())
                self.assertEqual((done.code, len(done.lines)), (2, 1), done.lines)
                self.assertTrue(done.errors.startswith(f"memory-hub{sentence}"), done.errors)

    def test_a_name_that_begins_with_the_word_is_meant_rather_than_a_nearer_one(self):
        for words in ("import claude", "setup claud"):
            self.assertIn(" (did you mean 'claude-code'?); ", run_command(*words.split()).errors)

    def test_a_search_for_nothing_is_refused(self):
        with self.store("alpha"):
            write_memory(command=MemoryWrite(title="Port", content="It listens on 8321."))
        for query in ("", "   "):
            done = run_command("search", query, *ALPHA)
            self.assertEqual((done.code, done.lines), (2, ["memory-hub: 'query' must not be empty"]))

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


class ImpossibleHomeTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.folder = self.home
        (self.folder / "file").write_text("no folder")
        (self.folder / "lost").symlink_to(self.folder / "nowhere")
        self.before = {*self.folder.iterdir()}

    def assert_refused(self, home: str, reason: str, *arguments: str) -> None:
        """Hooks exit with 0: a client would show anything else to its user."""
        with self.subTest(home=home, arguments=arguments), mock.patch.dict(os.environ, MEMORY_HUB_HOME=home):
            done = run_hook(*arguments[1:]) if arguments[0] == "hook" else run_command(*arguments)
            self.assertEqual((done.code, len(done.lines)), (0 if arguments[0] == "hook" else 8, 1), done.lines)
            self.assertIn(reason, done.lines[0])

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
        words = {"hook": ["claude-code", "Stop"], "mcp": ["--http", "0"]}
        home, reason = next(iter(self.impossible().items()))
        for name in parsers.read_commands()["commands"].keys() - {"completion"}:
            self.assert_refused(home, reason, name, *words.get(name, ()))

    def test_whatever_is_wrong_with_it_is_said_by_commands_and_hooks(self) -> None:
        for home, reason in self.impossible().items():
            for command in (["search", "x"], ["serve", "--port", "0"], ["verify"], ["hook", "claude-code", "Stop"]):
                self.assert_refused(home, reason, *command)
        self.assertEqual({*self.folder.iterdir()}, self.before)

    def test_a_folder_that_cannot_be_made_is_said_by_what_would_make_it(self) -> None:
        reason = "can't use the home folder /proc/hub: No such file or directory; "
        for command in (["serve", "--port", "0"], ["token", "list"], ["bootstrap"], ["hook", "claude-code", "Stop"]):
            self.assert_refused("/proc/hub", reason, *command)
        with mock.patch.dict(os.environ, MEMORY_HUB_HOME="/proc/hub"):
            done = run_command("doctor")
        self.assertEqual((done.code, done.lines), (3, ["memory-hub: the home folder /proc/hub does not exist yet"]))

    def test_a_command_that_only_reads_makes_no_home(self) -> None:
        home = self.folder / "new"
        with mock.patch.dict(os.environ, MEMORY_HUB_HOME=str(home)):
            for command in (["search", "x"], ["verify"], ["get", "1"], ["doctor"], ["signin"], ["backup"]):
                done = run_command(*command)
                self.assertNotIn("Traceback", done.errors)
                self.assertFalse(home.exists(), command)


def run_hook(*arguments: str) -> Done:
    """A hook ends its process itself, so it has one of its own."""
    command = [sys.executable, str(ROOT / "manage.py"), "hook", *arguments]
    done = subprocess.run(command, input='{"cwd": "/"}', capture_output=True, text=True, check=False, timeout=120)
    return Done(done.returncode, done.stdout, done.stderr)


class DamagedHubTests(HubTestCase):
    def test_a_hub_db_that_is_no_database_is_told_in_one_sentence(self):
        (self.home / "hub.db").write_bytes(b"no database at all" * 100)
        # A process of its own: this one has opened its hub.db
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


# What the story of the sample project has, by its id, and how its text begins
ENTITIES = {
    2: r"#2 session first-sketch .*\ndirectory: .*\nsummary: .*\n#3 turn ",
    3: r"#3 turn \S+ closed .*\n#3 .* turn\.began .*\n#4 .* message\.user .*Have a look at",
    4: r'#4 \S+ message\.user .*\n  {\n   "content": "Have a look at',
    9: r"#9 memory v1 .* kind=knowledge.*\n  The gauge feed lags",
    22: r"#22 \w+ completed .*",
    26: r"#26 decision \w+ .*(\n.*)*not chosen: .*",
    30: r"#30 [0-9a-f]{10} .*\n  \w+.*",
}


class GetTests(HubTestCase):
    def test_whatever_has_an_id_is_shown(self):
        make_demo()
        for entity, pattern in ENTITIES.items():
            with self.subTest(entity):
                done = run_command("get", str(entity), "--project", "demo")
                self.assertEqual((done.code, done.errors), (0, ""))
                self.assertRegex(done.output, pattern)
        done = run_command("get", "#26", "9", "--json", "--project", "demo")
        decision, memory = json.loads(done.output)["results"]
        self.assertEqual((decision["id"], "lineage" in decision, memory["id"]), (26, True, 9))

    def test_what_is_not_there_or_erased_is_refused(self):
        with self.store("alpha"):
            memory = write_memory(command=MemoryWrite(title="Port", content="It listens on 8321.")).id
            services.delete_memory(command=MemoryDelete(id=memory))
            erase_deleted(memory)
        done = run_command("get", "99", *ALPHA)
        self.assertRegex(done.errors, r"^memory-hub: there is no #99 here; the log ends at #\d+\n$")
        self.assertEqual(done.code, 3)
        self.assertIn(f"memory #{memory} was permanently erased", run_command("get", str(memory), *ALPHA).errors)


class StatusTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        user = self.home / "user"
        user.mkdir()
        unset = dict.fromkeys(("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME"), "")
        self.enterContext(mock.patch.dict(os.environ, HOME=str(user), **unset))

    def test_clients_that_are_set_up_are_listed_before_their_first_event(self):
        self.assertIn(
            "Set up:     no client here; `memory-hub setup CLIENT` connects one\n", run_command("status").output
        )
        run_command("setup", "claude-code", "--yes")
        status = run_command("status").output
        self.assertIn("Set up:     in this folder\n  claude-code: set up, with hooks\n", status)
        self.assertIn("Captured:   nothing yet; the next session of a client with hooks will be\n", status)
        data = json.loads(run_command("status", "--json").output)
        self.assertEqual(data["set_up"], {"claude-code": "set up, with hooks"})

    def test_memories_to_review_are_counted_by_project(self):
        self.assertIn("Inbox:      nothing to review\n", run_command("status").output)
        for project, count in (("alpha", 2), ("beta", 1)):
            with self.store(project, source="mcp"), mock.patch.dict(os.environ, MEMORY_HUB_REVIEW_POLICY="all"):
                commands = [MemoryWrite(title=f"Port {n}", content=f"It listens on {n}.") for n in range(count)]
                write_memories(commands=commands)
        self.assertIn("Inbox:      3 memories to review\n  alpha: 2\n  beta: 1\n", run_command("status").output)
        data = json.loads(run_command("status", "--json").output)
        self.assertEqual(data["to_review"], {"alpha": 2, "beta": 1})


class VersionTests(HubTestCase):
    @contextlib.contextmanager
    def hub(self, version=None, *, started=lock.BY_HAND):
        with contextlib.ExitStack() as stack:
            publish = stack.enter_context(lock.hold_home(started=started))
            with version or contextlib.nullcontext():
                stack.enter_context(publish("http://127.0.0.1:1"))
            yield

    def test_a_running_hub_of_another_version_is_named_by_each_command(self):
        with self.store("alpha"):
            write_memory(command=MemoryWrite(title="Port", content="It listens on 8321."))
        for started, version, words in (
            (lock.BY_HAND, "0.0.9", "end it with `memory-hub stop`, and start it again with `memory-hub serve`"),
            (lock.SERVICE, "0.0.9", "`memory-hub service restart` starts the new one"),
            (lock.ON_DEMAND, "", "`memory-hub serve` takes its place"),
        ):
            which = f"of version {version}" if version else "of an earlier version"
            earlier = mock.patch.object(lock, "__version__", version)
            with self.subTest(started), self.hub(earlier, started=started):
                sentence = f"the running hub is {which}, and this is {__version__}; {words}"
                self.assertIn(f"Upgrade:    {sentence}", run_command("status").output)
                self.assertIn(f"warning: {sentence}", run_command("search", "port", *ALPHA).errors)
                self.assertIn(f"repair: {words}", run_command("doctor").output)

    def test_a_client_over_mcp_writes_it_to_its_log(self):
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "memory_stats", "arguments": {}}}
        with self.hub(mock.patch.object(lock, "__version__", "0.0.9")):
            command = [sys.executable, str(ROOT / "manage.py"), "mcp", *ALPHA]
            done = subprocess.run(
                command, input=json.dumps(call), capture_output=True, text=True, check=False, timeout=120
            )
        sentence = f"the running hub is of version 0.0.9, and this is {__version__}; end it with `memory-hub stop`"
        self.assertIn(sentence, done.stderr)

    def test_the_hub_of_this_version_is_not_mentioned(self):
        with self.hub():
            status = run_command("status").output
        self.assertIn(f"Version:    {__version__}\n", status)
        self.assertNotIn("Upgrade:", status)


ASCII = {"PYTHONIOENCODING": "ascii:strict"}
# Without the two switches, Python replaces this locale's encoding by UTF-8
C_LOCALE = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


class TerminalTests(HubTestCase):
    def run_in_ascii(
        self, *arguments: str, stdin: bytes = b"", variables: Mapping[str, str] = ASCII
    ) -> tuple[int, str, str]:
        command = [sys.executable, str(ROOT / "manage.py"), *arguments]
        environment = {**os.environ, **variables}
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=120, env=environment, check=False)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def test_text_that_a_terminal_cannot_show_is_replaced_and_data_stays_whole(self):
        with self.store("alpha"):
            write_memory(command=MemoryWrite(title="Kessel", content="Er heißt Kessel."))
        for variables in (ASCII, C_LOCALE):
            code, output, errors = self.run_in_ascii("search", "Kessel", *ALPHA, variables=variables)
            self.assertEqual((code, errors), (0, ""))
            self.assertIn("Er hei?t Kessel.", output)
        for arguments in (("search", "Kessel", "--json"), ("replay",), ("export", "jsonl")):
            with self.subTest(arguments):
                code, output, errors = self.run_in_ascii(*arguments, *ALPHA)
                self.assertEqual((code, errors), (0, ""))
                self.assertIn("Er heißt Kessel.", output)

    def test_sentences_and_help_are_printed_in_any_encoding(self):
        with self.store("alpha"):
            pass
        for arguments, sentence in (
            (("get", "heißt", *ALPHA), "'hei?t'"),
            (("zurück",), "'zur?ck'"),
            (("search", "x", "--größe"), "'--gr??e'"),
            (("sanitise", "/größe"), "can't read /gr??e: "),
            (("help",), "COMMAND ?; "),
        ):
            with self.subTest(arguments):
                _, output, errors = self.run_in_ascii(*arguments)
                self.assertIn(sentence, output + errors)
                self.assertNotIn("Traceback", errors)

    def test_standard_input_that_is_no_text_is_refused_in_one_sentence(self):
        code, output, errors = self.run_in_ascii("sanitise", stdin="heißt".encode())
        sentence = "memory-hub: standard input is not ascii text; set PYTHONIOENCODING to its encoding, such as utf-8\n"
        self.assertEqual((code, output, errors), (2, "", sentence))


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


ALPHA = ("--project", "alpha")


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
        for arguments in (
            ("search", "guideline"),
            ("get", str(self.known.memory), "--versions"),
            ("get", str(self.known.guideline)),
            ("show", str(self.known.memory), str(self.known.guideline), "--versions"),
            ("get", "no such \x1b[31m title"),
            ("context",),
            ("replay",),
            ("project", "list"),
            ("project", "show", "alpha"),
            ("settings",),
            ("verify",),
            ("redact", "--pattern", "guideline"),
            ("retention", "plan", "--now", "2040-01-01T00:00:00Z"),
            ("retention", "hold", "memory:2", "--reason", self.text),
            ("retention", "holds"),
            ("rollback", "--actor", "ada"),
            ("rollback", "--actor", "ada", "--yes"),
            ("export", "adr"),
            ("import", "markdown", str(folder)),
            ("import", "adr", str(folder)),
            ("memtest", str(self.home / "memory.tests.yml")),
            ("doctor",),
        ):
            with self.subTest(arguments=arguments):
                printed = self.run_command(*arguments, *(() if arguments[0] == "project" else ALPHA))
                self.assertTrue(printed.strip())
                self.assert_harmless(printed)

    def test_whatever_an_id_stands_for_is_printed_harmlessly(self) -> None:
        with self.store("alpha"):
            last = log.head()[0]
        for position in range(1, last + 1):
            with self.subTest(position):
                for command in ("get", "show"):
                    self.assert_harmless(self.run_command(command, str(position), *ALPHA))

    def assert_harmless(self, printed: str) -> None:
        self.assertEqual((obeyed_by_terminals(printed), forged_lines(printed)), (set(), []), printed)

    def test_a_log_that_an_earlier_version_wrote_verifies_and_is_rebuilt_the_same(self) -> None:
        self.assertIn("the chain holds", self.run_command("verify", "--project", "alpha"))
        printed = self.run_command("rebuild", "--project", "alpha")
        self.assertIn("identical", printed)
        self.assertNotIn("DIFFERENT", printed)

    def test_what_a_job_says_is_printed_on_its_line(self) -> None:
        outcome = mock.Mock(spec=RunOutcome, result="failed", message=self.text)
        outcome.target.title = "project alpha"
        with mock.patch("memoryhub.ops.jobs.run_job", return_value=[outcome]):
            printed = self.run_command("jobs", "verify-stores", "--project", "alpha")
        self.assertIn("project alpha: failed: #987654321", printed)
        self.assert_harmless(printed)

    def test_json_stays_json_and_says_the_same(self) -> None:
        printed = self.run_command("replay", "--type", "memory.written", "--project", "alpha")
        payloads = [json.loads(line)["payload"] for line in printed.splitlines()]
        self.assertIn(self.text, [payload["author"] for payload in payloads])
        for arguments in (("settings", "--json"), ("retention", "plan", "--json"), ("doctor", "--json")):
            printed = self.run_command(*arguments, "--project", "alpha")
            json.loads(printed)
            self.assertEqual(obeyed_by_terminals(printed), set())

    def test_it_holds_for_a_pipe_too(self) -> None:
        for arguments in (("search", "guideline"), ("get", "no \u202e such")):
            done = run_command(*arguments, *ALPHA)
            self.assertTrue(done.lines)
            self.assert_harmless(done.output + done.errors)


class LogTests(HubTestCase):
    def test_a_record_is_one_line_whatever_it_quotes(self) -> None:
        program = r"import logging; from memoryhub import logs; logs.configure({}); logging.warning('a\nb\x1b[2J')"
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
        self.assertRegex(done.stderr, r"\A\S+ \S+ WARNING root: a b\\u001b\[2J\n\Z")


class StoreCommandTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        create_org(command=OrgCreate.model_validate({"id": "acme"}))
        for store, scope in ((GLOBAL_STORE, MemoryScope.GLOBAL), (org_store("acme"), MemoryScope.ORG)):
            with use_store(store, create=True):
                services.write_memory(command=MemoryWrite(title="Tanks", content="marmaladeish water", scope=scope))

    def run_in(self, *arguments: str) -> str:
        out = io.StringIO()
        call_command(*arguments, stdout=out)
        return out.getvalue()

    def test_each_store_is_verified_made_anew_and_replayed(self):
        for where in (("--global",), ("--org", "acme")):
            with self.subTest(where=where):
                self.assertIn("the chain holds: ", self.run_in("verify", *where))
                self.assertIn("identical", self.run_in("rebuild", *where))
                self.assertIn("marmaladeish", self.run_in("replay", *where))

    def test_text_is_taken_out_of_the_one_that_was_named_alone(self):
        said = self.run_in("redact", "--text", "marmaladeish", "--org", "acme")
        token = said.strip().rpartition(" ")[2]
        said = self.run_in("redact", "--text", "marmaladeish", "--org", "acme", "--confirm", token)
        self.assertIn("redacted 1 match in 1 event", said)
        self.assertIn("global/events.db", said)
        self.assertNotIn("marmaladeish", self.run_in("replay", "--org", "acme"))
        self.assertIn("marmaladeish", self.run_in("replay", "--global"))

    def test_an_id_may_be_written_as_answers_write_it(self):
        with use_store(GLOBAL_STORE):
            (memory_id,) = Memory.objects.values_list("id", flat=True)
        for given in (f"#{memory_id}", str(memory_id)):
            said = self.run_in("redact", "--whole", "--ids", given, "--global")
            self.assertIn("nothing was changed; to redact, add --confirm", said)
        with self.assertRaisesRegex(CommandError, "'twelve' is not an id; write 412 or '#412'"):
            self.run_in("retention", "lift", "twelve", "--global")

    def test_what_was_left_there_is_rolled_back_and_retained_there(self):
        said = self.run_in("rollback", "--actor", "unknown", "--global")
        self.assertIn("nothing was changed; add --yes to roll back", said)
        self.run_in("rollback", "--actor", "unknown", "--global", "--yes")
        with use_store(GLOBAL_STORE):
            self.assertEqual(Memory.objects.live().count(), 0)
        self.assertIn("to delete: 0 in 0 events", self.run_in("retention", "plan", "--global"))

    def test_an_empty_name_is_refused_and_does_not_mean_all_stores(self):
        for words in ("move --to sqlite", "move --confirm --to sqlite", "backup", "doctor", "rebuild", "jobs"):
            command, *others = words.split()
            for name in ([""] if command == "move" else ["--project", ""], ["--org", ""]):
                with self.subTest(command=words, name=name), self.assertRaisesRegex(CommandError, "'' is not"):
                    self.run_in(command, *name, *others)
        for option, what in (("--project", "project"), ("--org", "org")):
            with self.assertRaisesRegex(CommandError, f"{what} id '' is not"):
                self.run_in("member", "list", option, "")


class ProjectCommandTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.work = run_home() / f"work-{self.id().rpartition('.')[2][:60]}"
        self.work.mkdir()
        self.addCleanup(shutil.rmtree, self.work)

    def project(self, *arguments: str, folder: Path | None = None) -> str:
        out = io.StringIO()
        with mock.patch.object(Path, "cwd", return_value=folder or self.work):
            call_command("project", *arguments, stdout=out)
        return out.getvalue()

    def refused(self, code: int, words: str, *arguments: str) -> None:
        with self.assertRaisesRegex(CommandError, words) as caught:
            self.project(*arguments)
        self.assertEqual(caught.exception.returncode, code)

    def repository(self, name: str, remote: str = "") -> Path:
        folder = self.work / name
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
        if remote:
            subprocess.run(["git", "-C", str(folder), "remote", "add", "origin", remote], check=True)
        return folder

    def test_it_says_which_project_a_folder_belongs_to_and_why(self):
        plain = self.work / "alpha" / "deep"
        plain.mkdir(parents=True)
        self.assertRegex(self.project("show", folder=plain), r"^deep\n  because   the folder is named deep")
        (self.work / "alpha/.memory-hub.toml").write_text('project = "alpha"\n')
        self.assertRegex(self.project("show", folder=plain), r"^alpha\n  because   .*/alpha/\.memory-hub\.toml says so")
        said = self.project("show", folder=self.repository("gamma", "git@github.com:acme/delta.git"))
        self.assertRegex(
            said, r"^delta\n  because   the git remote origin is github\.com/acme/delta\n  status    does not exist"
        )
        said = self.project("show", folder=self.repository("gamma2"))
        self.assertRegex(said, r"^gamma2\n  because   the git repository is in /.*/gamma2\n")

    def test_a_repository_that_was_used_before_it_had_a_remote_stays_what_it_was(self):
        folder = self.repository("alpha")
        self.project("create", "alpha", "--title", "Alpha")
        bind_project("alpha", folder)
        subprocess.run(["git", "-C", str(folder), "remote", "add", "origin", "https://x.org/beta"], check=True)
        self.assertRegex(
            self.project("show", folder=folder), rf"^alpha\n  because   the git repository is in {folder}\n"
        )
        self.assertRegex(self.project("list"), rf"alpha +Alpha +1 .* {folder}\n")

    def test_projects_are_made_listed_and_told_of(self):
        self.assertIn("no projects yet", self.project("list"))
        said = self.project("create", "alpha", "--title", "Alpha the first", "--description", "Weather reports")
        self.assertIn('created alpha; to bind a folder to it, put project = "alpha"', said)
        self.project("create", "beta")
        (self.home / "projects/beta/events.db").write_bytes(b"no database at all")
        listed = self.project("list").splitlines()
        self.assertRegex(listed[0], "^ID +NAME +EVENTS +SIZE +LAST WRITE +FOLDER$")
        self.assertRegex(listed[1], r"^alpha +Alpha the first +1 +\d.* KB +\d{4}-\d\d-\d\d \d\d:\d\d$")
        self.assertRegex(listed[2], r"^beta .*memory database unavailable")
        said = self.project("show", "alpha")
        self.assertIn("Weather reports", said)
        self.assertNotIn("because", said)

    def test_what_was_decided_is_shown_with_who_decided_it(self):
        self.project("create", "alpha")
        call_command("settings", "retention_days", "30", "--project", "alpha", stdout=io.StringIO())
        self.assertRegex(self.project("show", "alpha"), r"setting   retention_days = 30, by the project")

    def test_bad_words_are_one_sentence_and_an_exit_code(self):
        self.project("create", "alpha")
        self.refused(5, "project 'alpha' exists already", "create", "alpha")
        self.refused(2, "ID: 'Bad Id' is not a project id", "create", "Bad Id")
        self.refused(3, "there is no project 'beta'.*one of: alpha", "show", "beta")
        self.assertFalse((self.home / "projects/beta").exists())


SECRET = "ghp_" + "x1Y2z3A4b5" * 4
# Fields that differ between two calls, or have times, which REST gives in milliseconds
PASSING = {"meta", "now", "digest", "cutoff", "created_at", "updated_at", "last_activity"}
# What REST adds to a project from hub.db
OF_HUB_DB = {"chain_ok", "chain_finding", "chain_checked_at"}

# One call of each command and sub-command that takes --json, and the REST route with the same answer
READINGS = {
    "search": (["WAL"], "projects/alpha/search?q=WAL"),
    "context": ([], "projects/alpha/context"),
    "get": (["Use WAL"], None),
    "show": (["Use WAL"], None),
    "settings": ([], None),
    "verify": ([], "projects/alpha/events/verify"),
    "replay": ([], None),
    "redact": (["--text", "readers"], None),
    "rollback": (["--actor", "nobody"], None),
    "retention plan": ([], "projects/alpha/retention"),
    "retention runs": ([], "projects/alpha/retention/runs"),
    "retention holds": ([], "projects/alpha/holds"),
    "doctor": ([], None),
    "jobs": ([], None),
    "status": ([], None),
    "token list": ([], None),
    "audit": ([], "projects/alpha/audit"),
    "member list": ([], "projects/alpha/members"),
    "worth": (["--period", "all"], "projects/alpha/worth?period=all"),
    "project list": ([], None),
    "project show": (["alpha"], "projects/alpha"),
    "project findings": (["alpha"], "projects/alpha/findings"),
}
# Take no --project
OF_THE_HUB = {"status", "token list", "project list", "project show", "project findings", "jobs"}
# Tested elsewhere, because they need a file, standard input, a service manager, a client or a home of their own
OTHERS = {"bench", "blame", "bundle apply", "bundle verify", "changes", "import list", "memtest", "mirror", "sanitise"}
OTHERS |= {"service status", "setup"}


def taking_json() -> set[str]:
    found = set()
    for name, command in read_commands()["commands"].items():
        for argument in command["arguments"]:
            found |= {name} if argument["dest"] == "json" else set()
            for act, subcommand in argument.get("commands", {}).items():
                found |= {f"{name} {act}"} if any(one["dest"] == "json" for one in subcommand["arguments"]) else set()
    return found


class JsonTests(RestTestCase):
    def printed(self, *arguments: str) -> str:
        out = io.StringIO()
        try:
            call_command(*arguments, stdout=out, stderr=io.StringIO())
        except SystemExit as end:
            self.assertIn(end.code, (15,))  # doctor has findings
        return out.getvalue()

    def test_every_reading_command_prints_json_and_what_rest_answers(self) -> None:
        self.write()
        self.assertEqual(taking_json(), READINGS.keys() | OTHERS)
        for name, (arguments, route) in READINGS.items():
            with self.subTest(command=name):
                scope = [] if name in OF_THE_HUB else ["--project", "alpha"]
                printed = self.printed(*name.split(), *arguments, *scope, "--json")
                if name == "replay":
                    self.assertTrue(all("event_type" in json.loads(line) for line in printed.splitlines()))
                    continue
                found = json.loads(printed)
                if route is not None:
                    wanted = self.call("GET", route).data
                    self.assertLessEqual(wanted.keys(), found.keys() | OF_HUB_DB)
                    for field in wanted.keys() & found.keys() - PASSING:
                        self.assertEqual(found[field], wanted[field], field)

    def test_a_budget_counts_the_json(self) -> None:
        for number in range(30):
            self.write(f"Rule {number}", content=f"{number} readers wait. " * 20, kind="guideline")
            self.write(f"Fact {number}", content=f"{number} readers never wait. " * 20)
            self.call("POST", "projects/alpha/decisions", {"title": f"Wait {number}", "chosen": "x " * 90}, expect=201)
        meta = json.loads(self.printed("context", "--project", "alpha", "--max-tokens", "400", "--json"))["meta"]
        self.assertLessEqual(meta["estimated_tokens"], 400)
        self.assertTrue(meta["truncated"])

    def test_a_writing_command_takes_no_json(self) -> None:
        with self.assertRaisesRegex(CommandError, "unrecognized arguments: --json"):
            call_command("project", "create", "gamma", "--json")
        self.assertFalse((self.home / "projects/gamma").exists())

    def test_get_and_memtest_print_what_they_found(self) -> None:
        memory = self.write()
        (found,) = json.loads(self.printed("get", str(memory), "--project", "alpha", "--json"))["results"]
        wanted = self.call("GET", f"projects/alpha/memories/{memory}").data
        self.assertEqual(found.keys(), wanted.keys())
        self.assertEqual({found[name] == wanted[name] for name in wanted.keys() - PASSING}, {True})
        tests = self.home / "tests.yml"
        tests.write_text("tests: [{query: WAL, expect: [Use WAL]}]")
        done = json.loads(self.printed("memtest", str(tests), "--project", "alpha", "--json"))
        self.assertEqual((done["passed"], done["failed"], done["results"][0]["faults"]), (1, 0, []))


class OutsideTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "notes"
        self.folder.mkdir()

    def run_there(self, *arguments: str) -> tuple[str, str]:
        out, err = io.StringIO(), io.StringIO()
        with mock.patch.object(Path, "cwd", return_value=self.folder):
            call_command(*arguments, stdout=out, stderr=err)
        return out.getvalue(), err.getvalue()

    def test_a_command_that_needs_a_project_names_the_next_command(self) -> None:
        for arguments in (["search", "x"], ["context"], ["verify"], ["settings"], ["rebuild"], ["retention", "plan"]):
            with self.subTest(arguments=arguments):
                with self.assertRaisesRegex(
                    CommandError, r"^this folder belongs to no project; .*create notes`$"
                ) as no:
                    self.run_there(*arguments)
                self.assertEqual(no.exception.returncode, 3)
        subprocess.run(["git", "init", "-q", str(self.folder)], check=True)
        with self.assertRaisesRegex(
            CommandError, "'notes' of this repository does not exist yet; `memory-hub start` creates it"
        ):
            self.run_there("search", "x")
        with self.assertRaisesRegex(CommandError, "`memory-hub start` creates it"):
            self.run_there("import", "undo", "1")
        with self.assertRaisesRegex(CommandError, "there is no project 'notes' in this hub"):
            self.run_there("search", "x", "--project", "notes")
        self.assertFalse((self.home / "projects").exists())

    def test_a_file_is_sanitised_without_a_project_by_the_hubs_rules(self) -> None:
        file = self.folder / "a.txt"
        file.write_text(f"token {SECRET} of ACME-123456\n")
        clean, found = self.run_there("sanitise", str(file))
        self.assertNotIn(SECRET, clean)
        self.assertIn("ACME-123456", clean)
        self.assertRegex(found, r"^1:7 ")
        rule = 'secret_rules = [{id = "badge", pattern = "ACME-[0-9]{6}"}]\n'
        (self.home / "config.toml").write_text(rule)
        self.assertNotIn("ACME-123456", self.run_there("sanitise", str(file))[0])
        listed = json.loads(self.run_there("sanitise", str(file), "--json")[0])
        self.assertEqual(len(listed["found"]), 2)
        with self.assertRaisesRegex(CommandError, "there is no project 'nope'"):
            self.run_there("sanitise", str(file), "--project", "nope")
        self.assertFalse((self.home / "projects").exists())

    def test_a_wrong_setting_or_job_is_answered_with_the_nearest(self) -> None:
        with self.store("alpha"):
            pass
        with self.assertRaisesRegex(CommandError, r"no setting 'serch_mode' \(did you mean 'search_mode'\?\)"):
            self.run_there("settings", "serch_mode", "--project", "alpha")
        with self.assertRaisesRegex(CommandError, "no setting 'nonsense'; known settings: "):
            self.run_there("settings", "nonsense", "--project", "alpha")
        with self.assertRaisesRegex(CommandError, r"no job 'bakup' \(did you mean 'backup'\?\)"):
            self.run_there("jobs", "bakup")


# What the shell offers for a command line
CASES = {
    "memory-hub ver": {"verify"},
    "memory-hub token ": {"create", "list", "revoke"},
    "memory-hub search --as": {"--as-of"},
    "memory-hub search --project al": {"alpha"},
    "memory-hub project show ": {"alpha", "beta"},
    "memory-hub settings search_": {"search_mode"},
    "memory-hub export adr --format ": {"madr", "mermaid"},
    "memory-hub jobs verify-": {"verify-stores"},
    f"memory-hub restore {ROOT}/pyproj": {f"{ROOT}/pyproject.toml"},
}
IN_BASH = """
eval "$(memory-hub completion bash)"
while IFS= read -r COMP_LINE; do
    COMP_POINT=${#COMP_LINE} COMP_TYPE=9 COMPREPLY=()
    _python_argcomplete memory-hub </dev/null
    echo ${COMPREPLY[*]}
done
"""
IN_FISH = """
memory-hub completion fish | source
while read -l line; string join -- ' ' (complete -C "$line" | string replace -r '\\t.*' ''); end
true
"""


class CompletionTests(TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = Path(folder.name)
        for project in ("alpha", "beta"):
            (self.home / "projects" / project).mkdir(parents=True)
        (self.home / "bin").mkdir()
        script = self.home / "bin/memory-hub"
        script.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT / "manage.py"} "$@"\n')
        script.chmod(0o755)

    def offered(self, *shell: str) -> dict[str, set[str]]:
        environment = {**os.environ, "MEMORY_HUB_HOME": str(self.home), "HOME": str(self.home)}
        environment["PATH"] = f"{self.home / 'bin'}:{environment['PATH']}"
        lines = "".join(f"{line}\n" for line in CASES)
        done = subprocess.run(
            shell, input=lines, capture_output=True, text=True, check=False, timeout=120, env=environment
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return dict(zip(CASES, map(set, map(str.split, done.stdout.splitlines())), strict=True))

    def test_bash_completes_names_options_and_values(self) -> None:
        self.assertEqual(self.offered("bash", "-c", IN_BASH), CASES)

    @needs("fish")
    def test_fish_completes_names_options_and_values(self) -> None:
        self.assertEqual(self.offered("fish", "--no-config", "-c", IN_FISH), CASES)

    @needs("zsh")
    def test_zsh_reads_its_script(self) -> None:
        script = subprocess.run([self.home / "bin/memory-hub", "completion", "zsh"], capture_output=True, check=True)
        subprocess.run(["zsh", "-n"], input=script.stdout, check=True, timeout=60)
