"""Real stores, processes and a real PostgreSQL: a store moves, and exactly one place takes its writes."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from unittest import mock

from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import tag
from django_q.models import Schedule

from governance.redaction.copies import unproven
from memories.models import Memory
from memoryhub.core import log
from memoryhub.core.backends.selected import stores
from memoryhub.core.errors import Conflict, Moved, NotFound
from memoryhub.core.stores.store import list_projects, project_store
from memoryhub.ops import hub_tables
from memoryhub.transfer.moving.ending import confirm, undo
from memoryhub.transfer.moving.moving import move
from memoryhub.transfer.moving.peer import Place
from tests.support import HubTestCase
from tests.torture.rounds import is_long, rounds
from tests.transfer.moving_case import ALPHA, FILES, START, MovingTestCase

EVENTS = rounds(300, long=10_000)
# Steps before which the process that moves is killed; joined ones follow each other
KILLED_BEFORE = ("leave+close", "arrive", "mark_left")
KILLED_BEFORE_TOO = ("leave", "create_draft", "draft", "take", "complete", "hold", "digests", "put_marks")
# Writes until the store has gone, and prints what was acknowledged and how it ended.
WRITER = f"""{START}
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
KILLED = f"""{START}
wanted, seen = sys.argv[1].split("+"), []
class Killed(peer.Peer):
    def ask(self, name, **arguments):
        seen.append(name)
        if seen[-len(wanted):] == wanted:
            os.kill(os.getpid(), signal.SIGKILL)
        super().ask(name, **arguments)
switching.Peer = Killed
places = [peer.Place("", url) for url in sys.argv[2:]]
moving.move(project_store("alpha"), *places)
"""


@tag("process")
class HubTablesTests(HubTestCase):
    def test_a_copy_that_was_interrupted_is_finished(self) -> None:
        rows = {
            "default": [{"model": "auth.user", "pk": 7001, "fields": {"username": "maya", "password": "!"}}],
            "jobs": [{"model": "django_q.schedule", "pk": 7001, "fields": {"name": "kept", "func": "print"}}],
        }
        for dies_at in (2, 1, 0):
            with (
                mock.patch("sys.stdin", io.StringIO(json.dumps(rows))),
                mock.patch("django.core.management.call_command", dying_at(dies_at)),
                self.assertRaises(SystemExit) if dies_at else nullcontext(),
            ):
                hub_tables._load()
        self.assertTrue(User.objects.filter(username="maya").exists())
        self.assertTrue(Schedule.objects.filter(name="kept").exists())


def dying_at(number: int) -> Callable[..., None]:
    calls = []

    def call(*arguments: Any, **options: Any) -> None:
        calls.append(arguments)
        if len(calls) == number:
            raise SystemExit
        call_command(*arguments, **options)

    return call


@tag("process")
class MovingTests(MovingTestCase):
    def test_a_store_goes_there_and_back_with_equal_digests(self) -> None:
        self.fill(EVENTS)
        before = self.read(FILES)
        move(ALPHA, FILES, self.server)
        self.assertEqual(list_projects(), [])
        self.assertEqual(self.read(self.server), before)
        confirm(ALPHA, FILES, self.server)
        self.assertFalse(stores.exists(ALPHA))

        move(ALPHA, self.server, FILES)
        with self.store("alpha", create=False):  # what a redaction could not look into
            (kept,) = unproven()
            self.assertIn(self.server.url.rpartition("@")[2], kept.where)
        confirm(ALPHA, self.server, FILES)
        self.assertEqual(self.read(FILES), before)
        with self.store("alpha", create=False):
            self.assertEqual(unproven(), [])
            found = log.verify()
            self.assertTrue(found.ok, found.describe())
        role = f"hub_{self.server.url.rpartition('/')[2]}_project_alpha"
        self.assertEqual(self.cluster.execute("SELECT rolname FROM pg_roles WHERE rolname = %s", [role]), [])

    def test_writers_lose_nothing_and_end_with_one_sentence(self) -> None:
        self.fill(EVENTS)
        writers = [self.start(WRITER, name) for name in ("first", "second")]
        for writer in writers:
            assert writer.stdout
            self.assertEqual(writer.stdout.readline(), "begun\n")
        moved = move(ALPHA, FILES, self.server)
        ended = [json.loads(writer.communicate()[0]) for writer in writers]
        for _, code, message in ended:
            self.assertEqual((code, message.count(".")), ("moved", message.split("#")[0].count(".")))
            self.assertIn("has moved to postgresql://127.0.0.1", message)
        acknowledged = [position for written, _, _ in ended for position in written]
        self.assertEqual(moved.events, EVENTS + len(acknowledged))
        move(ALPHA, self.server, FILES)
        with self.store("alpha", create=False):
            self.assertEqual(Memory.objects.filter(id__in=acknowledged).count(), len(acknowledged))

    def test_a_late_writer_inside_its_block_is_refused(self) -> None:
        self.write("early")
        with self.store("alpha"):
            move(ALPHA, FILES, self.server)
            with self.assertRaisesRegex(Moved, "'alpha' has moved to postgresql://127.0.0.1"):
                self.write("late")
        with self.assertRaises(Moved), self.store("alpha", create=True):
            pass
        confirm(ALPHA, FILES, self.server)

    def test_a_killed_move_leaves_one_place_that_takes_writes(self) -> None:
        self.write("early")
        for number, step in enumerate((*KILLED_BEFORE, *(KILLED_BEFORE_TOO if is_long() else ()))):
            source, target = (FILES, self.server) if number % 2 == 0 else (self.server, FILES)
            with self.subTest(killed_before=step, to=target.name or "server"):
                killed = self.start(KILLED, step, source.url, target.url)
                killed.communicate()
                self.assertEqual(killed.returncode, -signal.SIGKILL)
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
        move(ALPHA, FILES, self.server)
        undo(ALPHA, FILES, self.server)
        self.assertEqual(self.read(FILES), before)
        self.write("between")

        move(ALPHA, FILES, self.server)
        self.assertEqual(self.write_at(self.server, "there"), "")
        undo(ALPHA, FILES, self.server)
        with self.store("alpha", create=False):
            titles = set(Memory.objects.values_list("title", flat=True))
        self.assertEqual(titles, {"early", "between", "there"})
        confirm(ALPHA, self.server, FILES)
        with self.assertRaises(NotFound):
            undo(ALPHA, self.server, FILES)

    def test_erased_text_stays_erased(self) -> None:
        (memory,) = self.write("the launch word is heliotrope")
        with self.store("alpha"):
            log.erase_streams([f"memory:{memory}"], reason="a word")
        before = self.read(FILES)
        move(ALPHA, FILES, self.server)
        self.assertEqual(self.read(self.server), before)

    def test_a_place_with_such_a_store_is_refused(self) -> None:
        self.write("here")
        self.assertEqual(self.write_at(self.server, "there", create=True), "")
        with self.assertRaisesRegex(Conflict, "there is a project 'alpha' in .* already"):
            move(ALPHA, FILES, self.server)
        self.write("still here")
        with self.assertRaises(NotFound):
            move(project_store("beta"), FILES, self.server)

    def test_the_command_names_places(self) -> None:
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
        self.write("early")
        self.run_command("token", "create", "--name", "bot", "--project", "alpha")
        for _ in range(2):
            self.run_command("move", "--all", "--to", self.server.url)
        self.assertIn("bot may read in alpha", self.run_command("token", "list", place=self.server))
        self.assertIn("alpha", self.run_command("project", "list", place=self.server))
        self.assertEqual(list_projects(), [])

    def run_command(self, *arguments: str, place: Place = FILES) -> str:
        program = "import sys; from memoryhub.cli import main; sys.exit(main(['memory-hub', *sys.argv[1:]]))"
        process = self.start(program, *arguments, place=place, settings="memoryhub.settings")
        printed = process.communicate()[0]
        self.assertEqual(process.returncode, 0)
        return printed
