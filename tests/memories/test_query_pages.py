from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from memories import services
from memories.schemas import MemoryDelete, MemoryRestore, MemoryUpdate, MemoryWrite
from memoryhub.core.errors import Conflict
from memoryhub.core.stores.store import GLOBAL_STORE, use_store
from tests.memories.scoped import QueryTestCase

SCOPES = ("session", "project", "org", "global")
KINDS = ("guideline", "observation", "knowledge")
TITLES = tuple(f"Rule {number}" for number in range(12))

QUESTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"types": ["guidelines", "knowledge"]},
    {"search": "python rule", "include_inactive": True},
    {"tags": {"include": ["python", "web"]}},
    {"order": "name"},
    {"order": "priority"},
    {"order": "recent"},
)

CHANGES = st.lists(
    st.tuples(
        st.sampled_from(("write", "revise", "rename", "retag", "delete", "restore")),
        st.integers(min_value=0, max_value=1_000),
        st.sampled_from(TITLES),
        st.sampled_from(SCOPES),
    ),
    max_size=4,
)
Entry = tuple[str, int]
"""Scope and id."""


class PagesTests(QueryTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.numbers = iter(range(100_000))
        self.live: list[Entry] = []
        self.deleted: list[Entry] = []
        self.touched: set[Entry] = set()
        for number in range(24):
            self._add(TITLES[number % len(TITLES)], SCOPES[number % len(SCOPES)], KINDS[number % len(KINDS)])
        for _ in range(3):
            self._delete(5)

    def test_an_unchanged_entry_is_on_exactly_one_page(self):
        @settings(max_examples=40)
        @given(st.sampled_from(QUESTIONS), st.integers(1, 7), st.lists(CHANGES, min_size=1, max_size=8))
        def holds(question: dict[str, Any], limit: int, rounds: list[Any]) -> None:
            self._pages_hold(question, limit, rounds)

        holds()

    def _pages_hold(self, question: dict[str, Any], limit: int, rounds: list[Any]) -> None:
        wanted = self._all(question)
        self.touched = set()
        listing = self.ask(limit=limit, **question)
        seen = self._answered(listing)
        changes = iter(rounds)
        while listing.meta.next_cursor:
            self.assertEqual(listing.meta.returned_count, limit)
            self._change(next(changes, []))
            listing = self.ask(limit=limit, cursor=listing.meta.next_cursor, **question)
            seen += self._answered(listing)
        unchanged = [entry for entry in seen if entry not in self.touched]
        self.assertEqual(unchanged, [entry for entry in wanted if entry not in self.touched])

    def _all(self, question: dict[str, Any]) -> list[Entry]:
        listing = self.ask(limit=100, **question)
        seen = self._answered(listing)
        while listing.meta.next_cursor:
            listing = self.ask(limit=100, cursor=listing.meta.next_cursor, **question)
            seen += self._answered(listing)
        return seen

    def _answered(self, listing: Any) -> list[Entry]:
        return [(item["scope"], item["id"]) for item in listing.results]

    def _change(self, changes: list[tuple[str, int, str, str]]) -> None:
        for what, choice, title, scope in changes:
            if what == "write":
                self._add(title, scope, KINDS[choice % len(KINDS)])
            elif what == "delete":
                self._delete(choice)
            elif what == "restore":
                self._restore(choice)
            else:
                self._revise(what, choice, title)

    def _add(self, title: str, scope: str, kind: str) -> None:
        number = next(self.numbers)
        fields: dict[str, Any] = {"attributes": {"priority": number % 101}} if kind == "guideline" else {}
        command = MemoryWrite.model_validate(
            {"title": title, "scope": scope, "kind": kind, "content": f"python {number}", "if_exists": "update",
             "tags": ["python"] if number % 2 else ["web", "old"], **fields}
        )  # fmt: skip
        entry = (scope, services.write_memory(command=command).id)
        self.touched.add(entry)
        if entry not in self.live:
            self.live.append(entry)

    def _delete(self, choice: int) -> None:
        if self.live:
            scope, memory_id = entry = self.live.pop(choice % len(self.live))
            services.delete_memory(command=MemoryDelete.model_validate({"id": memory_id, "scope": scope}))
            self.deleted.append(entry)
            self.touched.add(entry)

    def _restore(self, choice: int) -> None:
        if self.deleted:
            scope, memory_id = entry = self.deleted[choice % len(self.deleted)]
            command = MemoryRestore.model_validate({"id": memory_id, "scope": scope})
            if self._accepted(services.restore_memory, command):
                self.deleted.remove(entry)
                self.live.append(entry)
                self.touched.add(entry)

    def _revise(self, what: str, choice: int, title: str) -> None:
        if self.live:
            scope, memory_id = entry = self.live[choice % len(self.live)]
            given: dict[str, dict[str, Any]] = {"rename": {"title": title}, "retag": {"tags": ["python", "web", "new"]}}
            change = given.get(what, {"content": f"python rule {next(self.numbers)}"})
            command = MemoryUpdate.model_validate({"id": memory_id, "scope": scope, **change})
            if self._accepted(services.update_memory, command):
                self.touched.add(entry)

    def _accepted(self, service: Any, command: Any) -> bool:
        try:
            service(command=command)
        except Conflict:
            return False
        return True


class NamesTests(QueryTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.near = [self.write(f"Near {number}") for number in range(3)]
        for number in range(3):
            self.write(f"Far {number}", "global")

    def rest(self, change: Any) -> list[str]:
        listing = self.ask(limit=3)
        self.assertEqual({item["scope"] for item in listing.results}, {"project"})
        change()
        rest = self.ask(limit=10, cursor=listing.meta.next_cursor)
        return sorted(item["title"] for item in rest.results if item["scope"] == "global")

    def test_a_renamed_nearer_memory_hides_nothing_yet(self):
        self.assertEqual(self.rest(lambda: self.update(self.near[0], title="Far 0")), ["Far 0", "Far 1", "Far 2"])
        self.assertEqual(self.rest(lambda: None), ["Far 1", "Far 2"], "a new first page knows it")

    def test_a_new_nearer_memory_hides_nothing_yet(self):
        self.assertEqual(self.rest(lambda: self.write("Far 1")), ["Far 0", "Far 1", "Far 2"])

    def test_a_restored_nearer_memory_hides_nothing_yet(self):
        services.delete_memory(command=MemoryDelete(id=self.write("Far 1")))
        self.assertEqual(self.rest(self.bring_back), ["Far 0", "Far 1", "Far 2"])

    def bring_back(self) -> None:
        (memory_id,) = [hit["id"] for hit in self.ask(include_inactive=True).results if hit["deleted_at"]]
        services.restore_memory(command=MemoryRestore(id=memory_id))

    def test_a_hidden_memory_stays_hidden_when_the_nearer_one_is_deleted(self):
        for change in (self.rename, self.delete):
            with self.subTest(change.__name__):
                hiding = self.write("Far 2", content=change.__name__, attributes={"priority": 0})
                listing = self.ask(limit=4)
                change(hiding)
                rest = self.ask(limit=10, cursor=listing.meta.next_cursor)
                titles = sorted(item["title"] for item in rest.results if item["scope"] == "global")
                self.assertEqual(titles, ["Far 0", "Far 1"])

    def rename(self, memory_id: int) -> None:
        self.update(memory_id, title="Near again")

    def delete(self, memory_id: int) -> None:
        services.delete_memory(command=MemoryDelete(id=memory_id))


WRITER = """
import django, itertools
django.setup()
from memories import services
from memories.schemas import MemoryUpdate, MemoryWrite
from memoryhub.core.stores.store import project_store, use_store
for number in itertools.count():
    scope = ("project", "global")[number % 2]
    with use_store(project_store("alpha")):
        written = services.write_memory(command=MemoryWrite(
            title=f"Rule 7{number}", kind="guideline", scope=scope, content=f"python {number}", tags=["python"]))
        services.update_memory(command=MemoryUpdate(id=written.id, scope=scope, title=f"Rule {number % 100}x"))
    print(number, flush=True)
"""


class SecondProcessTests(QueryTestCase):
    def test_pages_show_the_state_of_the_first_page_while_another_process_writes(self):
        for number in range(60):
            self.write(f"Rule {number}", ("project", "global")[number % 2], tags=["python"])
        wanted = [(item["scope"], item["id"]) for item in self.ask(limit=100, tags=["python"]).results]
        listing = self.ask(limit=5, tags=["python"])
        seen = list(listing.results)
        writer = self._writer()
        assert writer.stdout
        while listing.meta.next_cursor:
            writer.stdout.readline()
            listing = self.ask(limit=5, tags=["python"], cursor=listing.meta.next_cursor)
            seen += listing.results
        writer.kill()
        writer.communicate()
        self.assertEqual([(item["scope"], item["id"]) for item in seen], wanted)
        self.assertGreater(self.ask(tags=["python"]).meta.total_count, 60, "the other process did write")

    def _writer(self) -> subprocess.Popen[str]:
        with use_store(GLOBAL_STORE):
            pass
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "memoryhub.settings_store"}
        root = Path(__file__).parents[2]
        return subprocess.Popen(
            [sys.executable, "-c", WRITER], env=environment, cwd=root, stdout=subprocess.PIPE, text=True
        )
