from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar
from unittest import mock

from django.db import connections, transaction
from django.db.utils import IntegrityError
from django.test import tag
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from memories import services
from memories.models import Memory, MemoryTag, SearchDocument
from memories.schemas import IfExists, MemoryTouch, MemoryUpdate, MemoryWrite, WriteResult
from memories.search import engine
from memories.search.parsed_query import parse
from memoryhub.core import log
from memoryhub.core.backends.sqlite.anchors import anchor_path
from memoryhub.core.entities import Entity, entity_types, find_entities
from memoryhub.core.errors import Conflict, HubError, Invalid
from memoryhub.core.log import head
from memoryhub.core.log.anchor import read_anchor
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import either
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.store import project_store, use_store
from sessions_app.schemas import ProjectDescribe, SessionStart
from sessions_app.services import start_session
from sessions_app.services.profile import describe
from tests import tampering
from tests.databases import sqlite_only
from tests.support import HubTestCase

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"


def write(title: str = "Use WAL", content: str = "Readers never block.", **fields: object) -> WriteResult:
    return services.write_memory(command=MemoryWrite(title=title, content=content, **fields))


class StoreTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(use_store(project_store("alpha"), create=True))
        self.enterContext(use_origin(source="service", actor="ada"))


class AppendTests(StoreTestCase):
    @tag("backend")
    def test_positions_have_no_gap_and_name_what_they_created(self):
        first, second = write("One", "1"), write("Two", "2")
        services.delete_memory(command=MemoryTouch(id=first.id))
        self.assertEqual([first.id, second.id], [1, 2])
        self.assertEqual(list(RawEvent.objects.order_by("position").values_list("position", flat=True)), [1, 2, 3])

    def test_a_stream_counts_its_own_events(self):
        memory = write()
        services.update_memory(command=MemoryUpdate(id=memory.id, content="Writers do."))
        services.delete_memory(command=MemoryTouch(id=memory.id))
        found = RawEvent.objects.filter(stream_id=f"memory:{memory.id}").order_by("stream_seq")
        self.assertEqual([event.stream_seq for event in found], [1, 2, 3])

    def test_the_origin_is_in_the_header(self):
        with use_origin(source="mcp", actor="claude", session_id="s1"):
            memory = write()
        event = RawEvent.objects.get(position=memory.id)
        self.assertEqual((event.source, event.actor, event.session_id), ("mcp", "claude", "s1"))
        self.assertEqual(event.project_id, "alpha")

    @tag("backend")
    def test_an_error_rolls_everything_back(self):
        with self.assertRaises(RuntimeError), log.transaction():
            write("One", "1")
            write("Two", "2")
            raise RuntimeError
        self.assertEqual(log.head()[0], 0)
        self.assertFalse(Memory.objects.exists())
        self.assertIsNone(read_anchor(project_store("alpha")))

    @tag("backend")
    def test_the_same_key_gives_the_first_answer(self):
        first = write("One", "1", idempotency_key="k")
        again = write("Other", "else", idempotency_key="k")
        self.assertEqual((again.id, again.status), (first.id, first.status))
        self.assertEqual(log.head()[0], 1)

    def test_a_key_of_another_action_is_refused(self):
        memory = write("One", "1", idempotency_key="k")
        with self.assertRaisesRegex(Conflict, "idempotency_key is already used by a memory.written event"):
            services.delete_memory(command=MemoryTouch(id=memory.id, idempotency_key="k"))

    def test_secrets_are_gone_before_anything_is_kept(self):
        memory = write("Deploy", f"use {SECRET} there <private>my diary</private>.")
        stored = RawEvent.objects.get(position=memory.id).payload_json
        self.assertNotIn(SECRET, stored)
        self.assertNotIn("diary", stored)
        self.assertIn("[REDACTED:", Memory.objects.get(id=memory.id).content)
        self.assertTrue(memory.redacted)

    @tag("backend")
    def test_a_number_that_json_cannot_say_is_refused(self):
        for number in (float("inf"), float("-inf"), float("nan")):
            parameters = {"default": [{"is": number}]}
            with self.assertRaisesRegex(Invalid, "NaN and infinite numbers cannot be stored"):
                write("T", "x", kind="tool", attributes={"parameters": parameters})
        self.assertEqual(log.head()[0], 0)

    def test_a_secret_in_a_name_is_refused(self):
        with self.assertRaisesRegex(HubError, "session_id"), use_origin(session_id=SECRET):
            write()
        self.assertEqual(log.head()[0], 0)

    def test_a_title_that_was_all_private_is_refused(self):
        with self.assertRaisesRegex(HubError, "after removing private text"):
            write("<private>x</private>", "text")
        self.assertEqual(log.head()[0], 0)


@tag("backend")
class ImmutabilityTests(StoreTestCase):
    def test_no_event_can_be_changed_deleted_replaced_or_skipped(self):
        write()
        statements = [
            "UPDATE raw_events SET actor = 'eve'",
            "UPDATE raw_events SET payload_json = '{}'",
            "UPDATE raw_events SET payload_json = NULL",
            "DELETE FROM raw_events",
            either(
                "INSERT OR REPLACE INTO raw_events SELECT * FROM raw_events",
                "INSERT INTO raw_events SELECT * FROM raw_events ON CONFLICT (position) DO UPDATE SET actor = 'eve'",
            ),
            "INSERT INTO raw_events SELECT 9, 'x', project_id, session_id, turn_id, 's', 1, event_type, event_version,"
            " occurred_at, actor, source, payload_json, salt, payload_digest, chain_digest, NULL, trace_id"
            " FROM raw_events",
        ]
        for statement in statements:
            with self.subTest(statement=statement), self.assertRaisesMessage(IntegrityError, "append-only"):
                rows.execute(statement)

    def test_erasure_takes_the_text_and_leaves_the_chain(self):
        memory = write("Password", "the cat is called Miriam")
        kept = write("Other", "stays")
        log.erase_streams([f"memory:{memory.id}"], reason="asked to")
        event = RawEvent.objects.get(position=memory.id)
        self.assertIsNone(event.payload_json)
        self.assertIsNone(event.salt)
        self.assertTrue(log.verify().ok)
        self.assertEqual(list(Memory.objects.values_list("id", flat=True)), [kept.id])
        self.assertEqual(engine.rank(parse("Miriam")).hits, [])
        self.assertTrue(log.rebuild().identical)


@tag("backend")
class VerifyTests(StoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        for number in range(5):
            write(f"Memory {number}", f"text {number}")

    def tamper(self, statement: str) -> log.Verification:
        tampering.change(project_store("alpha"), statement)
        return log.verify()

    def test_an_untouched_log_holds(self):
        found = log.verify()
        self.assertTrue(found.ok)
        self.assertEqual(found.events, 5)

    def test_every_change_is_found_at_its_position(self):
        changes = {
            "UPDATE raw_events SET payload_json = replace(payload_json, 'text', 'lies') WHERE position = 3": 3,
            "UPDATE raw_events SET actor = 'eve' WHERE position = 2": 2,
        }
        for statement, position in sorted(changes.items(), key=lambda item: -item[1]):
            with self.subTest(statement=statement):
                found = self.tamper(statement)
                self.assertFalse(found.ok)
                self.assertEqual(found.broken_position, position)

    def test_a_missing_event_is_found(self):
        self.assertEqual(self.tamper("DELETE FROM raw_events WHERE position = 4").broken_position, 4)

    def test_a_cut_tail_is_found_by_the_anchor(self):
        found = self.tamper("DELETE FROM raw_events WHERE position = 5")
        self.assertEqual(found.broken_position, 5)
        self.assertIn("tail was cut", found.reason)

    def test_a_rewritten_log_is_found_by_the_anchor(self):
        tampering.set_anchor(project_store("alpha"), 3, "ab" * 32)
        self.assertEqual(log.verify().broken_position, 3)

    @sqlite_only("an anchor is a file")
    def test_an_unreadable_anchor_is_reported(self):
        anchor_path(project_store("alpha")).write_text("nonsense")
        self.assertIn("anchor", log.verify().reason)


class ReplayTests(StoreTestCase):
    def test_the_same_window_gives_the_same_bytes(self):
        for number in range(4):
            write(f"Memory {number}", f"text {number}")
        window = log.ReplayWindow(after=1, limit=2)
        self.assertEqual(list(log.replay(window)), list(log.replay(window)))
        self.assertEqual(len(list(log.replay(window))), 2)

    def test_windows_select_by_stream_type_and_session(self):
        with use_origin(session_id="s1"):
            memory = write("One", "1")
        services.delete_memory(command=MemoryTouch(id=memory.id))
        self.assertEqual(len(list(log.replay(log.ReplayWindow(stream_id="memory:1")))), 2)
        self.assertEqual(len(list(log.replay(log.ReplayWindow(event_types=("memory.deleted",))))), 1)
        self.assertEqual(len(list(log.replay(log.ReplayWindow(session_id="s1")))), 1)


@tag("backend")
class AnyTextTests(StoreTestCase):
    def test_any_text_comes_back_as_it_was_kept(self):
        @settings(max_examples=60, deadline=None)
        @given(st.text(alphabet=st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=200))
        def check(content: str) -> None:
            try:
                result = write("Title", content, if_exists=IfExists.UPDATE)
            except (HubError, ValueError):
                return
            memory = Memory.objects.get(id=result.id)
            (stored,) = log.read(log.ReplayWindow(after=log.head()[0] - 1))
            if stored.type != "memory.seen":
                self.assertEqual(stored.payload.content, memory.content)

        check()
        self.assertTrue(log.verify().ok)


# Any interleaving of writes, erasures and rebuilds keeps the chain, and a rebuild gives the same rows.
class LogMachine(RuleBasedStateMachine):
    ids = Bundle("ids")
    store_number: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).store_number += 1
        self.store = project_store(f"machine-{self.store_number}")

    def use(self):
        return use_store(self.store, create=True)

    @rule(
        target=ids,
        title=st.sampled_from("abcdef"),
        content=st.sampled_from("uvwxyz"),
        topic=st.sampled_from([None, "t"]),
    )
    def write(self, title: str, content: str, topic: str | None):
        with self.use():
            return write(title, content, topic_key=topic, tags=[title], if_exists=IfExists.UPDATE).id

    @rule(memory_id=ids, content=st.sampled_from("uvwxyz"))
    def update(self, memory_id: int, content: str):
        self.attempt(services.update_memory, MemoryUpdate(id=memory_id, content=content))

    @rule(memory_id=ids)
    def delete(self, memory_id: int):
        self.attempt(services.delete_memory, MemoryTouch(id=memory_id))

    @rule(memory_id=ids)
    def restore(self, memory_id: int):
        self.attempt(services.restore_memory, MemoryTouch(id=memory_id))

    @rule(memory_id=ids)
    def erase(self, memory_id: int):
        with self.use(), suppress(HubError):
            log.erase_streams([f"memory:{memory_id}"], reason="test")

    @rule()
    def rebuild(self):
        with self.use():
            assert log.rebuild().identical

    def attempt(self, service, command) -> None:
        with self.use():
            before = log.head()
            try:
                service(command=command)
            except HubError:
                assert log.head() == before, "a refused call must write nothing"

    @invariant()
    def what_lives_is_found(self):
        with self.use():
            live = set(Memory.objects.live().values_list("id", flat=True))
            assert set(SearchDocument.objects.filter(source="memory").values_list("id", flat=True)) == live

    def teardown(self) -> None:
        with self.use():
            assert log.verify().ok
            assert log.rebuild().identical


@tag("attack")
class LogMachineTests(HubTestCase):
    def test_any_interleaving_holds(self):
        from hypothesis.stateful import run_state_machine_as_test

        run_state_machine_as_test(LogMachine, settings=settings(max_examples=25, stateful_step_count=20, deadline=None))


COUNT = "SELECT count(*) FROM memories_memorytag"
PUT = "INSERT OR REPLACE INTO search_fts (rowid, title) VALUES (%s, %s)"


class GatheringTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="ada"))

    @contextmanager
    def gathering(self) -> Iterator[None]:
        with transaction.atomic(using=require_current_alias()), rows.gathering():
            yield

    def add_tags(self, *names: str) -> None:
        for name in names:
            rows.insert(MemoryTag, tag=name, memory_id=1)

    @tag("backend")
    def test_a_statement_that_names_the_table_sees_batched_rows(self) -> None:
        with self.gathering():
            self.add_tags("one", "two")
            self.assertEqual(rows.fetch(COUNT), [(2,)])
            self.add_tags("three")
            rows.execute("DELETE FROM memories_memorytag WHERE tag = %s", ["three"])
        self.assertEqual(rows.fetch(COUNT), [(2,)])

    def test_a_query_of_a_model_sees_batched_rows(self) -> None:
        with self.gathering():
            self.add_tags("one")
            self.assertTrue(MemoryTag.objects.filter(tag="one").exists())

    @sqlite_only("the tables of its full-text index")
    def test_a_shadow_table_counts_as_the_table_itself(self) -> None:
        with self.gathering():
            rows.put("search_fts", PUT, [1, "heron"])
            self.assertEqual(rows.fetch("SELECT id FROM search_fts_docsize"), [(1,)])

    @sqlite_only("the tables of its full-text index")
    def test_two_statements_into_one_table_keep_their_order(self) -> None:
        with self.gathering():
            rows.put("search_fts", PUT, [1, "heron"])
            rows.put("search_fts", f"{PUT} ", [1, "crane"])
            rows.put("search_fts", PUT, [2, "stork"])
        found = rows.fetch("SELECT rowid FROM search_fts WHERE search_fts MATCH %s", ["heron OR crane OR stork"])
        self.assertEqual(sorted(found), [(1,), (2,)])
        self.assertEqual(rows.fetch("SELECT 1 FROM search_fts WHERE search_fts MATCH 'heron'"), [])

    @tag("backend")
    def test_more_rows_than_one_batch_all_arrive(self) -> None:
        with self.gathering():
            self.add_tags(*(f"tag-{number}" for number in range(1201)))
        self.assertEqual(rows.fetch(COUNT), [(1201,)])

    def test_an_error_leaves_nothing_behind_neither_now_nor_in_the_next_transaction(self) -> None:
        with self.assertRaises(ZeroDivisionError), self.gathering():
            self.add_tags("lost")
            raise ZeroDivisionError
        with self.gathering():
            self.add_tags("kept")
        self.assertEqual(rows.fetch("SELECT tag FROM memories_memorytag"), [("kept",)])

    @tag("backend")
    def test_a_savepoint_that_is_rolled_back_takes_its_rows_along(self) -> None:
        with self.gathering():
            self.add_tags("before")
            with self.assertRaises(ZeroDivisionError), transaction.atomic(using=require_current_alias()):
                self.add_tags("inside")
                raise ZeroDivisionError
        self.assertEqual(rows.fetch("SELECT tag FROM memories_memorytag"), [("before",)])


class EntityTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha"))

    def test_an_id_names_one_thing_whatever_it_is(self) -> None:
        session = start_session(command=SessionStart(session_id="s-1"))
        rule = services.write_memory(command=MemoryWrite(title="Rule", content="x", kind="guideline")).id
        gone = services.write_memory(command=MemoryWrite(title="Gone", content="y")).id
        services.delete_memory(command=MemoryTouch(id=gone))
        describe(command=ProjectDescribe(name="Alpha"))
        wanted = [
            Entity("project", 0, "Alpha"),
            Entity("session", session.id, "s-1"),
            Entity("memory", rule, "Rule", "guideline"),
            Entity("memory", gone, "Gone", "observation", deleted=True),
        ]
        found = find_entities(range(head()[0] + 100))
        self.assertEqual(list(found.items()), [(entity.id, entity) for entity in wanted])
        self.assertEqual(find_entities([]), {})

    @tag("backend")
    def test_every_number_of_ids_is_one_statement(self) -> None:
        ids = [services.write_memory(command=MemoryWrite(title=f"T{n}", content=f"{n}")).id for n in range(3)]
        connection: Any = connections["store:project:alpha"]
        with mock.patch.object(connection, "run", wraps=connection.run) as run:
            self.assertEqual(sorted(find_entities([*ids, *range(1_000, 101_000)])), ids)
        self.assertEqual(run.call_count, 1)

    def test_what_apps_declare_is_known(self) -> None:
        self.assertLessEqual({"project", "session", "commit", "memory", "decision"}, set(entity_types()))
