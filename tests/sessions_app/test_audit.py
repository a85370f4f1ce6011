"""The audit: the log comes back the same at every door, and whatever was changed in its file is found."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from contextlib import closing, suppress
from io import StringIO
from pathlib import Path

from django.core.management import call_command
from django.test import tag

from memories.schemas import MemoryWrite
from memories.services import write_memories, write_memory
from memoryhub.core import log
from memoryhub.core.backends import selected
from memoryhub.core.backends.sqlite.anchors import anchor_path
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.errors import HubError, Invalid
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import project_store, use_store
from memoryhub.core.tools import Answer, find_tool
from memoryhub.mcp.listing import load_tools
from sessions_app.audit import AuditReplay, replay_lines, replay_page, verify_log
from sessions_app.schemas import EventAppend, SessionStart, TurnBegin, TurnEnd
from sessions_app.services import start_session
from sessions_app.services.turns import append_event, begin_turn, end_turn
from tests import tampering
from tests.api.client import RestTestCase
from tests.core.test_log import StoreTestCase
from tests.databases import sqlite_only
from tests.support import HubTestCase, forget_all_stores

ALPHA = project_store("alpha")


def fill(count: int) -> None:
    write_memories(commands=[MemoryWrite(title=f"Note {n}", content=f"text number {n}") for n in range(count)])


def write_a_story() -> None:
    """A session with two turns, and a memory outside of both."""
    start_session(command=SessionStart(session_id="s1", purpose="fix the log"))
    for turn, words in (("t1", "why is it slow?"), ("t2", "make it fast")):
        token = begin_turn(command=TurnBegin(session_id="s1", turn_id=turn)).ack_token
        append_event(command=EventAppend(ack_token=token, type="message.user", payload={"content": words}))
        end_turn(command=TurnEnd(ack_token=token))
    write_memory(command=MemoryWrite(title="Outside", content="of any turn"))


def ask(tool: str, **arguments: object) -> Answer:
    load_tools()
    found = find_tool(tool)
    assert found
    return found.handler(found.input.model_validate(arguments))


def canonical(event: object) -> str:
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False)


@tag("backend")
class ReplayTests(StoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        write_a_story()

    def positions(self, **window: object) -> list[int]:
        return [event["position"] for event in replay_page(command=AuditReplay(**window)).results]

    def test_a_window_is_chosen_by_what_belongs_together_and_by_time(self) -> None:
        times = [row[0] for row in rows.fetch("SELECT occurred_at FROM raw_events ORDER BY position", [])]
        for window, positions in (
            ({"turn_id": "t2"}, [5, 6, 7]),
            ({"session_id": "s1", "type": ["turn.began", "turn.ended"]}, [2, 4, 5, 7]),
            ({"stream": "memory:8"}, [8]),
            ({"after": 2, "up_to": 4}, [3, 4]),
            ({"until": times[0]}, []),
            ({"since": times[0]}, list(range(1, 9))),
        ):
            with self.subTest(**window):
                self.assertEqual(self.positions(**window), positions)
        self.assertIn(8, self.positions(since=times[7]))

    def test_pages_join_to_the_whole_and_say_how_much_there_is(self) -> None:
        whole, cursor, seen = self.positions(), None, []
        while True:
            listing = replay_page(command=AuditReplay(limit=3, cursor=cursor))
            self.assertEqual(listing.meta.total_count, 8)
            seen += [event["position"] for event in listing.results]
            if not (cursor := listing.meta.next_cursor):
                break
        self.assertEqual(seen, whole)

    def test_json_is_the_canonical_lines_whatever_came_after_the_windows_end(self) -> None:
        before = ask("audit_replay", up_to=8).data
        lines = [canonical(event) for event in before["results"]]
        self.assertEqual(lines, list(replay_lines(command=AuditReplay())))
        fill(3)
        self.assertEqual(json.dumps(ask("audit.replay", up_to=8).data), json.dumps(before))

    def test_text_has_a_line_per_event_and_the_cursor(self) -> None:
        first, second, end = ask("audit_replay", turn_id="t1", limit=2).text.splitlines()
        self.assertRegex(first, r"^#2 \d{4}-.+Z turn\.began turn:s1/t1/1 by ada via service session=s1 turn=t1 t1$")
        self.assertTrue(second.endswith("why is it slow?"))
        self.assertIn("2 of 3; more: cursor=", end)
        log.erase_streams(["memory:8"], reason="asked")
        self.assertIn("memory.written memory:8/1 by ada via service (erased)", ask("audit_replay", after=7).text)

    def test_a_cursor_of_another_list_is_refused(self) -> None:
        with self.assertRaisesMessage(Invalid, "cursor is not one that this list gave"):
            replay_page(command=AuditReplay(cursor="bm9uc2Vuc2U"))


class DoorTests(RestTestCase):
    def test_the_command_and_rest_give_the_canonical_lines_of_their_own_project_alone(self) -> None:
        with self.store("alpha"):
            write_a_story()
            lines = list(replay_lines(command=AuditReplay(turn_id="t1", type=["turn.began", "turn.ended"])))
        path = "events?turn_id=t1&type=turn.began&type=turn.ended"
        results = self.call("GET", f"projects/alpha/{path}").data["results"]
        self.assertEqual([canonical(event) for event in results], lines)
        self.assertEqual(self.call("GET", f"projects/beta/{path}").data["results"], [])
        output = StringIO()
        call_command("replay", "--project", "alpha", "--turn", "t1", "--type", "turn.began", stdout=output)
        self.assertEqual(output.getvalue().splitlines(), lines[:1])


class CheckpointTests(StoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        fill(5)
        self.file = self.home / "elsewhere" / "alpha.json"
        self.file.parent.mkdir()

    def cut_tail(self) -> None:
        """Remove the last event, and the anchor that would reveal it."""
        tampering.change(ALPHA, "DELETE FROM raw_events WHERE position = 5")
        selected.anchors.remove(ALPHA)

    def test_the_first_time_it_is_written_privately_and_then_compared(self) -> None:
        first = verify_log(checkpoint=self.file)
        self.assertEqual((first.compared, first.written.position), (None, 5))  # type: ignore[union-attr]
        self.assertEqual(self.file.stat().st_mode & 0o777, 0o600)
        fill(2)
        second = verify_log(checkpoint=self.file)
        self.assertTrue(second.verification.ok)
        self.assertEqual((second.compared.position, second.written), (5, None))  # type: ignore[union-attr]

    def test_a_tail_that_is_cut_together_with_the_anchor_or_rewritten_is_detected(self) -> None:
        verify_log(checkpoint=self.file)
        content = self.file.read_text()
        self.cut_tail()
        self.assertIn("in the read models", log.verify().ahead)
        report = verify_log(checkpoint=self.file, new_checkpoint=self.file)
        self.assertEqual(
            (report.verification.ok, report.verification.broken_position, report.written), (False, 5, None)
        )
        self.assertIn("in the checkpoint; its tail was cut", report.verification.reason)
        self.assertEqual(self.file.read_text(), content)
        log.rebuild()
        write_memory(command=MemoryWrite(title="Another", content="that never was"))
        rewritten, reason = (
            verify_log(checkpoint=self.file).verification,
            "its digest differs from the one in the checkpoint",
        )
        self.assertEqual((rewritten.broken_position, rewritten.reason), (5, reason))

    def test_a_checkpoint_of_another_project_and_a_file_that_holds_none_are_refused(self) -> None:
        verify_log(checkpoint=self.file)
        with self.store("beta"), self.assertRaisesMessage(Invalid, "the checkpoint belongs to project 'alpha'"):
            verify_log(checkpoint=self.file)
        for content in ("", "[]", '{"position": 3}', '{"position": "x", "store": "alpha"}'):
            self.file.write_text(content)
            with self.subTest(content), self.assertRaisesMessage(Invalid, "is not a checkpoint"):
                verify_log(checkpoint=self.file)

    def test_the_command_writes_compares_and_ends_with_its_own_code(self) -> None:
        for option, line in (
            ("--checkpoint", "checkpoint written at #5"),
            ("--checkpoint", "agrees with the checkpoint at #5"),
            ("--write-checkpoint", "checkpoint written at #6"),
        ):
            if line.endswith("6"):
                fill(1)
            output = StringIO()
            call_command("verify", "--project", "alpha", option, str(self.file), stdout=output)
            self.assertIn(line, output.getvalue())
        self.cut_tail()
        with self.assertRaises(SystemExit) as ended:
            call_command("verify", "--project", "alpha", "--checkpoint", str(self.file), stdout=StringIO())
        self.assertEqual(ended.exception.code, 11)

    def test_the_tool_reports_its_findings(self) -> None:
        self.assertIn("the chain holds: 5 events", ask("audit_verify").text)
        self.cut_tail()
        tampering.change(ALPHA, "UPDATE raw_events SET actor = 'eve' WHERE position = 3")
        answer = ask("audit.verify")
        self.assertIn("the chain is broken at #3", answer.text)
        self.assertEqual(answer.data["broken_position"], 3)


COLUMNS = [field.column for field in RawEvent._meta.fields if not field.primary_key]


def fill_all_columns(count: int) -> None:
    with use_origin(session_id="s1", turn_id="t1", trace_id="trace-1"):
        for n in range(count):
            write_memory(command=MemoryWrite(title=f"Note {n}", content=f"text {n}", idempotency_key=f"key-{n}"))


@tag("backend")
class ChangedColumnTests(StoreTestCase):
    EVENTS = 20

    def test_a_changed_character_in_any_column_is_detected(self) -> None:
        fill_all_columns(self.EVENTS)
        chance = random.Random(20261121)
        for column in COLUMNS:
            position = chance.randrange(1, self.EVENTS + 1)
            ((value,),) = rows.fetch(f"SELECT {column} FROM raw_events WHERE position = %s", [position])
            changed = value + 1_000_000 if isinstance(value, int) else flipped_text(value, chance)
            put = f"UPDATE raw_events SET {column} = %s WHERE position = {position}"
            tampering.change(ALPHA, put, parameters=[changed])
            found = log.verify()
            self.assertEqual((column, found.ok, found.broken_position), (column, False, position))
            tampering.change(ALPHA, put, parameters=[value])
            self.assertTrue(log.verify().ok)


@sqlite_only("a flipped byte of a file")
class FlippedByteTests(HubTestCase):
    """One byte of a copied store's log is changed; the audit names the event."""

    EVENTS = 60

    def setUp(self) -> None:
        super().setUp()
        with self.store("alpha"):
            fill_all_columns(self.EVENTS)
        forget_all_stores()
        with closing(sqlite3.connect(path_of(project_store("alpha")))) as connection:
            connection.execute("VACUUM")  # leaves one copy of each record in the file
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def copy(self) -> Path:
        """Return the file of beta, a fresh copy of alpha's store and anchor."""
        forget_all_stores()
        target = path_of(project_store("beta"))
        shutil.rmtree(target.parent, ignore_errors=True)
        target.parent.mkdir(parents=True)
        shutil.copyfile(path_of(project_store("alpha")), target)
        shutil.copyfile(anchor_path(project_store("alpha")), anchor_path(project_store("beta")))
        return target

    def verify(self) -> log.Verification:
        with use_store(project_store("beta")):
            return log.verify()

    def test_a_flipped_byte_that_changes_the_log_is_detected(self) -> None:
        chance = random.Random(412)
        original, places = self.rows_of(self.copy()), self.cells()
        self.assertTrue(self.verify().ok)
        changed = 0
        for _ in range(150):
            position, start, end = chance.choice(places)
            target = self.copy()
            content = bytearray(target.read_bytes())
            content[chance.randrange(start, end)] ^= 1 << chance.randrange(8)
            target.write_bytes(content)
            if self.rows_of(target) == original:
                continue  # the flipped bit does not concern the log
            changed += 1
            with suppress(HubError):  # SQLite itself refuses to open some
                found = self.verify()
                self.assertEqual((found.ok, found.broken_position), (False, position))
        self.assertGreater(changed, 120)

    def rows_of(self, path: Path) -> object:
        """Return the log as SQLite reads it, or the error that it gives; blobs and texts are distinguished."""
        with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
            try:
                return connection.execute("SELECT * FROM raw_events").fetchall()
            except sqlite3.DatabaseError as error:
                return str(error)

    def cells(self) -> list[tuple[int, int, int]]:
        """Return each event's position, and where its record lies in the file: the header's types and all values."""
        path = path_of(project_store("alpha"))
        content = path.read_bytes()
        with closing(sqlite3.connect(path)) as connection:
            found = connection.execute(
                "SELECT position, event_id || project_id || session_id, chain_digest || idempotency_key || trace_id "
                "FROM raw_events"
            ).fetchall()
        places = []
        for position, head, tail in found:
            stale = content.count(head.encode()) > 1 or content.count(tail.encode()) > 1  # in a page's free space
            if not stale:
                places.append((position, content.index(head.encode()) - 20, content.index(tail.encode()) + len(tail)))
        self.assertGreater(len(places), self.EVENTS // 2)
        return places


def flipped_text(text: str, chance: random.Random) -> str:
    place = chance.randrange(len(text))
    return f"{text[:place]}{chr(ord(text[place]) ^ 1)}{text[place + 1 :]}"
