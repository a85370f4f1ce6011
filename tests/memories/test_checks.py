"""Checks of entries: whose command runs, where, and what follows from its result."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import chdir, suppress
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

from django.test import tag

from decisions.schemas import DecisionRecord
from decisions.selectors import decision_checks
from decisions.services import record_decision
from governance.staleness.schemas import StaleList, Why
from governance.staleness.selectors import list_stale
from memories.events import MEMORY_WRITTEN, MemoryWritten
from memories.schemas import MemoryGet, MemorySearch, MemoryUpdate, MemoryWrite
from memories.selectors import get_memories, search
from memories.services import update_memory, write_memory
from memories.validity.check_runs import MAX_OUTPUT, Check, CheckedTree, parse_check, run_check
from memories.validity.checks import allow_check, is_allowed, memory_checks, states_of
from memories.validity.events import CHECK_ALLOWED, CHECK_RAN
from memories.validity.models import CheckState
from memoryhub.core import log
from memoryhub.core.errors import Forbidden, Invalid
from memoryhub.core.permissions import Act, Grant, use_grant
from tests.api.client import RestTestCase
from tests.sessions_app.test_git import Repository
from tests.support import Done, HubTestCase, run_command


class ParseTests(HubTestCase):
    def test_a_line_is_a_command_or_a_file_with_a_pattern(self) -> None:
        for line, check in (
            ("`make test`", Check(command="make test")),
            ("`make test` exits 2", Check(command="make test", exits=2)),
            ("`uname` exits 0 and prints Linux", Check(command="uname", prints="Linux")),
            ("pyproject.toml matches `asyncpg>=\\d`", Check(file="pyproject.toml", matches=("asyncpg>=\\d",))),
            ("`a file.txt` lacks psycopg2", Check(file="a file.txt", lacks=("psycopg2",))),
        ):
            with self.subTest(line):
                self.assertEqual(parse_check(line), check)
                self.assertEqual(parse_check(check.text).digest, check.digest)

    def test_what_cannot_run_is_refused_in_a_sentence(self) -> None:
        for line, sentence in (
            ("make test", "is no check; write"),
            ("`make 'test`", "cannot be split into words: No closing quotation"),
            ("`make \u202etset`", "has line breaks or invisible characters"),
            ("`make\ntest`", "has line breaks or invisible characters"),
            ("/etc/passwd matches root", "is no path inside the working tree"),
            ("../other/a.py matches x", "is no path inside the working tree"),
            ("a.py matches `(`", "is not a valid RE2 expression"),
            ("a.py matches `(?=x)`", "is not a valid RE2 expression"),
        ):
            with self.subTest(line), self.assertRaisesRegex(Invalid, sentence):
                parse_check(line)

    def test_another_text_has_another_digest(self) -> None:
        commands = ("`make`", "`make` exits 1", "`make` prints x")
        lines = (*commands, "a matches x", "a lacks x", "a matches y", "b matches x")
        self.assertEqual(len({parse_check(line).digest for line in lines}), len(lines))


class RunTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.repository = Repository(self.home / "work")
        self.folder = self.repository.folder
        (self.folder / "pyproject.toml").write_text('dependencies = [\n"asyncpg"\n]\n')
        self.repository.git("add", ".")
        self.repository.git("commit", "-m", "Begin")

    def fault(self, line: str | Check, **options: float) -> str:
        check = line if isinstance(line, Check) else parse_check(line)
        return run_check(check, CheckedTree(self.folder), **options).fault

    def script(self, text: str) -> str:
        (self.folder / "script.py").write_text(text)
        return f"`{sys.executable} script.py`"

    def test_patterns_are_tried_on_a_file_of_the_tree(self) -> None:
        self.assertEqual(self.fault('pyproject.toml matches `^"asyncpg"$`'), "")
        self.assertEqual(self.fault("pyproject.toml lacks psycopg2"), "")
        self.assertEqual(self.fault("pyproject.toml matches psycopg2"), "pyproject.toml does not match `psycopg2`")
        self.assertEqual(self.fault("pyproject.toml lacks asyncpg"), "pyproject.toml matches `asyncpg`")
        self.assertIn("there is no gone.toml", self.fault("gone.toml lacks asyncpg"))

    def test_no_pattern_is_tried_on_what_lies_outside_or_is_ignored(self) -> None:
        secret = self.home / "secret"
        secret.write_text("root")
        (self.folder / "link").symlink_to(secret)
        (self.folder / "folder").symlink_to(self.home)
        (self.folder / ".gitignore").write_text(".env\n")
        (self.folder / ".env").write_text("KEY=root")
        (self.folder / "inner").symlink_to(".env")
        os.mkfifo(self.folder / "pipe")
        for name in ("link", "folder/secret", ".env", "inner", ".git/config", "pipe"):
            with self.subTest(name):
                fault = self.fault(f"{name} matches .")
                self.assertRegex(fault, "link out of the working tree|does not ignore|it is not a file")

    def test_an_exit_code_and_an_output_prove(self) -> None:
        self.assertEqual(self.fault("`true`"), "")
        self.assertEqual(self.fault("`false` exits 1"), "")
        self.assertEqual(self.fault("`false`"), "it exits 1, not 0")
        self.assertEqual(self.fault("`echo port 8321` prints `port \\d+`"), "")
        self.assertEqual(self.fault("`echo port 8321` prints 9000"), "it does not print `9000`")
        self.assertIn("cannot be started: No such file", self.fault("`no-such-program`"))

    def test_no_shell_reads_a_command(self) -> None:
        self.assertEqual(self.fault("`echo x; touch made && touch made2 | tee made3 > made4 $(touch made5)`"), "")
        self.assertEqual(list(self.folder.glob("made*")), [])
        self.assertEqual(self.fault("`sh -c 'exit 3'` exits 3"), "")

    def test_a_command_gets_no_input_and_none_of_the_hubs_variables(self) -> None:
        secrets = ("MEMORY_HUB_TOKEN", "PGPASSWORD", "GITHUB_TOKEN", "OPENAI_API_KEY")
        line = self.script(
            "import os, sys\nprint(*os.environ)\nassert not sys.stdin.read()\nassert os.getsid(0) == os.getpid()\n"
        )
        with mock.patch.dict(os.environ, dict.fromkeys((*secrets, "COLOUR_OF_CHECK"), "x")):
            self.assertEqual(self.fault(f"{line} prints COLOUR_OF_CHECK"), "")
            for name in secrets:
                self.assertIn("does not print", self.fault(f"{line} prints {name}"))

    def test_a_command_that_hangs_is_killed_with_its_group(self) -> None:
        line = self.script(
            "import os, time\nchild = os.fork()\nif child:\n    open('pid', 'w').write(str(child))\ntime.sleep(600)\n"
        )
        self.assertEqual(self.fault(line, seconds=2.0), "it had not ended after 2 seconds")
        self.assert_ends(int((self.folder / "pid").read_text()))

    def test_what_a_command_leaves_behind_is_killed_and_not_waited_for(self) -> None:
        line = self.script(
            "import os, time\nchild = os.fork()\nif child:\n    open('pid', 'w').write(str(child))\n"
            "else:\n    time.sleep(600)\n"
        )
        self.assertEqual(self.fault(line), "")
        self.assert_ends(int((self.folder / "pid").read_text()))

    def assert_ends(self, process: int) -> None:
        for _ in range(500):
            if self.is_gone(process):
                return
            time.sleep(0.02)
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        self.fail(f"process {process} lives on")

    @staticmethod
    def is_gone(process: int) -> bool:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        with suppress(OSError):
            return ") Z " in Path(f"/proc/{process}/stat").read_text()
        return False

    def test_of_a_large_output_only_the_end_is_held(self) -> None:
        line = self.script(
            "import sys\nline = b'x' * 1023 + b'\\n'\nfor _ in range(32):\n    sys.stdout.buffer.write(line * 1024)\n"
            "print('Error: at the end')\nsys.exit(1)\n"
        )
        with mock.patch("memories.validity.check_runs.for_reading", side_effect=lambda text: text) as reading:
            result = run_check(parse_check(line), CheckedTree(self.folder))
        self.assertLessEqual(len(reading.call_args[0][0]), MAX_OUTPUT)
        self.assertEqual(result.lines, ["Error: at the end"])


class CheckTestCase(RestTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.repository = Repository(self.home / "work")
        self.folder = self.repository.folder
        (self.folder / "pyproject.toml").write_text("asyncpg\n")
        self.repository.git("add", ".")
        self.repository.git("commit", "-m", "Begin")

    def write_checked(self, check: str, title: str = "Use asyncpg") -> int:
        with self.store("alpha", source="mcp", actor="claude-code"):
            return write_memory(command=MemoryWrite(title=title, content="It is asynchronous.", check=check)).id

    def memtest(self, *arguments: str, text: str = "") -> Done:
        path = self.folder / "memory.tests.yml"
        if text:
            path.write_text(text)
        with chdir(self.folder):
            return run_command("memtest", *arguments, "--project", "alpha")

    def allow(self, memory_id: int, answer: str = "y") -> Done:
        system = mock.Mock(stdin=mock.Mock(isatty=lambda: True))
        with mock.patch("memoryhub.management.commands.memtest.sys", system):
            return run_command("memtest", "--allow", str(memory_id), "--project", "alpha", given=f"{answer}\n")

    @property
    def made(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("made*"))


class FileTests(CheckTestCase):
    def test_a_command_of_the_file_runs_only_where_a_person_asks_for_it(self) -> None:
        text = "tests:\n  - {run: touch made}\n  - {file: pyproject.toml, matches: asyncpg, lacks: psycopg2}\n"
        report = self.memtest(text=text)
        self.assertIn("not run  `touch made` exits 0\n        commands run only with --run", report.output)
        self.assertIn("ok  pyproject.toml matches `asyncpg` and lacks `psycopg2`", report.output)
        self.assertIn("1 of 2 passed, 1 not run", report.output)
        self.assertEqual((report.code, self.made), (0, []))
        self.assertEqual(self.memtest("--write").code, 5)
        self.assertEqual(self.made, [])
        report = self.memtest("--run")
        self.assertEqual((report.code, self.made), (0, ["made"]))
        self.assertIn("2 of 2 passed", report.output)

    def test_a_failed_check_fails_the_command_and_shows_its_output(self) -> None:
        report = self.memtest("--run", text="tests: [{run: \"sh -c 'echo Error: no port; exit 4'\", name: It starts}]")
        self.assertEqual(report.code, 1)
        self.assertIn("FAILED  It starts\n        it exits 4, not 0\n        Error: no port\n", report.output)
        report = self.memtest("--json", text="tests: [{file: pyproject.toml, matches: psycopg2}]")
        data = json.loads(report.output)
        self.assertEqual((data["passed"], data["failed"], data["not_run"]), (0, 1, 0))

    def test_the_results_are_written_as_junit_xml(self) -> None:
        text = """tests:
          - {run: make, name: "Tests & <all>"}
          - {file: pyproject.toml, matches: asyncpg}
          - {file: pyproject.toml, matches: psycopg2, name: "Bell \\a"}
        """
        report = self.folder / "results.xml"
        self.assertEqual(self.memtest("--junit", str(report), text=text).code, 1)
        (suite,) = ElementTree.parse(report).getroot()
        counts = {name: suite.get(name) for name in ("tests", "failures", "skipped")}
        self.assertEqual(counts, {"tests": "3", "failures": "1", "skipped": "1"})
        shown = [(case.get("name"), [(child.tag, child.get("message")) for child in case]) for case in suite]
        self.assertEqual(shown[0], ("Tests & <all>", [("skipped", "commands run only with --run")]))
        self.assertEqual(shown[1], ("pyproject.toml matches `asyncpg`", []))
        self.assertEqual(shown[2], ("Bell \ufffd", [("failure", "pyproject.toml does not match `psycopg2`")]))

    def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(self) -> None:
        missing = "cannot be written: name a file in a folder that exists"
        for report, act, sentence in (
            (self.folder, "--run", missing),
            (self.folder / "none" / "a.xml", "--run", missing),
            ("a.xml", "--write", "--junit is for the results of tests"),
        ):
            with self.subTest(report=report):
                refused = self.memtest(act, "--junit", str(report), text="tests: [{run: touch made}]")
                self.assertIn(sentence, refused.errors)
                self.assertEqual(self.made, [])

    def test_a_test_is_of_one_sort(self) -> None:
        for text, sentence in (
            ("{run: make, query: x}", "write two tests"),
            ("{query: x, prints: y}", "'prints' needs 'run'"),
            ("{run: make, matches: y}", "'matches' needs 'file'"),
            ("{query: x, proves: y}", "'proves' needs 'run' or 'file'"),
        ):
            with self.subTest(text):
                self.assertIn(sentence, self.memtest(text=f"tests: [{text}]").errors)

    def test_a_check_that_proves_an_entry_is_recorded_with_it(self) -> None:
        memory_id = self.write_checked("", title="Use asyncpg")
        text = "tests: [{{file: pyproject.toml, matches: {}, proves: Use asyncpg}}]"
        self.assertEqual(self.memtest(text=text.format("psycopg2")).code, 1)
        with self.store("alpha"):
            state = CheckState.objects.get(entity_id=memory_id)
            self.assertEqual((state.outcome, state.file), ("failed", "memory.tests.yml"))
            self.assertEqual(len(state.commit), 40)
            self.assertEqual([item["id"] for item in list_stale(command=StaleList()).results], [memory_id])
        self.assertEqual(self.memtest(text=text.format("asyncpg")).code, 0)
        with self.store("alpha"):
            self.assertEqual(list_stale(command=StaleList()).results, [])
            self.assert_sound()
        self.assertEqual(self.memtest(text=text.format("psycopg2")).code, 1)
        self.assertEqual(self.memtest(text="tests: [{file: pyproject.toml, matches: asyncpg}]").code, 0)
        with self.store("alpha"):
            self.assertEqual(list_stale(command=StaleList()).results, [])
            self.assert_sound()
        report = self.memtest(text="tests: [{file: pyproject.toml, matches: x, proves: Use nothing}]")
        self.assertIn("there is no memory or decision 'Use nothing' that it proves", report.output)


@tag("backend")
class EntryTests(CheckTestCase):
    def test_an_agents_check_is_stored_and_shown_and_never_run_by_that(self) -> None:
        memory_id = self.write_checked("`touch made`")
        for run in ((), ("--run",)):
            report = self.memtest(*run)
            self.assertIn(f"nobody allowed this command; memtest --allow {memory_id}", report.output)
            self.assertEqual((report.code, self.made), (0, []))
        with self.store("alpha"):
            (memory,) = get_memories(command=MemoryGet(ids=[memory_id]))
        self.assertEqual(memory["attributes"]["check"], "`touch made`")
        with self.assertRaisesRegex(Invalid, "is no check"):
            self.write_checked("rm -rf /", title="Another")

    def test_a_person_allows_exactly_one_text(self) -> None:
        memory_id = self.write_checked("`touch made`")
        self.assertIn("not allowed", self.allow(memory_id, "n").output)
        report = self.allow(memory_id)
        self.assertIn("allowed: `touch made` exits 0", report.output)
        self.assertIn("`touch made` exits 0", report.errors)
        self.assertIn("allowed already", self.allow(memory_id).output)
        self.assertIn("commands run only with --run", self.memtest().output)
        self.assertEqual(self.made, [])
        self.memtest("--run")
        self.assertEqual(self.made, ["made"])
        with self.store("alpha", source="mcp", actor="claude-code"):
            update_memory(command=MemoryUpdate(id=memory_id, check="`touch made2`"))
        self.assertIn("nobody allowed this command", self.memtest("--run").output)
        self.assertEqual(self.made, ["made"])
        with self.store("alpha"):
            self.assert_sound()

    def test_a_pipe_is_no_person(self) -> None:
        memory_id = self.write_checked("`touch made`")
        report = run_command("memtest", "--allow", str(memory_id), "--project", "alpha", given="y\n")
        self.assertIn("--allow asks on a terminal", report.errors)
        with self.store("alpha"):
            self.assertFalse(log.events().of_type(CHECK_ALLOWED).exists())

    def test_neither_an_agent_nor_a_writer_allows_a_command(self) -> None:
        memory_id = self.write_checked("`touch made`")
        callers = [("mcp", "mia/claude"), ("mcp", "token:ci"), ("rest", "mia/claude"), ("rest", "token:ci")]
        for source, actor in (*callers, ("cli", "token:ci"), ("job", "worker")):
            caller = {"source": source, "actor": actor}
            with self.subTest(caller), self.store("alpha", source=source, actor=actor), self.assertRaises(Forbidden):
                allow_check(memory_checks([memory_id])[0])
        reviewer = Grant(frozenset({Act.VIEW, Act.WRITE, Act.REVIEW}))
        with self.store("alpha", source="admin", actor="mia"), use_grant(reviewer), self.assertRaises(Forbidden):
            allow_check(memory_checks([memory_id])[0])
        self.call("POST", f"projects/alpha/memories/{memory_id}/check", {}, expect=404)
        event = {"type": "check.allowed", "payload": {"entity_id": memory_id}, "session_id": "s1", "ack_token": "x"}
        self.call("POST", "projects/alpha/turns/append", event, expect=412)

    def test_a_permission_holds_in_the_hub_that_gave_it(self) -> None:
        memory_id = self.write_checked("`touch made`")
        self.allow(memory_id)
        with self.store("alpha"):
            (entry,) = memory_checks([memory_id])
            state = states_of([entry])[entry.key]
            self.assertTrue(is_allowed(entry, state))
            with mock.patch("memories.validity.checks.current_tag_key", return_value=b"another hub's"):
                self.assertFalse(is_allowed(entry, state))

    def test_a_failed_check_marks_its_entry_until_one_passes(self) -> None:
        memory_id = self.write_checked("pyproject.toml matches `psycopg2`")
        report = self.memtest()
        self.assertEqual(report.code, 1)
        self.assertIn(f"FAILED  #{memory_id} Use asyncpg: pyproject.toml matches `psycopg2`", report.output)
        with self.store("alpha"):
            (item,) = list_stale(command=StaleList(why=Why.CHECK)).results
            self.assertIn("its check failed on 20", item["reasons"][0]["says"])
            (hit,) = search(command=MemorySearch(query="asyncpg asynchronous")).results
            self.assertEqual([mark["kind"] for mark in hit["marks"]], ["failed"])
        with self.store("alpha"):
            update_memory(command=MemoryUpdate(id=memory_id, check="pyproject.toml matches asyncpg"))
            self.assertEqual(list_stale(command=StaleList()).results, [])
        self.assertEqual(self.memtest().code, 0)
        with self.store("alpha"):
            (memory,) = get_memories(command=MemoryGet(ids=[memory_id]))
            self.assertEqual(memory["marks"], [])
            self.assertIsNotNone(memory["checked_at"])
            update_memory(command=MemoryUpdate(id=memory_id, content="Another text."))
            (memory,) = get_memories(command=MemoryGet(ids=[memory_id]))
            self.assertIsNone(memory["checked_at"])
            self.assert_sound()

    def test_an_empty_check_removes_it(self) -> None:
        memory_id = self.write_checked("pyproject.toml matches `psycopg2`")
        self.memtest()
        with self.store("alpha"):
            update_memory(command=MemoryUpdate(id=memory_id, check=""))
            self.assertEqual((memory_checks(), list_stale(command=StaleList()).results), ([], []))

    def test_what_another_hub_stored_as_a_check_is_read_with_care(self) -> None:
        with self.store("alpha"):
            for number, value in enumerate((5, None, ["`touch made`"], "", "`touch made", "`touch\nmade`")):
                written = MemoryWritten(title=f"Memory {number}", content="text", attributes={"check": value})
                with log.transaction():
                    log.append(log.prepare(MEMORY_WRITTEN, written), entity="memory")
            self.assertEqual(memory_checks(), [])
        self.assertIn("there is no memory.tests.yml", self.memtest("--run").errors)

    def test_decisions_carry_checks_too(self) -> None:
        with self.store("alpha"):
            command = DecisionRecord(title="Use asyncpg", chosen="asyncpg", checks=["pyproject.toml matches psycopg2"])
            decision_id = record_decision(command=command).id
            self.assertEqual([entry.entity_id for entry in decision_checks()], [decision_id])
            with self.assertRaisesRegex(Invalid, "is no check"):
                record_decision(command=DecisionRecord(title="Bad", chosen="x", checks=["make"]))
        self.assertEqual(self.memtest().code, 1)
        with self.store("alpha"):
            (item,) = list_stale(command=StaleList()).results
            self.assertEqual((item["id"], item["reasons"][0]["why"]), (decision_id, "check"))

    def test_the_record_is_sanitised_and_goes_with_its_entry(self) -> None:
        secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
        memory_id = self.write_checked("`sh -c 'cat secret; exit 1'`")
        (self.folder / "secret").write_text(f"Error: {secret} is wrong\n")
        self.allow(memory_id)
        self.assertEqual(self.memtest("--run").code, 1)
        with self.store("alpha"):
            ran = log.events().of_type(CHECK_RAN).get()
            self.assertNotIn(secret, ran.payload_json or "")
            self.assertIn("Error: ", CheckState.objects.get().output)
            log.erase_streams([f"memory:{memory_id}"], reason="test")
            self.assertFalse(CheckState.objects.exists())
            self.assert_sound()
