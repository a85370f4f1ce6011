from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from typing import Any
from unittest import mock

from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from memories import services
from memories.models import MemoryUse
from memories.models.search import IGNORED_AFTER
from memories.pack import pack_context
from memories.query import query
from memories.schemas import MemoryDelete, MemoryGet, MemorySearch, MemoryUpdate, MemoryWrite
from memories.schemas.query import ContextPackRequest, MemoryQuery
from memories.selectors import get_memories, search
from memories.uses import notes
from memories.uses.counting import named_in
from memories.uses.drain import count_uses
from memories.uses.selectors import MOST, uses_of, weight_of
from memoryhub.core import log
from memoryhub.core.errors import ConfirmationRequired
from memoryhub.core.jobs import find_job
from memoryhub.core.log.event_view import as_of
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import GLOBAL_STORE, current_store, project_store, use_store
from memoryhub.ops.jobs import run_job
from memoryhub.web.signin import ensure_owner
from sessions_app.schemas import SessionEnd, SessionStart
from sessions_app.services import end_session, start_session
from sessions_app.services.turns import append_automatically, automatic_turn
from tests.support import HubTestCase
from tests.web.server import ROOT

_KILLED = """
import django, os, signal, sys
django.setup()
from memories.uses import drain
from memoryhub.core.stores.store import project_store, use_store
def killed(function):
    def run(*arguments):
        if sys.argv[1] == "after": function(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)
    return run
drain._keep = killed(drain._keep)
with use_store(project_store("alpha")):
    drain.count_uses()
"""
"""Folds alpha's notes in a process that is killed before or after their event is kept."""


class UsesTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="ada", source="mcp", session_id="s-1"))

    def write(self, title: str, content: str = "", **fields: Any) -> int:
        command = MemoryWrite.model_validate({"title": title, "content": content or f"All about {title}.", **fields})
        return services.write_memory(command=command).id

    def find(self, question: str, **fields: Any) -> list[int]:
        return [hit["id"] for hit in search(command=MemorySearch(query=question, **fields)).results]

    def fetch(self, *ids: int) -> None:
        get_memories(command=MemoryGet(ids=list(ids)))

    def use(self, memory_id: int) -> dict[str, int]:
        count_uses()
        return {name: value for name, value in uses_of([memory_id])[memory_id].items() if type(value) is int and value}

    def note_files(self) -> list[str]:
        return sorted(path.name for path in notes.folder_of(current_store()).glob("*.*"))

    def erase(self, memory_id: int) -> None:
        services.delete_memory(command=MemoryDelete(id=memory_id))
        with self.assertRaises(ConfirmationRequired) as asked:
            services.delete_memory(command=MemoryDelete(id=memory_id, permanent=True))
        token = asked.exception.data["confirm_token"]
        services.delete_memory(command=MemoryDelete(id=memory_id, permanent=True, confirm_token=token))


class CountingTests(UsesTestCase):
    def test_memories_in_enough_packs_count_as_ignored_until_used(self) -> None:
        given, left = self.write("Port of the hub"), self.write("Colour of the logo")
        for number in range(1, IGNORED_AFTER + 1):
            with use_origin(session_id=f"s-{number}"):
                pack_context(command=ContextPackRequest())
            is_ignored = uses_of([given])[given]["ignored"]
            self.assertEqual([self.use(given), is_ignored], [{"given": number}, number == IGNORED_AFTER])
            self.assertEqual(MemoryUse.objects.ignored().count(), 2 * (number == IGNORED_AFTER))
        self.fetch(given)
        self.assertEqual(self.use(given), {"given": IGNORED_AFTER, "fetched": 1})
        self.assertEqual(list(MemoryUse.objects.ignored().values_list("memory_id", flat=True)), [left])

    def test_only_shown_hits_count_as_found(self) -> None:
        first, second = (
            self.write("Green tea", "Tea tea tea, green."),
            self.write("Black tea", "Tea. " + "Filler " * 90),
        )
        self.assertEqual(self.find("green tea", limit=1), [first])
        self.assertEqual((self.use(first), self.use(second)), ({"found": 1}, {}))
        query(command=MemoryQuery(search="black tea", limit=1))
        self.assertEqual(self.use(second), {"found": 1})

    def test_memories_decisions_answers_and_summaries_cite_once_each(self) -> None:
        cited = self.write("Port")
        self.write("Proxy", f"Leads to the port of #{cited}; see #{cited} again.")
        self.assertEqual(self.use(cited), {"cited": 1})
        record_decision(command=DecisionRecord(title="Move", chosen="8400", rationale=f"#{cited} is taken"))
        start_session(command=SessionStart(session_id="s-1"))
        turn = automatic_turn(session_id="s-1")
        append_automatically(turn=turn, type="message.user", payload={"content": f"What of #{cited}?"})
        append_automatically(turn=turn, type="message.assistant", payload={"content": f"As #{cited} says."})
        end_session(command=SessionEnd(session_id="s-1", summary=f"Moved the port of #{cited}."))
        self.assertEqual(self.use(cited), {"cited": 4})

    def test_a_revision_counts_as_an_update_and_cannot_cite_itself(self) -> None:
        memory_id = self.write("Port")
        services.update_memory(command=MemoryUpdate(id=memory_id, content=f"#{memory_id} is 8400 now."))
        self.assertEqual(self.use(memory_id), {"updated": 1})

    def test_numbers_of_other_scopes_of_a_forge_and_of_nothing_are_not_cited(self) -> None:
        text = "#4, (#5) and #6. But global#7, PR #8, issue #9, owner/name#10, &#11; and #1a2b3c"
        self.assertEqual(named_in(text), {4, 5, 6})
        self.write("Fix", "Done for #99 and #1.")
        self.assertFalse(MemoryUse.objects.exists())

    def test_only_reads_by_agents_leave_notes(self) -> None:
        memory_id = self.write("Port")
        for source in ("admin", "cli", "job", "service"):
            with use_origin(source=source):
                self.find("port")
                self.fetch(memory_id)
        self.assertEqual(self.note_files(), [])
        with use_origin(source="hook"):
            self.find("port")
        self.client.force_login(ensure_owner())
        shown = self.client.get(f"/api/v1/projects/alpha/memories/{memory_id}", {"use": "true"})
        self.assertEqual(shown.json()["use"]["fetched"], 0)
        self.assertEqual(self.use(memory_id), {"found": 1, "fetched": 1})
        plain = self.client.get(f"/api/v1/projects/alpha/memories/{memory_id}").json()
        self.assertNotIn("use", plain)

    def test_wider_scopes_count_in_their_own_stores(self) -> None:
        self.write("Port")
        shared = self.write("Port of all", scope="global")
        pack_context(command=ContextPackRequest())
        self.find("port")
        with self.store("beta", source="mcp"):
            pass
        outcomes = run_job(job=find_job("count uses"), asked_by="ada")
        messages = {outcome.target.title: outcome.message for outcome in outcomes}
        self.assertEqual(
            messages, {"project alpha": "1 use counted", "project beta": "", "the global scope": "2 uses counted"}
        )
        with use_store(GLOBAL_STORE):
            self.assertEqual(self.use(shared), {"given": 1, "found": 1})
        with self.store("beta"):
            self.assertFalse(MemoryUse.objects.exists())


class FoldingTests(UsesTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.port = self.write("Port")

    def events(self) -> int:
        return RawEvent.objects.filter(event_type="memories.used").count()

    def test_a_read_writes_no_event_and_its_note_contains_only_ids_and_the_session(self) -> None:
        before = RawEvent.objects.count()
        self.find("port")
        self.fetch(self.port)
        self.assertEqual(RawEvent.objects.count(), before)
        folder = notes.folder_of(current_store())
        (path,) = folder.iterdir()
        self.assertEqual([stat.S_IMODE(item.stat().st_mode) for item in (folder, path)], [0o700, 0o600])
        self.assertRegex(path.read_text(), rf"\A\d+ fo @s-1 {self.port}\n\d+ fe @s-1 {self.port}\n\Z")

    def test_notes_become_one_event(self) -> None:
        self.find("port")
        self.find("port")
        self.assertEqual((count_uses(), count_uses()), (2, 0))
        self.assertEqual((self.events(), self.use(self.port), self.note_files()), (1, {"found": 2}, []))

    def test_each_note_counts_once_even_if_the_job_is_killed(self) -> None:
        for expected, when in ((1, "before"), (2, "after")):
            self.find("port")
            command = [sys.executable, "-c", _KILLED, when]
            environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "memoryhub.settings_store"}
            ended = subprocess.run(command, cwd=ROOT, env=environment, timeout=120, check=False).returncode
            self.assertEqual((ended, len(self.note_files())), (-signal.SIGKILL, 1))
            self.assertEqual(self.use(self.port), {"found": expected})
            self.assertEqual((self.events(), self.note_files()), (expected, []))

    def test_a_file_is_bounded_and_broken_lines_are_skipped(self) -> None:
        self.fetch(self.port)
        (path,) = notes.folder_of(current_store()).glob(f"*{notes.WAITING}")
        with path.open("a") as file:
            file.write("nonsense\n1 xx 1\n\n2 fe one\n")
            file.write(f"1 fe {self.port}\n" * ((notes.MAX_BYTES - file.tell()) // len(f"1 fe {self.port}\n")))
        size = path.stat().st_size
        self.fetch(self.port)
        self.assertEqual(path.stat().st_size, size)
        self.assertGreater(self.use(self.port)["fetched"], 1000)

    def test_a_note_that_cannot_be_written_fails_no_read(self) -> None:
        folder = notes.folder_of(current_store())
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.write_text("in the way")
        self.assertEqual(self.find("port"), [self.port])
        self.assertEqual(count_uses(), 0)

    def test_memories_erased_meanwhile_are_not_counted(self) -> None:
        other = self.write("Tea")
        self.fetch(self.port, other)
        self.erase(self.port)
        self.assertEqual((self.use(other), self.use(self.port)), ({"fetched": 1}, {}))


class ProjectionTests(UsesTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.port = self.write("Port")
        self.proxy = self.write("Proxy", f"Leads to #{self.port}.")
        pack_context(command=ContextPackRequest())
        self.fetch(self.port, self.proxy)
        count_uses()

    def test_a_rebuild_gives_the_same_rows(self) -> None:
        services.update_memory(command=MemoryUpdate(id=self.proxy, content=f"Leads to #{self.port} and #{self.proxy}."))
        self.assertTrue(log.rebuild().identical)
        self.assertEqual(self.use(self.port), {"given": 1, "fetched": 1, "cited": 1})

    def test_erasing_a_text_removes_its_citations_and_a_rebuild_agrees(self) -> None:
        only_cited = self.write("Cited alone")
        citing = self.write("Citing", f"See #{only_cited} and #{self.port}.")
        self.assertEqual(self.use(self.port)["cited"], 2)
        self.erase(citing)
        self.assertEqual((self.use(self.port)["cited"], self.use(only_cited)), (1, {}))
        self.erase(self.port)
        self.assertEqual(self.use(self.port), {})
        self.assertTrue(log.rebuild().identical)

    def test_reading_the_past_leaves_no_note(self) -> None:
        with as_of(self.proxy):
            self.assertEqual(uses_of([self.port])[self.port]["fetched"], 0)
        get_memories(command=MemoryGet(ids=[self.port], as_of=self.proxy))
        search(command=MemorySearch(query="port", as_of=self.proxy))
        self.assertEqual(self.note_files(), [])


class RankingTests(UsesTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.first, self.second = (self.write(f"Port {name}", f"It listens on 8321 {name}.") for name in ("one", "two"))
        self.worse = self.write("Port", "Filler. " * 40 + "It listens elsewhere.")

    def test_of_equal_answers_the_used_one_comes_first(self) -> None:
        last = self.find("where it listens")[1]
        self.fetch(last)
        count_uses()
        self.assertEqual(self.find("where it listens")[0], last)
        with mock.patch.dict(os.environ, MEMORY_HUB_RANK_BY_USE="false"):
            self.assertNotEqual(self.find("where it listens")[0], last)

    def test_no_use_adds_more_than_a_tenth(self) -> None:
        self.assertEqual([weight_of(points) for points in (0, 5)], [1, 1 + MOST / 2])
        self.assertLess(weight_of(10**9), 1 + MOST + 1e-9)
        for _ in range(40):
            self.fetch(self.worse)
        count_uses()
        self.assertEqual(self.find("it listens on 8321")[-1], self.worse)

    def test_each_project_ranks_by_its_own_use(self) -> None:
        with use_store(project_store("beta"), create=True):
            twins = [self.write(f"Port {name}", f"It listens on 8321 {name}.") for name in ("one", "two")]
            before = self.find("where it listens")
        self.fetch(self.first, self.second)
        count_uses()
        with use_store(project_store("beta")):
            self.assertEqual(self.find("where it listens"), before)
            self.assertCountEqual(before, twins)
