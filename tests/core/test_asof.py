from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any
from unittest import mock

from django.core.management import call_command
from django.db import connections, transaction
from django.db.utils import OperationalError
from django.test import tag

from memories import services
from memories.models import Memory
from memories.schemas import MemoryGet, MemoryList, MemorySearch, MemoryTouch, MemoryUpdate, Stats
from memories.selectors import get_memories, list_memories, search
from memories.timeline import stats
from memoryhub.core import clock, log
from memoryhub.core.backends import selected
from memoryhub.core.errors import Forbidden, Locked, NotFound, Unavailable
from memoryhub.core.log import views
from memoryhub.core.log.copy import StoreDraft
from memoryhub.core.log.erase import wipe_free_space
from memoryhub.core.log.views import as_of, position_at
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.store import current_store
from memoryhub.core.tools import find_tool
from memoryhub.mcp.listing import load_tools
from tests import tampering
from tests.api.client import RestTestCase
from tests.core.test_log import StoreTestCase, write
from tests.databases import on_postgresql, postgresql_only, sqlite_only
from tests.server_processes import free_port

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
HIDDEN = "the colour of the door is vermilion"


def write_history(start: datetime = NOON) -> None:
    """One event a minute: #1 written, #2 written, #3 revises #1, #4 deletes #2."""
    steps: list[Any] = [
        lambda: write("Use WAL", "Readers never block.", tags=["storage"]),
        lambda: write("Tea", "Green, at four."),
        lambda: services.update_memory(command=MemoryUpdate(id=1, title="Use WAL mode", content="Readers never wait.")),
        lambda: services.delete_memory(command=MemoryTouch(id=2)),
    ]
    for minute, step in enumerate(steps):
        with clock.frozen(start + timedelta(minutes=minute)):
            step()


class PastTests(StoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        write_history()

    def titles(self, moment: object) -> list[str]:
        listing = list_memories(command=MemoryList(as_of=moment))
        return [memory["title"] for memory in listing.results]

    @tag("backend")
    def test_a_list_is_what_it_was_at_every_position_whatever_the_read_models_say(self) -> None:
        titles = [[], ["Use WAL"], ["Tea", "Use WAL"], ["Use WAL mode", "Tea"], ["Use WAL mode"]]
        rows.execute("UPDATE memories_memory SET title = 'wrong'")
        for position in (0, 1, 2, 3, 4, 1, 3, 0):
            self.assertEqual(self.titles(position), titles[position], position)
        with self.assertRaisesMessage(NotFound, "there is no position 5; the log ends at #4"):
            self.titles(5)

    @tag("backend")
    def test_a_view_that_another_process_has_removed_is_built_again(self) -> None:
        self.assertEqual(self.titles(1), ["Use WAL"])
        selected.views.remove_views([name for name, _ in selected.views.view_names(current_store())])
        self.assertEqual(self.titles(1), ["Use WAL"])

    def test_a_memory_and_the_stats_are_what_they_were(self) -> None:
        for moment, expected in (("#2", ("Readers never block.", 1, 1)), (3, ("Readers never wait.", 2, 2))):
            (memory,) = get_memories(command=MemoryGet(ids=[1], versions=True, as_of=moment))
            self.assertEqual((memory["content"], memory["version"], len(memory["versions"])), expected)
        with self.assertRaisesMessage(NotFound, "there is no memory #2"):
            get_memories(command=MemoryGet(ids=[2], as_of=1))
        then = stats(command=Stats(as_of=2))
        self.assertEqual((then["store"], then["events"], then["memories"]), ("alpha", 2, {"note": 2}))

    @tag("backend")
    def test_a_search_finds_what_was_there(self) -> None:
        for query, moment, ids in (("green", 3, [2]), ("green", 4, []), ("block", 2, [1]), ("block", 3, [])):
            hits = search(command=MemorySearch(query=query, as_of=moment)).results
            self.assertEqual([hit["id"] for hit in hits], ids, (query, moment))

    def test_a_time_means_the_last_event_until_then(self) -> None:
        self.assertEqual([position_at(NOON + timedelta(minutes=m)) for m in (-1, 0, 1.5, 3, 99)], [0, 1, 2, 4, 4])
        for moment, titles in (
            ("2026-11-20T12:01:30Z", ["Tea", "Use WAL"]),
            ("2026-11-20T12:00", ["Use WAL"]),
            ("2026-11-20T14:02:00+02:00", ["Use WAL mode", "Tea"]),
        ):
            self.assertEqual(self.titles(moment), titles, moment)

    @tag("backend")
    def test_every_table_is_what_it_was_and_the_present_is_current_again_afterwards(self) -> None:
        before = log.table_digests()
        write("Later", "and more")
        with as_of(4):
            self.assertEqual(log.table_digests(), before)
        write("Latest", "and more still")
        self.assertEqual((Memory.objects.count(), log.head()[0]), (4, 6))

    @tag("backend")
    def test_nothing_can_be_written_there(self) -> None:
        with as_of(2), self.assertRaisesMessage(Forbidden, "a view of the past is read-only"):
            write("New", "in the past")
        with self.assertRaises((OperationalError, Unavailable)), as_of(2):
            rows.execute("DELETE FROM memories_memory")
        with self.assertLogs("memoryhub.core.stores.store", logging.WARNING):  # that it is open again
            self.assertEqual(self.titles(2), ["Tea", "Use WAL"])
        self.assertEqual(log.head()[0], 4)


@tag("backend")
class KeptViewsTests(StoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        for number in range(8):
            write(f"Note {number}", HIDDEN if number == 2 else f"text {number}")

    def visit(self, *positions: int) -> None:
        for position in positions:
            with as_of(position):
                pass

    def erase(self) -> str:
        return str(log.erase_streams(["memory:3"], reason="asked").type)

    def kept(self) -> list[str]:
        return sorted(name.rsplit("-", 2)[1] for name, _ in selected.views.view_names(current_store()))

    def test_a_few_are_kept_privately_and_the_longest_unused_goes(self) -> None:
        self.visit(1, 2, 3, 4, 1, 5, 6)
        self.assertEqual(self.kept(), ["1", "4", "5", "6"][-views.KEPT :])
        files = [path for path in (self.home / "cache" / "views").rglob("*") if path.is_file()]
        self.assertLessEqual({path.stat().st_mode & 0o077 for path in files}, {0})

    def test_a_view_begins_from_the_nearest_one_before(self) -> None:
        self.visit(5)
        with as_of(7):
            self.assertEqual((Memory.objects.count(), log.head()[0]), (7, 7))
            self.assertEqual(log.table_digests()["memories_memory"][0], 7)
        with as_of(4):
            self.assertEqual(Memory.objects.count(), 4)

    def test_an_erasure_takes_every_view_and_its_text_along(self) -> None:
        for position in (3, 8):
            with as_of(position):
                self.assertIn(HIDDEN, Memory.objects.get(id=3).content)
        self.assertTrue(self.views_with(HIDDEN))
        self.erase()
        self.assertEqual(self.views_with(HIDDEN), [])
        for position in (3, 8):
            with as_of(position):
                self.assertFalse(Memory.objects.filter(id=3).exists())
        self.assertEqual(self.views_with(HIDDEN), [])

    @sqlite_only("a view is named by its process")
    def test_views_left_by_a_killed_process_are_removed_at_the_next_read(self) -> None:
        self.visit(3)
        view = next((self.home / "cache" / "views").glob("*-3-*"))
        abandoned = view.rename(view.with_name(view.name.replace("-0-", "-7-", 1)))
        self.visit(4)
        self.assertFalse(abandoned.exists())

    def test_two_projects_never_share_a_view(self) -> None:
        with self.store("beta"):
            write("Only beta's", "text")
        for project, title in (("alpha", "Note 0"), ("beta", "Only beta's")):
            with self.store(project), as_of(1):
                self.assertEqual([memory.title for memory in Memory.objects.all()], [title])

    def test_an_erasure_does_not_wait_for_a_view_that_is_being_built(self) -> None:
        def erase() -> str:
            with self.store():
                event_type = self.erase()
            connections.close_all()
            return event_type

        def fill_and_be_overtaken(*arguments: Any, **options: Any) -> None:
            fill(*arguments, **options)
            if not erased:  # a long log is applied in one transaction, which has locks of all tables
                with transaction.atomic(using=require_current_alias()), ThreadPoolExecutor(1) as other:
                    rows.fetch("SELECT count(*) FROM raw_events")
                    erased.append(other.submit(erase).result())

        erased: list[str] = []
        fill = StoreDraft.fill
        with mock.patch.object(StoreDraft, "fill", fill_and_be_overtaken), waiting_briefly(), as_of(8):
            self.assertFalse(Memory.objects.filter(id=3).exists())
        self.assertEqual(erased, ["payload.erased"])
        self.assertEqual(self.views_with(HIDDEN), [])

    @postgresql_only("connections of a file are not counted")
    def test_an_erasure_needs_one_connection_at_a_time(self) -> None:
        self.visit(8)
        with one_connection_at_a_time():
            self.erase()
        self.assertEqual(self.kept(), [])

    @postgresql_only("SQLite has no servers")
    def test_another_server_that_is_away_is_not_asked(self) -> None:
        (self.home / "config.toml").write_text(f'[servers]\nmars = "postgresql://hub@127.0.0.1:{free_port()}/mars"\n')
        with as_of(3):
            self.assertEqual(Memory.objects.count(), 3)
        self.assertEqual(self.kept(), ["3"])

    @postgresql_only("an open file can be read after its removal")
    def test_a_reader_of_a_view_that_an_erasure_removes_is_asked_to_try_again(self) -> None:
        with self.assertRaisesRegex(Locked, "text was erased meanwhile; try again"), as_of(3):
            with self.store():
                self.erase()
            Memory.objects.count()

    @postgresql_only("a draft in a file is removed by an erasure, or by its age")
    def test_a_draft_is_removed_once_nobody_builds_it(self) -> None:
        from memoryhub.core.backends.postgresql import copies, locations, machines

        def drafts() -> list[str]:
            return [name for name, _ in locations.direct(current_store()).labelled("draft:")]

        with copies._draft(current_store()) as draft:
            self.visit(3)
            self.erase()
            with self.assertLogs("memoryhub.core.backends.postgresql.wiping", logging.WARNING) as warnings:
                self.assertFalse(wipe_free_space())
            self.assertIn(draft, warnings.output[-1])
            self.assertEqual(drafts(), [draft])
            machines.rows_of_hub("UPDATE hub.leases SET until = '-infinity' WHERE name = %s", [draft])
            self.visit(4)
            self.assertEqual(drafts(), [])

    def views_with(self, text: str) -> list[str]:
        if on_postgresql():
            return [*tampering.tables_with(text, "view_%"), *tampering.tables_with(text, "draft_%")]
        files = [path for path in (self.home / "cache").rglob("*") if path.is_file()]
        return [str(path) for path in files if text.encode() in path.read_bytes()]


@contextmanager
def waiting_briefly() -> Iterator[None]:
    """Let PostgreSQL's locks be waited for so briefly that a test can."""
    if not on_postgresql():
        yield
        return
    from memoryhub.core.backends.postgresql import copies, locations

    with mock.patch.object(locations, "_LOCK_SECONDS", 1), mock.patch.object(copies, "_IN_USE_SECONDS", 0.05):
        yield


@contextmanager
def one_connection_at_a_time() -> Iterator[None]:
    """Refuse this thread a connection while a transaction of a store has one: a pooler may have no other."""
    from memoryhub.core.backends.postgresql.pool import Pool, PooledSession

    busy: list[PooledSession] = []

    def begin(session: PooledSession) -> None:
        started(session)
        busy.append(session)

    def end(session: PooledSession, raw: Any) -> None:
        if session in busy:
            busy.remove(session)
        ended(session, raw)

    def take(pool: Pool) -> Any:
        if busy:
            raise AssertionError("a transaction has a connection already")
        return taken(pool)

    started, ended, taken = PooledSession.begin, PooledSession._end, Pool.take
    with (
        mock.patch.object(PooledSession, "begin", begin),
        mock.patch.object(PooledSession, "_end", end),
        mock.patch.object(Pool, "take", take),
    ):
        yield


class DoorTests(RestTestCase):
    def setUp(self) -> None:
        super().setUp()
        with self.store("alpha"):
            write_history()

    def test_rest_answers_as_of(self) -> None:
        def results(path: str) -> list[str]:
            return [memory["title"] for memory in self.call("GET", f"projects/alpha/{path}").data["results"]]

        self.assertEqual(results("memories?as_of=1"), ["Use WAL"])
        self.assertEqual(results("search?query=green&as_of=2026-11-20T12:02:00Z"), ["Tea"])
        memory = self.call("GET", "projects/alpha/memories/1?as_of=2")
        self.assertEqual((memory.data["title"], memory["ETag"]), ("Use WAL", '"1"'))
        self.assertEqual(self.call("GET", "projects/alpha/stats?as_of=1").data["events"], 1)
        self.call("GET", "projects/alpha/memories?as_of=yesterday", expect=422)
        self.call("GET", "projects/alpha/memories?as_of=99", expect=404)

    def test_the_tools_answer_as_of(self) -> None:
        load_tools()
        for name, arguments, text in (
            ("memory_get", {"ids": [1], "as_of": 2}, "Use WAL\n"),
            ("memory_search", {"query": "green", "as_of": 3}, "#2 memory"),
            ("memory_search", {"query": "green", "as_of": 4}, "nothing found"),
            ("memory_list", {"as_of": 1}, "(1 of 1)"),
            ("memory_stats", {"as_of": 3}, "events: 3"),
        ):
            tool = find_tool(name)
            assert tool
            with self.subTest(name, **arguments), self.store("alpha"):
                self.assertIn(text, tool.handler(tool.input.model_validate(arguments)).text)

    def test_the_commands_answer_as_of(self) -> None:
        for words, text in (
            (("search", "green", "tea", "--as-of", "3"), "#2 memory"),
            (("search", "green", "--as-of", "4"), "nothing found"),
            (("get", "#1", "--as-of", "2026-11-20T12:01"), "Readers never block."),
            (("get", "Use WAL mode"), "Readers never wait."),
        ):
            output = StringIO()
            call_command(*words, "--project", "alpha", stdout=output)
            self.assertIn(text, output.getvalue())
