from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import TestCase, mock

from memoryhub import env
from memoryhub.core import home_database, secret_files
from memoryhub.core.disk import replacing
from memoryhub.core.errors import Unavailable
from memoryhub.core.file_locks import try_lock
from memoryhub.core.home_database import display_url, record, recorded, remember, require_own
from memoryhub.core.secret_files import MIN_LENGTH, SECRET_FILES, read_or_create_secret, secret_matches
from memoryhub.env import DATABASE_VARIABLE, DatabaseUrlError, configured_database_url
from tests.home import UNMEASURED
from tests.support import HubTestCase, run_command

FIRST = "postgresql://hub:secret@DB.example.org:5432/hub?sslmode=require"
SECOND = "postgresql://hub@db2.example.org/hub"
ROOT = Path(__file__).parents[2]


def run_python(program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program]
    environment = {**os.environ, **UNMEASURED}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


class HomeDatabaseTestCase(TestCase):
    def setUp(self) -> None:
        self.home = Path(self.enterContext(tempfile.TemporaryDirectory()))
        variables = {name: value for name, value in os.environ.items() if name != DATABASE_VARIABLE}
        self.enterContext(mock.patch.dict(os.environ, {**variables, "MEMORY_HUB_HOME": str(self.home)}, clear=True))
        self.enterContext(mock.patch.object(home_database, "_remembered", set()))

    def give(self, variable: str = "", config: str = "") -> None:
        os.environ.pop(DATABASE_VARIABLE, None)
        if variable:
            os.environ[DATABASE_VARIABLE] = variable
        (self.home / "config.toml").write_text(f'database_url = "{config}"\n' if config else "")

    def refused(self, *, by_client: bool = True, is_hub: bool = False) -> str:
        try:
            require_own(by_client=by_client, is_hub=is_hub)
        except DatabaseUrlError as error:
            return str(error)
        return ""


class HomeDatabaseTests(HomeDatabaseTestCase):
    def test_addresses_are_compared_without_user_password_and_options(self) -> None:
        for url, expected in (
            (FIRST, "postgresql://db.example.org/hub"),
            ("postgres://db.example.org/hub", "postgresql://db.example.org/hub"),
            ("postgresql://a@DB.example.org/hub", "postgresql://db.example.org/hub"),
            ("postgresql:///hub?host=/var/run/postgresql", "postgresql:///var/run/postgresql/hub"),
            ("postgresql://%2Fvar%2Frun%2Fpostgresql/hub", "postgresql:///var/run/postgresql/hub"),
            ("postgresql://u:p@db1:6432,db2:5432/hub?target_session_attrs=x", "postgresql://db1:6432,db2/hub"),
            ("postgresql://ann@[::1]:5433/", "postgresql://[::1]:5433/ann"),
            ("postgresql://ann@[::1]?port=5433", "postgresql://[::1]:5433/ann"),
        ):
            self.assertEqual(display_url(url), expected)

    def test_a_write_is_remembered_without_the_password(self) -> None:
        self.give(FIRST)
        remember(FIRST)
        path = self.home / env.DATABASE_FILE
        self.assertEqual(path.read_text(), "postgresql://db.example.org/hub\n")
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        remember(SECOND)
        self.assertEqual(recorded(), "postgresql://db.example.org/hub")

    def test_a_process_without_the_address_is_refused(self) -> None:
        record(FIRST)
        self.give()
        for by_client in (True, False):
            sentence = self.refused(by_client=by_client)
            self.assertIn(f"the home {self.home} works with postgresql://db.example.org/hub, but", sentence)
            self.assertIn("was given no database: set database_url in the home's config.toml, or", sentence)
        self.assert_allowed((FIRST, ""), ("", FIRST), ("sqlite", ""), ("", "sqlite"), (FIRST, FIRST))

    def assert_allowed(self, *addresses: tuple[str, str]) -> None:
        for variable, config in addresses:
            self.give(variable, config)
            self.assertEqual(self.refused(), "")

    def test_another_address_needs_the_home_s_config(self) -> None:
        record(FIRST)
        for config in ("", FIRST):
            self.give(SECOND, config)
            self.assertIn(f"but {DATABASE_VARIABLE} names postgresql://db2.example.org/hub", self.refused())
        self.assert_allowed(("", SECOND))
        remember(SECOND)
        self.assertEqual(recorded(), "postgresql://db2.example.org/hub")

    def test_an_empty_home_takes_any_database(self) -> None:
        self.assert_allowed(("", ""), (FIRST, ""), ("", FIRST))

    def test_a_home_with_stores_in_files_changes_by_a_person_s_act(self) -> None:
        store = self.home / "projects" / "alpha" / "events.db"
        store.parent.mkdir(parents=True)
        store.touch(0o600)
        self.give(FIRST)
        self.assertIn("are in its files, but", self.refused())
        self.assertEqual(self.refused(by_client=False), "")
        with (self.home / env.SERVE_LOCK).open("w") as file:
            self.assertTrue(try_lock(file.fileno()))
            program = "import sys; from memoryhub.core import home_database as h; h.require_own(by_client=False)"
            self.assertIn("the hub that runs in the home", run_python(program).stderr)
        self.assert_allowed(("", FIRST))
        self.give(FIRST)
        store.chmod(0o400)  # as one that has moved
        self.assertEqual(self.refused(), "")
        store.chmod(0o600)
        with self.assertLogs("memoryhub.core.home_database", "WARNING") as logs:
            remember(FIRST)
        self.assertIn("its stores in files stay there", logs.output[0])
        self.assertEqual(self.refused(), "")
        self.give()
        self.assertIn("was given no database", self.refused())

    def test_a_home_that_was_moved_to_files_refuses_its_old_database(self) -> None:
        record("")
        for variable, config, fix in ((FIRST, "", f"unset {DATABASE_VARIABLE}"), ("", FIRST, "remove database_url")):
            self.give(variable, config)
            self.assertIn(fix, self.refused())
        self.assert_allowed(("", ""))

    def test_two_threads_that_record_at_once_are_not_in_each_others_way(self) -> None:
        both = threading.Barrier(2)
        with mock.patch("os.fsync", lambda _: both.wait(60)), ThreadPoolExecutor(2) as threads:
            list(threads.map(record, [FIRST, FIRST]))  # raises their errors
        self.assertEqual(recorded(), display_url(FIRST))

    def test_asking_imports_nothing_slow(self) -> None:
        record(FIRST)
        self.give(config=FIRST)
        done = run_python(
            "import sys; from memoryhub.core.home_database import require_own; require_own(by_client=True); "
            "print(*sys.modules)"
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse({"django", "tomllib", "pathlib", "urllib.parse", "logging"}.intersection(done.stdout.split()))

    def test_one_plain_line_of_toml_is_read_as_the_parser_reads_it(self) -> None:
        texts = (
            f'database_url = "{FIRST}"\n',
            f"  database_url='{FIRST}'  \r\n[servers]\nx = 'y'\n",
            f'database_url = "{FIRST}" # the main one\n',
            f'enabled = true\nretention = [\n{{what = "captured"}}]\ndatabase_url = "{FIRST}"\n',
            f'[team]\ndatabase_url = "{FIRST}"\n',
            f'note = """\ndatabase_url = "{SECOND}"\n"""\ndatabase_url = "{FIRST}"\n',
            'database_url = "a\\u0062c"\n',
            "database_url = 5\n",
            'database_urls = "x"\n',
            'database_url = ""\n',
            'database_url = "\n',
        )
        for text in texts:
            with self.subTest(text):
                (self.home / "config.toml").write_text(text)
                env._configs.clear()
                try:
                    expected = tomllib.loads(text).get("database_url", "")
                except tomllib.TOMLDecodeError:
                    expected = ""
                self.assertEqual(configured_database_url(), expected if isinstance(expected, str) else "")


class DoorTests(HomeDatabaseTestCase):
    """Processes of a home that works with a database, without its address."""

    def setUp(self) -> None:
        super().setUp()
        record(FIRST)

    def run_in_home(self, *words: str, standard_input: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "memoryhub.cli", *words]
        variables = {**os.environ, "PYTHONPATH": str(ROOT), "MEMORY_HUB_AUTOSTART": "on"}
        return subprocess.run(
            command, cwd=self.home, env=variables, input=standard_input, capture_output=True, text=True, check=False
        )

    def assert_untouched(self) -> None:
        self.assertEqual([*self.home.rglob("*.db"), *self.home.glob("serve.lock")], [])

    def test_a_client_s_server_offers_nothing_and_says_why(self) -> None:
        requests = [
            {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}},
            {"id": 2, "method": "tools/call", "params": {"name": "memory_write", "arguments": {}}},
        ]
        lines = "".join(json.dumps({"jsonrpc": "2.0", **request}) + "\n" for request in requests)
        done = self.run_in_home("mcp", "--project", "alpha", standard_input=lines)
        hello, call = (json.loads(line)["result"] for line in done.stdout.splitlines())
        self.assertIn("works with postgresql://db.example.org/hub, but", hello["instructions"])
        self.assertTrue(call["isError"])
        self.assertNotIn("secret", done.stdout + done.stderr)
        self.assert_untouched()

    def test_commands_are_refused_but_for_those_that_repair_it(self) -> None:
        for command in ("project create alpha", "status", "serve --port 0", "doctor", "migrate"):
            done = run_command(*command.split())
            self.assertEqual(done.code, 8, command)
            self.assertIn("memory-hub: the home ", done.errors)
        self.assert_untouched()
        for command in ("help", "doctor --help", "move --help"):
            self.assertEqual(run_command(*command.split()).code, 0, command)
        self.assertEqual(self.run_in_home("setup").returncode, 0)
        self.assertEqual(self.run_in_home("setup", "claude-code", "--check").returncode, 3)

    def test_a_hook_keeps_its_event(self) -> None:
        event = json.dumps({"session_id": "s", "cwd": str(self.home), "hook_event_name": "SessionStart"})
        done = self.run_in_home("hook", "claude-code", "SessionStart", "--project", "alpha", standard_input=event)
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertRegex(done.stderr, "memory-hub hook: the home .* the event is kept")
        self.assert_untouched()
        self.assertEqual(len([*(self.home / "spool").glob("*.jsonl*")]), 1)


_ASK = "from memoryhub.core.secret_files import read_or_create_secret as ask; print(ask('token'))"
_WITHOUT_ROOM = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"


class SecretFileTests(HubTestCase):
    def test_processes_that_ask_together_get_one_secret(self) -> None:
        for before in (None, "", "\n"):
            (self.home / "token").unlink(missing_ok=True)
            if before is not None:
                (self.home / "token").write_text(before)
            with ThreadPoolExecutor(6) as starters:
                (secret,) = {done.stdout.strip() for done in starters.map(run_python, [_ASK] * 6)}
            self.assertEqual((self.home / "token").read_text(), f"{secret}\n")
            self.assertGreaterEqual(len(secret), MIN_LENGTH)

    def test_a_write_that_fails_changes_nothing_and_is_one_sentence(self) -> None:
        for before in (None, b""):
            if before is not None:
                (self.home / "token").write_bytes(before)
            done = run_python(f"{_WITHOUT_ROOM}\n{_ASK}")
            self.assertEqual(done.stdout, "")
            self.assertIn(f"the secret file {self.home}/token cannot be written: File too large", done.stderr)
            self.assertEqual((self.home / "token").exists(), before is not None)
            self.assertEqual([path.name for path in self.home.glob(".token*")], [])

    def test_only_its_owner_may_read_the_file(self) -> None:
        secret = read_or_create_secret("token")
        self.assertEqual((self.home / "token").read_text(), f"{secret}\n")
        self.assertEqual(stat.S_IMODE((self.home / "token").stat().st_mode), 0o600)

    def test_the_file_is_synced_before_its_name_leads_to_it_and_the_name_after(self) -> None:
        steps: list[str] = []
        fsync, replace = os.fsync, os.replace

        def noted_fsync(descriptor: int) -> None:
            steps.append("sync folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync file")
            fsync(descriptor)

        def noted_replace(*paths: str) -> None:
            steps.append("rename")
            replace(*paths)

        with mock.patch.object(os, "fsync", noted_fsync), mock.patch.object(os, "replace", noted_replace):
            read_or_create_secret("token")
        self.assertEqual(steps, ["sync file", "rename", "sync folder"])

    def test_what_is_no_secret_is_refused_and_left_as_it_is(self) -> None:
        path = self.home / "token"
        for content in (b"x" * (MIN_LENGTH - 1), b"x" * 5000, b"two words " * 5, b"\xc3\xa9" * 40, b"a" * 40 + b"\nb"):
            path.write_bytes(content)
            with self.subTest(content=content), self.assertRaisesRegex(Unavailable, f"{path} holds .*; remove it, and"):
                read_or_create_secret("token")
            self.assertEqual(path.read_bytes(), content)
        path.unlink()
        path.mkdir()
        with self.assertRaisesRegex(Unavailable, f"the secret file {path} cannot be read: Is a directory"):
            read_or_create_secret("token")

    def test_a_problem_of_any_secret_file_is_named(self) -> None:
        with self.store("alpha"):
            pass
        for name in SECRET_FILES:
            self.assertEqual(secret_files.secret_problem(name), "")
            read_or_create_secret(name)
            self.assertEqual(secret_files.secret_problem(name), "")
            (self.home / name).write_text("")
            self.assertIn("is empty", secret_files.secret_problem(name))
            (self.home / name).write_text("short")
            self.assertTrue(secret_files.secret_problem(name))


class ComparisonTests(TestCase):
    def test_only_the_whole_of_a_sound_secret_matches(self) -> None:
        secret = "s" * MIN_LENGTH
        self.assertTrue(secret_matches(secret, secret))
        for pair in (("", ""), ("x", "x"), (secret[1:], secret[1:]), ("", secret), (secret, "é" * 40)):
            self.assertFalse(secret_matches(*pair), pair)


class ReplacingTests(TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.path = self.folder / "file"
        self.path.write_text("old")

    def test_readers_find_the_old_content_until_the_new_is_complete(self) -> None:
        with replacing(self.path) as file:
            file.write(b"new")
            file.flush()
            self.assertEqual(self.path.read_text(), "old")
        self.assertEqual(self.path.read_text(), "new")
        self.assertEqual(list(self.folder.iterdir()), [self.path])

    def test_after_an_error_the_old_file_stays_alone(self) -> None:
        with self.assertRaises(ZeroDivisionError), replacing(self.path) as file:
            file.write(b"new")
            raise ZeroDivisionError
        with mock.patch("os.fsync", side_effect=OSError), self.assertRaises(OSError), replacing(self.path) as file:
            file.write(b"new")
        self.assertEqual(self.path.read_text(), "old")
        self.assertEqual(list(self.folder.iterdir()), [self.path])

    def test_threads_that_replace_a_file_at_once_are_not_in_each_others_way(self) -> None:
        both = threading.Barrier(2)

        def write(_: int) -> None:
            with replacing(self.path) as file:
                file.write(b"new")
                both.wait(60)

        with ThreadPoolExecutor(2) as threads:
            list(threads.map(write, range(2)))  # raises their errors
        self.assertEqual(self.path.read_text(), "new")

    def test_a_link_is_replaced_and_the_new_file_is_private(self) -> None:
        link = self.folder / "link"
        link.symlink_to(self.path)
        with replacing(link) as file:
            file.write(b"new")
        self.assertFalse(link.is_symlink())
        self.assertEqual(stat.S_IMODE(link.stat().st_mode), 0o600)
        self.assertEqual(self.path.read_text(), "old")
