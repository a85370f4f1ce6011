"""Decisions in the admin: the list, the page of one, and what a person records, supersedes, marks and links."""

from __future__ import annotations

from typing import Any

from decisions.models import ArtifactLink, Decision, DecisionEdge
from memories.schemas.links import RelationCreate
from memories.services.links import create_relation
from sessions_app.schemas import IterationStart, SessionStart
from sessions_app.services import start_session
from sessions_app.services.work import start_iteration
from tests.admin.base import DECISIONS, DecidingTestCase, text_of


class DecisionListTests(DecidingTestCase):
    def test_each_filter_keeps_what_it_says(self) -> None:
        first = self.record("Use files", impact="high", phase="design", topic="storage")
        second = self.record("Use one file", topic="storage", phase="design", supersedes=[first])
        third = self.record("Poll", status="proposed", impact="low")
        self.assertEqual(self.decisions(), [third, second, first])
        for query, ids in (
            ({"status": "superseded"}, [first]),
            ({"impact": "low"}, [third]),
            ({"phase": "design"}, [second, first]),
            ({"topic": "storage", "status": "accepted"}, [second]),
            ({"review": "open"}, []),
            ({"iteration": "no number"}, []),
        ):
            self.assertEqual(self.decisions(**query), ids, query)

    def test_those_of_an_iteration_and_those_to_review_are_found(self) -> None:
        with self.store():
            iteration = start_iteration(command=IterationStart(command="feature", description="Quotas"))
        decision = self.record("Count calls")
        self.record("Other", project="beta")
        self.commit("aaaa", f"Count\n\nDecision: #{decision}")
        self.commit("bbbb", f"Revert\n\nThis reverts commit {'aaaa'.ljust(40, '0')}.")
        self.assertEqual(self.decisions(iteration=str(iteration.id)), [decision])
        self.assertEqual(self.decisions(review="open"), [decision])
        self.assert_shows(text_of(self.page()), "1 item needs rechecking")

    def test_a_search_puts_the_best_answer_first_and_shows_its_words(self) -> None:
        other = self.record("Indent by tabs", rationale="Nobody asked the database.")
        best = self.record("Keep a database a project", chosen="One SQLite database each.")
        self.record("Cheese")
        first, *others = self.decisions(q="a database for each project")
        self.assertEqual(first, best)
        self.assertLessEqual(set(others), {other})

    def test_a_row_says_what_was_chosen_whether_it_stands_and_how_many_commits_there_are(self) -> None:
        first = self.record("Use files", chosen="A **file** each.\n\nMore.")
        self.record("Use one file", supersedes=[first])
        self.assert_shows(text_of(self.page()), "Use one file", lacks=("Use files",))
        self.commit("aaaa", f"One\n\nDecision: #{first}")
        row = ('class="title struck">Use files</a>', "A file each.", '1<span class="noun"> commit</span>')
        self.assert_shows(self.page(f"{DECISIONS}/"), *row, lacks=("More.",))


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
        answer = self.client.get(self.address(f"{DECISIONS}/{decision}/change/"))
        self.assert_lacks(answer.content.decode(), "<script>alert")
        page = self.shown(decision)
        links = (f'/sessions_app/commit/{commit}/change/">Open a store</a>', 'href="https://example.org/pulls/7"')
        self.assert_shows(page, "Projects <em>must not</em> mix.", *links)
        evidence = ("48 h without a leak", "core/stores.py", "Critical impact", "implements")
        self.assert_shows(text_of(page), "One file for all one query too wide", *evidence)

    def test_its_lineage_is_drawn_and_listed_with_what_stands_now_and_edges_are_named_both_ways(self) -> None:
        first = self.record("Poll")
        second = self.record("Push", supersedes=[first])
        third = self.record("Push in batches", refines=[second])
        page = self.shown(first)
        self.assert_shows(page, "is-superseded is-current", f"<title>#{third} Push in batches, accepted, decided")
        self.assert_shows(text_of(page), f"Replaced by #{second} Push", f"it refines #{second}")
        alone = self.record("Alone")
        self.assert_lacks(text_of(self.shown(alone)), "Lineage")
        last = self.record("Stream", conflicts_with=[alone], depends_on=[alone])
        self.assert_shows(text_of(self.shown(alone)), "needed by Stream")
        self.assert_shows(text_of(self.shown(last)), "depends on Alone")

    def test_a_long_lineage_is_bounded_and_says_what_is_left_out(self) -> None:
        chain = [self.record("Step 0")]
        for number in range(1, 54):
            chain.append(self.record(f"Step {number}", refines=[chain[-1]]))
        page = self.shown(chain[-1])
        self.assertEqual(page.count('class="diagram-node lineage-node'), 51)
        self.assert_shows(page, "Not shown: 3 earlier decisions.")
        self.assertLessEqual(self.queries_of(f"{DECISIONS}/{chain[-1]}/change/"), 20)

    def test_memories_commits_and_sessions_lead_to_it_and_back(self) -> None:
        decision = self.record("Push")
        memory = self.write("A report")
        with self.store(session_id="s-1"):
            session = start_session(command=SessionStart(session_id="s-1", purpose="Prices")).id
            create_relation(command=RelationCreate(source=str(memory), relation="related_to", target=str(decision)))
        commit = self.commit("abcd", f"Push\n\nRefs: #{decision}")
        address = f"decisions/decision/{decision}/change/"
        for path in (f"memories/memory/{memory}", f"sessions_app/commit/{commit}", f"sessions_app/session/{session}"):
            self.assert_shows(self.page(f"{path}/change/"), address, where=path)
        self.assert_shows(
            text_of(self.page(f"sessions_app/session/{session}/change/")), f"relates to decision #{decision} Push"
        )
        self.assert_shows(self.shown(decision), f"memories/memory/{memory}/change/", "sessions_app/session/named/s-1/")
        answer = self.client.get(self.address(f"stream/decision:{decision}/"))
        self.assertRedirects(answer, self.address(address))


BLANK: dict[str, Any] = {
    "alternatives_option": ["", ""],
    "alternatives_why_not": ["", ""],
    "impact": "medium",
    "status": "accepted",
}


class RecordingTests(DecidingTestCase):
    def send_new(self, **fields: Any) -> str:
        return text_of(self.post(f"{DECISIONS}/add/", **{**BLANK, **fields}))

    def test_all_that_is_typed_is_recorded_by_the_person(self) -> None:
        first = self.record("Poll")
        page = self.send_new(
            title="Push",
            chosen="Push it.\r\nAt once.",
            context="Stale for a minute.",
            alternatives_option=["Poll faster", "", "Wait"],
            alternatives_why_not=["too many reads", "", ""],
            impact="high",
            topic="prices",
            supersedes=f"#{first}",
            commits="abcdef1\n",
            files="a.py\nb.py",
            decided_at="2026-11-01T10:00",
        )
        self.assert_shows(page, f"which supersedes #{first}")
        (decision_id, _) = self.decisions()
        decision = self.decision(decision_id)
        self.assertEqual(decision.chosen, "Push it.\nAt once.")
        self.assertEqual([each["option"] for each in decision.alternatives], ["Poll faster", "Wait"])
        self.assertEqual((decision.impact, decision.topic, decision.decided_at.day), ("high", "prices", 1))
        self.assertEqual(self.decision(first).status, "superseded")
        with self.store():
            self.assertEqual(ArtifactLink.objects.filter(decision_id=decision_id).count(), 3)

    def test_what_the_schema_refuses_is_said_beside_its_field_and_nothing_is_lost(self) -> None:
        page = self.post(f"{DECISIONS}/add/", **BLANK, title="", chosen="Push", supersedes="abc", depends_on="12")
        refusals = ("'title' is required.", "'supersedes[0]' must be a whole number, not 'abc'.")
        self.assert_shows(text_of(page), "Not saved. Correct the errors below.", *refusals)
        self.assert_shows(page, ">\nPush</textarea>")
        memory = self.write("A note")
        cases: tuple[tuple[dict[str, Any], str], ...] = (
            (
                {"alternatives_option": [""], "alternatives_why_not": ["slow"]},
                "'alternatives[0].option' must not be empty.",
            ),
            ({"refines": "#99"}, "There is no decision #99 here."),
            ({"refines": f"#{memory}"}, f"#{memory} is a memory, not a decision."),
        )
        for fields, refusal in cases:
            self.assert_shows(self.send_new(title="Push", chosen="x", **fields), refusal)
        self.assertEqual(self.count(), 0)

    def test_more_rows_are_offered_without_a_script_and_keep_what_was_typed(self) -> None:
        sent = {**BLANK, "title": "Push", "alternatives_option": ["Poll", ""], "more_rows": "1"}
        page = self.post(f"{DECISIONS}/add/", **sent)
        self.assertEqual(page.count('name="alternatives_option"'), 6)
        self.assert_shows(page, 'value="Poll"', 'value="Push"', lacks=("Not saved. Correct the errors below.",))
        self.assertEqual(self.count(), 0)

    def test_secrets_are_taken_out_and_the_person_is_told(self) -> None:
        page = self.send_new(title="Push", chosen="Use password=hunter2hunter2 for it.")
        self.assert_shows(page, "masked before saving")
        self.assert_lacks(self.decision(self.decisions()[0]).chosen, "hunter2")


class SupersedingTests(DecidingTestCase):
    def test_the_form_begins_with_what_stays(self) -> None:
        first = self.record("Poll", context="Prices change.", topic="prices", impact="high")
        page = self.page(f"{DECISIONS}/{first}/supersede/")
        self.assert_shows(page, 'value="Poll"', "Prices change.", 'value="prices"', '<option value="high" selected>')
        answer = self.send(first, "supersede", **{**BLANK, "impact": ""}, title="", chosen="Push.")
        self.assert_shows(text_of(answer), f"which supersedes #{first}")
        decision = self.decision(self.decisions()[0])
        self.assertEqual((decision.title, decision.topic, decision.impact), ("Poll", "prices", "high"))

    def test_one_that_is_superseded_leads_to_the_head_or_branches(self) -> None:
        first = self.record("Poll")
        second = self.record("Push", supersedes=[first])
        self.assert_shows(text_of(self.page(f"{DECISIONS}/{first}/supersede/")), f"Supersede #{second} instead")
        fields = {**BLANK, "title": "Stream", "chosen": "Stream it."}
        refusal = f"#{second} is in force; supersede that, or tick “Keep both as current (second head)”."
        self.assert_shows(text_of(self.send(first, "supersede", **fields)), refusal)
        self.assertEqual(self.count(), 2)
        self.assert_shows(text_of(self.send(first, "supersede", **fields, branch="on")), "which supersedes")
        statuses = [self.decision(each).status for each in self.decisions()]
        self.assertEqual(statuses, ["accepted", "accepted", "superseded"])


class AddingTests(DecidingTestCase):
    def test_a_person_marks_it_and_says_why(self) -> None:
        decision = self.record("Poll")
        page = text_of(self.send(decision, "mark", status="deprecated", reason="Nobody reads it."))
        self.assert_shows(page, "Set the status to deprecated.", "Nobody reads it.")
        self.assertEqual(self.decision(decision).status, "deprecated")
        self.assert_shows(text_of(self.send(decision, "mark", status="great")), "'status' must be one of")
        self.record("Push", supersedes=[decision])
        self.assert_shows(text_of(self.send(decision, "mark", status="accepted")), "is superseded; mark the decision")

    def test_a_review_is_settled(self) -> None:
        decision = self.record("Count calls")
        self.commit("aaaa", f"Count\n\nDecision: #{decision}")
        self.commit("bbbb", f"Revert\n\nThis reverts commit {'aaaa'.ljust(40, '0')}.")
        self.assert_shows(text_of(self.shown(decision)), "which implemented it")
        page = text_of(self.send(decision, "mark", reviewed="1", reason="Only half of it went."))
        self.assert_shows(page, "Confirmed that the decision is still valid.", lacks=("which implemented it",))

    def test_a_link_is_added_once_and_a_circle_names_its_path(self) -> None:
        first, second = self.record("Poll"), self.record("Push")
        for source, relation, target, message in (
            (second, "refines", f"#{first}", "Added."),
            (second, "refines", str(first), "Nothing changed: it already exists."),
            (first, "depends_on", str(second), f"would close a cycle: #{second} → #{first} → #{second}."),
            (first, "refines", "x", "'to' must be a whole number"),
        ):
            self.assert_shows(text_of(self.send(source, "link", relation=relation, to=target)), message)
        with self.store():
            self.assertEqual(DecisionEdge.objects.count(), 1)

    def test_a_wrong_link_is_removed_from_either_page(self) -> None:
        first = self.record("Poll")
        for place in (0, 1):
            second = self.record("Push", supersedes=[first])
            fields = {"id": str(second), "relation": "supersedes", "to": str(first)}
            shown = self.shown((first, second)[place])
            for name, value in fields.items():
                self.assert_shows(shown, f'name="{name}" value="{value}"')
            self.assert_shows(text_of(self.send((first, second)[place], "unlink", **fields)), "Removed.", "No related")
            with self.store():
                self.assertEqual((DecisionEdge.objects.count(), Decision.objects.get(id=first).status), (0, "accepted"))

    def test_a_number_is_looked_up_before_it_is_linked(self) -> None:
        decision = self.record("Poll")
        for target, message, is_there in (
            (f"#{decision}", "Accepted: Poll", "yes"),
            ("99", "There is no decision #99 here.", "no"),
            ("x", "Enter the number of a decision, such as #412.", "no"),
        ):
            answer = self.client.get(self.address(f"{DECISIONS}/{decision}/lookup/"), {"target": target})
            self.assertEqual((answer.content.decode(), answer["X-Found"]), (message, is_there))

    def test_evidence_of_each_kind_is_added(self) -> None:
        decision = self.record("Poll")
        commit = self.commit("abcd", "Poll")
        for kind, value, message in (
            ("commits:relates", f"#{commit}", "relates to"),
            *((kind, f"some {kind}", f"some {kind}") for kind in ("files", "prs", "validations", "notes")),
            ("commits", "#99", "There is no commit #99 here"),
            ("notes", " ", "must not be empty"),
            ("spells", "x", "is not known"),
            ("commits:implements", "beefbeef", "not recorded yet"),
        ):
            page = text_of(self.send(decision, "evidence", kind=kind, value=value))
            self.assert_shows(page, message, where=(kind, value))
