"""What a place does about stores that have moved away from it: nothing brings them back but a move."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from django.core.management import call_command
from django.test import tag

from memories.models import Memory
from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub import env
from memoryhub.core import log
from memoryhub.core.backends.selected import places, stores
from memoryhub.core.errors import Moved, NotFound
from memoryhub.core.home_database import recorded, shown
from memoryhub.core.stores.store import list_projects, project_store
from memoryhub.ops.backups.making import back_up_store
from memoryhub.ops.backups.restoring import restore
from memoryhub.ops.doctor import examine_hub, examine_store
from memoryhub.transfer.bundles.applying import apply_bundle, preview_bundle
from memoryhub.transfer.bundles.creating import create_bundle
from memoryhub.transfer.bundles.reading import open_bundle
from memoryhub.transfer.moving.ending import confirm, undo
from memoryhub.transfer.moving.moving import move
from memoryhub.transfer.moving.peer import Place
from tests.databases import sqlite_only
from tests.home import UNMEASURED
from tests.postgresql import Cluster
from tests.programs import needs
from tests.support import HubTestCase

ROOT = Path(__file__).parents[2]
ALPHA = project_store("alpha")
FILES = Place("sqlite", "")
START = """
import django, os, signal, sys
django.setup()
from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub.core.errors import HubError
from memoryhub.core.stores.store import project_store, use_store
from memoryhub.transfer.moving import ending, peer, switching
"""
WRITE = f"""{START}
with use_store(project_store("alpha")):
    write_memory(command=MemoryWrite(title=sys.argv[1], content="after a move"))
"""
KILLED_UNDO = f"""{START}
class Killed(peer.Peer):
    def ask(self, name, **arguments):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGKILL)
        super().ask(name, **arguments)
switching.Peer = Killed
ending.undo(project_store("alpha"), *[peer.Place("", url) for url in sys.argv[2:]])
"""
COMMAND = "import sys; from memoryhub.cli import main; sys.exit(main(['memory-hub', *sys.argv[1:]]))"


@dataclass(frozen=True)
class Done:
    code: int
    printed: str
    errors: str


@tag("process")
class MovedCase(HubTestCase):
    """Commands in a home with files and a database."""

    cluster: Cluster

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.cluster = cls.enterClassContext(Cluster(durable=False))

    def setUp(self) -> None:
        super().setUp()
        self.server = Place("", self.enterContext(self.cluster.database()))

    def write(self, title: str) -> int:
        with self.store("alpha"):
            return write_memory(command=MemoryWrite(title=title, content=f"on {title}")).id

    def start(
        self, program: str, *arguments: str, url: str | None = "sqlite", settings: str = "memoryhub.settings_store"
    ) -> subprocess.CompletedProcess[str]:
        """Run a program with a value of the database's variable; None for a process without it."""
        variables = {**os.environ, **UNMEASURED, "DJANGO_SETTINGS_MODULE": settings}
        variables.pop(env.DATABASE_VARIABLE, None)
        if url is not None:
            variables[env.DATABASE_VARIABLE] = url
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)

    def run_in(self, url: str | None, *arguments: str) -> Done:
        done = self.start(COMMAND, *arguments, url=url, settings="memoryhub.settings")
        return Done(done.returncode, done.stdout, done.stderr)

    def succeed_in(self, url: str | None, *arguments: str) -> str:
        done = self.run_in(url, *arguments)
        self.assertEqual(done.code, 0, done.errors)
        return done.printed


@sqlite_only("it moves stores between both")
@needs("postgresql")
@tag("process")
class MovedFromFilesTests(MovedCase):
    def setUp(self) -> None:
        super().setUp()
        self.write("early")
        with self.store("alpha"):
            self.backup = back_up_store().path
            self.bundle = self.home / "alpha.bundle"
            create_bundle(self.bundle)

    def lost(self) -> list[str]:
        return [finding.what for finding in examine_hub() if "gone" in finding.what]

    def test_doctor_restores_nothing_that_has_moved(self) -> None:
        move(ALPHA, FILES, self.server)
        self.assertEqual(self.lost(), [])
        confirm(ALPHA, FILES, self.server)
        self.assertEqual(self.lost(), [])
        found = json.dumps([finding.repair for finding in examine_store(ALPHA).findings])
        self.assertNotIn("memory-hub restore", found)
        with self.assertRaisesRegex(Exception, "'alpha' has moved to postgresql://127.0.0.1"):
            call_command("doctor", "--project", "alpha")

    def assert_nothing_revives(self) -> None:
        opened = open_bundle(self.bundle, lambda: "")
        for act in (
            lambda: restore(store=ALPHA, source=self.backup, replace=True),
            lambda: log.accept_loss(store=ALPHA),
            lambda: preview_bundle(opened, ALPHA),
            lambda: apply_bundle(opened, ALPHA),
            lambda: self.write("late"),
        ):
            with self.assertRaisesRegex(Moved, "'alpha' has moved to postgresql://127.0.0.1"):
                act()
        self.assertEqual(list_projects(), [])

    def test_nothing_but_a_move_revives_it(self) -> None:
        move(ALPHA, FILES, self.server)
        self.assert_nothing_revives()
        confirm(ALPHA, FILES, self.server)
        self.assertFalse(stores.exists(ALPHA))
        self.assert_nothing_revives()
        move(ALPHA, self.server, FILES)
        self.write("back")
        self.assertEqual(list_projects(), ["alpha"])

    def test_a_person_can_forget_that_it_has_moved(self) -> None:
        move(ALPHA, FILES, self.server)
        with self.assertRaisesRegex(Exception, "confirm or undo"):
            call_command("move", "alpha", "--forget")
        confirm(ALPHA, FILES, self.server)
        call_command("move", "alpha", "--forget", stdout=io.StringIO())
        self.assertEqual(restore(store=ALPHA, source=self.backup).events, 1)
        with self.assertRaisesRegex(Exception, "has not moved"):
            call_command("move", "alpha", "--forget")

    def test_a_second_target_is_refused(self) -> None:
        other = Place("", self.enterContext(self.cluster.database()))
        move(ALPHA, FILES, self.server)
        for _ in range(2):
            with self.assertRaisesRegex(Moved, "'alpha' has moved to postgresql://127.0.0.1"):
                move(ALPHA, FILES, other)
            self.assertEqual(list_projects(), [])
            with self.assertRaises((Moved, NotFound)):
                undo(ALPHA, FILES, other)
            self.assertEqual(list_projects(), [])
            if places.kept_stores():
                confirm(ALPHA, FILES, self.server)

    def test_an_interrupted_undo_loses_nothing_of_the_new_place(self) -> None:
        move(ALPHA, FILES, self.server)
        written = self.start(WRITE, "there", url=self.server.url)
        self.assertEqual((written.returncode, written.stdout), (0, ""))
        killed = self.start(KILLED_UNDO, "arrive", "", self.server.url)
        self.assertEqual(killed.returncode, -signal.SIGKILL)
        move(ALPHA, FILES, self.server)
        self.assertEqual(list_projects(), [])
        undo(ALPHA, FILES, self.server)
        with self.store("alpha", create=False):
            self.assertEqual(set(Memory.objects.values_list("title", flat=True)), {"early", "there"})

    def test_what_has_moved_is_named_by_the_next_move(self) -> None:
        for act in (lambda: None, lambda: confirm(ALPHA, FILES, self.server)):
            if stores.exists(ALPHA):
                move(ALPHA, FILES, self.server)
            act()
            for url in ("sqlite", self.server.url):
                done = self.run_in(url, "move", "alpha", "--to", self.server.url)
                self.assertRegex(done.printed + done.errors, r"alpha'? (ha[sd] moved|is in)")
                self.assertIn("already", done.printed + done.errors)

    def test_what_a_move_prints_can_be_run_in_both_places(self) -> None:
        for place in ("sqlite", self.server.url):
            printed = self.succeed_in("sqlite", "move", "alpha", "--to", self.server.url)
            confirmed, undone, *_ = re.findall("`memory-hub ([^`]*)`", printed)
            self.succeed_in(place, *shlex.split(undone))
            self.assertEqual(list_projects(), ["alpha"])
            move(ALPHA, FILES, self.server)
            self.succeed_in(place, *shlex.split(confirmed))
            self.assertEqual(places.kept_stores(), [])
            move(ALPHA, self.server, FILES)
            confirm(ALPHA, self.server, FILES)

    def test_a_home_follows_a_move_of_all_its_stores(self) -> None:
        with mock.patch.dict(os.environ, {env.DATABASE_VARIABLE: ""}):
            self.succeed_in(self.server.url, "status")
            self.assertEqual(recorded(), "")
            printed = self.succeed_in(None, "move", "--all", "--to", self.server.url)
            self.assertIn(f"to work there, set database_url in {self.home}/config.toml to its address", printed)
            self.assertEqual(recorded(), shown(self.server.url))
            self.assertEqual(self.run_in(None, "project", "create", "beta").code, 8)
            self.succeed_in(self.server.url, "project", "create", "beta")
            self.succeed_in(None, "move", "--all", "--confirm", "--to", self.server.url)

            self.succeed_in(self.server.url, "move", "--all", "--to", "sqlite")
            refused = self.run_in(self.server.url, "project", "create", "gamma")
            self.assertIn(f"unset {env.DATABASE_VARIABLE}", refused.errors)
            self.succeed_in(None, "project", "create", "gamma")
            self.succeed_in(self.server.url, "move", "--all", "--undo", "--to", "sqlite")
            self.assertEqual(recorded(), shown(self.server.url))

    def test_one_moved_project_leaves_the_home_where_it_is(self) -> None:
        move(ALPHA, FILES, self.server)
        self.assertEqual(recorded(), "")
        with self.store("beta"):
            write_memory(command=MemoryWrite(title="b", content="in files"))
        first = self.run_in(self.server.url, "project", "create", "gamma")
        self.assertEqual(first.code, 0, first.errors)
        self.assertIn("its stores in files stay there", first.errors)
        self.assertEqual(recorded(), shown(self.server.url))
        self.assertEqual(self.run_in(None, "project", "list").code, 8)
        self.assertIn("beta", self.succeed_in("sqlite", "project", "list"))

    def test_a_password_is_not_printed(self) -> None:
        url = self.server.url.replace("hub@", "hub:secret@")
        self.assertIn(":secret@", url)
        printed = self.succeed_in("sqlite", "move", "alpha", "--to", url)
        self.assertIn(" --confirm --to postgresql://hub:PASSWORD@127.0.0.1", printed)
        self.assertNotIn("secret", printed)


@sqlite_only("it moves stores between both")
@needs("postgresql")
@tag("process")
class MovedFromServerTests(MovedCase):
    def setUp(self) -> None:
        super().setUp()
        self.write("early")
        with self.store("alpha"):
            back_up_store()
        move(ALPHA, FILES, self.server)
        confirm(ALPHA, FILES, self.server)
        self.succeed_in(self.server.url, "backup")

    def doctor(self, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
        done = self.run_in(self.server.url, "doctor", "--json", *arguments)
        return done.code, json.loads(done.printed or "[]")

    def test_a_store_that_went_to_files_stays_there(self) -> None:
        (bundle,) = (self.home / "backups" / "project-alpha").glob("*.bundle")
        for act in (move, confirm):
            act(ALPHA, self.server, FILES)
            with self.subTest(act.__name__):
                self.assertNotIn("gone", json.dumps(self.doctor()))
                for arguments in (
                    ("bundle", "apply", str(bundle)),
                    ("bundle", "apply", "--preview", str(bundle)),
                    ("doctor", "--project", "alpha", "--accept-loss", "why"),
                    ("doctor", "--project", "alpha"),
                    ("project", "create", "alpha"),
                ):
                    refused = self.run_in(self.server.url, *arguments)
                    self.assertEqual(refused.code, Moved.exit_code, (arguments, refused))
                    self.assertIn("'alpha' has moved to /", refused.errors)
        self.succeed_in(self.server.url, "move", "alpha", "--forget")
        self.succeed_in(self.server.url, "bundle", "apply", str(bundle))

    def test_stores_in_files_are_not_missing_on_the_server(self) -> None:
        with self.store("beta"):
            write_memory(command=MemoryWrite(title="beta", content="only in files"))
            back_up_store()
        code, found = self.doctor()
        self.assertEqual((code, found), (0, []))

    def test_commands_name_the_database(self) -> None:
        url = re.sub("//.*@", "//", self.server.url)
        self.assertIn(f"Database:   {url}\n", self.succeed_in(self.server.url, "status"))
        self.assertIn("Database:   SQLite files in the home folder\n", self.succeed_in("sqlite", "status"))
        self.assertIn(f"the database {url}: its server was checked\n", self.succeed_in(self.server.url, "doctor"))
        printed = self.served(self.server.url)
        self.assertRegex(printed, f"^Memory Hub serves {self.home} with {re.escape(url)} at http://127")

    def served(self, url: str) -> str:
        variables = {**os.environ, **UNMEASURED, env.DATABASE_VARIABLE: url, "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", "memoryhub.cli", "serve", "--port", "0", "--no-worker"]
        with subprocess.Popen(command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            line = process.stdout.readline()
            process.terminate()
            process.stdout.read()
        return line

    def test_each_backup_is_examined_as_what_it_is(self) -> None:
        self.assertEqual(self.doctor("--deep"), (0, []))
        (bundle,) = (self.home / "backups" / "project-alpha").glob("*.bundle")
        bundle.write_bytes(bundle.read_bytes()[:-40])
        code, found = self.doctor()
        self.assertEqual((code, len(found)), (15, 1))
        self.assertIn(f"the backup {bundle.name} cannot be restored: ", found[0]["what"])
