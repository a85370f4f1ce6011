"""Batched inserts are visible to every reader, and end with their transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction

from memories.models import MemoryTag
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import require_current_alias
from tests.databases import sqlite_only
from tests.support import HubTestCase

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

    def tag(self, *names: str) -> None:
        for name in names:
            rows.insert(MemoryTag, tag=name, memory_id=1)

    def test_a_statement_that_names_the_table_sees_batched_rows(self) -> None:
        with self.gathering():
            self.tag("one", "two")
            self.assertEqual(rows.fetch(COUNT), [(2,)])
            self.tag("three")
            rows.execute("DELETE FROM memories_memorytag WHERE tag = %s", ["three"])
        self.assertEqual(rows.fetch(COUNT), [(2,)])

    def test_a_query_of_a_model_sees_batched_rows(self) -> None:
        with self.gathering():
            self.tag("one")
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

    def test_more_rows_than_one_batch_all_arrive(self) -> None:
        with self.gathering():
            self.tag(*(f"tag-{number}" for number in range(1201)))
        self.assertEqual(rows.fetch(COUNT), [(1201,)])

    def test_an_error_leaves_nothing_behind_neither_now_nor_in_the_next_transaction(self) -> None:
        with self.assertRaises(ZeroDivisionError), self.gathering():
            self.tag("lost")
            raise ZeroDivisionError
        with self.gathering():
            self.tag("kept")
        self.assertEqual(rows.fetch("SELECT tag FROM memories_memorytag"), [("kept",)])

    def test_a_savepoint_that_is_rolled_back_takes_its_rows_along(self) -> None:
        with self.gathering():
            self.tag("before")
            with self.assertRaises(ZeroDivisionError), transaction.atomic(using=require_current_alias()):
                self.tag("inside")
                raise ZeroDivisionError
        self.assertEqual(rows.fetch("SELECT tag FROM memories_memorytag"), [("before",)])
