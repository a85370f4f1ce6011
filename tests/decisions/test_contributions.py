"""Decisions in commits, context packs, searches and prompts."""

from __future__ import annotations

from typing import Any

from decisions.prompts import LibrarianQuestion, agent_file, ask_librarian, instructions
from memories.pack import pack_context
from memories.schemas import MemorySearch, MemoryWrite, Timeline
from memories.schemas.query import ContextPackRequest
from memories.search.text import hints_in, terms
from memories.selectors import search
from memories.services import write_memory
from memories.timeline import timeline
from memoryhub.core import log
from memoryhub.core.errors import NotFound
from memoryhub.core.models import RawEvent
from sessions_app.schemas import CommitRead, IterationComplete, IterationGet, IterationStart
from sessions_app.selectors import get_iteration, view_commit
from sessions_app.services import record_commit
from sessions_app.services.iterations import complete_iteration, start_iteration
from tests.decisions.base import DecisionsTestCase

SHA = "abcd" * 10


class CommitLinkTests(DecisionsTestCase):
    def read(self, **fields: Any) -> dict[str, Any]:
        command = CommitRead.model_validate({"sha": SHA, "message": "Open stores", **fields})
        return view_commit(record_commit(command=command))

    def test_a_new_commit_is_linked_with_what_is_named(self):
        first, second = self.record("WAL").id, self.record("Locks").id
        found = self.read(decision_ids=[first, second], link_type="relates")
        self.assertEqual([(link["id"], link["link_type"]) for link in found["decisions"]], [
            (first, "relates"), (second, "relates"),
        ])  # fmt: skip

    def test_a_known_commit_is_linked_once(self):
        decision = self.record("WAL").id
        self.read()
        for _ in range(2):
            self.assertEqual(len(self.read(decision_ids=[decision])["decisions"]), 1)
        self.assertEqual(RawEvent.objects.filter(event_type="commit.linked").count(), 1)
        self.assertEqual(
            self.read(decision_ids=[decision], link_type="reverts")["decisions"][0]["link_type"], "reverts"
        )

    def test_an_unknown_decision_is_refused_and_nothing_is_recorded(self):
        memory = write_memory(command=MemoryWrite(title="T", content="x")).id
        for wrong, message in ((memory, f"#{memory} is a memory, not a decision"), (99, "there is no decision #99")):
            with self.assertRaisesRegex(NotFound, message):
                self.read(decision_ids=[wrong])
        with self.assertRaisesRegex(NotFound, "no iteration #99"):
            self.read(iteration_id=99)
        self.assertEqual(log.head()[0], memory)

    def test_a_commit_joins_the_named_iteration_and_is_found_by_its_description(self):
        earlier = start_iteration(command=IterationStart(command="fix", description="Mend the turnstile")).id
        complete_iteration(command=IterationComplete())
        active = start_iteration(command=IterationStart(command="feature", description="Paint the fence")).id
        self.assertEqual(self.read()["iteration_id"], active)
        self.assertEqual(self.read(iteration_id=earlier)["iteration_id"], earlier)
        (hit,) = search(command=MemorySearch(query="turnstile", sources=["commit"])).results
        self.assertEqual(hit["title"], "Open stores")
        self.assertEqual(search(command=MemorySearch(query="fence", sources=["commit"])).results, [])
        commits = get_iteration(command=IterationGet(id=earlier))["commits"]
        self.assertEqual([commit["sha"] for commit in commits], [SHA])
        in_iteration = search(command=MemorySearch(query="stores", iteration_id=earlier)).results
        self.assertEqual([hit["source"] for hit in in_iteration], ["commit"])
        self.assertEqual(search(command=MemorySearch(query="stores", iteration_id=active)).results, [])

    def test_a_rebuild_comes_out_the_same(self):
        decision = self.record("WAL").id
        iteration = start_iteration(command=IterationStart(command="fix", description="Mend")).id
        complete_iteration(command=IterationComplete())
        self.read()
        before = self.read(decision_ids=[decision], iteration_id=iteration)
        self.assert_rebuilds()
        self.assertEqual(self.read(), before)


class PackAndSearchTests(DecisionsTestCase):
    def test_the_context_pack_lists_decisions_in_force(self):
        first = self.record("Use WAL").id
        self.record("Use a server", supersedes=[first])
        self.record("Use threads", status="proposed")
        pack = pack_context(command=ContextPackRequest()).body.text
        self.assertRegex(pack, r"decided \d{4}-\d\d-\d\d Use a server: Choose Use a server\.")
        self.assertRegex(pack, r"decided proposed \S+ Use threads")
        self.assertNotIn("Use WAL", pack)

    def test_decisions_are_in_the_chronology_of_their_iteration(self):
        self.record("Before")
        iteration = start_iteration(command=IterationStart(command="fix")).id
        inside = self.record("Use WAL").id
        complete_iteration(command=IterationComplete())
        self.record("After")
        events = timeline(command=Timeline(iteration_id=iteration))
        self.assertIn((inside, "Use WAL"), [(event["id"], event["title"]) for event in events])
        self.assertNotIn("After", [event["title"] for event in events])


class AskingTests(DecisionsTestCase):
    def test_words_that_ask_for_decisions_are_not_search_terms(self):
        for question in (
            "What did we decide about locking?",
            "what have we already decided on locking",
            "why was locking chosen?",
            "which decisions did they make about locking",
            "¿Qué decisión hay? locking",
        ):
            with self.subTest(question):
                self.assertTrue(hints_in(question))
                self.assertFalse({"decide", "decided", "decisions", "chosen"} & set(terms(question)))
                self.assertIn("locking", terms(question))

    def test_other_questions_keep_all_their_words(self):
        self.assertEqual(terms("when does Ann decide to travel"), ["ann", "decide", "travel"])
        self.assertEqual(terms("what did we decide"), ["what", "did", "we", "decide"])

    def test_a_decision_comes_before_a_memory_of_the_same_words_where_decisions_are_asked_for(self):
        memory = write_memory(command=MemoryWrite(title="Locking", content="Locking, locking, locking")).id
        decision = self.record("Locking").id

        def found(query: str) -> list[int]:
            return [hit["id"] for hit in search(command=MemorySearch(query=query)).results]

        self.assertEqual(found("what did we decide about locking"), [decision, memory])
        self.assertEqual(found("locking"), [memory, decision])


class SuccessorTests(DecisionsTestCase):
    def test_a_decision_is_found_by_the_words_of_those_it_replaced_and_ranks_before_them(self):
        first = self.record("Locking", context="Readers wait").id
        second = self.record("Retries", supersedes=[first]).id
        third = self.record("Write-ahead", supersedes=[second]).id
        hits = search(command=MemorySearch(query="what did we decide about readers")).results
        self.assertEqual([hit["id"] for hit in hits], [third, first])
        self.assertIn(f"now #{third}", hits[1]["note"])

    def test_filters_also_apply_to_successors(self):
        first = self.record("Locking", context="Readers wait").id
        start_iteration(command=IterationStart(command="fix"))
        second = self.record("Retries", supersedes=[first]).id
        for filters, found in (({"until": "2020-01-01"}, []), ({"type": "decision"}, [second, first])):
            hits = search(command=MemorySearch.model_validate({"query": "readers", **filters})).results
            self.assertEqual([hit["id"] for hit in hits], found)
        before = search(command=MemorySearch(query="readers", as_of=first)).results
        self.assertEqual([hit["id"] for hit in before], [first])


class LibrarianTests(DecisionsTestCase):
    def test_the_prompt_is_the_body_of_the_agent_file(self):
        head, _, body = agent_file().partition("\n---\n")
        names = [line.partition(":")[0] for line in head.splitlines()[1:]]
        self.assertEqual(names, ["name", "description", "tools", "model", "color"])
        self.assertEqual(body.strip(), instructions())
        asked = ask_librarian(LibrarianQuestion(question="Why WAL?"))
        self.assertTrue(asked.startswith(instructions()))
        self.assertTrue(asked.endswith("Question: Why WAL?"))
        self.assertIn("wait for the answer", ask_librarian(LibrarianQuestion()))
