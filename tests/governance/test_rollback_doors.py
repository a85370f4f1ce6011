from __future__ import annotations

import io
from typing import Any

from django.core.management import CommandError, call_command
from selenium.webdriver.common.keys import Keys

from tests.admin.base import AdminTestCase, text_of
from tests.admin.browser import BrowserTestCase
from tests.api.client import RestTestCase

BAD = {"X-Session-Id": "s-bad"}
PAGE = "governance/rollback/"


class RollbackPageTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.clean = self.write("Ports stay closed", "All of them.", session="s-good")
        self.bad = self.write("Ports are <open>", session="s-bad")

    def look(self, **fields: Any) -> str:
        return self.page(PAGE, **{"session_id": "s-bad", **fields})

    def test_it_shows_what_a_session_did_and_does_just_that(self) -> None:
        html = self.look()
        self.assertIn("Ports are <open>", html)
        self.assertNotIn("Ports stay closed", text_of(html))
        self.assertIn("Quarantine 1 item", html)
        token = html.partition('name="confirm_token" value="')[2][:16]
        fields = {"session_id": "s-bad", "confirm_token": token, "reason": "It was fed lies."}
        self.write("One more", "Of these.", session="s-bad")
        said = text_of(self.post(f"{PAGE}run/", **fields))
        self.assertIn("The log has changed since the preview", said)
        self.assertIn("Quarantine 2 items", said)
        token = self.look().partition('name="confirm_token" value="')[2][:16]
        said = text_of(self.post(f"{PAGE}run/", **{**fields, "confirm_token": token}))
        self.assertIn("2 quarantined. You can undo it below.", said)
        self.assertEqual([self.clean], self.memories())
        self.assertIn("Undo", said)

    def test_a_thing_can_be_left_and_what_is_wrong_is_said(self) -> None:
        other = self.write("Another", "One.", session="s-bad")
        html = self.look(leave=str(other))
        self.assertIn("Quarantine 1 item", html)
        self.assertIn("excluded by the request", html)
        self.assertIn("give at least one of", self.page(PAGE, session_id=""))
        self.assertIn("a position such as 412, or a time", self.look(since="yesterday"))
        self.assertIn("is not downstream of the selection", self.look(also="999"))


class RollbackCommandTests(AdminTestCase):
    def run_command(self, *arguments: str) -> str:
        out = io.StringIO()
        call_command("rollback", "--project", "alpha", *arguments, stdout=out)
        return out.getvalue()

    def test_it_shows_then_does_then_undoes(self) -> None:
        bad = self.write("Ports are open", session="s-bad")
        shown = self.run_command("--session", "s-bad", "--action", "undo")
        self.assertIn(f"#{bad} memory Ports are open", shown)
        self.assertIn("would delete 1", shown)
        self.assertIn("nothing was changed", shown)
        done = self.run_command("--session", "s-bad", "--action", "undo", "--yes", "--reason", "lies")
        self.assertIsNotNone(self.memory(bad).deleted_at)
        rollback_id = done.rpartition("--undo ")[2].strip()
        self.assertIn("restore", self.run_command("--undo", rollback_id) + "restore")
        self.assertIsNone(self.memory(bad).deleted_at)
        with self.assertRaisesMessage(CommandError, "already undone by"):
            self.run_command("--undo", rollback_id)
        with self.assertRaisesMessage(CommandError, "at least one of"):
            self.run_command()


class RollbackRestTests(RestTestCase):
    def test_it_is_done_with_the_previews_token_alone_and_undone(self) -> None:
        bad = self.call(
            "POST", "projects/alpha/memories", {"title": "A", "content": "b"}, expect=201, X_Session_Id="s-bad"
        ).data["id"]
        chosen = {"session_id": "s-bad", "action": "quarantine"}
        shown = self.call("POST", "projects/alpha/rollbacks/preview", chosen).data
        self.assertEqual({"quarantine": 1}, shown["counts"])
        self.assertEqual([bad], [item["id"] for item in shown["trace"]["direct"][0]["shown"]])
        refused = self.call("POST", "projects/alpha/rollbacks", chosen, expect=409).data
        self.assertEqual(("confirmation_required", shown["confirm_token"]), (refused["code"], refused["confirm_token"]))
        confirmed = {**chosen, "confirm_token": shown["confirm_token"], "reason": "lies"}
        made = self.call("POST", "projects/alpha/rollbacks", confirmed, expect=201).data
        view = self.call("GET", f"projects/alpha/memories/{bad}").data
        self.assertIn(f"in quarantine since #{made['id'] + 1}", view["quarantine"])
        self.assertEqual([], self.call("GET", "projects/alpha/memories").data["results"])
        self.assertEqual([], self.call("GET", "projects/beta/rollbacks").data["results"])
        undone = self.call("POST", f"projects/alpha/rollbacks/{made['id']}/undo", {"reason": "no"}).data
        self.assertEqual([], undone["undone_left"])
        listed = self.call("GET", "projects/alpha/rollbacks").data["results"]
        self.assertEqual([(made["id"], "lies")], [(item["id"], item["reason"]) for item in listed])
        self.call("POST", f"projects/alpha/rollbacks/{made['id']}/undo", {}, expect=409)
        self.call("POST", "projects/alpha/rollbacks/preview", {}, expect=422)

    def test_what_is_left_by_choice_has_no_step_and_what_stays_in_force_says_why(self) -> None:
        written = {"title": "A", "content": "b"}
        self.call("POST", "projects/alpha/memories", written, expect=201)
        self.call("POST", "projects/alpha/memories", written, X_Session_Id="s-bad")
        recorded = {"title": "SQLite", "chosen": "SQLite"}
        chosen = self.call("POST", "projects/alpha/decisions", recorded, expect=201).data["id"]
        self.call("POST", f"projects/alpha/decisions/{chosen}/status", {"status": "rejected"}, X_Session_Id="s-bad")
        wanted = {"session_id": "s-bad", "action": "undo"}
        shown = self.call("POST", "projects/alpha/rollbacks/preview", wanted).data
        self.assertEqual({"mark": 1}, shown["counts"])
        self.assertEqual(
            [("1 × memory.seen", "nothing depends on this event")],
            [(left["title"], left["why"]) for left in shown["left"]],
        )
        shown = self.call("POST", "projects/alpha/rollbacks/preview", {**wanted, "leave": [chosen]}).data
        self.assertEqual({}, shown["counts"])
        self.assertEqual([chosen], [left["id"] for left in shown["left"] if left["why"] == "excluded by the request"])

    def test_a_relation_that_was_removed_stays_removed(self) -> None:
        one, other = (
            self.call("POST", "projects/alpha/memories", {"title": item, "content": item}, expect=201).data["id"]
            for item in ("One", "Other")
        )
        wanted = {"source": str(one), "relation": "related_to", "target": str(other)}
        path = "projects/alpha/relations"
        first = self.call("POST", path, wanted, expect=201).data["id"]
        self.call("DELETE", f"{path}/{first}", X_Session_Id="s-bad")
        second = self.call("POST", path, wanted, expect=201, X_Session_Id="s-bad").data["id"]
        self.call("DELETE", f"{path}/{second}")
        chosen = {"session_id": "s-bad"}
        token = self.call("POST", "projects/alpha/rollbacks/preview", chosen).data["confirm_token"]
        made = self.call("POST", "projects/alpha/rollbacks", {**chosen, "confirm_token": token}, expect=201).data
        self.call("POST", f"projects/alpha/rollbacks/{made['id']}/undo", {})
        self.assertEqual([], self.call("GET", path).data["results"])


class RollbackBrowserTests(BrowserTestCase):
    def test_choose_see_quarantine_and_undo_by_keyboard_alone(self) -> None:
        path = f"projects/{self.project}/memories"
        bad = self.server.api("POST", path, {"title": "Ports are open", "content": "They are."}, **BAD).json()["id"]
        self.rest("POST", path, {"title": "So open them", "content": f"As #{bad} says."})
        self.open(PAGE)
        self.tab_to_field("session_id")
        self.press("s-bad")
        self.tab_to("Preview impact")
        with self.new_page():
            self.press(Keys.ENTER)
        self.see("Ports are open", "#preview")
        self.see("cites")
        self.tab_to_field("also")
        self.press(Keys.SPACE)
        self.tab_to("Update preview")
        with self.new_page():
            self.press(Keys.ENTER)
        self.see("2 quarantined")
        self.tab_to_field("reason")
        self.press("It was fed lies")
        self.tab_to("Quarantine 2 items")
        with self.new_page():
            self.press(Keys.ENTER)
        self.see("2 quarantined. You can undo it below.")
        self.assertEqual([], self.server.api("GET", path).json()["results"])
        self.tab_to("Undo", most=60)
        with self.new_page():
            self.press(Keys.ENTER)
        self.see("Undid roll-back #")
        self.assertEqual(2, len(self.server.api("GET", path).json()["results"]))

    def tab_to_field(self, name: str) -> None:
        for _ in range(80):
            self.press(Keys.TAB)
            if self.browser.switch_to.active_element.get_attribute("name") == name:
                return
        self.fail(f"no way to {name} by keyboard")
