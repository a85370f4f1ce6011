from __future__ import annotations

import os
from typing import Any, ClassVar
from unittest import mock

from django.test import tag

from memories import selectors
from memories.events import Verdict
from memories.models import Memory, ReviewState
from memories.pack import pack_context, preview_pack, replay_pack
from memories.present import memory_text, written
from memories.review.policy import is_sampled
from memories.review.schemas import ReviewEdit, ReviewList, ReviewMerge, ReviewResult, ReviewTouch, ReviewVerdict
from memories.review.selectors import count_waiting, last_verdict_of, list_reviews
from memories.review.services import accept_edited, merge_into, review_many, review_memory, withdraw_verdict
from memories.schemas import MemoryGet, MemoryList, MemoryTouch, MemoryUpdate, MemoryWrite, WriteResult
from memories.schemas.query import ContextPackRequest, ContextReplay
from memories.services import delete_memory, update_memory, write_memory
from memoryhub.core.errors import ConflictError, Forbidden, Gone, Invalid, NotFound, PreconditionFailed
from memoryhub.core.origin import use_origin
from sessions_app.schemas import SettingsChange
from sessions_app.services.profile import change_settings
from tests.api.client import RestTestCase
from tests.memories.base import MemoriesTestCase

ACCEPTED, PROPOSED, REJECTED = ReviewState.ACCEPTED, ReviewState.PROPOSED, ReviewState.REJECTED
TITLE = "Retry three times"


class ReviewTestCase(MemoriesTestCase):
    origin: ClassVar[dict[str, Any]] = {"actor": "codex", "source": "mcp"}
    policy: dict[str, Any] = {"review_policy": "all"}

    def setUp(self) -> None:
        super().setUp()
        self.configure(**self.policy)

    def configure(self, **settings: Any) -> None:
        change_settings(command=SettingsChange(settings=settings))

    def written(self, title: str = TITLE, content: str = "", **fields: Any) -> WriteResult:
        text = content or ("After a timeout." if title == TITLE else f"About {title}.")
        return super().written(title, text, **fields)

    def say(self, memory_id: int, verdict: str, **fields: Any) -> ReviewResult:
        with use_origin(actor="ada", source="admin"):
            return review_memory(command=ReviewVerdict(id=memory_id, verdict=Verdict(verdict), **fields))

    def accept(self, memory_id: int, **fields: Any) -> ReviewResult:
        return self.say(memory_id, "accepted", **fields)

    def reject(self, memory_id: int, reason: str = "", **fields: Any) -> ReviewResult:
        return self.say(memory_id, "rejected", reason=reason, **fields)

    def withdraw(self, memory_id: int) -> ReviewResult:
        with use_origin(actor="ada", source="admin"):
            return withdraw_verdict(command=ReviewTouch(id=memory_id))

    def accepted(self, title: str = TITLE, content: str = "", **fields: Any) -> int:
        with use_origin(actor="ada", source="admin"):
            return self.written(title, content, **fields).id

    def memory(self, memory_id: int) -> Memory:
        found: Memory = Memory.objects.get(id=memory_id)
        return found

    def standing(self, memory_id: int) -> tuple[str, int, int | None]:
        memory = self.memory(memory_id)
        return memory.review, memory.version, memory.accepted_version

    def found(self, query: str = "timeout") -> list[tuple[int, str]]:
        listing = self.search(query)
        return [(hit["id"], hit["note"]) for hit in listing.results]

    def ids(self, query: str) -> list[int]:
        return [memory_id for memory_id, _ in self.found(query)]

    def pack(self, query: str = "") -> str:
        return preview_pack(command=ContextPackRequest(query=query)).text


class PolicyTests(ReviewTestCase):
    policy: dict[str, Any] = {"review_policy": "off"}

    def test_all_writes_of_agents_are_proposed_by_the_policy_and_none_of_people(self) -> None:
        self.assertEqual(self.written("No policy").review, ACCEPTED)
        self.configure(review_policy="all")
        result = self.written()
        self.assertEqual((result.review, result.review_reason), (PROPOSED, "policy reviews all writes"))
        self.assertIn("proposed: a person will review it", written(result).text)
        self.assertEqual(self.memory(self.accepted("Another")).review, ACCEPTED)

    def test_a_sample_is_the_same_for_the_same_text(self) -> None:
        self.configure(review_policy="sampled", review_sample_percent=40)
        texts = [f"Text number {number}." for number in range(40)]
        results = [self.written(f"Title {number}", text) for number, text in enumerate(texts)]
        proposed = [result.review is PROPOSED for result in results]
        self.assertEqual(proposed, [is_sampled(f"  {text}\n", 40) for text in texts])
        self.assertTrue(any(proposed) and not all(proposed))
        self.assertIn("40 %", next(result.review_reason for result in results if result.review is PROPOSED))

    def test_interfaces_agents_and_imports_can_be_reviewed(self) -> None:
        with mock.patch.dict(os.environ, MEMORY_HUB_REVIEW_SOURCES="import, mcp"):
            self.assertEqual(self.written("First").review_reason, "policy reviews all writes from mcp")
        self.configure(review_sources=["agent:Codex", "import", "rest"])
        for actor, source, topic, reason in (
            ("codex", "mcp", None, "policy reviews all writes from agent:codex"),
            ("claude", "mcp", None, ""),
            ("claude", "mcp", "import:markdown:README.md#top", "policy reviews all writes from import"),
            ("script", "rest", None, "policy reviews all writes from rest"),
        ):
            with self.subTest(actor=actor, topic=topic), use_origin(actor=actor, source=source):
                result = self.written(f"By {actor} of {topic}", topic_key=topic)
                self.assertEqual((result.review, result.review_reason), (PROPOSED if reason else ACCEPTED, reason))

    def test_uncertain_knowledge_and_promoted_session_memories_are_proposed(self) -> None:
        self.configure(review_below_confidence=0.6)
        unsure = self.written("Unsure", kind="knowledge", attributes={"confidence": 0.5})
        sure = self.written("Sure", kind="knowledge", attributes={"confidence": 0.6})
        self.assertEqual((unsure.review_reason, sure.review), ("confidence 0.5 is below 0.6", ACCEPTED))
        self.configure(review_policy="all")
        with use_origin(session_id="s-1"):
            result = self.written(scope="session")
            self.assertEqual(result.review, ACCEPTED)
            self.assertEqual(self.update(result.id, promote=True).review, PROPOSED)
        self.assertEqual(self.standing(result.id), (PROPOSED, 2, None))


class QueueTests(ReviewTestCase):
    def test_a_proposed_memory_is_found_with_a_lower_score_and_is_in_no_pack(self) -> None:
        waiting = self.written().id
        known = self.accepted("Retry five times", "After a timeout!")
        self.assertEqual(self.found(), [(known, ""), (waiting, "proposed")])
        self.assertIn(f"#{known} ", self.pack("timeout"))
        self.assertNotIn(f"#{waiting} ", self.pack("timeout") + self.pack())
        shown = self.get(waiting)
        self.assertIn("(proposed)", memory_text(shown))
        self.configure(packs_accepted_only=False)
        self.assertIn(f"#{waiting} ", self.pack())

    def test_a_rejected_memory_is_only_readable_by_id_and_its_text_not_proposed_again(self) -> None:
        memory_id = self.written().id
        self.reject(memory_id, "It is wrong.")
        again = self.written("Retry thrice", "After a timeout.")
        self.assertEqual((again.id, again.status, again.review), (memory_id, "seen", REJECTED))
        self.assertIn("a reviewer has rejected it: It is wrong.", written(again).text)
        self.configure(packs_accepted_only=False)
        self.assertEqual((self.found(), count_waiting()), ([], 0))
        self.assertNotIn(f"#{memory_id} ", self.pack())
        self.assertEqual(selectors.list_memories(command=MemoryList()).results, [])
        self.assertIn("(rejected: It is wrong.)", memory_text(self.get(memory_id)))
        with self.assertRaises(NotFound):
            selectors.get_memories(command=MemoryGet(name="Retry three times"))
        self.accept(memory_id)
        self.assertEqual((self.found(), self.standing(memory_id)), ([(memory_id, "")], (ACCEPTED, 1, None)))
        self.assert_rebuilds()
        other = self.written("Other").id
        self.reject(other)
        revised = self.update(other, content="After a timeout of the lock.")
        self.assertEqual((revised.review, revised.review_reason), (PROPOSED, "revised after rejection"))

    @tag("backend")
    def test_the_queue_is_paged_oldest_first_and_filtered_by_who_proposed_and_how(self) -> None:
        ids = [self.written(f"Title {number}", f"Text {number}").id for number in range(5)]
        first = list_reviews(command=ReviewList(limit=2))
        self.accept(ids[0])
        second = list_reviews(command=ReviewList(limit=2, cursor=first.meta.next_cursor))
        shown = [item["id"] for item in (*first.results, *second.results)]
        self.assertEqual((shown, first.meta.total_count, count_waiting()), (ids[:4], 5, 4))
        item = first.results[0]
        self.assertEqual((item["actor"], item["door"], item["event"]), ("codex", "mcp", ids[0]))
        with use_origin(actor="claude", source="rest"):
            rule = self.written("Other", "Text.", kind="guideline").id
        for filters, waiting in (
            ({"actor": "codex"}, ids[1:]),
            ({"source": "rest"}, [rule]),
            ({"kind": "guideline"}, [rule]),
        ):
            listing = list_reviews(command=ReviewList.model_validate(filters))
            self.assertEqual([item["id"] for item in listing.results], waiting, filters)
        with self.store("beta"):
            self.assertEqual((count_waiting(), list_reviews(command=ReviewList()).results), (0, []))


class VerdictTests(ReviewTestCase):
    def test_impossible_verdicts_are_refused(self) -> None:
        memory_id = self.written().id
        self.update(memory_id, content="After a timeout of the lock.")
        with self.assertRaises(PreconditionFailed) as refused:
            self.accept(memory_id, base_version=1)
        self.assertEqual(refused.exception.data, {"id": memory_id, "version": 2})
        answers = [self.accept(memory_id, base_version=2, idempotency_key="k-1") for _ in range(2)]
        self.assertEqual(*answers)
        with self.refuses(ConflictError, "is accepted already"):
            self.accept(memory_id)
        with self.assertRaises(NotFound):
            self.accept(999)
        self.delete(memory_id)
        with self.assertRaises(Gone):
            self.reject(memory_id)

    def test_only_people_may_review_their_own_writes(self) -> None:
        memory_id = self.written().id
        with self.assertRaisesMessage(Forbidden, "codex wrote the text of #"):
            review_memory(command=ReviewVerdict(id=memory_id, verdict=Verdict.ACCEPTED))
        with use_origin(actor="script", source="rest"):
            review_memory(command=ReviewVerdict(id=memory_id, verdict=Verdict.ACCEPTED))
        self.assertEqual(self.standing(memory_id), (ACCEPTED, 1, None))

    def test_one_refused_verdict_does_not_stop_a_batch(self) -> None:
        ids = [self.written(f"Title {number}", f"Text {number}").id for number in range(3)]
        self.reject(ids[1])
        many = [ReviewVerdict(id=item, verdict=Verdict.REJECTED, reason="noise") for item in (*ids, 999)]
        with use_origin(actor="ada", source="admin"):
            outcomes = review_many(commands=many)
        self.assertEqual([bool(outcome.refused) for outcome in outcomes], [False, True, False, True])
        self.assertIn("is rejected already", outcomes[1].refused)
        self.assertEqual(count_waiting(), 0)

    def test_an_edit_and_its_acceptance_are_one_transaction(self) -> None:
        memory_id = self.written().id
        taken = self.accepted("Taken", "Another text.")
        with use_origin(actor="ada", source="admin"):
            with self.assertRaises(ConflictError) as refused:
                accept_edited(command=ReviewEdit(id=memory_id, title="Taken"))
            self.assertEqual((refused.exception.data["id"], self.memory(memory_id).version), (taken, 1))
            done = accept_edited(command=ReviewEdit(id=memory_id, base_version=1, content="After a second timeout."))
        self.assertEqual((done.review, self.standing(memory_id)), (ACCEPTED, (ACCEPTED, 2, None)))
        self.withdraw(memory_id)
        self.assertEqual(self.standing(memory_id), (PROPOSED, 3, None))
        self.assertEqual(self.memory(memory_id).content, "After a timeout.")
        self.assert_rebuilds()

    def test_a_merge_moves_the_text_and_rejects_the_first_memory(self) -> None:
        target = self.accepted("How we retry", "Three times.", tags=["net"])
        memory_id = self.written(tags=["lock"]).id
        text = "Three times, after a timeout."
        with use_origin(actor="ada", source="admin"):
            with self.assertRaises(Invalid):
                merge_into(command=ReviewMerge(id=memory_id, into=memory_id))
            done = merge_into(command=ReviewMerge(id=memory_id, into=target, into_version=1, content=text))
        merged = self.memory(target)
        self.assertEqual((merged.version, merged.content, merged.tags), (2, text, ["lock", "net"]))
        self.assertEqual((done.review_reason, done.merged_into), (f"merged into #{target}", target))
        self.withdraw(memory_id)
        self.assertEqual((self.memory(target).content, self.standing(memory_id)), ("Three times.", (PROPOSED, 1, None)))
        self.assert_rebuilds()

    def test_a_verdict_is_undone_once_and_only_while_nothing_has_changed(self) -> None:
        first, second = self.written().id, self.written("Other", "Text.").id
        self.accept(first)
        self.reject(second, "noise")
        given = last_verdict_of("ada")
        self.assertEqual(given and given.payload.memory_id, second)
        self.withdraw(second)
        self.assertEqual(self.standing(second), (PROPOSED, 1, None))
        self.assertEqual(self.memory(second).review_reason, "policy reviews all writes")
        given = last_verdict_of("ada")
        self.assertEqual(given and given.payload.memory_id, first)
        with self.assertRaisesMessage(ConflictError, "no verdict"):
            self.withdraw(second)
        self.update(first, content="After a timeout of the lock.")
        with self.assertRaisesMessage(PreconditionFailed, "has changed since the verdict"):
            self.withdraw(first)
        self.assert_rebuilds()


class RevisionTests(ReviewTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.rule = self.accepted("Be kind", "To everyone.", kind="guideline", attributes={"priority": 90})

    def test_packs_show_the_accepted_version_until_the_review(self) -> None:
        result = self.update(self.rule, content="To nobody.", attributes={"priority": 1})
        self.assertEqual(self.standing(self.rule), (PROPOSED, 2, 1))
        self.assertIn("v1 stays in effect until then", written(result).text)
        sent = pack_context(command=ContextPackRequest())
        self.assertIn(f"- #{self.rule} p90 general: Be kind: To everyone.", sent.text)
        self.update(self.rule, content="To some.")
        self.assertEqual(self.standing(self.rule), (PROPOSED, 3, 1))
        item = list_reviews(command=ReviewList()).results[0]
        self.assertEqual(item["diff"], "To [-everyone-]{+some+}.")
        (hit,) = self.search("kind").results
        self.assertEqual(hit["note"], "proposed; v1 is in effect")
        self.accept(self.rule)
        self.assertIn("p1 general: Be kind: To some.", self.pack())
        self.configure(packs_accepted_only=False)
        again = replay_pack(command=ContextReplay(id=sent.id))
        self.assertEqual((again.text, again.as_sent), (sent.text, True))

    @tag("backend")
    def test_a_proposed_revision_is_found_by_its_words_and_by_the_accepted_ones(self) -> None:
        fact = self.accepted("Ferry", "It leaves at noon.", tags=["harbour"])
        self.update(fact, title="Boat", content="It leaves at midnight.", tags=["jetty"])
        for query in ("ferry", "noon", "harbour", "boat", "midnight", "jetty"):
            self.assertEqual(self.ids(query), [fact], query)
        self.assertIn("Ferry: It leaves at noon.", self.pack("When at noon?"))
        self.reject(fact)
        self.assertEqual((self.ids("noon"), self.ids("midnight")), ([fact], []))
        self.withdraw(fact)
        self.assertEqual((self.ids("noon"), self.ids("midnight")), ([fact], [fact]))
        self.assert_rebuilds()
        self.assertEqual((self.ids("noon"), self.ids("midnight")), ([fact], [fact]))
        self.accept(fact)
        self.assertEqual((self.ids("noon"), self.ids("midnight")), ([], [fact]))

    def test_a_rejected_revision_leaves_the_accepted_version(self) -> None:
        self.update(self.rule, title="Be unkind", content="To nobody.")
        done = self.reject(self.rule, "No.")
        self.assertEqual((done.review, self.standing(self.rule)), (ACCEPTED, (ACCEPTED, 3, None)))
        memory = self.memory(self.rule)
        self.assertEqual((memory.title, memory.content, memory.priority), ("Be kind", "To everyone.", 90))
        self.withdraw(self.rule)
        self.assertEqual((self.standing(self.rule), self.memory(self.rule).title), ((PROPOSED, 4, 1), "Be unkind"))
        self.assertIn("Be kind: To everyone.", self.pack())
        self.assert_rebuilds()

    def test_a_proposed_expiry_does_not_remove_the_accepted_fact_sorted_by_its_time(self) -> None:
        fact = self.accepted("The port", "It is 8080.", kind="knowledge")
        other = self.accepted("The host", "It is alpha.", kind="knowledge")
        self.update(fact, content="It is 9090.", attributes={"valid_until": "2020-01-01T00:00:00Z"})
        self.assertIn(f"#{fact} ", self.pack("port"))
        text = self.pack()
        self.assertLess(text.index(f"#{other} "), text.index(f"#{fact} "))
        self.assertIn("It is 8080.", text)

    def test_a_rewritten_topic_is_proposed_too_and_a_person_who_edits_accepts(self) -> None:
        topic = self.accepted("Build", "Run make.", topic_key="build")
        result = self.written("Build", "Run cargo.", topic_key="build")
        self.assertEqual((result.id, self.standing(topic)), (topic, (PROPOSED, 2, 1)))
        self.assert_rebuilds()
        with use_origin(actor="ada", source="admin"):
            self.update(topic, content="Run both.")
        self.assertEqual(self.standing(topic), (ACCEPTED, 3, None))


class ReviewRouteTests(RestTestCase):
    def test_the_queue_is_paged_and_a_verdict_is_given_once_on_the_reviewed_version(self) -> None:
        self.call("PATCH", "projects/alpha/settings", {"settings": {"review_policy": "all"}})
        with self.store("alpha", actor="codex", source="mcp"):
            commands = [MemoryWrite(title=f"Title {number}", content=f"Text {number}.") for number in range(3)]
            ids = [write_memory(command=command).id for command in commands]
            update_memory(command=MemoryUpdate(id=ids[0], content="Another text."))
        queue = "projects/alpha/reviews"
        page = self.call("GET", f"{queue}?limit=2").data
        last = self.call("GET", f"{queue}?limit=2&cursor={page['meta']['next_cursor']}").data
        self.assertEqual([item["id"] for item in page["results"] + last["results"]], [*ids[1:], ids[0]])
        self.assertEqual(page["results"][0]["review_reason"], "policy reviews all writes")
        self.assertEqual(self.call("GET", "projects/beta/reviews").data["results"], [])
        deleted = self.write("Deleted")
        with self.store("alpha"):
            delete_memory(command=MemoryTouch(id=deleted))
        rejection = {"base_version": 2, "verdict": "rejected", "reason": "It is not so."}
        for memory_id, body, status, answer in (
            (999, {}, 404, {}),
            (ids[0], {"verdict": "withdrawn"}, 422, {}),
            (deleted, {}, 410, {}),
            (self.write(), {}, 403, {}),
            (ids[0], {"base_version": 1}, 412, {"id": ids[0], "version": 2}),
            (ids[0], rejection, 200, {"review": "rejected", "review_reason": "It is not so."}),
            (ids[0], rejection, 409, {}),
        ):
            with self.subTest(status=status):
                path = f"projects/alpha/memories/{memory_id}/review"
                data = self.call("POST", path, {"verdict": "accepted", **body}, expect=status).data
                self.assertEqual({name: data[name] for name in answer}, answer)
        rejected = self.call("GET", f"{queue}?review=rejected").data["results"]
        self.assertEqual([item["id"] for item in rejected], [ids[0]])
