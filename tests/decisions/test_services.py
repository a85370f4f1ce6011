"""Decisions by services and REST, in commits, packs, searches and prompts, and in random histories."""

from __future__ import annotations

from typing import Any

from django.test import tag

from decisions import selectors, services
from decisions.models import ArtifactLink, CommitLink, Decision
from decisions.projectors import mentions, reverted_sha
from decisions.prompts import LibrarianQuestion, agent_file, ask_librarian, instructions
from decisions.schemas import (
    DecisionEvidence,
    DecisionGet,
    DecisionLink,
    DecisionList,
    DecisionMark,
    DecisionRecord,
    DecisionResult,
    DecisionSupersede,
    DecisionUnlink,
)
from decisions.services import add_evidence, record_decision, supersede_decision
from memories.pack import pack_context
from memories.schemas import MemorySearch, MemoryWrite, Timeline
from memories.schemas.query import ContextPackRequest
from memories.search.text import hints_in, terms
from memories.selectors import search
from memories.services import write_memory
from memories.timeline import timeline
from memoryhub.core import log
from memoryhub.core.errors import ConflictError, Forbidden, Invalid, NotFound
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.registry.tokens import TokenCreate, create_token
from sessions_app.schemas import CommitRead, IterationComplete, IterationGet, IterationStart, SettingsChange
from sessions_app.selectors import get_iteration, view_commit
from sessions_app.services import record_commit
from sessions_app.services.profile import change_settings
from sessions_app.services.work import complete_iteration, start_iteration
from tests.api.client import RestTestCase
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


class RecordTests(DecisionsTestCase):
    def test_every_field_is_stored_once_for_a_key(self):
        iteration = start_iteration(command=IterationStart(command="feature"))
        fields = {"context": "Readers wait.", "rationale": "Measured.", "impact": "high", "phase": "design"}
        options = [{"option": "MVCC", "why_not": "too much"}, "Nothing"]
        results = [self.record("Use WAL", alternatives=options, idempotency_key="k-1", **fields) for _ in range(2)]
        self.assertEqual([result.is_new for result in results], [True, False])
        decision = self.get(results[1].id)
        self.assertEqual({name: decision[name] for name in fields}, fields)
        self.assertEqual(decision["alternatives"], [options[0], {"option": "Nothing", "why_not": ""}])
        evidence = (decision["status"], decision["author"], decision["session_id"], decision["iteration_id"])
        self.assertEqual(evidence, ("accepted", "ada", "s-1", iteration.id))

    def test_secrets_are_replaced_in_every_text(self):
        token = "ghp_" + "a1B2" * 9
        fields = dict.fromkeys(("context", "chosen", "rationale"), f"with {token}")
        result = self.record("Deploy", alternatives=[{"option": token, "why_not": token}], notes=[token], **fields)
        self.assertTrue(result.redacted)
        self.assertNotIn(token, str(self.get(result.id)))

    def test_what_does_not_exist_or_cannot_be_set_is_refused(self):
        for fields, error, message in (
            ({"supersedes": [7]}, NotFound, "no decision #7 here"),
            ({"relates_to": [7]}, NotFound, "no decision #7 here"),
            ({"commits": ["#7"]}, NotFound, "no commit #7 here"),
            ({"status": "superseded"}, Invalid, "superseded cannot be set"),
        ):
            with self.subTest(fields), self.assertRaisesRegex(error, message):
                self.record("Use WAL", **fields)
        self.assertEqual(log.head()[0], 0)


class EdgeTests(DecisionsTestCase):
    def chain(self, length: int, relation: str) -> list[int]:
        ids = [self.record("Step 0").id]
        for number in range(1, length):
            ids.append(self.record(f"Step {number}", **{relation: ids[-1:]}).id)
        return ids

    def link(self, start: int, relation: str, end: int) -> DecisionResult:
        return services.link_decisions(command=DecisionLink(id=start, relation=relation, to=end))

    def test_a_cycle_is_refused_naming_the_path_or_its_ends(self):
        first, second, third = self.chain(3, "refines")
        path = f"#{third} → #{second} → #{first} → #{third}"
        with self.assertRaisesRegex(ConflictError, f"would close a cycle: {path}"):
            self.link(first, "supersedes", third)
        ids = self.chain(40, "depends_on")
        with self.assertRaisesRegex(ConflictError, rf"#{ids[30]} → \(20 more\) → #{ids[9]} ") as caught:
            self.link(ids[0], "refines", ids[-1])
        self.assertEqual(caught.exception.data["path"], ids[::-1])

    def test_relations_that_make_no_lineage_may_go_both_ways_and_are_added_once(self):
        first = self.record("One").id
        second = self.record("Two", conflicts_with=[first]).id
        self.assertEqual([self.link(first, "conflicts_with", second).is_new for _ in range(2)], [True, False])
        self.assertEqual(([edge["to"] for edge in self.get(first)["edges"]], log.head()[0]), ([second], 3))

    def unlink(self, start: int, relation: str, end: int, **fields: str) -> DecisionResult:
        command = DecisionUnlink.model_validate({"id": start, "relation": relation, "to": end, **fields})
        return services.unlink_decisions(command=command)

    def test_a_removed_edge_brings_back_what_it_superseded(self):
        first, second, third = self.chain(3, "supersedes")
        with self.assertRaisesRegex(NotFound, f"#{first} does not name #{second} as supersedes"):
            self.unlink(first, "supersedes", second)
        results = [self.unlink(second, "supersedes", first, reason="misread", idempotency_key="k") for _ in range(2)]
        self.assertEqual([result.is_new for result in results], [True, False])
        statuses = [self.get(number)["status"] for number in (first, second, third)]
        self.assertEqual(statuses, ["accepted", "superseded", "accepted"])
        self.assertEqual(self.get(second)["edges"], [])
        self.assert_rebuilds()
        self.assertTrue(self.link(second, "supersedes", first).is_new)
        self.assertEqual(self.get(first)["heads"], [third])

    def test_a_lineage_goes_to_any_depth_both_ways(self):
        ids = self.chain(70, "supersedes")
        lineage = self.get(ids[60], lineage=True)["lineage"]
        self.assertEqual((lineage["ancestor_count"], lineage["descendant_count"]), (60, 9))
        self.assertEqual([step["id"] for step in lineage["ancestors"]], ids[59:9:-1])
        self.assertEqual([step["depth"] for step in lineage["descendants"]], list(range(1, 10)))
        self.assertEqual([head["id"] for head in lineage["heads"]], ids[-1:])


@tag("backend")
class ReadTests(DecisionsTestCase):
    def test_a_topic_lists_decisions_in_force_before_superseded_ones(self):
        first = self.record("Port", topic="net").id
        second = self.record("Port", topic="net", supersedes=[first]).id
        decisions = selectors.get_decisions(command=DecisionGet(topic="net"))
        self.assertEqual([decision["id"] for decision in decisions], [second, first])
        with self.assertRaisesRegex(Invalid, "give one of ids, topic and file_path; got none"):
            selectors.get_decisions(command=DecisionGet())

    def test_pages_neither_skip_nor_repeat(self):
        ids = [self.record(f"Decision {number}").id for number in range(5)]
        listed, cursor = [], None
        for _ in range(3):
            page = selectors.list_decisions(command=DecisionList(limit=2, cursor=cursor))
            listed += [decision["id"] for decision in page.results]
            cursor = page.meta.next_cursor
            self.record("Meanwhile")
        self.assertEqual(listed, ids[::-1])

    def test_a_search_ranks_decisions_in_force_first_and_names_superseded_ones(self):
        first = self.record("Database", chosen="PostgreSQL for storage, since teams share it.").id
        second = self.record("Store", chosen="SQLite, one file a project.", supersedes=[first]).id
        hits = search(command=MemorySearch(query="what did we decide about PostgreSQL storage")).results
        self.assertEqual([hit["id"] for hit in hits], [second, first])
        self.assertIn(f"supersedes #{first}", hits[0]["note"])
        self.assertIn(f"superseded, now #{second}", hits[1]["note"])


class TrailerTests(DecisionsTestCase):
    def test_trailers_and_reverts_are_parsed(self):
        message = "Wait fairly\n\nRefs: #4, #5 and #4\nDecision: #4\nSee #9\n"
        self.assertEqual(dict(mentions(message)), {4: "implements", 5: "relates"})
        self.assertEqual(reverted_sha('Revert "x"\n\nThis reverts commit abcdef1234567.'), "abcdef1234567")
        self.assertIsNone(reverted_sha("We should revert commit abcdef1"))

    def test_a_commit_links_itself_with_the_decisions_that_its_trailers_name(self):
        decision = self.record("Fair waiting").id
        commit = self.commit("abc1", f"Wait fairly\n\nDecision: #{decision}\nRefs: #999")
        links = [(commit["sha"][:4], commit["link_type"]) for commit in self.get(decision)["commits"]]
        self.assertEqual(links, [("abc1", "implements")])
        self.commit("abc2", f"Second\n\nDecision: #{commit}")
        self.assertEqual(CommitLink.objects.count(), 1)

    def test_a_revert_links_itself_and_asks_for_a_review(self):
        decision = self.record("Fair waiting").id
        self.commit("abc1", f"Wait fairly\n\nDecision: #{decision}")
        self.commit("def2", f"Revert it\n\nThis reverts commit {'abc1'.ljust(40, '0')}.")
        view = self.get(decision)
        self.assertEqual([commit["link_type"] for commit in view["commits"]], ["reverts", "implements"])
        self.assertEqual(view["review"], "commit def2000000 reverts abc1000000, which implemented it")
        services.mark_decision(command=DecisionMark(id=decision, reviewed=True))
        self.assertEqual(self.get(decision)["review"], "")


class EvidenceTests(DecisionsTestCase):
    def test_commits_are_named_by_sha_or_id(self):
        first, second = self.commit("abc1", "First"), self.commit("def2", "Second")
        view = self.get(self.record("Use WAL", commits=["abc1", f"#{second}"]).id)
        self.assertEqual({commit["id"] for commit in view["commits"]}, {first, second})

    def test_a_commit_that_is_not_recorded_yet_is_linked_when_it_is(self):
        decision = self.record("Use WAL", commits=["abc1"]).id
        self.assertEqual(self.get(decision)["artifacts"], [{"kind": "commit", "value": "abc1"}])
        self.commit("abc1", "Use WAL")
        view = self.get(decision)
        self.assertEqual((view["artifacts"], view["commits"][0]["link_type"]), ([], "implements"))

    def test_evidence_can_be_added_later_and_is_stored_once(self):
        decision = self.record("Use WAL").id
        for _ in range(2):
            command = DecisionEvidence(id=decision, files=["./core/wal.py"], validations=["250 power cuts, none lost"])
            services.add_evidence(command=command)
        kinds = list(ArtifactLink.objects.order_by("kind").values_list("kind", "value"))
        self.assertEqual(kinds, [("file_path", "core/wal.py"), ("validation", "250 power cuts, none lost")])
        with self.assertRaisesRegex(Invalid, "pass at least one of commits, files"):
            services.add_evidence(command=DecisionEvidence(id=decision))

    def test_a_file_leads_to_its_decisions_those_with_most_commits_on_it_first(self):
        wal, locks = self.record("WAL").id, self.record("Locks").id
        named = self.record("Named", files=["docs/wal.md"]).id
        self.commit("a1b2", f"One\n\nDecision: #{locks}", "core/sqlite.py")
        self.commit("a2b2", f"Two\n\nDecision: #{wal}", "core/sqlite.py", "core/wal.py")
        self.commit("a3b2", f"Three\n\nDecision: #{wal}", "core/sqlite.py")
        for path, decisions in (
            ("core/sqlite.py", [wal, locks]),
            ("./core/", [wal, locks]),
            ("core/wal.py", [wal]),
            ("docs", [named]),
        ):
            with self.subTest(path):
                views = selectors.get_decisions(command=DecisionGet(file_path=path))
                self.assertEqual([view["id"] for view in views], decisions)
        with self.assertRaisesRegex(NotFound, "there is no decision behind 'core/x.py'"):
            selectors.get_decisions(command=DecisionGet(file_path="core/x.py"))


@tag("backend")
class CommitSearchTests(DecisionsTestCase):
    def hits(self, query: str) -> list[int]:
        results = search(command=MemorySearch.model_validate({"query": query, "sources": ["commit"]})).results
        return [hit["id"] for hit in results]

    def test_a_commit_is_found_by_the_words_of_its_decisions_its_paths_and_its_iteration(self):
        start_iteration(command=IterationStart(command="feature", description="Let people sign in"))
        decision = self.record("Authentication of callers", context="Who may log in?").id
        commit = self.commit("abc1", f"Check the bearer\n\nDecision: #{decision}", "web/registration/views.py")
        for query in ("who may log in, authentication", "registration", "people sign in"):
            with self.subTest(query):
                self.assertEqual(self.hits(query), [commit])

    def test_a_commit_that_is_linked_later_is_found_by_them_too(self):
        commit = self.commit("abc1", "Check the bearer")
        self.assertEqual(self.hits("authentication"), [])
        self.record("Authentication of callers", commits=["abc1"])
        self.assertEqual(self.hits("authentication"), [commit])

    def test_a_rebuild_comes_out_the_same(self):
        decision = self.record("Authentication", commits=["abc1"], files=["a.py"]).id
        self.commit("abc1", "Check", "a.py")
        self.commit("abc2", f"Undo\n\nThis reverts commit {'abc1'.ljust(40, '0')}.\n\nDecision: #{decision}", "a.py")
        self.record("Other", supersedes=[decision])
        before = self.hits("authentication")
        self.assert_rebuilds()
        self.assertEqual(self.hits("authentication"), before)


DECISIONS = "projects/alpha/decisions"


class DecisionsApiTests(RestTestCase):
    def post(self, path: str, body: dict[str, Any], *, expect: int = 200, **headers: str) -> Any:
        return self.call("POST", f"{DECISIONS}{path}", body, expect=expect, **headers)

    def record(self, title: str = "Use WAL", **fields: Any) -> int:
        answer = self.post("", {"title": title, "chosen": f"Choose {title}.", **fields}, expect=201)
        decision_id: int = answer.data["id"]
        self.assertEqual(answer["Location"], f"/api/v1/{DECISIONS}/{decision_id}")
        return decision_id

    def test_a_decision_is_recorded_got_and_listed_and_another_project_sees_nothing(self) -> None:
        decision = self.record(alternatives=["MVCC", {"option": "Locks", "why_not": "slow"}], impact="high")
        view = self.call("GET", f"{DECISIONS}/{decision}").data
        self.assertEqual([alternative["option"] for alternative in view["alternatives"]], ["MVCC", "Locks"])
        self.assertNotIn("lineage", view)
        for query, ids in (("impact=high&status=accepted", [decision]), ("impact=low", [])):
            listed = self.call("GET", f"{DECISIONS}?{query}").data["results"]
            self.assertEqual([view["id"] for view in listed], ids)
        self.call("GET", f"projects/beta/decisions/{decision}", expect=404)
        self.assertEqual(self.call("GET", "projects/beta/decisions").data["meta"]["total_count"], 0)
        problem = self.call("GET", f"{DECISIONS}/{self.write()}", expect=404).data
        self.assertIn("is a memory, not a decision; memory_get shows it", problem["detail"])

    def test_the_same_key_again_gives_the_first_answer(self) -> None:
        decision = self.record()
        for path, change in (
            ("", {"title": "Use WAL", "chosen": "WAL"}),
            (f"/{decision}/status", {"status": "deprecated"}),
            (f"/{decision}/evidence", {"notes": ["seen"]}),
        ):
            first = self.post(path, change, expect=200 if path else 201, Idempotency_Key=f"k-{path}").data
            again = self.post(path, change, Idempotency_Key=f"k-{path}").data
            self.assertEqual((again["id"], first["is_new"], again["is_new"]), (first["id"], True, False))

    def test_superseding_status_and_edges_change_what_is_in_force_around_it(self) -> None:
        first = self.record()
        answer = self.post(f"/{first}/supersede", {"chosen": "A server"}, expect=201)
        second = answer.data["id"]
        self.assertEqual(answer["Location"], f"/api/v1/{DECISIONS}/{second}")
        refused = self.post(f"/{first}/supersede", {"chosen": "Files"}, expect=409).data
        self.assertEqual(refused["heads"], [second])
        lineage = self.call("GET", f"{DECISIONS}/{first}/lineage").data
        for side in ("descendants", "heads"):
            self.assertEqual([step["id"] for step in lineage[side]], [second], side)
        self.assertEqual(
            self.call("DELETE", f"{DECISIONS}/{second}/edges/supersedes/{first}?reason=misread").data["id"], second
        )
        self.assertEqual(self.call("GET", f"{DECISIONS}/{first}").data["status"], "accepted")
        self.call("DELETE", f"{DECISIONS}/{second}/edges/supersedes/{first}", expect=404)
        self.post(f"/{second}/edges", {"relation": "supersedes", "to": first})
        before = self.call("GET", f"{DECISIONS}/{first}?as_of={first}&lineage=true").data
        self.assertEqual((before["status"], before["lineage"]["descendant_count"]), ("accepted", 0))
        third = self.record("Locks")
        self.assertEqual(self.post(f"/{second}/status", {"status": "deprecated"}).data["status"], "deprecated")
        self.post(f"/{third}/edges", {"relation": "refines", "to": second})
        refused = self.post(f"/{second}/edges", {"relation": "refines", "to": third}, expect=409).data
        self.assertEqual(refused["path"], [third, second])
        self.post(f"/{third}/status", {"status": "superseded"}, expect=422)
        self.post("/999/status", {"status": "accepted"}, expect=404)

    def test_evidence_leads_from_a_file_to_its_decisions(self) -> None:
        decision = self.record()
        self.post(f"/{decision}/evidence", {"files": ["core/wal.py"], "commits": [SHA[:8]]})
        commit = {"sha": SHA, "message": "Open", "files": ["core/stores.py"], "committed_at": "2026-11-20T08:00:00"}
        recorded = self.call("POST", "projects/alpha/commits/read", commit).data
        self.assertEqual(recorded["decisions"], [{"id": decision, "title": "Use WAL", "link_type": "implements"}])
        for path in ("core/wal.py", "core/stores.py", "core"):
            behind = self.call("GET", f"{DECISIONS}/behind?file_path={path}").data
            self.assertEqual([view["id"] for view in behind["results"]], [decision])
        self.call("GET", f"{DECISIONS}/behind?file_path=docs", expect=404)
        self.call("GET", f"{DECISIONS}/behind", expect=422)
        self.post(f"/{decision}/evidence", {}, expect=422)


SENTENCE = "agents cannot record decisions here: capture_decisions is false, set by the project; ask the user"


class CaptureDecisionsTests(RestTestCase):
    def setUp(self) -> None:
        super().setUp()
        with self.store("alpha"):
            self.earlier = self.record("Use WAL")
            change_settings(command=SettingsChange(settings={"capture_decisions": False}))

    def record(self, title: str) -> int:
        return record_decision(command=DecisionRecord(title=title, chosen="that")).id

    def test_an_agents_decisions_are_refused_until_the_setting_is_reset(self):
        with self.store("alpha", source="mcp", actor="agent"):
            head = log.head()
            with self.assertRaisesRegex(Forbidden, SENTENCE):
                self.record("Use Rust")
            with self.assertRaisesRegex(Forbidden, SENTENCE):
                supersede_decision(command=DecisionSupersede(id=self.earlier, chosen="another"))
            self.assertEqual((log.head(), Decision.objects.count()), (head, 1))
            add_evidence(command=DecisionEvidence(id=self.earlier, notes=["seen at work"]))
            change_settings(command=SettingsChange(settings={"capture_decisions": None}))
            self.assertTrue(self.record("Use Rust"))
        with self.store("beta", source="mcp", actor="agent"):
            self.assertTrue(self.record("Use Rust"))

    def test_an_agents_token_is_refused_over_rest_and_a_person_is_not(self):
        _, text = create_token(command=TokenCreate(name="bot", projects=["alpha"], verbs=["write"]), by="ann")
        body = {"title": "Use Rust", "chosen": "Rust"}
        refused = self.call("POST", DECISIONS, body, token=text, expect=403)
        self.assertIn(SENTENCE, refused.data["detail"])
        self.call("POST", f"{DECISIONS}/{self.earlier}/supersede", {"chosen": "another"}, token=text, expect=403)
        self.call("POST", DECISIONS, body, expect=201)

    def test_people_imports_and_the_command_line_go_on(self):
        for source in ("admin", "cli", "service"):
            with self.subTest(source=source), self.store("alpha"), use_origin(source=source, actor="ann"):
                self.assertTrue(self.record(f"By {source}"))
