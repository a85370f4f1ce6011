"""Reading commands that a running hub answers."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub import __version__
from memoryhub.cli import main
from memoryhub.config.repository import working_folder
from memoryhub.core import autostart, log
from memoryhub.management.ask_hub import SOCKET, run_in_hub
from memoryhub.management.command_socket import answer_commands, run_request
from memoryhub.management.parsers import is_answered_by_hub, read_commands
from tests.support import HubTestCase, make_git_folder, run_command

ROOT = Path(__file__).parents[2]
ALPHA = ("--project", "alpha")
READING = (["search", "port"], ["show", "1"], ["get", "1", "--json"], ["context", "port"], ["import", "list"])


class CommandSocketTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        with self.store("alpha"):
            write_memory(command=MemoryWrite(title="Port \x1b[31m", content="It listens on 8321."))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MEMORY_HUB_")}
        for name in ("TZ", "DJANGO_SETTINGS_MODULE"):
            environment.pop(name, None)
        self.environment = {**environment, "MEMORY_HUB_HOME": str(self.home)}

    def asked(self, *arguments: str, **changes: Any) -> dict[str, Any] | None:
        request = {"version": __version__, "arguments": list(arguments), "directory": "/", "colour": [False, False]}
        return run_request({**request, "is_typed": False, **changes})

    def run_in_hub(self, *arguments: str) -> tuple[int | None, str, str]:
        output, errors = io.StringIO(), io.StringIO()
        with (
            redirect_stdout(output),
            redirect_stderr(errors),
            mock.patch.dict(os.environ, self.environment, clear=True),
        ):
            code = run_in_hub(list(arguments))
        return code, output.getvalue(), errors.getvalue()


class AnswerTests(CommandSocketTestCase):
    def test_an_answer_is_what_the_command_prints_itself(self) -> None:
        for arguments in (*READING, ["show", "99"], ["search", "port", "--project", "nope"], ["search", ""]):
            with self.subTest(arguments):
                where = () if "--project" in arguments else ALPHA
                done = run_command(*arguments, *where)
                answer = self.asked(*arguments, *where)
                expected = {"code": done.code, "output": done.output, "errors": done.errors}
                if arguments[0] == "context":  # each pack has a number of its own
                    assert answer
                    self.assertIn("It listens on 8321.", answer["output"])
                    continue
                self.assertEqual(answer, expected)

    def test_colour_is_the_askers_and_stored_text_has_none(self) -> None:
        answer = self.asked("search", "port", *ALPHA, colour=[True, False])
        assert answer
        self.assertIn("\x1b[1mPort \\u001b[31m\x1b[0m", answer["output"])
        refused = self.asked("show", "99", *ALPHA, colour=[True, True])
        assert refused
        self.assertTrue(refused["errors"].startswith("\x1b[31mmemory-hub: there is no #99"))

    def test_the_folder_is_the_askers(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            repository = make_git_folder(Path(folder) / "alpha")
            answer = self.asked("search", "port", directory=str(repository))
        assert answer
        self.assertIn("It listens on 8321.", answer["output"])
        self.assertNotEqual(working_folder(), repository)

    def test_what_writes_and_what_is_of_another_version_is_left_to_the_asker(self) -> None:
        for arguments in (
            ["remember", "-", *ALPHA],
            ["remember", *ALPHA],
            ["settings", "review_policy", "all", *ALPHA],
            ["import", "git", *ALPHA],
            ["rollback", "--actor", "ada", "--yes", *ALPHA],
            ["search", "x", "--limit", "abc", *ALPHA],
            ["search", "--nonsense", *ALPHA],
            ["shell"],
            ["nonsense"],
        ):
            with self.subTest(arguments):
                self.assertIsNone(self.asked(*arguments))
        self.assertIsNone(self.asked("search", "port", *ALPHA, version="0.0.9"))

    def test_a_memory_is_a_persons_if_the_asker_types(self) -> None:
        for is_typed, door in ((True, "terminal"), (False, "cli")):
            answer = self.asked("remember", f"Typed is {is_typed}", *ALPHA, is_typed=is_typed)
            assert answer
            self.assertRegex(answer["output"], rf"^Created #\d+\. Typed is {is_typed}\n")
            with self.store("alpha"):
                self.assertEqual(log.events().of_type("memory.written").order_by("-position")[0].source, door)

    def test_only_commands_that_read_and_remember_are_answered(self) -> None:
        answered = {
            name: described["hub"] for name, described in read_commands()["commands"].items() if described.get("hub")
        }
        whole = {"context", "get", "remember", "search", "show", "status", "worth"}
        self.assertEqual(answered, {**dict.fromkeys(whole, True), "import": ["list"]})
        self.assertFalse(is_answered_by_hub(None, ["import"]))
        self.assertFalse(is_answered_by_hub({"hub": ["list"]}, ["import"]))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class AutostartTests(CommandSocketTestCase):
    def test_a_person_who_searches_starts_the_hub_for_the_next_command(self) -> None:
        for stream, words, starts in (
            (Terminal(), ["search", "port"], True),
            (io.StringIO(), ["search", "port"], False),
            (Terminal(), ["status"], False),
            (Terminal(), ["verify"], False),
        ):
            where = () if words == ["status"] else ALPHA
            with self.subTest(words), redirect_stdout(stream), mock.patch.object(autostart, "start_hub") as start:
                self.assertEqual(main(["memory-hub", *words, *where]), 0)
            self.assertEqual(start.called, starts)


class LightImportTests(CommandSocketTestCase):
    def test_a_command_without_a_hub_imports_no_web_no_sdk_and_no_model(self) -> None:
        heavy = {"django.contrib", "django_q", "ninja", "mcp", "numpy", "onnxruntime", "rich", "starlette", "uvicorn"}
        heavy |= {"memoryhub.web", "memoryhub.rest", "memoryhub.client", "memoryhub.transfer", "whitenoise"}
        for words in ("status", "search port", "show 1", "get 1", "context port", "remember x", "settings"):
            where = [] if words == "status" else ALPHA
            program = [sys.executable, "-X", "importtime", str(ROOT / "manage.py"), *words.split(), *where]
            done = subprocess.run(
                program, capture_output=True, text=True, timeout=120, env=self.environment, check=False
            )
            imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
            with self.subTest(words):
                self.assertEqual(done.returncode, 0, done.stderr[-500:])
                self.assertIn("django.core.management", imported)
                # The status reads the clients' files
                reads_files = {"memoryhub.client"} if words == "status" else set()
                self.assertEqual(imported & heavy, reads_files)


class SocketTests(CommandSocketTestCase):
    def test_a_command_line_asks_the_hub_and_imports_no_django(self) -> None:
        program = [sys.executable, "-X", "importtime", str(ROOT / "manage.py"), "search", "port", *ALPHA]
        with answer_commands():
            self.assertEqual((self.home / SOCKET).stat().st_mode & 0o777, 0o600)
            done = subprocess.run(
                program, capture_output=True, text=True, timeout=120, env=self.environment, check=False
            )
        self.assertEqual((done.returncode, done.stdout), (0, run_command("search", "port", *ALPHA).output))
        imported = {line.rpartition("|")[2].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line}
        self.assertEqual(
            imported & {"django", "pydantic", "pydantic_core", "mcp", "rich", "asyncio", "memories"}, set()
        )
        self.assertFalse((self.home / SOCKET).exists())

    def test_without_a_hub_or_with_a_dead_one_nothing_is_printed(self) -> None:
        nothing = (None, "", "")
        self.assertEqual(self.run_in_hub("search", "port", *ALPHA), nothing)
        (self.home / "run").mkdir(exist_ok=True)
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(self.home / SOCKET))
        self.assertEqual(self.run_in_hub("search", "port", *ALPHA), nothing)
        with answer_commands():
            self.assertEqual(self.run_in_hub("search", "port", *ALPHA)[0], 0)

    def test_variables_that_change_a_command_are_the_askers_alone(self) -> None:
        with answer_commands():
            self.assertEqual(self.run_in_hub("show", "99", *ALPHA)[0], 3)
            for name in ("MEMORY_HUB_IDENTITY", "MEMORY_HUB_DATABASE_URL", "TZ"):
                with mock.patch.dict(self.environment, {name: "x"}):
                    self.assertIsNone(self.run_in_hub("show", "1", *ALPHA)[0])

    def test_hostile_requests_end_with_their_connection(self) -> None:
        with answer_commands():
            for content in (
                b"",
                b"\0" * 100,
                b"[]",
                b"{}",
                b'{"arguments": "search"}',
                b"x" * 300_000,
                b'{"arguments":[]}',
            ):
                with self.subTest(content[:20]), socket.socket(socket.AF_UNIX) as connection:
                    connection.connect(str(self.home / SOCKET))
                    try:
                        connection.sendall(content)
                        connection.shutdown(socket.SHUT_WR)
                        self.assertEqual(connection.recv(100), b"")
                    except OSError:
                        pass  # it was closed before all was read
            self.assertEqual(self.run_in_hub("search", "port", *ALPHA)[0], 0)
