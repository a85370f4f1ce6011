"""Where entries come from, and what a person's acceptance changes."""

from __future__ import annotations

from decisions.schemas import DecisionMark, DecisionRecord
from decisions.services import mark_decision, record_decision
from governance.staleness.schemas import Affirm
from governance.staleness.service import affirm
from memories.events import Verdict
from memories.models import Memory, MemoryVersion
from memories.pack import pack_context
from memories.pack.service import recall_context
from memories.review.schemas import ReviewTouch, ReviewVerdict
from memories.review.services import review_memory, withdraw_verdict
from memories.schemas import MemoryGet, MemoryRestore, MemorySearch, MemoryUpdate, MemoryWrite
from memories.schemas.query import ContextPackRequest
from memories.selectors.search import search
from memories.services import restore_memory, update_memory, write_memory
from memories.tools import get, search_text
from memories.validity.trust import EntrySource, trust_marks, trusts_of
from memoryhub.core.errors import ConflictError
from memoryhub.core.origin import use_origin
from memoryhub.transfer.importing import Importer
from memoryhub.transfer.records import MemoryRecord
from sessions_app.schemas import EventAppend, SessionStart, TurnBegin, TurnEnd
from sessions_app.services import start_session, turns
from tests.support import HubTestCase

PAGE = "https://pages.example/pools"
TEXT = "The pool of the API has at most twelve connections per worker, because the database allows one hundred."
OF_PAGE = "The pool of the API has fifty connections per worker, which gives the best throughput for most services."
AGENT = {"source": "mcp", "actor": "claude-code"}
ADA = {"source": "admin", "actor": "ada"}


class TrustTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store())

    def write(self, content: str, title: str = "Size of the pool", *, session_id: str = "", **fields: object) -> int:
        with use_origin(**AGENT, session_id=session_id):
            return write_memory(command=MemoryWrite(title=title, content=content, **fields)).id

    def accept(self, memory_id: int, **origin: str) -> None:
        with use_origin(**(origin or ADA)):
            review_memory(command=ReviewVerdict(id=memory_id, verdict=Verdict.ACCEPTED))

    def revise(self, memory_id: int, **changes: object) -> None:
        with use_origin(**AGENT):
            update_memory(command=MemoryUpdate(id=memory_id, **changes))

    def source_of(self, memory_id: int) -> EntrySource:
        return trusts_of([memory_id])[memory_id].source

    def mark_of(self, memory_id: int) -> str:
        marks = trust_marks([memory_id])
        return marks[memory_id].text if marks else ""

    def record(self, session_id: str, kind: str, **payload: object) -> None:
        with use_origin(source="hook", actor="claude-code"):
            begun = turns.begin_turn(command=TurnBegin(session_id=session_id))
            turns.append_event(command=EventAppend(ack_token=begun.ack_token, type=kind, payload=payload))
            turns.end_turn(command=TurnEnd(ack_token=begun.ack_token))


class SourceTests(TrustTestCase):
    def test_an_entry_of_an_agent_or_a_person_has_no_mark(self) -> None:
        by_agent = self.write(TEXT)
        with use_origin(**ADA):
            by_ada = write_memory(command=MemoryWrite(title="Size", content=OF_PAGE, source=PAGE)).id

        trusts = trusts_of([by_agent, by_ada])

        self.assertEqual({}, trust_marks([by_agent, by_ada]))
        self.assertEqual((EntrySource.AGENT, "not reviewed"), (trusts[by_agent].source, trusts[by_agent].text))
        self.assertEqual((EntrySource.PERSON, "ada"), (trusts[by_ada].source, trusts[by_ada].accepted_by))

    def test_a_page_named_as_source_or_link_or_in_the_text_is_the_origin(self) -> None:
        ids = [
            self.write(OF_PAGE, "Named as source", source=PAGE),
            self.write(f"{OF_PAGE} Really.", "Named by a link", resource_links=[{"uri": PAGE}]),
            self.write(f"According to {PAGE}: {OF_PAGE}", "Named in the text"),
            self.write(f"Copied from a blog post. {OF_PAGE}", "Kind of page named"),
        ]

        self.assertEqual(["from a web page, not accepted"] * 4, [self.mark_of(memory_id) for memory_id in ids])

    def test_an_address_that_is_only_mentioned_is_no_origin(self) -> None:
        ids = [
            self.write(f"{TEXT} The page {PAGE} tells why.", "Mentioned"),
            self.write(f"{TEXT} It runs there.", "Of this machine", source="http://localhost:8800/pools"),
            self.write(f"{TEXT} Keep it.", "Governs", resource_links=[{"uri": PAGE, "type": "governs"}]),
        ]

        self.assertEqual({}, trust_marks(ids))

    def test_a_text_that_repeats_a_page_of_its_session_is_of_the_page(self) -> None:
        page = f"Pools. {OF_PAGE} Read more about pools."
        self.record("s-1", "message.tool", tool="WebFetch", input={"url": PAGE}, output={"result": page})
        self.record("s-2", "command.run", command=f"curl -s {PAGE}", output=page)

        of_tool = self.write(OF_PAGE, session_id="s-1")
        of_command = self.write(f"Note: {OF_PAGE}", "Again", session_id="s-2")
        elsewhere = self.write(f"{OF_PAGE} Indeed.", "Of another session", session_id="s-3")

        self.assertEqual("from a web page, not accepted", self.mark_of(of_tool))
        self.assertEqual("from a web page, not accepted", self.mark_of(of_command))
        self.assertEqual("", self.mark_of(elsewhere))
        self.assert_rebuilds()

    def test_a_text_that_repeats_the_output_of_a_tool_is_of_the_tool(self) -> None:
        self.record("s-1", "command.run", command="make report", output=f"report\n{TEXT}\ndone")
        self.record("s-1", "message.tool", tool="mcp__wiki__page", output=[{"type": "text", "text": OF_PAGE}])

        of_command = self.write(TEXT, session_id="s-1")
        of_tool = self.write(OF_PAGE, "Size by the wiki", session_id="s-1")
        learnt = self.write(
            "The report failed since the database was full; vacuuming repaired it.", "x", session_id="s-1"
        )

        self.assertEqual("from a tool's output, not accepted", self.mark_of(of_command))
        self.assertEqual("from a tool's output, not accepted", self.mark_of(of_tool))
        self.assertEqual("", self.mark_of(learnt))

    def test_files_of_the_project_and_words_of_the_user_are_no_outputs(self) -> None:
        self.record("s-1", "message.tool", tool="Read", input={"file_path": "/src/docs/pool.md"}, output=TEXT)
        self.record("s-1", "command.run", command="cat docs/pool.md", output=OF_PAGE)
        self.record("s-2", "command.run", command="make report", output=TEXT)
        self.record("s-2", "message.user", content=f"remember: {TEXT}")
        self.record("s-3", "command.run", command="cat node_modules/pool/README.md", output=OF_PAGE)

        self.assertEqual("", self.mark_of(self.write(TEXT, "Read", session_id="s-1")))
        self.assertEqual("", self.mark_of(self.write(OF_PAGE, "Printed", session_id="s-1")))
        self.assertEqual("", self.mark_of(self.write(f"{TEXT} ", "Of the user", session_id="s-2", named=True)))
        of_package = self.write(OF_PAGE, "Of a package", session_id="s-3", named=True)
        self.assertEqual("from a tool's output, not accepted", self.mark_of(of_package))

    def test_an_import_names_its_tool_and_a_file_of_the_project_has_no_mark(self) -> None:
        records = [MemoryRecord(key="1", title="Pool", content=TEXT, place="mem0.db")]
        Importer("mem0", "alpha", is_only=True).run(records, place="mem0.db")
        imported = Memory.objects.get().id
        with use_origin(source="cli", actor="ada"):
            command = MemoryWrite(title="docs/pool.md", content=OF_PAGE, topic_key="import:markdown:docs/pool.md#")
            section = write_memory(command=command).id
        forged = self.write(f"{TEXT} Forged.", "Forged", topic_key="import:markdown:docs/x.md#", source=PAGE)

        self.assertEqual("imported from mem0, not accepted", self.mark_of(imported))
        self.assertEqual(EntrySource.FILE, self.source_of(section))
        self.assertEqual("", self.mark_of(section))
        self.assertEqual("from a web page, not accepted", self.mark_of(forged))

    def test_a_few_other_words_or_another_source_do_not_hide_the_origin(self) -> None:
        self.record("s-1", "message.tool", tool="WebFetch", input={"url": PAGE}, output=OF_PAGE)
        copied = self.write(OF_PAGE, session_id="s-1")
        named = self.write(f"{OF_PAGE} Named.", "Named", source=PAGE)
        Importer("mem0", "alpha", is_only=True).run([MemoryRecord(key="1", title="P", content=TEXT)], place="x")
        imported = Memory.objects.get(title="P").id

        self.revise(copied, content=OF_PAGE.replace("fifty", "sixty"))
        self.revise(named, source="docs/pool.md")
        self.revise(imported, tags=["pool"])

        self.assertEqual("from a web page, not accepted", self.mark_of(copied))
        self.assertEqual("from a web page, not accepted", self.mark_of(named))
        self.assertEqual("imported from mem0, not accepted", self.mark_of(imported))

    def test_an_earlier_version_that_a_client_restores_keeps_its_origin(self) -> None:
        self.record("s-1", "message.tool", tool="WebFetch", input={"url": PAGE}, output=OF_PAGE)
        memory_id = self.write(OF_PAGE, session_id="s-1")
        with use_origin(**ADA):
            update_memory(command=MemoryUpdate(id=memory_id, content="Ask ada about the pool."))

        with use_origin(**AGENT):
            restore_memory(command=MemoryRestore(id=memory_id, version=1))

        self.assertEqual("from a web page, not accepted", self.mark_of(memory_id))


class AcceptanceTests(TrustTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.page = self.write(OF_PAGE, source=PAGE)

    def test_a_verdict_of_a_person_raises_that_very_text(self) -> None:
        self.accept(self.page)

        self.assertEqual("", self.mark_of(self.page))
        self.assertEqual("ada", trusts_of([self.page])[self.page].accepted_by)
        self.assertRegex(trusts_of([self.page])[self.page].text, r"^from a web page, accepted by ada 20\d\d-\d\d-\d\d$")
        with self.assertRaises(ConflictError):
            self.accept(self.page)
        self.assert_rebuilds()

    def test_a_verdict_counts_with_a_persons_token_and_no_agents(self) -> None:
        with self.assertRaises(ConflictError):
            self.accept(self.page, source="rest", actor="token:ci")
        with self.assertRaises(ConflictError):
            self.accept(self.page, source="mcp", actor="token")
        with self.assertRaises(ConflictError):
            self.accept(self.page, source="mcp", actor="ada/laptop")

        self.accept(self.page, source="rest", actor="ada/laptop")

        self.assertEqual("ada", trusts_of([self.page])[self.page].accepted_by)

    def test_a_verdict_with_the_hubs_token_is_its_owners(self) -> None:
        self.accept(self.page, source="rest", actor="token")

        self.assertEqual("the hub's token", trusts_of([self.page])[self.page].accepted_by)

    def test_another_text_of_a_client_loses_it_and_other_tags_do_not(self) -> None:
        self.accept(self.page)

        self.revise(self.page, tags=["pool"])
        self.assertEqual("ada", trusts_of([self.page])[self.page].accepted_by)
        self.revise(self.page, content=OF_PAGE.replace("fifty", "five hundred"))
        self.assertEqual("from a web page, not accepted", self.mark_of(self.page))
        self.revise(self.page, content=OF_PAGE)
        self.assertEqual("", self.mark_of(self.page))

    def test_an_undone_verdict_counts_no_more(self) -> None:
        self.accept(self.page)
        with use_origin(**ADA):
            withdraw_verdict(command=ReviewTouch(id=self.page))

        self.assertEqual("from a web page, not accepted", self.mark_of(self.page))

    def test_an_affirmation_of_a_person_counts_and_that_of_an_agent_does_not(self) -> None:
        with use_origin(**AGENT):
            affirm(command=Affirm(id=self.page))
        self.assertEqual("from a web page, not accepted", self.mark_of(self.page))

        with use_origin(**ADA):
            affirm(command=Affirm(id=self.page))
        self.assertEqual("", self.mark_of(self.page))

    def test_a_version_of_a_person_is_accepted(self) -> None:
        with use_origin(**ADA):
            update_memory(command=MemoryUpdate(id=self.page, content=f"{OF_PAGE} Checked."))

        self.assertEqual("ada", trusts_of([self.page])[self.page].accepted_by)


class GivenTests(TrustTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.accepted = self.write(TEXT)
        self.accept(self.accepted)
        self.page = self.write(
            "How many connections may the pool of the API have per worker? Fifty connections per worker.",
            "Connections of the pool per worker",
            source=PAGE,
        )
        self.question = "how many connections may the pool of the API have per worker?"

    def test_what_a_person_accepted_is_found_before_a_page_on_the_same_matter(self) -> None:
        hits = search(command=MemorySearch(query=self.question)).results
        text = search_text(MemorySearch(query=self.question))

        self.assertEqual([self.accepted, self.page], [hit["id"] for hit in hits], [hit["score"] for hit in hits])
        self.assertIn("Connections of the pool per worker (from a web page, not accepted)", text)

    def test_a_later_page_does_not_amend_what_a_person_accepted(self) -> None:
        later = self.write(
            "From now on the pool of the API no longer has twelve connections per worker, but fifty connections.",
            "Size of the pool from now on",
            source=PAGE,
        )

        hits = {hit["id"]: hit for hit in search(command=MemorySearch(query=self.question)).results}
        with use_origin(source="hook", actor="claude-code", session_id="s-9"):
            start_session(command=SessionStart(session_id="s-9"))
            text = recall_context("s-9", self.question)

        self.assertEqual(self.accepted, next(iter(hits)))
        self.assertEqual([], hits[self.accepted]["marks"])
        self.assertIn("origin", [mark["kind"] for mark in hits[later]["marks"]])
        self.assertIn(f"- #{self.accepted} memory", text)

    def test_a_page_that_alone_answers_stays_first(self) -> None:
        other = self.write("The CDN offers TLS of version 1.2 and 1.3.", "Versions of TLS of the CDN", source=PAGE)
        with use_origin(**ADA):
            write_memory(command=MemoryWrite(title="Cache of the CDN", content="The CDN caches for seven days."))

        hits = search(command=MemorySearch(query="which versions of TLS does the CDN offer?")).results

        self.assertEqual(other, hits[0]["id"])

    def test_recall_says_the_origin_and_has_the_accepted_entry_too(self) -> None:
        with use_origin(source="hook", actor="claude-code", session_id="s-9"):
            start_session(command=SessionStart(session_id="s-9"))
            text = recall_context("s-9", self.question)

        self.assertIn(f"- #{self.page} (from a web page, not accepted) ", text)
        self.assertIn(f"- #{self.accepted} ", text)
        self.assertLess(text.index(f"- #{self.accepted} "), text.index(f"- #{self.page} "))

    def test_a_pack_has_the_accepted_entry_beside_a_page_that_answers_better(self) -> None:
        page = self.write(
            "How many connections may the pool have? Fifty. How many connections may the pool have per worker? Fifty.",
            "How many connections may the pool have",
            source=PAGE,
        )

        text = pack_context(command=ContextPackRequest(query="how many connections may the pool have?")).text

        self.assertIn(f"#{page} (from a web page, not accepted)", text)
        self.assertIn(f"- #{self.accepted} ", text)

    def test_the_whole_memory_says_who_accepted_it(self) -> None:
        by_agent = self.write("Workers restart after a thousand requests.", "Restarts")

        self.assertRegex(get(MemoryGet(ids=[self.accepted])).text, r"^#\d+ .* by claude-code, accepted by ada 20\d\d-")
        self.assertRegex(get(MemoryGet(ids=[by_agent])).text, r"^#\d+ .* by claude-code, not reviewed")
        self.assertRegex(get(MemoryGet(ids=[self.page])).text, r"^#\d+ .* \(from a web page, not accepted\)")

    def test_logs_of_the_version_before_have_no_copies(self) -> None:
        self.assertFalse(MemoryVersion.objects.exclude(copied_from=None).exists())


class DecisionTests(TrustTestCase):
    def decide(self, chosen: str, **fields: object) -> int:
        with use_origin(**AGENT):
            return record_decision(command=DecisionRecord(title="Size of the pool", chosen=chosen, **fields)).id

    def test_a_choice_that_was_copied_is_marked_until_a_person_accepts_it(self) -> None:
        ids = [self.decide(f"Copied from {PAGE}: {size}, {OF_PAGE}") for size in (1, 2, 3)]
        first, second, third = ids
        self.assertEqual(["from a web page, not accepted"] * 3, [self.mark_of(decision_id) for decision_id in ids])
        with use_origin(**AGENT):
            mark_decision(command=DecisionMark(id=first, reviewed=True))
            affirm(command=Affirm(id=second))
        self.assertEqual(2, len(trust_marks([first, second])))
        with use_origin(**ADA):
            mark_decision(command=DecisionMark(id=first, status="accepted"))
            affirm(command=Affirm(id=second))
        self.assertEqual([third], list(trust_marks(ids)))
        hits = {hit["id"]: hit["marks"] for hit in search(command=MemorySearch(query="size of the pool")).results}
        kinds = [[mark["kind"] for mark in hits[decision_id]] for decision_id in ids]
        self.assertEqual([False, False, True], ["origin" in names for names in kinds])
        self.assert_rebuilds()

    def test_a_page_that_is_cited_for_a_choice_of_ones_own_is_no_origin(self) -> None:
        cited = self.decide(TEXT, rationale=f"According to {PAGE}, this is enough.", source=PAGE)
        self.assertEqual({}, trust_marks([cited]))
