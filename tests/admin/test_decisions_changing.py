"""Decisions recorded, superseded, marked, linked and evidenced in the admin."""

from __future__ import annotations

from typing import Any

from decisions.models import ArtifactLink, DecisionEdge
from tests.admin.base import text_of
from tests.admin.deciding import PAGE, DecidingTestCase

BLANK: dict[str, Any] = {
    "alternatives_option": ["", ""],
    "alternatives_why_not": ["", ""],
    "impact": "medium",
    "status": "accepted",
}


class RecordingTests(DecidingTestCase):
    def send_new(self, **fields: Any) -> str:
        return text_of(self.post(f"{PAGE}/add/", **{**BLANK, **fields}))

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
        self.assertIn(f"which supersedes #{first}", page)
        (decision_id, _) = self.decisions()
        decision = self.decision(decision_id)
        self.assertEqual(decision.chosen, "Push it.\nAt once.")
        self.assertEqual([each["option"] for each in decision.alternatives], ["Poll faster", "Wait"])
        self.assertEqual((decision.impact, decision.topic, decision.decided_at.day), ("high", "prices", 1))
        self.assertEqual(self.decision(first).status, "superseded")
        with self.store():
            self.assertEqual(ArtifactLink.objects.filter(decision_id=decision_id).count(), 3)

    def test_what_the_schema_refuses_is_said_beside_its_field_and_nothing_is_lost(self) -> None:
        page = self.post(f"{PAGE}/add/", **BLANK, title="", chosen="Push", supersedes="abc", depends_on="12")
        text = text_of(page)
        self.assertIn("Not saved. Correct the errors below.", text)
        self.assertIn("'title' is required.", text)
        self.assertIn("'supersedes[0]' must be a whole number, not 'abc'.", text)
        self.assertIn(">\nPush</textarea>", page)
        self.assertEqual(self.count(), 0)

    def test_an_alternative_without_a_name_and_an_unknown_number_are_refused(self) -> None:
        page = self.send_new(title="Push", chosen="x", alternatives_option=[""], alternatives_why_not=["slow"])
        self.assertIn("'alternatives[0].option' must not be empty.", page)
        self.assertIn("There is no decision #99 here.", self.send_new(title="Push", chosen="x", refines="#99"))
        memory = self.write("A note")
        shown = self.send_new(title="Push", chosen="x", refines=f"#{memory}")
        self.assertIn(f"#{memory} is a memory, not a decision.", shown)
        self.assertEqual(self.count(), 0)

    def test_more_rows_are_offered_without_a_script_and_keep_what_was_typed(self) -> None:
        sent = {**BLANK, "title": "Push", "alternatives_option": ["Poll", ""], "more_rows": "1"}
        page = self.post(f"{PAGE}/add/", **sent)
        self.assertEqual(page.count('name="alternatives_option"'), 6)
        self.assertIn('value="Poll"', page)
        self.assertIn('value="Push"', page)
        self.assertNotIn("Not saved. Correct the errors below.", page)
        self.assertEqual(self.count(), 0)

    def test_secrets_are_taken_out_and_the_person_is_told(self) -> None:
        page = self.send_new(title="Push", chosen="Use password=hunter2hunter2 for it.")
        self.assertIn("masked before saving", page)
        self.assertNotIn("hunter2", self.decision(self.decisions()[0]).chosen)


class SupersedingTests(DecidingTestCase):
    def test_the_form_begins_with_what_stays(self) -> None:
        first = self.record("Poll", context="Prices change.", topic="prices", impact="high")
        page = self.page(f"{PAGE}/{first}/supersede/")
        for part in ('value="Poll"', "Prices change.", 'value="prices"', '<option value="high" selected>'):
            self.assertIn(part, page)
        answer = self.send(first, "supersede", **{**BLANK, "impact": ""}, title="", chosen="Push.")
        self.assertIn(f"which supersedes #{first}", text_of(answer))
        decision = self.decision(self.decisions()[0])
        self.assertEqual((decision.title, decision.topic, decision.impact), ("Poll", "prices", "high"))

    def test_one_that_is_superseded_leads_to_the_head_or_branches(self) -> None:
        first = self.record("Poll")
        second = self.record("Push", supersedes=[first])
        self.assertIn(f"Supersede #{second} instead", text_of(self.page(f"{PAGE}/{first}/supersede/")))
        fields = {**BLANK, "title": "Stream", "chosen": "Stream it."}
        refused = text_of(self.send(first, "supersede", **fields))
        self.assertIn(f"#{second} is in force; supersede that, or tick “Keep both as current (second head)”.", refused)
        self.assertEqual(self.count(), 2)
        self.assertIn("which supersedes", text_of(self.send(first, "supersede", **fields, branch="on")))
        self.assertEqual(
            [self.decision(each).status for each in self.decisions()], ["accepted", "accepted", "superseded"]
        )


class AddingTests(DecidingTestCase):
    def test_a_person_marks_it_and_says_why(self) -> None:
        decision = self.record("Poll")
        page = text_of(self.send(decision, "mark", status="deprecated", reason="Nobody reads it."))
        self.assertIn("Set the status to deprecated.", page)
        self.assertIn("Nobody reads it.", page)
        self.assertEqual(self.decision(decision).status, "deprecated")
        self.assertIn("'status' must be one of", text_of(self.send(decision, "mark", status="great")))

    def test_what_is_superseded_cannot_be_marked(self) -> None:
        first = self.record("Poll")
        self.record("Push", supersedes=[first])
        self.assertIn("is superseded; mark the decision", text_of(self.send(first, "mark", status="accepted")))

    def test_a_review_is_settled(self) -> None:
        decision = self.record("Count calls")
        self.commit("aaaa", f"Count\n\nDecision: #{decision}")
        self.commit("bbbb", f"Revert\n\nThis reverts commit {'aaaa'.ljust(40, '0')}.")
        self.assertIn("which implemented it", text_of(self.shown(decision)))
        page = text_of(self.send(decision, "mark", reviewed="1", reason="Only half of it went."))
        self.assertIn("Confirmed that the decision is still valid.", page)
        self.assertNotIn("which implemented it", page)

    def test_a_link_is_added_once_and_a_circle_names_its_path(self) -> None:
        first, second = self.record("Poll"), self.record("Push")
        self.assertIn("Added.", self.send(second, "link", relation="refines", to=f"#{first}"))
        self.assertIn(
            "Nothing changed: it already exists.", self.send(second, "link", relation="refines", to=str(first))
        )
        circle = text_of(self.send(first, "link", relation="depends_on", to=str(second)))
        self.assertIn(f"would close a cycle: #{second} → #{first} → #{second}.", circle)
        self.assertIn("'to' must be a whole number", text_of(self.send(first, "link", relation="refines", to="x")))
        with self.store():
            self.assertEqual(DecisionEdge.objects.count(), 1)

    def test_a_number_is_looked_up_before_it_is_linked(self) -> None:
        decision = self.record("Poll")
        address = self.address(f"{PAGE}/{decision}/lookup/")
        found = self.client.get(address, {"target": f"#{decision}"})
        self.assertEqual((found.content.decode(), found["X-Found"]), ("Accepted: Poll", "yes"))
        for target, message in (
            ("99", "There is no decision #99 here."),
            ("x", "Enter the number of a decision, such as #412."),
        ):
            missing = self.client.get(address, {"target": target})
            self.assertEqual((missing.content.decode(), missing["X-Found"]), (message, "no"))

    def test_evidence_of_each_kind_is_added(self) -> None:
        decision = self.record("Poll")
        commit = self.commit("abcd", "Poll")
        self.assertIn(
            "relates to", text_of(self.send(decision, "evidence", kind="commits:relates", value=f"#{commit}"))
        )
        for kind in ("files", "prs", "validations", "notes"):
            self.assertIn(f"some {kind}", text_of(self.send(decision, "evidence", kind=kind, value=f"some {kind}")))
        self.assertIn("There is no commit #99 here", self.send(decision, "evidence", kind="commits", value="#99"))
        self.assertIn("must not be empty", text_of(self.send(decision, "evidence", kind="notes", value=" ")))
        self.assertIn("is not known", text_of(self.send(decision, "evidence", kind="spells", value="x")))
        self.assertIn("not recorded yet", self.send(decision, "evidence", kind="commits:implements", value="beefbeef"))
