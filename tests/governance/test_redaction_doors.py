from __future__ import annotations

import io
import json
import sys
from typing import Any
from unittest import mock

from django.core.management import CommandError, call_command
from selenium.webdriver.common.keys import Keys

from memoryhub.core.permissions import ROLES
from memoryhub.web.signin import ensure_owner
from tests.admin.base import AdminTestCase, text_of
from tests.admin.browser import BrowserTestCase
from tests.hook.client import run_hook, spooled, wait_for_spooled

PAGE = "governance/redaction/"
WORD = "marmaladeish"


class RedactionPageTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.memory_id = self.write(f"The {WORD} tank", f"It was <b>{WORD}</b>, and it held 400 litres.")

    def look(self, **fields: Any) -> str:
        return self.post(PAGE, **{"way": "text", "wanted": WORD, **fields})

    def token(self) -> str:
        html = self.look()
        return html.partition('name="confirm_token" value="')[2].partition('"')[0]

    def test_a_look_shows_before_and_after_and_changes_nothing(self):
        html = self.look()
        self.assertIn(
            f"It was &lt;b&gt;<del>{WORD}</del>",
            self.client.post(self.address(PAGE), {"way": "text", "wanted": WORD}).content.decode(),
        )
        self.assertIn("Permanently redact 2 matches in 1 event?", text_of(html))
        self.assertEqual(self.memory(self.memory_id).title, f"The {WORD} tank")

    def test_it_is_done_once_the_word_is_typed(self):
        fields = {
            "way": "text",
            "wanted": WORD,
            "confirm_token": self.token(),
            "label": "name",
            "reason": "A customer's.",
        }
        said = text_of(self.post(f"{PAGE}run/", **fields, typed="yes"))
        self.assertIn("Type redact to confirm. Nothing was changed.", said)
        said = text_of(self.post(f"{PAGE}run/", **{**fields, "confirm_token": "0" * 16}, typed="redact"))
        self.assertIn("The log has changed since the preview", said)
        self.assertEqual(self.memory(self.memory_id).version, 1)
        fields["confirm_token"] = self.post(PAGE, way="text", wanted=WORD, label="name").partition(
            'name="confirm_token" value="'
        )[2][:16]
        said = text_of(self.post(f"{PAGE}run/", **fields, typed="redact"))
        self.assertIn("Redacted 2 matches in 1 event, then searched", said)
        self.assertIn("No copy was found", said)
        self.assertIn("A customer's.", said)
        self.assertEqual(self.memory(self.memory_id).title, "The [REDACTED:name] tank")

    def test_what_is_wrong_is_said_in_one_sentence(self):
        for fields, sentence in (
            ({"wanted": ""}, "'text' must have at least 2 characters"),
            ({"wanted": "nowhere-at-all"}, "No match in this store; check the text and the selection."),
            ({"way": "pattern", "wanted": "("}, "not a valid RE2 expression"),
            ({"way": "whole"}, "whole needs ids or search"),
            ({"ids": "four"}, "must be a whole number"),
        ):
            with self.subTest(fields=fields):
                self.assertIn(sentence, text_of(self.look(**fields)))

    def test_another_project_has_nothing_of_it(self):
        self.assertIn("No match in this store", text_of(self.post(PAGE, project="beta", way="text", wanted=WORD)))

    def test_one_who_may_not_sees_only_what_was_done(self):
        owner = ensure_owner()
        viewer = type(owner).objects.create_user("vera", is_staff=True)
        from django.contrib.auth.models import Group

        viewer.groups.set(Group.objects.filter(name="viewer"))
        self.assertIn("viewer", ROLES)
        self.client.force_login(viewer)
        self.assertIn("Only owners can redact", text_of(self.page(PAGE)))
        answer = self.client.post(self.address(PAGE), {"way": "text", "wanted": WORD})
        self.assertEqual(answer.status_code, 403)
        self.assertNotIn(WORD, answer.content.decode().replace(f'value="{WORD}"', ""))


class RedactionCommandTests(AdminTestCase):
    def run_command(self, *arguments: str, stdin: str = "") -> str:
        out = io.StringIO()
        with mock.patch.object(sys, "stdin", io.StringIO(stdin)):
            call_command("redact", "--project", "alpha", *arguments, stdout=out)
        return out.getvalue()

    def test_it_shows_first_and_does_with_the_token(self):
        self.write("A tank", f"It was {WORD}.")
        said = self.run_command("--text", "-", stdin=f"{WORD}\n")
        self.assertIn(f"- It was {WORD}.", said)
        token = said.strip().rpartition(" ")[2]
        said = self.run_command("--text", WORD, "--confirm", token)
        self.assertRegex(said, r"redacted 1 match in 1 event; searched \d+ files .*: 0 still contain it")
        with self.assertRaisesRegex(CommandError, "no match in this store"):
            self.run_command("--text", WORD)

    def test_an_event_in_the_spool_is_captured_first_and_redacted_in_the_log(self):
        answer = {"session_id": "s-1", "cwd": str(self.home), "last_assistant_message": f"Ask {WORD}"}
        run_hook(self.home, "Stop", answer, "--project", "alpha")
        wait_for_spooled(self.home)
        said = self.run_command("--text", WORD)
        self.assertIn("1 match in 1 event of 1 item", said)
        self.assertEqual(spooled(self.home), [])
        said = self.run_command("--text", WORD, "--confirm", said.strip().rpartition(" ")[2])
        self.assertRegex(said, r"redacted 1 match in 1 event; .*: 0 still contain it")

    def test_a_wrong_token_changes_nothing(self):
        memory_id = self.write("A tank", f"It was {WORD}.")
        with self.assertRaisesRegex(CommandError, "does not match the current matches; preview again"):
            self.run_command("--text", WORD, "--confirm", "0" * 16)
        self.assertIn(WORD, self.memory(memory_id).content)


class RedactionBrowserTests(BrowserTestCase):
    def test_by_keyboard_alone_and_over_rest(self):
        first = self.rest("POST", f"projects/{self.project}/memories", {"title": "A", "content": f"It was {WORD}."})
        self.rest("POST", f"projects/{self.project}/memories", {"title": "B", "content": f"And {WORD} again."})
        self.open(PAGE)
        self.tab_to("wanted")
        self.press(WORD)
        self.tab_to("Preview")
        with self.new_page():
            self.press(Keys.ENTER)
        self.see("Permanently redact 2 matches in 2 events?")
        self.tab_to("typed")
        self.press("redact")
        self.tab_to("Redact permanently")
        with self.new_page():
            self.press(Keys.ENTER)
        self.see("Redacted 2 matches in 2 events, then searched")
        self.see("A text called removed")
        reply = self.server.api("GET", f"projects/{self.project}/memories/{first['id']}")
        self.assertEqual(reply.json()["content"], "It was [REDACTED:removed].")
        reply = self.server.api("POST", f"projects/{self.project}/redactions/preview", {"pattern": "A(gain|nd)"})
        self.assertEqual(reply.json()["finds"], 1)
        reply = self.server.api("POST", f"projects/{self.project}/redactions", {"pattern": "A(gain|nd)"})
        self.assertEqual((reply.status, json.loads(reply.body)["code"]), (409, "confirmation_required"))
        listed = self.server.api("GET", f"projects/{self.project}/redactions").json()
        self.assertEqual([item["events"] for item in listed["results"]], [2])
        self.assertEqual(self.server.api("POST", f"projects/{self.project}/redactions", {}).status, 422)
