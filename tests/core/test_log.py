from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar
from unittest import mock

from django.db import connections, transaction
from django.db.utils import IntegrityError
from django.test import tag
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from memories import services
from memories.models import Memory, MemoryTag, SearchDocument
from memories.schemas import IfExists, MemoryTouch, MemoryUpdate, MemoryWrite, WriteResult
from memories.search import engine
from memories.search.parsed_query import parse
from memoryhub.core import log
from memoryhub.core.backends.sqlite.anchors import anchor_path
from memoryhub.core.entities import Entity, entity_types, find_entities
from memoryhub.core.errors import ConflictError, HubError, Invalid
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
    def test_positions_have_no_gap_and_each_stream_counts_its_own_events(self):
        first, second = write("One", "1"), write("Two", "2")
        services.update_memory(command=MemoryUpdate(id=first.id, content="Writers do."))
        services.delete_memory(command=MemoryTouch(id=first.id))
        self.assertEqual([first.id, second.id], [1, 2])
        events = list(RawEvent.objects.order_by("position"))
        self.assertEqual([event.position for event in events], [1, 2, 3, 4])
        sequences = [event.stream_seq for event in events if event.stream_id == "memory:1"]
        self.assertEqual(sequences, [1, 2, 3])

    def test_the_origin_is_in_the_header(self):
        with use_origin(source="mcp", actor="claude", session_id="s1"):
            write()
        event = RawEvent.objects.get()
        header = (event.source, event.actor, event.session_id, event.project_id)
        self.assertEqual(header, ("mcp", "claude", "s1", "alpha"))

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
    def test_the_same_key_gives_the_first_answer_and_is_refused_for_another_action(self):
        first = write("One", "1", idempotency_key="k")
        again = write("Other", "else", idempotency_key="k")
        self.assertEqual((again.id, again.status), (first.id, first.status))
        self.assertEqual(log.head()[0], 1)
        with self.assertRaisesRegex(ConflictError, "idempotency_key is already used by a memory.written event"):
            services.delete_memory(command=MemoryTouch(id=first.id, idempotency_key="k"))

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

    def test_a_secret_in_a_name_and_a_title_that_was_all_private_are_refused(self):
        with self.assertRaisesRegex(HubError, "session_id"), use_origin(session_id=SECRET):
            write()
        with self.assertRaisesRegex(HubError, "after removing private text"):
            write("<private>x</private>", "text")
        self.assertEqual(log.head()[0], 0)


@tag("backend")
class ImmutabilityTests(StoreTestCase):
    def test_no_event_can_be_changed_deleted_replaced_or_skipped(self):
        write()
        for statement in (
            "UPDATE raw_events SET actor = 'eve'",
            "UPDATE raw_events SET payload_json = '{}'",
            "UPDATE raw_events SET payload_json = NULL",
            "UPDATE raw_events SET salt = 'ff', payload_json = NULL",
            "UPDATE raw_events SET salt = 'ff', actor = 'eve'",
            "DELETE FROM raw_events",
            either(
                "INSERT OR REPLACE INTO raw_events SELECT * FROM raw_events",
                "INSERT INTO raw_events SELECT * FROM raw_events ON CONFLICT (position) DO UPDATE SET actor = 'eve'",
            ),
            "INSERT INTO raw_events SELECT 9, 'x', project_id, session_id, turn_id, 's', 1, event_type, event_version,"
            " occurred_at, actor, source, payload_json, salt, payload_digest, chain_digest, NULL, trace_id"
            " FROM raw_events",
        ):
            with self.subTest(statement=statement), self.assertRaisesMessage(IntegrityError, "append-only"):
                rows.execute(statement)

    def test_erasure_takes_the_text_and_leaves_the_chain(self):
        memory = write("Password", "the cat is called Miriam")
        other = write("Other", "stays")
        log.erase_streams([f"memory:{memory.id}"], reason="asked to")
        event = RawEvent.objects.get(position=memory.id)
        self.assertEqual((event.payload_json, event.salt), (None, None))
        self.assertEqual(list(Memory.objects.values_list("id", flat=True)), [other.id])
        self.assertEqual(engine.rank(parse("Miriam")).hits, [])
        self.assert_sound()


@tag("backend")
class VerifyTests(StoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        for number in range(5):
            write(f"Memory {number}", f"text {number}")

    def test_every_change_is_found_at_its_position_from_the_end_to_the_beginning(self):
        verification = log.verify()
        self.assertEqual((verification.ok, verification.events), (True, 5))
        for statement, position in (
            ("DELETE FROM raw_events WHERE position = 5", 5),
            ("DELETE FROM raw_events WHERE position = 3", 3),
            ("UPDATE raw_events SET actor = 'eve' WHERE position = 2", 2),
            ("UPDATE raw_events SET payload_json = replace(payload_json, 'text', 'lies') WHERE position = 1", 1),
        ):
            with self.subTest(statement=statement):
                tampering.change(project_store("alpha"), statement)
                verification = log.verify()
                self.assertEqual((verification.ok, verification.broken_position), (False, position))
                self.assertEqual("tail was cut" in verification.reason, position == 5)

    def test_a_rewritten_log_is_found_by_the_anchor(self):
        tampering.set_anchor(project_store("alpha"), 3, "ab" * 32)
        self.assertEqual(log.verify().broken_position, 3)

    @sqlite_only("an anchor is a file")
    def test_an_unreadable_anchor_is_reported(self):
        anchor_path(project_store("alpha")).write_text("nonsense")
        self.assertIn("anchor", log.verify().reason)


class ReplayTests(StoreTestCase):
    def test_windows_select_by_position_stream_type_and_session(self):
        with use_origin(session_id="s1"):
            write("One", "1")
        write("Two", "2")
        services.delete_memory(command=MemoryTouch(id=1))
        for events, positions in (
            (log.events().window(after=1)[:1], [2]),
            (log.events().window(after=1)[:2], [2, 3]),
            (log.events().of_stream("memory:1"), [1, 3]),
            (log.events().of_type("memory.deleted"), [3]),
            (log.events().of_session("s1"), [1]),
        ):
            lines = list(log.replay(events))
            with self.subTest(positions=positions):
                self.assertEqual([json.loads(line)["position"] for line in lines], positions)
                self.assertEqual(list(log.replay(events)), lines)


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
            stored = log.event_of(log.events().get(position=log.head()[0]))
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

    @rule(memory_id=ids, service=st.sampled_from([services.delete_memory, services.restore_memory]))
    def delete_or_restore(self, memory_id: int, service: Any):
        self.attempt(service, MemoryTouch(id=memory_id))

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
        run_state_machine_as_test(LogMachine, settings=settings(max_examples=25, stateful_step_count=20, deadline=None))


@rows.InSteps
def counting(*limits: int) -> rows.Steps[list[int]]:
    numbers: list[int] = []
    for limit in limits:
        (lines,) = yield [("SELECT %s + 1", [limit])]
        numbers += [number for (number,) in lines]
    return numbers


class StepsTests(HubTestCase):
    @tag("backend")
    def test_what_functions_ask_at_the_same_time_is_sent_together(self) -> None:
        with self.store("alpha"), mock.patch.object(rows, "fetch_together", wraps=rows.fetch_together) as sent:
            results = rows.together(counting.steps(1, 2), counting.steps(), counting.steps(3))
            self.assertEqual(results, [[2, 3], [], [4]])
            self.assertEqual([len(call.args[0]) for call in sent.call_args_list], [2, 1])
            self.assertEqual(counting(5), [6])


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
    def test_statements_and_queries_of_a_model_see_batched_rows(self) -> None:
        with self.gathering():
            self.add_tags("one", "two")
            self.assertEqual(rows.fetch(COUNT), [(2,)])
            self.add_tags("three")
            self.assertTrue(MemoryTag.objects.filter(tag="three").exists())
            self.add_tags("four")
            rows.execute("DELETE FROM memories_memorytag WHERE tag = %s", ["four"])
        self.assertEqual(rows.fetch(COUNT), [(3,)])

    @sqlite_only("the tables of its full-text index")
    def test_a_shadow_table_counts_as_the_table_itself_and_two_statements_keep_their_order(self) -> None:
        with self.gathering():
            rows.put("search_fts", PUT, [1, "heron"])
            self.assertEqual(rows.fetch("SELECT id FROM search_fts_docsize"), [(1,)])
            rows.put("search_fts", PUT, [1, "grebe"])
            rows.put("search_fts", f"{PUT} ", [1, "crane"])
            rows.put("search_fts", PUT, [2, "stork"])
        for words, positions in (("heron OR crane OR stork", [(1,), (2,)]), ("heron OR grebe", [])):
            sql = "SELECT rowid FROM search_fts WHERE search_fts MATCH %s ORDER BY rowid"
            self.assertEqual(rows.fetch(sql, [words]), positions)

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
    def test_deferred_work_is_done_once_at_the_end_or_before_a_statement_names_its_table(self) -> None:
        calls: list[list[int]] = []

        def add(numbers: Sequence[int]) -> None:
            calls.append(list(numbers))
            self.add_tags(*map(str, numbers))

        def defer(number: int) -> None:
            rows.defer(add, number, before=frozenset({"memories_memorytag"}))

        with self.gathering():
            for number in (2, 1, 2):
                defer(number)
            rows.fetch("SELECT 1 FROM memories_memory")
            self.assertEqual(calls, [])
            self.assertEqual(rows.fetch(COUNT), [(2,)])
            defer(3)
        self.assertEqual((calls, rows.fetch(COUNT)), ([[1, 2], [3]], [(3,)]))
        defer(4)
        self.assertEqual(calls[-1], [4])

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
        entities = [
            Entity("project", 0, "Alpha"),
            Entity("session", session.id, "s-1"),
            Entity("memory", rule, "Rule", "guideline"),
            Entity("memory", gone, "Gone", "observation", deleted=True),
        ]
        matches = find_entities(range(log.head()[0] + 100))
        self.assertEqual(list(matches.items()), [(entity.id, entity) for entity in entities])
        self.assertEqual(find_entities([]), {})
        self.assertLessEqual({"project", "session", "commit", "memory", "decision"}, set(entity_types()))

    @tag("backend")
    def test_every_number_of_ids_is_one_statement(self) -> None:
        ids = [services.write_memory(command=MemoryWrite(title=f"T{n}", content=f"{n}")).id for n in range(3)]
        connection: Any = connections["store:project:alpha"]
        with mock.patch.object(connection, "run", wraps=connection.run) as run:
            self.assertEqual(sorted(find_entities([*ids, *range(1_000, 101_000)])), ids)
        self.assertEqual(run.call_count, 1)
