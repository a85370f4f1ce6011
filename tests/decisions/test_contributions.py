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

    def links(self, **fields: Any) -> list[tuple[int, str]]:
        return [(link["id"], link["link_type"]) for link in self.read(**fields)["decisions"]]

    def test_a_commit_is_linked_with_what_is_named_once(self):
        first, second = self.record("WAL").id, self.record("Locks").id
        both = [(first, "relates"), (second, "relates")]
        self.assertEqual(self.links(decision_ids=[first, second], link_type="relates"), both)
        third = self.record("Retries").id
        for _ in range(2):
            self.assertEqual(self.links(decision_ids=[third]), [*both, (third, "implements")])
        self.assertEqual(RawEvent.objects.filter(event_type="commit.linked").count(), 1)
        self.assertIn((third, "reverts"), self.links(decision_ids=[third], link_type="reverts"))

    def test_what_is_unknown_is_refused_and_nothing_is_recorded(self):
        memory = write_memory(command=MemoryWrite(title="T", content="x")).id
        for fields, message in (
            ({"decision_ids": [memory]}, f"#{memory} is a memory, not a decision"),
            ({"decision_ids": [99]}, "there is no decision #99"),
            ({"iteration_id": 99}, "no iteration #99"),
        ):
            with self.subTest(message), self.assertRaisesRegex(NotFound, message):
                self.read(**fields)
        self.assertEqual(log.head()[0], memory)

    def test_a_commit_joins_the_named_iteration_and_is_found_by_its_description(self):
        earlier = start_iteration(command=IterationStart(command="fix", description="Mend the turnstile")).id
        complete_iteration(command=IterationComplete())
        active = start_iteration(command=IterationStart(command="feature", description="Paint the fence")).id
        self.assertEqual(self.read()["iteration_id"], active)
        decision = self.record("WAL").id
        commit = self.read(iteration_id=earlier, decision_ids=[decision])
        self.assertEqual(commit["iteration_id"], earlier)
        for fields, hits in (
            ({"query": "turnstile", "sources": ["commit"]}, [("commit", "Open stores")]),
            ({"query": "fence", "sources": ["commit"]}, []),
            ({"query": "stores", "iteration_id": earlier}, [("commit", "Open stores")]),
            ({"query": "stores", "iteration_id": active}, []),
        ):
            with self.subTest(fields):
                results = search(command=MemorySearch.model_validate(fields)).results
                self.assertEqual([(hit["source"], hit["title"]) for hit in results], hits)
        commits = get_iteration(command=IterationGet(id=earlier))["commits"]
        self.assertEqual([commit["sha"] for commit in commits], [SHA])
        self.assert_rebuilds()
        self.assertEqual(self.read(), commit)


class PackAndSearchTests(DecisionsTestCase):
    def hits(self, query: str, **fields: Any) -> list[int]:
        command = MemorySearch.model_validate({"query": query, **fields})
        return [hit["id"] for hit in search(command=command).results]

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

    def test_words_that_ask_for_decisions_are_not_search_terms_and_others_are(self):
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
        self.assertEqual(terms("when does Ann decide to travel"), ["ann", "decide", "travel"])
        self.assertEqual(terms("what did we decide"), ["what", "did", "we", "decide"])

    def test_a_decision_comes_before_a_memory_of_the_same_words_where_decisions_are_asked_for(self):
        memory = write_memory(command=MemoryWrite(title="Locking", content="Locking, locking, locking")).id
        decision = self.record("Locking").id
        self.assertEqual(self.hits("what did we decide about locking"), [decision, memory])
        self.assertEqual(self.hits("locking"), [memory, decision])

    def test_a_decision_is_found_by_the_words_of_those_it_replaced_and_ranks_before_them(self):
        first = self.record("Locking", context="Readers wait").id
        start_iteration(command=IterationStart(command="fix"))
        second = self.record("Retries", supersedes=[first]).id
        for filters, hits in (
            ({}, [second, first]),
            ({"until": "2020-01-01"}, []),
            ({"type": "decision"}, [second, first]),
            ({"as_of": first}, [first]),
        ):
            with self.subTest(filters):
                self.assertEqual(self.hits("readers", **filters), hits)
        third = self.record("Write-ahead", supersedes=[second]).id
        results = search(command=MemorySearch(query="what did we decide about readers")).results
        self.assertEqual([hit["id"] for hit in results], [third, first])
        self.assertIn(f"now #{third}", results[1]["note"])

    def test_the_librarians_prompt_is_the_body_of_the_agent_file(self):
        head, _, body = agent_file().partition("\n---\n")
        names = [line.partition(":")[0] for line in head.splitlines()[1:]]
        self.assertEqual(names, ["name", "description", "tools", "model", "color"])
        self.assertEqual(body.strip(), instructions())
        prompt = ask_librarian(LibrarianQuestion(question="Why WAL?"))
        self.assertTrue(prompt.startswith(instructions()))
        self.assertTrue(prompt.endswith("Question: Why WAL?"))
        self.assertIn("wait for the answer", ask_librarian(LibrarianQuestion()))
