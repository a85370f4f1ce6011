"""Real stores, processes and a real PostgreSQL: a store moves, and exactly one place takes its writes."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import tag
from django_q.models import Schedule

from governance.redaction.copies import unproven
from memories.models import Memory
from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub import env
from memoryhub.core import log
from memoryhub.core.backends.selected import places, stores
from memoryhub.core.errors import ConflictError, HubError, Locked, Moved, NotFound
from memoryhub.core.home_database import display_url, recorded
from memoryhub.core.stores.store import list_projects, project_store
from memoryhub.ops import hub_databases
from memoryhub.ops.backups.restoring import restore
from memoryhub.ops.backups.service import back_up_store
from memoryhub.ops.doctor.service import examine_hub
from memoryhub.ops.doctor.store import examine_store
from memoryhub.transfer.bundles.applying import apply_bundle, preview_bundle
from memoryhub.transfer.bundles.archive import create_bundle, open_bundle
from memoryhub.transfer.moving import switching
from memoryhub.transfer.moving.service import confirm, last_way, move, undo
from memoryhub.transfer.moving.switching import DatabasePlace, Peer
from tests import forks
from tests.databases import sqlite_only
from tests.forks import Fork
from tests.home import UNMEASURED
from tests.postgresql import Cluster, hub_template, shared_cluster
from tests.programs import needs
from tests.support import Done, HubTestCase
from tests.torture.rounds import is_long, rounds
from tests.web.server import migrated_home

ROOT = Path(__file__).parents[2]
ALPHA = project_store("alpha")
FILES = DatabasePlace("sqlite", "")
AT_ONCE = 500
PROGRAM = """
import json, os, signal, sys
from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub.core.errors import HubError
from memoryhub.core.stores.store import project_store, use_store
from memoryhub.transfer.moving import service, switching
from tests import forks
switching.subprocess = forks.SUBPROCESS
"""
ONE_WRITE = f"""{PROGRAM}
try:
    with use_store(project_store("alpha"), create=sys.argv[2:] == ["create"]):
        write_memory(command=MemoryWrite(title=sys.argv[1], content="after a move"))
except HubError as error:
    print(error.code)
"""


@sqlite_only("it moves stores between both")
@needs("postgresql")
class MovingTestCase(HubTestCase):
    """A store in SQLite, a PostgreSQL beside it, and processes that write in either."""

    cluster: Cluster
    # Commands would create them in the server's database first
    has_hub_tables = False

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.cluster = shared_cluster()
        cls.enterClassContext(mock.patch.object(switching, "subprocess", forks.SUBPROCESS))
        forks.start_parents()

    def setUp(self) -> None:
        super().setUp()
        template = hub_template() if self.has_hub_tables else "template0"
        self.server = DatabasePlace("", self.enterContext(self.cluster.database(template=template)))

    def move(self) -> Any:
        return move(ALPHA, FILES, self.server)

    def move_back(self) -> Any:
        return move(ALPHA, self.server, FILES)

    def confirm(self) -> None:
        confirm(ALPHA, FILES, self.server)

    def undo(self) -> None:
        undo(ALPHA, FILES, self.server)

    def migrate_files(self) -> None:
        """Give the home a database of the hub in files, whose migrations take seconds."""
        for name in ("hub.db", "jobs.db"):
            shutil.copyfile(migrated_home() / name, self.home / name)

    def write(self, *titles: str, create: bool = True) -> list[int]:
        with self.store("alpha", create=create), log.transaction():
            return [write_memory(command=MemoryWrite(title=title, content=f"on {title}")).id for title in titles]

    def fill(self, count: int) -> None:
        for start in range(0, count, AT_ONCE):
            self.write(*(f"note {number}" for number in range(start, min(start + AT_ONCE, count))))

    def start(self, program: str, *arguments: str, place: DatabasePlace = FILES) -> Fork:
        return Fork(program, *arguments, environment={env.DATABASE_VARIABLE: place.url or env.FILES})

    def run_until_killed(self, command: str, step: str, source: DatabasePlace, target: DatabasePlace) -> None:
        process = self.start(KILLED, command, step, source.url, target.url)
        process.communicate()
        self.assertEqual(process.returncode, -signal.SIGKILL)
        self.cluster.end_leases(self.server.url.rpartition("/")[2])

    def write_at(self, place: DatabasePlace, title: str, *, create: bool = False) -> str:
        """Return the code of the refusal, "" if the write was acknowledged."""
        if place != FILES:
            arguments = [title, "create"] if create else [title]
            return str(self.start(ONE_WRITE, *arguments, place=place).communicate()[0]).strip()
        try:
            self.write(title, create=create)
        except HubError as error:
            return error.code
        return ""

    def titles(self) -> set[str]:
        with self.store("alpha", create=False):
            return set(Memory.objects.values_list("title", flat=True))

    def read(self, place: DatabasePlace) -> dict[str, Any]:
        """Return the digests of the log and of all read models, and the anchor."""
        with Peer(place) as peer:
            peer.call("read", store="project:alpha")
            return {**peer.call("digests"), "anchor": peer.call("anchor", store="project:alpha")}

    def run_in(self, url: str, *arguments: str) -> Done:
        """Run a command with a value of the database's variable, which may be empty."""
        return Done(*forks.run(*arguments, **{env.DATABASE_VARIABLE: url}))

    def succeed_in(self, url: str, *arguments: str) -> str:
        done = self.run_in(url, *arguments)
        self.assertEqual(done.code, 0, done.errors)
        return done.output


EVENTS = rounds(300, long=10_000)
# Steps before which the process that moves is killed; joined ones follow each other
KILLED_BEFORE = ("leave+close", "arrive", "mark_left")
KILLED_BEFORE_TOO = ("leave", "create_draft", "draft", "take", "complete", "hold", "digests", "put_marks")
# Writes until the store has gone, and prints what was acknowledged and how it ended.
WRITER = f"""{PROGRAM}
name, written = sys.argv[1], []
print("begun", flush=True)
try:
    while True:
        with use_store(project_store("alpha")):
            text = f"{{name}} {{len(written)}}"
            written.append(write_memory(command=MemoryWrite(title=text, content=f"while it moves: {{text}}")).id)
except HubError as error:
    print(json.dumps([written, error.code, error.message]))
"""
# Moves or undoes a move, and dies before a step
KILLED = f"""{PROGRAM}
command, steps, *urls = sys.argv[1:]
seen = []
class Killed(switching.Peer):
    def ask(self, name, **arguments):
        seen.append(name)
        if "+".join(seen).endswith(steps):
            os.kill(os.getpid(), signal.SIGKILL)
        super().ask(name, **arguments)
switching.Peer = Killed
acts = {{"move": service.move, "undo": service.undo}}
acts[command](project_store("alpha"), *[switching.DatabasePlace("", url) for url in urls])
"""


@tag("process")
class HubTablesTests(HubTestCase):
    def test_a_copy_that_was_interrupted_is_finished(self) -> None:
        rows = {
            "default": [{"model": "auth.user", "pk": 7001, "fields": {"username": "maya", "password": "!"}}],
            "jobs": [{"model": "django_q.schedule", "pk": 7001, "fields": {"name": "kept", "func": "print"}}],
        }
        for dies_at in (2, 1, 0):
            numbers = itertools.count(1)

            def call(*arguments: Any, dies_at: int = dies_at, numbers: Any = numbers, **options: Any) -> None:
                if next(numbers) == dies_at:
                    raise SystemExit
                call_command(*arguments, **options)

            with (
                mock.patch("sys.stdin", io.StringIO(json.dumps(rows))),
                mock.patch("memoryhub.ops.hub_databases.call_command", call),
                self.assertRaises(SystemExit) if dies_at else nullcontext(),
            ):
                hub_databases._load()
        self.assertTrue(User.objects.filter(username="maya").exists())
        self.assertTrue(Schedule.objects.filter(name="kept").exists())


@tag("process")
class MovingTests(MovingTestCase):
    def test_a_store_goes_there_and_back_with_equal_digests(self) -> None:
        self.fill(EVENTS)
        with self.store("alpha"):
            log.erase_streams(["memory:1"], reason="a word")
        before = self.read(FILES)
        self.move()
        self.assertEqual(list_projects(), [])
        self.assertEqual(self.read(self.server), before)
        self.confirm()
        self.assertFalse(stores.exists(ALPHA))

        self.move_back()
        with self.store("alpha", create=False):  # what a redaction could not look into
            (kept,) = unproven()
            self.assertIn(self.server.url.rpartition("@")[2], kept.where)
        confirm(ALPHA, self.server, FILES)
        self.assertEqual(self.read(FILES), before)
        with self.store("alpha", create=False):
            self.assertEqual(unproven(), [])
            verification = log.verify()
            self.assertTrue(verification.ok, verification.describe())
        role = f"hub_{self.server.url.rpartition('/')[2]}_project_alpha"
        self.assertEqual(self.cluster.execute("SELECT rolname FROM pg_roles WHERE rolname = %s", [role]), [])

    def test_writers_lose_nothing_and_end_with_one_sentence(self) -> None:
        self.fill(EVENTS)
        writers = [self.start(WRITER, name) for name in ("first", "second")]
        for writer in writers:
            assert writer.stdout
            self.assertEqual(writer.stdout.readline(), "begun\n")
        events = self.move().events
        ends = [json.loads(writer.communicate()[0]) for writer in writers]
        for _, code, message in ends:
            self.assertEqual((code, message.count(".")), ("moved", message.split("#")[0].count(".")))
            self.assertIn("has moved to postgresql://127.0.0.1", message)
        acknowledged = [position for positions, _, _ in ends for position in positions]
        self.assertEqual(events, EVENTS + len(acknowledged))
        self.move_back()
        with self.store("alpha", create=False):
            self.assertEqual(Memory.objects.filter(id__in=acknowledged).count(), len(acknowledged))

    def test_a_late_writer_inside_its_block_is_refused(self) -> None:
        self.write("early")
        with self.store("alpha"):
            self.move()
            with self.assertRaisesRegex(Moved, "'alpha' has moved to postgresql://127.0.0.1"):
                self.write("late")
        with self.assertRaises(Moved), self.store("alpha", create=True):
            pass
        self.confirm()

    def test_a_killed_move_leaves_one_place_that_takes_writes(self) -> None:
        self.write("early")
        for number, step in enumerate((*KILLED_BEFORE, *(KILLED_BEFORE_TOO if is_long() else ()))):
            source, target = (FILES, self.server) if number % 2 == 0 else (self.server, FILES)
            with self.subTest(killed_before=step, to=target.name or "server"):
                self.run_until_killed("move", step, source, target)
                taking = [place for place in (source, target) if not self.write_at(place, f"after {step}")]
                # Between the fence and the arrival neither takes writes, until the move is run again
                self.assertEqual(taking, {"arrive": [], "mark_left": [target]}.get(step, [source]))
                move(ALPHA, source, target)
                self.assertEqual(self.write_at(target, f"later {step}"), "")
                self.assertEqual(self.write_at(source, "late"), "moved")
        self.assertEqual(self.read(target)["raw_events"][0], 1 + 2 * (number + 1) - 1)

    def test_undo_goes_back_and_takes_along_what_was_written(self) -> None:
        self.write("early")
        before = self.read(FILES)
        self.move()
        self.undo()
        self.assertEqual(self.read(FILES), before)
        self.write("between")

        self.move()
        self.assertEqual(self.write_at(self.server, "there"), "")
        self.undo()
        self.assertEqual(self.titles(), {"early", "between", "there"})
        confirm(ALPHA, self.server, FILES)
        with self.assertRaises(NotFound):
            undo(ALPHA, self.server, FILES)

    def test_a_place_with_such_a_store_is_refused(self) -> None:
        self.write("here")
        self.assertEqual(self.write_at(self.server, "there", create=True), "")
        with self.assertRaisesRegex(ConflictError, "there is a project 'alpha' in .* already"):
            self.move()
        self.write("still here")
        with self.assertRaises(NotFound):
            move(project_store("beta"), FILES, self.server)

    def test_the_command_names_places(self) -> None:
        self.enterContext(mock.patch.object(switching, "subprocess", subprocess))  # processes as a user has them
        self.write("early")
        with self.assertRaisesRegex(Exception, "name the place to move to"):
            call_command("move", "alpha")
        with self.assertRaisesRegex(Exception, "'mars' is no place"):
            call_command("move", "alpha", "--to", "mars")
        (self.home / "config.toml").write_text(f'[servers]\nmars = "{self.server.url}"\n')
        call_command("move", "alpha", "--to", "mars", stdout=io.StringIO(), stderr=io.StringIO())
        self.assertEqual(list_projects(), [])
        call_command("move", "alpha", "--undo", stdout=io.StringIO())
        self.assertEqual(list_projects(), ["alpha"])

    def test_all_takes_tokens_along_once(self) -> None:
        self.migrate_files()
        self.write("early")
        self.succeed_in("sqlite", "token", "create", "--name", "bot", "--project", "alpha")
        for _ in range(2):
            self.succeed_in("sqlite", "move", "--all", "--to", self.server.url)
        self.assertIn("bot may read in alpha", self.succeed_in(self.server.url, "token", "list"))
        self.assertIn("alpha", self.succeed_in(self.server.url, "project", "list"))
        self.assertEqual(list_projects(), [])


class Interrupted(Exception):
    pass


@tag("attack")
class RacesTests(MovingTestCase):
    """The lease is lost, for example while its process is stopped, and a second command works on the store."""

    def setUp(self) -> None:
        super().setUp()
        self.write("early")
        self.later_titles = (f"later {number}" for number in itertools.count())

    def race(
        self,
        command: Callable[[], object],
        step: str,
        other: Callable[[], object],
        *,
        after: bool = False,
        locked: bool = False,
        refused: AbstractContextManager[object] | None = None,
    ) -> None:
        """Run a command, and another one before a step of it, or after that; the first one may be refused."""
        others, called = [other], Peer.call

        def call(peer: Peer, name: str, **arguments: Any) -> Any:
            is_due = name == step
            if is_due and others and not after:
                others.pop()()
            result = called(peer, name, **arguments)
            if is_due and others:
                others.pop()()
            return result

        lock = nullcontext() if locked else mock.patch.object(switching, "lock")
        with mock.patch.object(Peer, "call", call), lock, refused or nullcontext():
            command()
        self.assertEqual(others, [], "the step was not reached")

    def interrupt(self, command: Callable[[], object], step: str) -> None:
        self.race(command, step, mock.Mock(side_effect=Interrupted), refused=self.assertRaises(Interrupted))

    def assert_only(self, place: DatabasePlace) -> None:
        taking = [each for each in (FILES, self.server) if not self.write_at(each, next(self.later_titles))]
        self.assertEqual(taking, [place])

    def test_two_commands_that_finish_the_same_move_agree(self) -> None:
        self.interrupt(self.move, "arrive")
        self.race(self.move, "arrive", self.move)
        self.assert_only(self.server)

    def test_a_move_does_not_arrive_after_it_was_undone(self) -> None:
        self.interrupt(self.move, "arrive")
        self.race(self.move, "arrive", self.undo, refused=self.assertRaisesRegex(ConflictError, "came back meanwhile"))
        self.assert_only(FILES)

    def test_a_move_cannot_arrive_once_its_undo_has_lifted_the_fence(self) -> None:
        self.interrupt(self.move, "arrive")
        with Peer(FILES) as peer:
            departure = peer.call("where", store="project:alpha")["departure"]

        def arrive() -> None:
            departed = {name: departure[name] for name in ("epoch", "position", "digest")}
            with Peer(self.server) as peer, self.assertRaises(ConflictError):
                peer.call("arrive", store="project:alpha", **departed)

        self.race(self.undo, "come_back", arrive, after=True)
        self.assert_only(FILES)

    def test_an_undo_that_finds_the_store_arrived_brings_it_back(self) -> None:
        self.interrupt(self.move, "arrive")
        self.race(self.undo, "discard_draft", self.move)
        self.assert_only(FILES)

    def test_an_interrupted_undo_is_finished_before_another_move(self) -> None:
        self.move()
        self.interrupt(self.undo, "come_back")
        refused = self.assertRaisesRegex(ConflictError, "was moved or came back meanwhile")
        self.race(self.undo, "come_back", self.move, refused=refused)
        self.assert_only(self.server)

    def test_what_was_written_before_an_interrupted_way_back_is_kept(self) -> None:
        self.move()
        self.assertEqual(self.write_at(self.server, "there"), "")
        self.interrupt(self.move_back, "arrive")
        self.move()
        self.assert_only(self.server)
        self.assertEqual(self.read(self.server)["raw_events"][0], 3)

    def test_a_confirmation_does_not_remove_what_has_come_back(self) -> None:
        self.move()
        refused = self.assertRaisesRegex(ConflictError, "came back meanwhile")
        self.race(self.confirm, "remove_kept", self.undo, refused=refused)
        self.assert_only(FILES)

    def test_an_interrupted_undo_is_finished_from_the_place_that_it_leaves(self) -> None:
        self.move()
        self.confirm()
        self.move_back()
        self.interrupt(lambda: undo(ALPHA, self.server, FILES), "remove_kept")
        way = last_way(ALPHA, self.server)
        undo(ALPHA, way.source, way.target)
        self.assert_only(self.server)

    def test_an_interrupted_confirmation_is_finished(self) -> None:
        self.move()
        self.interrupt(self.confirm, "settle")
        self.confirm()
        with Peer(self.server) as peer:
            self.assertIsNone(peer.call("where", store="project:alpha")["arrival"])
        with self.assertRaisesRegex(NotFound, "is confirmed already"):
            self.confirm()

    def test_one_command_at_a_time_moves_a_store(self) -> None:
        def others() -> None:
            for command in (self.move, self.undo, self.confirm):
                refused = self.assertRaisesRegex(Locked, "another `memory-hub move` works on project:alpha")
                with mock.patch.object(switching, "_LOCK_SECONDS", 0.0), refused:
                    command()

        self.interrupt(self.move, "arrive")
        self.race(self.move, "arrive", others, locked=True)
        self.assert_only(self.server)


class MovedTestCase(MovingTestCase):
    """A store with a backup and a bundle, and a database that has the hub's tables."""

    has_hub_tables = True

    def setUp(self) -> None:
        super().setUp()
        self.write("early")
        with self.store("alpha"):
            self.backup = back_up_store().path
            self.bundle = self.home / "alpha.bundle"
            create_bundle(self.bundle)


@tag("process")
class MovedFromFilesTests(MovedTestCase):
    def assert_nothing_lost(self) -> None:
        self.assertEqual([finding.what for finding in examine_hub() if "gone" in finding.what], [])

    def assert_nothing_revives(self) -> None:
        bundle = open_bundle(self.bundle, lambda: "")
        for act in (
            lambda: restore(store=ALPHA, source=self.backup, replace=True),
            lambda: log.accept_loss(store=ALPHA),
            lambda: preview_bundle(bundle, ALPHA),
            lambda: apply_bundle(bundle, ALPHA),
            lambda: self.write("late"),
        ):
            with self.assertRaisesRegex(Moved, "'alpha' has moved to postgresql://127.0.0.1"):
                act()
        self.assertEqual(list_projects(), [])

    def test_nothing_but_a_move_revives_it(self) -> None:
        self.move()
        self.assert_nothing_lost()
        self.assert_nothing_revives()
        self.confirm()
        self.assertFalse(stores.exists(ALPHA))
        self.assert_nothing_lost()
        self.assert_nothing_revives()
        repairs = json.dumps([finding.repair for finding in examine_store(ALPHA)[0]])
        self.assertNotIn("memory-hub restore", repairs)
        with self.assertRaisesRegex(Exception, "'alpha' has moved to postgresql://127.0.0.1"):
            call_command("doctor", "--project", "alpha")
        self.move_back()
        self.write("back")
        self.assertEqual(list_projects(), ["alpha"])

    def test_a_person_can_forget_that_it_has_moved(self) -> None:
        self.move()
        with self.assertRaisesRegex(Exception, "confirm or undo"):
            call_command("move", "alpha", "--forget")
        self.confirm()
        call_command("move", "alpha", "--forget", stdout=io.StringIO())
        self.assertEqual(restore(store=ALPHA, source=self.backup).events, 1)
        with self.assertRaisesRegex(Exception, "has not moved"):
            call_command("move", "alpha", "--forget")

    def test_a_store_that_has_moved_does_not_move_to_a_third_place(self) -> None:
        third = DatabasePlace("", self.enterContext(self.cluster.database()))
        self.move()
        for refused in ((Moved,), (Moved, NotFound)):
            with self.assertRaisesRegex(Moved, "'alpha' has moved to postgresql://127.0.0.1"):
                move(ALPHA, FILES, third)
            with self.assertRaises(refused):
                undo(ALPHA, FILES, third)
            taking = [place for place in (FILES, self.server, third) if not self.write_at(place, "later")]
            self.assertEqual((taking, list_projects()), ([self.server], []))
            if places.kept_stores():
                self.confirm()

    def test_an_interrupted_undo_loses_nothing_of_the_new_place(self) -> None:
        self.move()
        self.assertEqual(self.write_at(self.server, "there"), "")
        self.run_until_killed("undo", "arrive", FILES, self.server)
        self.move()
        self.assertEqual(list_projects(), [])
        self.undo()
        self.assertEqual(self.titles(), {"early", "there"})

    def test_what_has_moved_is_named_by_the_next_move(self) -> None:
        for step in (self.move, self.confirm):
            step()
            for url in ("sqlite", self.server.url):
                done = self.run_in(url, "move", "alpha", "--to", self.server.url)
                self.assertRegex(done.output + done.errors, r"alpha'? (ha[sd] moved|is in)")
                self.assertIn("already", done.output + done.errors)

    def test_what_a_move_prints_can_be_run_in_both_places(self) -> None:
        for place in ("sqlite", self.server.url):
            output = self.succeed_in("sqlite", "move", "alpha", "--to", self.server.url)
            confirmation, undo_command, *_ = re.findall("`memory-hub ([^`]*)`", output)
            self.succeed_in(place, *shlex.split(undo_command))
            self.assertEqual(list_projects(), ["alpha"])
            self.move()
            self.succeed_in(place, *shlex.split(confirmation))
            self.assertEqual(places.kept_stores(), [])
            self.move_back()
            confirm(ALPHA, self.server, FILES)

    def test_a_home_follows_a_move_of_all_its_stores(self) -> None:
        self.migrate_files()
        with mock.patch.dict(os.environ, {env.DATABASE_VARIABLE: ""}):
            self.succeed_in(self.server.url, "status")
            self.assertEqual(recorded(), "")
            output = self.succeed_in("", "move", "--all", "--to", self.server.url)
            self.assertIn(f"to work there, set database_url in {self.home}/config.toml to its address", output)
            self.assertEqual(recorded(), display_url(self.server.url))
            self.assertEqual(self.run_in("", "project", "create", "beta").code, 8)
            self.succeed_in(self.server.url, "project", "create", "beta")
            self.succeed_in("", "move", "--all", "--confirm", "--to", self.server.url)

            self.succeed_in(self.server.url, "move", "--all", "--to", "sqlite")
            refused = self.run_in(self.server.url, "project", "create", "gamma")
            self.assertIn(f"unset {env.DATABASE_VARIABLE}", refused.errors)
            self.succeed_in("", "project", "create", "gamma")
            self.succeed_in(self.server.url, "move", "--all", "--undo", "--to", "sqlite")
            self.assertEqual(recorded(), display_url(self.server.url))

    def test_one_moved_project_leaves_the_home_where_it_is(self) -> None:
        self.move()
        self.assertEqual(recorded(), "")
        with self.store("beta"):
            write_memory(command=MemoryWrite(title="b", content="in files"))
        first = self.run_in(self.server.url, "project", "create", "gamma")
        self.assertEqual(first.code, 0, first.errors)
        self.assertIn("its stores in files stay there", first.errors)
        self.assertEqual(recorded(), display_url(self.server.url))
        self.assertEqual(self.run_in("", "project", "list").code, 8)
        self.assertIn("beta", self.succeed_in("sqlite", "project", "list"))

    def test_a_password_is_not_printed(self) -> None:
        url = self.server.url.replace("hub@", "hub:secret@")
        output = self.succeed_in("sqlite", "move", "alpha", "--to", url)
        self.assertIn(" --confirm --to postgresql://hub:PASSWORD@127.0.0.1", output)
        self.assertNotIn("secret", output)


@tag("process")
class MovedFromServerTests(MovedTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.move()
        self.confirm()
        self.succeed_in(self.server.url, "backup")
        (self.server_backup,) = (self.home / "backups" / "project-alpha").glob("*.bundle")

    def doctor(self, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
        done = self.run_in(self.server.url, "doctor", "--json", *arguments)
        return done.code, json.loads(done.output or "[]")

    def test_a_store_that_went_to_files_stays_there(self) -> None:
        bundle = str(self.server_backup)
        for act in (move, confirm):
            act(ALPHA, self.server, FILES)
            with self.subTest(act.__name__):
                self.assertNotIn("gone", json.dumps(self.doctor()))
                for arguments in (
                    ("bundle", "apply", bundle),
                    ("bundle", "apply", "--preview", bundle),
                    ("doctor", "--project", "alpha", "--accept-loss", "why"),
                    ("doctor", "--project", "alpha"),
                    ("project", "create", "alpha"),
                ):
                    refused = self.run_in(self.server.url, *arguments)
                    self.assertEqual(refused.code, Moved.exit_code, (arguments, refused))
                    self.assertIn("'alpha' has moved to /", refused.errors)
        self.succeed_in(self.server.url, "move", "alpha", "--forget")
        self.succeed_in(self.server.url, "bundle", "apply", bundle)

    def test_the_doctor_examines_each_backup_as_what_it_is_and_misses_no_store_in_files(self) -> None:
        with self.store("beta"):
            write_memory(command=MemoryWrite(title="beta", content="only in files"))
            back_up_store()
        self.assertEqual(self.doctor("--deep"), (0, []))
        self.server_backup.write_bytes(self.server_backup.read_bytes()[:-40])
        code, findings = self.doctor()
        self.assertEqual((code, len(findings)), (15, 1))
        self.assertIn(f"the backup {self.server_backup.name} cannot be restored: ", findings[0]["what"])

    def test_commands_name_the_database(self) -> None:
        url = re.sub("//.*@", "//", self.server.url)
        self.assertIn(f"Database:   {url}\n", self.succeed_in(self.server.url, "status"))
        self.assertIn("Database:   SQLite files in the home folder\n", self.succeed_in("sqlite", "status"))
        self.assertIn(f"the database {url}: its server was checked\n", self.succeed_in(self.server.url, "doctor"))
        variables = {**os.environ, **UNMEASURED, env.DATABASE_VARIABLE: self.server.url, "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", "memoryhub.cli", "serve", "--port", "0", "--no-worker"]
        with subprocess.Popen(command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            line = process.stdout.readline()
            process.terminate()
            process.stdout.read()
        self.assertRegex(line, f"^Memory Hub serves {self.home} with {re.escape(url)} at http://127")
