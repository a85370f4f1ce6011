"""Recording decisions: what is kept, what a superseding does, what is refused."""

from __future__ import annotations

from decisions import selectors, services
from decisions.models import Decision
from decisions.schemas import DecisionGet, DecisionLink, DecisionList, DecisionMark, DecisionSupersede
from memories.schemas import MemorySearch
from memories.selectors import search
from memoryhub.core import log
from memoryhub.core.errors import Conflict, Invalid, NotFound
from sessions_app.schemas import IterationStart
from sessions_app.services.iterations import start_iteration
from tests.decisions.base import DecisionsTestCase


class RecordTests(DecisionsTestCase):
    def test_every_field_is_stored(self):
        iteration = start_iteration(command=IterationStart(command="feature"))
        fields = {
            "context": "Readers wait.",
            "alternatives": [{"option": "MVCC", "why_not": "too much"}, "Nothing"],
            "rationale": "Measured.",
            "impact": "high",
            "phase": "design",
            "topic": "storage",
        }
        found = self.get(self.record("Use WAL", **fields).id)
        kept = {name: found[name] for name in fields}
        alternatives = [{"option": "MVCC", "why_not": "too much"}, {"option": "Nothing", "why_not": ""}]
        self.assertEqual(kept, {**fields, "alternatives": alternatives})
        evidence = (found["status"], found["author"], found["session_id"], found["iteration_id"])
        self.assertEqual(evidence, ("accepted", "ada", "s-1", iteration.id))

    def test_the_same_key_again_gives_the_first(self):
        first = self.record("Use WAL", idempotency_key="k-1")
        again = self.record("Use WAL", idempotency_key="k-1")
        self.assertEqual((again.id, again.is_new, log.head()[0]), (first.id, False, 1))

    def test_secrets_are_replaced_in_every_text(self):
        token = "ghp_" + "a1B2" * 9
        fields = dict.fromkeys(("context", "chosen", "rationale"), f"with {token}")
        result = self.record("Deploy", alternatives=[{"option": token, "why_not": token}], notes=[token], **fields)
        self.assertTrue(result.redacted)
        self.assertNotIn(token, str(self.get(result.id)))

    def test_named_decisions_and_commits_must_exist(self):
        for fields in ({"supersedes": [7]}, {"relates_to": [7]}, {"commits": ["#7"]}):
            with self.subTest(fields), self.assertRaisesRegex(NotFound, "no (decision|commit) #7 here"):
                self.record("Use WAL", **fields)
        self.assertEqual(log.head()[0], 0)

    def test_status_superseded_cannot_be_set(self):
        with self.assertRaisesRegex(Invalid, "superseded cannot be set"):
            self.record("Use WAL", status="superseded")


class SupersedeTests(DecisionsTestCase):
    def supersede(self, decision_id: int, chosen: str, **fields: object) -> int:
        command = DecisionSupersede.model_validate({"id": decision_id, "chosen": chosen, **fields})
        return services.supersede_decision(command=command).id

    def test_the_earlier_decision_is_superseded_and_names_its_head(self):
        first = self.record("Port", topic="net", impact="high").id
        second = self.supersede(first, "9000")
        third = self.supersede(second, "7000")
        found = self.get(first)
        state = (found["status"], found["superseded_by"], found["heads"])
        self.assertEqual(state, ("superseded", [second], [third]))
        latest = self.get(third)
        self.assertEqual((latest["title"], latest["topic"], latest["impact"]), ("Port", "net", "high"))

    def test_superseding_a_superseded_decision_names_the_head(self):
        first = self.record("Port").id
        second = self.supersede(first, "9000")
        with self.assertRaisesRegex(Conflict, f"#{first} is already superseded and #{second} is in force") as caught:
            self.supersede(first, "7000")
        self.assertEqual(caught.exception.data["heads"], [second])

    def test_a_branch_is_a_second_head(self):
        first = self.record("Port").id
        second, third = self.supersede(first, "9000"), self.supersede(first, "7000", branch=True)
        self.assertEqual(self.get(first)["heads"], [third, second])

    def test_the_text_of_a_decision_never_changes(self):
        first = self.record("Port").id
        before = Decision.objects.filter(id=first).values("title", "chosen", "context").get()
        self.supersede(first, "9000", title="Another")
        self.assertEqual(Decision.objects.filter(id=first).values("title", "chosen", "context").get(), before)


class GraphTests(DecisionsTestCase):
    def test_a_cycle_is_refused_naming_the_path(self):
        first = self.record("One").id
        second = self.record("Two", refines=[first]).id
        third = self.record("Three", depends_on=[second]).id
        path = f"#{third} → #{second} → #{first} → #{third}"
        with self.assertRaisesRegex(Conflict, f"would close a cycle: {path}"):
            services.link_decisions(command=DecisionLink(id=first, relation="supersedes", to=third))

    def test_a_long_path_is_named_by_its_ends(self):
        ids = [self.record("Step 0").id]
        for number in range(1, 40):
            ids.append(self.record(f"Step {number}", refines=ids[-1:]).id)
        with self.assertRaisesRegex(Conflict, r"#31 → \(20 more\) → #10 ") as caught:
            services.link_decisions(command=DecisionLink(id=ids[0], relation="refines", to=ids[-1]))
        self.assertEqual(caught.exception.data["path"], ids[::-1])

    def test_relations_that_make_no_lineage_may_go_both_ways(self):
        first = self.record("One").id
        second = self.record("Two", conflicts_with=[first]).id
        services.link_decisions(command=DecisionLink(id=first, relation="conflicts_with", to=second))
        self.assertEqual(self.get(first)["edges"][0]["to"], second)

    def test_adding_an_edge_again_changes_nothing(self):
        first = self.record("One").id
        second = self.record("Two", refines=[first]).id
        again = services.link_decisions(command=DecisionLink(id=second, relation="refines", to=first))
        self.assertEqual((again.is_new, log.head()[0]), (False, 2))

    def test_a_lineage_goes_to_any_depth_both_ways(self):
        ids = [self.record("Step 0").id]
        for number in range(1, 70):
            ids.append(self.record(f"Step {number}", supersedes=ids[-1:]).id)
        lineage = self.get(ids[60], lineage=True)["lineage"]
        self.assertEqual((lineage["ancestor_count"], lineage["descendant_count"]), (60, 9))
        self.assertEqual([step["id"] for step in lineage["ancestors"]], ids[59:9:-1])
        self.assertEqual([step["depth"] for step in lineage["descendants"]], list(range(1, 10)))
        self.assertEqual([head["id"] for head in lineage["heads"]], ids[-1:])

    def test_status_can_be_set_until_it_is_superseded(self):
        first = self.record("One", status="proposed").id
        services.mark_decision(command=DecisionMark(id=first, status="accepted"))
        self.assertEqual(self.get(first)["status"], "accepted")
        self.record("Two", supersedes=[first])
        with self.assertRaisesRegex(Conflict, "is superseded; mark the decision"):
            services.mark_decision(command=DecisionMark(id=first, status="rejected"))


class ReadTests(DecisionsTestCase):
    def test_a_topic_lists_decisions_in_force_before_superseded_ones(self):
        first = self.record("Port", topic="net").id
        second = self.record("Port", topic="net", supersedes=[first]).id
        found = selectors.get_decisions(command=DecisionGet(topic="net"))
        self.assertEqual([decision["id"] for decision in found], [second, first])

    def test_pages_neither_skip_nor_repeat(self):
        ids = [self.record(f"Decision {number}").id for number in range(5)]
        seen, cursor = [], None
        for _ in range(3):
            page = selectors.list_decisions(command=DecisionList(limit=2, cursor=cursor))
            seen += [decision["id"] for decision in page.results]
            cursor = page.meta.next_cursor
            self.record("Meanwhile")
        self.assertEqual(seen, ids[::-1])

    def test_exactly_one_of_ids_topic_and_file_is_required(self):
        with self.assertRaisesRegex(Invalid, "give one of ids, topic and file_path; got none"):
            selectors.get_decisions(command=DecisionGet())

    def test_a_search_ranks_decisions_in_force_first_and_names_superseded_ones(self):
        first = self.record("Database", chosen="PostgreSQL for storage, since teams share it.").id
        second = self.record("Store", chosen="SQLite, one file a project.", supersedes=[first]).id
        found = search(command=MemorySearch(query="what did we decide about PostgreSQL storage")).results
        self.assertEqual([hit["id"] for hit in found], [second, first])
        self.assertIn(f"supersedes #{first}", found[0]["note"])
        self.assertIn(f"superseded, now #{second}", found[1]["note"])

    def test_another_project_is_not_affected(self):
        self.record("Use WAL")
        with self.store("beta"):
            self.assertEqual(selectors.list_decisions(command=DecisionList()).meta.total_count, 0)
            with self.assertRaises(NotFound):
                self.get(1)
