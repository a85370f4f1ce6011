"""Decisions in the admin: the list, and the page of one."""

from __future__ import annotations

from memories.schemas.links import RelationCreate
from memories.services.relations import create_relation
from sessions_app.schemas import IterationStart, SessionStart
from sessions_app.services import start_session
from sessions_app.services.iterations import start_iteration
from tests.admin.base import text_of
from tests.admin.deciding import PAGE, DecidingTestCase


class DecisionListTests(DecidingTestCase):
    def test_each_filter_keeps_what_it_says(self) -> None:
        first = self.record("Use files", impact="high", phase="design", topic="storage")
        second = self.record("Use one file", topic="storage", phase="design", supersedes=[first])
        third = self.record("Poll", status="proposed", impact="low")
        self.assertEqual(self.decisions(), [third, second, first])
        for query, kept in (
            ({"status": "superseded"}, [first]),
            ({"impact": "low"}, [third]),
            ({"phase": "design"}, [second, first]),
            ({"topic": "storage", "status": "accepted"}, [second]),
            ({"review": "open"}, []),
            ({"iteration": "no number"}, []),
        ):
            self.assertEqual(self.decisions(**query), kept, query)

    def test_those_of_an_iteration_and_those_to_review_are_found(self) -> None:
        with self.store():
            iteration = start_iteration(command=IterationStart(command="feature", description="Quotas"))
        decision = self.record("Count calls")
        self.record("Other", project="beta")
        self.commit("aaaa", f"Count\n\nDecision: #{decision}")
        self.commit("bbbb", f"Revert\n\nThis reverts commit {'aaaa'.ljust(40, '0')}.")
        self.assertEqual(self.decisions(iteration=str(iteration.id)), [decision])
        self.assertEqual(self.decisions(review="open"), [decision])
        self.assertIn("1 item needs rechecking", text_of(self.page()))

    def test_a_search_puts_the_best_answer_first_and_shows_its_words(self) -> None:
        other = self.record("Indent by tabs", rationale="Nobody asked the database.")
        best = self.record("Keep a database a project", chosen="One SQLite database each.")
        self.record("Cheese")
        found = self.decisions(q="a database for each project")
        self.assertEqual(found[0], best)
        self.assertLessEqual(set(found), {best, other})

    def test_a_row_says_what_was_chosen_whether_it_stands_and_how_many_commits_there_are(self) -> None:
        first = self.record("Use files", chosen="A **file** each.\n\nMore.")
        self.record("Use one file", supersedes=[first])
        self.commit("aaaa", f"One\n\nDecision: #{first}")
        page = self.page(f"{PAGE}/")
        self.assertIn('class="title struck">Use files</a>', page)
        self.assertIn("A file each.", page)
        self.assertNotIn("More.", page)
        self.assertIn('1<span class="noun"> commit</span>', page)

    def test_no_row_costs_a_query(self) -> None:
        self.record("One", topic="a")
        few = self.queries_of(f"{PAGE}/")
        for number in range(12):
            decision = self.record(f"Another {number}", topic="a")
            self.commit(f"{number:04x}", f"Do\n\nDecision: #{decision}")
        self.assertEqual(self.queries_of(f"{PAGE}/"), few)

    def test_beta_sees_nothing_of_alphas_decisions(self) -> None:
        decision = self.record("Use files")
        self.assertIn("No decisions yet", self.page(f"{PAGE}/", project="beta"))
        self.page(f"{PAGE}/{decision}/change/", project="beta", status=404)
        self.page(f"{PAGE}/{decision}/supersede/", project="beta", status=404)
        self.assertNotIn("Use files", self.page(project="beta"))

    def test_the_overview_names_those_that_stand(self) -> None:
        first = self.record("Use files")
        self.record("Use one file", supersedes=[first])
        page = text_of(self.page())
        self.assertIn("Use one file", page)
        self.assertNotIn("Use files", page)


class DecisionPageTests(DecidingTestCase):
    def test_it_says_what_was_decided_and_what_is_evidence(self) -> None:
        decision = self.record(
            "Keep one file a project",
            context="Projects *must not* mix.",
            rationale="<script>alert(1)</script> A file is a wall.",
            alternatives=[{"option": "One file for all", "why_not": "one query too wide shows everything"}],
            files=["core/stores.py"],
            prs=["https://example.org/pulls/7"],
            validations=["48 h without a leak"],
            impact="critical",
        )
        commit = self.commit("abcd", f"Open a store\n\nDecision: #{decision}")
        page = self.shown(decision)
        self.assertIn("Projects <em>must not</em> mix.", page)
        self.assertNotIn("<script>alert", self.client.get(self.address(f"{PAGE}/{decision}/change/")).content.decode())
        text = text_of(page)
        for part in ("One file for all one query too wide", "48 h without a leak", "core/stores.py", "Critical impact"):
            self.assertIn(part, text)
        self.assertIn(f'/sessions_app/commit/{commit}/change/">Open a store</a>', page)
        self.assertIn("implements", text)
        self.assertIn('href="https://example.org/pulls/7"', page)

    def test_its_lineage_is_drawn_and_listed_with_what_stands_now(self) -> None:
        first = self.record("Poll")
        second = self.record("Push", supersedes=[first])
        third = self.record("Push in batches", refines=[second])
        page = self.shown(first)
        self.assertIn("is-superseded is-current", page)
        self.assertIn(f"<title>#{third} Push in batches, accepted, decided", page)
        self.assertIn(f"Replaced by #{second} Push", text_of(page))
        self.assertIn(f"it refines #{second}", text_of(page))
        self.assertNotIn("Lineage", text_of(self.shown(self.record("Alone"))))

    def test_a_long_lineage_is_bounded_and_says_what_is_left_out(self) -> None:
        chain = [self.record("Step 0")]
        for number in range(1, 54):
            chain.append(self.record(f"Step {number}", refines=[chain[-1]]))
        page = self.shown(chain[-1])
        self.assertEqual(page.count('class="diagram-node lineage-node'), 51)
        self.assertIn("Not shown: 3 earlier decisions.", page)
        self.assertLessEqual(self.queries_of(f"{PAGE}/{chain[-1]}/change/"), 20)

    def test_edges_are_named_both_ways(self) -> None:
        first = self.record("Poll")
        second = self.record("Push", conflicts_with=[first], depends_on=[first])
        self.assertIn("needed by Push", text_of(self.shown(first)))
        self.assertIn("depends on Poll", text_of(self.shown(second)))

    def test_memories_commits_and_sessions_lead_to_it_and_back(self) -> None:
        decision = self.record("Push")
        memory = self.write("A report")
        with self.store(session_id="s-1"):
            session = start_session(command=SessionStart(session_id="s-1", purpose="Prices")).id
            create_relation(command=RelationCreate(source=str(memory), relation="related_to", target=str(decision)))
        commit = self.commit("abcd", f"Push\n\nRefs: #{decision}")
        address = f"decisions/decision/{decision}/change/"
        for path in (f"memories/memory/{memory}", f"sessions_app/commit/{commit}", f"sessions_app/session/{session}"):
            self.assertIn(address, self.page(f"{path}/change/"), path)
        self.assertIn(
            f"relates to decision #{decision} Push", text_of(self.page(f"sessions_app/session/{session}/change/"))
        )
        page = self.shown(decision)
        self.assertIn(f"memories/memory/{memory}/change/", page)
        self.assertIn("sessions_app/session/named/s-1/", page)
        answer = self.client.get(self.address(f"stream/decision:{decision}/"))
        self.assertRedirects(answer, self.address(address))
