"""Governance in a browser: everything by keyboard, and nothing cut off on a narrow screen."""

from __future__ import annotations

import shutil
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any

from selenium.webdriver.common.keys import Keys

from tests.admin.browser import BrowserTestCase, project_of
from tests.sessions_app.test_git import Repository
from tests.web.server import command

STALE = "governance/affirmation/"
BEFORE = b"def check(token):\n    return token.age < 3600\n"
AFTER = b"def check(token):\n    # <shorter>\n    return token.age < 60\n"


class KeyboardTestCase(BrowserTestCase):
    def go(self, *keys: str) -> None:
        """Press keys that lead to another page."""
        with self.new_page():
            self.press(*keys)

    def enter(self, text: str, most: int = 40) -> None:
        """Go by keyboard to what bears this text, and press it."""
        self.tab_to(text, most)
        self.go(Keys.ENTER)

    def assert_narrow(self) -> None:
        self.assertLessEqual(self.script("return document.documentElement.scrollWidth"), 400)


class StalenessBrowserTests(KeyboardTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.repository = Repository(Path(tempfile.mkdtemp(prefix="repository-")))
        self.addCleanup(shutil.rmtree, self.repository.folder)
        self.rest("PATCH", f"projects/{self.project}", {"root_path": str(self.repository.folder)})
        self.repository.commit("Begin", src=BEFORE)
        body: dict[str, Any] = {
            "title": "Check tokens at the edge",
            "content": "In **one** place.",
            "kind": "guideline",
        }
        body["resource_links"] = [{"uri": "src", "type": "governs"}]
        self.guideline = self.call("memories", body)["id"]
        choice = {"title": "Tokens live an hour", "chosen": "3600 seconds", "files": ["src"], "anchors": []}
        self.decision = self.call("decisions", choice)["id"]
        self.other = self.call("decisions", {"title": "Tokens are signed", "chosen": "HMAC", "files": ["src"]})["id"]
        self.repository.hours = int(time.time() - 1_700_000_000) // 3600 + 1
        sha = self.repository.commit("Shorten the life of tokens", src=AFTER)
        self.call("commits/read", {"sha": sha, "directory": str(self.repository.folder)})

    def call(self, path: str, body: dict[str, Any]) -> Any:
        return self.rest("POST", f"projects/{self.project}/{path}", body)

    def test_everything_is_done_by_keys(self) -> None:
        self.open(STALE)
        self.see("1 of 3")
        self.see("Check tokens at the edge", "article")
        self.assertIn("-    return token.age < 3600", self.find(".patch").text)
        self.assertEqual(self.find(".patch .line-added").text.strip(), "+    # <shorter>")
        self.go("j")
        self.see("Tokens live an hour", "article")
        self.go("k")
        self.see("Check tokens at the edge", "article")
        self.press("?")
        self.see("Still valid, with a note", ".keys-dialog")
        self.press(Keys.ESCAPE)
        self.press("n")
        self.press("just read it")  # typed into the note: its letters are no keys here
        self.go(Keys.ENTER)
        self.see(f"Confirmed #{self.guideline}", ".live-messages")
        self.see("1 of 2")
        self.go("s")
        self.see("Record and supersede", "main")
        self.browser.back()
        self.see("Tokens live an hour", "article")
        self.press("r")
        self.press("60 seconds now")
        self.go(Keys.ENTER)
        self.see(f"Deprecated #{self.decision}", ".live-messages")
        self.see("Tokens are signed", "article")
        self.go("v")
        self.see(f"Confirmed #{self.other}", ".live-messages")
        self.see("This cannot be undone.", ".live-messages")
        self.see("The inbox is empty", "main")

    def test_on_a_narrow_screen_nothing_is_cut_off(self) -> None:
        self.narrow()
        self.open(STALE)
        self.see("1 of 3")
        self.assert_narrow()
        with self.new_page():
            self.find(".verdicts > form button").click()
        self.see(f"Confirmed #{self.guideline}", ".live-messages")


SOURCE = (
    b"LIFE = 3600\n\n\ndef check(token):\n    return token.age < LIFE\n\n\ndef sign(token):\n    return hmac(token)\n"
)


class ValidityBrowserTests(KeyboardTestCase):
    """Items of the inbox about code that changed, a branch that was dropped, and an entry that a newer one amends."""

    def setUp(self) -> None:
        super().setUp()
        self.repository = Repository(Path(tempfile.mkdtemp(prefix="repository-")))
        self.addCleanup(shutil.rmtree, self.repository.folder)
        self.repository.commit("Begin", **{"src/auth.py": SOURCE})
        self.rest("PATCH", f"projects/{self.project}", {"root_path": str(self.repository.folder)})
        session = {"session_id": "s-1", "purpose": "Renew tokens", "directory": str(self.repository.folder)}
        self.rest("POST", f"projects/{self.project}/sessions", session)

    def write(self, path: str = "memories", **body: Any) -> int:
        reply = self.server.api("POST", f"projects/{self.project}/{path}", body, **{"X-Session-Id": "s-1"})
        self.assertEqual(reply.status, 201, reply.body)
        return int(reply.json()["id"])

    def judge_alone(self, entry_id: int) -> None:
        with self.new_page():
            self.find(f"#entry-{entry_id} form button").click()

    def test_entries_of_a_changed_file_are_judged_one_by_one_and_together(self) -> None:
        life = self.write(title="Life of tokens", content="Tokens live for an hour.", anchors=["src/auth.py:1"])
        self.write("decisions", title="Sign tokens", chosen="HMAC", anchors=["src/auth.py#sign"])
        self.write(title="Age of tokens", content="`check` compares ages.", anchors=["src/auth.py#check"])
        self.repository.write("src/auth.py", SOURCE.replace(b"3600", b"900").replace(b"hmac", b"signed"))
        self.open("inbox/")
        self.go("j")
        self.see("src/auth.py", "main")
        self.see("2 entries", ".inbox-list")
        self.assertIn("-LIFE = 3600", self.find(".patch").text)
        self.judge_alone(life)
        self.see(f"Confirmed #{life}", ".live-messages")
        self.narrow()
        self.assert_narrow()
        self.go("a")
        self.see("The inbox is empty", "main")

    def test_what_a_dropped_branch_left_is_kept_or_deleted(self) -> None:
        git = self.repository.git
        git("checkout", "-q", "-b", "feature/queue")
        self.repository.commit("Queue", **{"src/queue.py": b"RETRIES = 4\n"})
        kept = self.write(title="Retries", content="`RETRIES` is 4 in src/queue.py.")
        self.write(title="Queue of mails", content="src/queue.py sends mails one by one.")
        git("checkout", "-q", "main")
        git("branch", "-q", "-D", "feature/queue")
        self.open("inbox/")
        self.go("j")
        self.see("feature/queue", "main")
        self.judge_alone(kept)
        self.see(f"Confirmed #{kept}", ".live-messages")
        self.narrow()
        self.assert_narrow()
        self.press("r")
        self.go(Keys.ENTER)
        self.see("The inbox is empty", "main")

    def test_an_amendment_is_accepted_by_a_key(self) -> None:
        older = self.write(title="Session storage", content="User sessions are stored in Memcached.")
        text = "We moved user sessions to Redis, Memcached is gone."
        newer = self.write(title="Sessions moved to Redis", content=text)
        self.open("inbox/")
        self.go("j")
        self.see(f"#{newer} amends #{older}", "main")
        self.narrow()
        self.assert_narrow()
        self.go("a")
        self.see(f"#{newer} supersedes #{older}", ".live-messages")
        self.see("The inbox is empty", "main")


RETENTION = "governance/retentionrun/"
OLD = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "memoryhub.settings_store"
import django
django.setup()
from datetime import timedelta
from memories.schemas import MemoryDelete, MemoryWrite
from memories.services import delete_memory, write_memory
from memoryhub.core import clock
from memoryhub.core.stores.store import project_store, use_store
for project in sys.argv[1:]:
    with use_store(project_store(project), create=True), clock.frozen(clock.now() - timedelta(days=200)):
        for title in ("Marmalade", "Cardamom"):
            delete_memory(command=MemoryDelete(id=write_memory(command=MemoryWrite(title=title, content=title)).id))
"""


class RetentionBrowserTests(KeyboardTestCase):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        tests = unittest.defaultTestLoader.getTestCaseNames(cls)
        projects = [project_of(f"{cls.__module__}.{cls.__qualname__}.{test}") for test in tests]
        with command(*projects, home=cls.server.home, program=OLD) as writer:
            said, _ = writer.communicate(timeout=120)
        assert (writer.returncode, said) == (0, ""), said

    def test_by_keyboard_it_is_looked_at_held_confirmed_run_and_read(self) -> None:
        self.open("governance/hold/?stream=memory:1")
        self.assertEqual(self.browser.switch_to.active_element.get_attribute("name"), "reason")
        self.go("a lawsuit", Keys.ENTER)
        self.see("Retention skips memory:1")
        self.enter("Retention")
        self.see("Hold #5: a lawsuit", ".side-kept")
        self.see("deleted memory", ".side-going")
        self.tab_to("1 sample of deleted memory")
        self.press(Keys.ENTER)
        self.see("Cardamom", ".side-going .samples[open]")
        self.tab_to("typed")
        self.go("another", Keys.ENTER)
        self.see(f"Type {self.project} to confirm. Nothing was deleted.")
        self.go(self.project, Keys.ENTER)
        self.see("Deleted 1 item in 2 events")
        self.see("Hold #5: a lawsuit", ".side-kept")
        self.see("Completed", ".meta")

    def test_by_keyboard_a_rule_is_added_and_a_wrong_one_is_refused_and_a_narrow_screen_shows_all(self) -> None:
        self.open(RETENTION)
        self.tab_to("Edit rules")
        self.press(Keys.ENTER)
        self.press(Keys.TAB)  # to the sort
        self.press("deleted")
        self.tab_to("rules-0-after_days", most=60)
        self.go("soon", Keys.ENTER)
        self.see("must be a whole number, not 'soon'", ".rule")
        self.tab_to("rules-0-after_days", most=60)
        self.go(Keys.BACKSPACE * 4, "500", Keys.ENTER)
        self.see("Deleted memories are purged after 500 days", ".rules")
        self.see("Nothing is due, or all due items are kept.", ".side-going")
        self.narrow()
        for page in (RETENTION, "governance/hold/"):
            self.open(page)
            self.assert_narrow()


class RollbackBrowserTests(KeyboardTestCase):
    def test_choose_see_quarantine_and_undo_by_keyboard_alone(self) -> None:
        path = f"projects/{self.project}/memories"
        body, headers = {"title": "Ports are open", "content": "They are."}, {"X-Session-Id": "s-bad"}
        bad = self.server.api("POST", path, body, **headers).json()["id"]
        self.rest("POST", path, {"title": "So open them", "content": f"As #{bad} says."})
        self.open("governance/rollback/")
        self.tab_to_field("session_id")
        self.press("s-bad")
        self.enter("Preview impact")
        self.see("Ports are open", "#preview")
        self.see("cites")
        self.tab_to_field("also")
        self.press(Keys.SPACE)
        self.enter("Update preview")
        self.see("2 quarantined")
        self.tab_to_field("reason")
        self.press("It was fed lies")
        self.enter("Quarantine 2 items")
        self.see("2 quarantined. You can undo it below.")
        self.assertEqual([], self.server.api("GET", path).json()["results"])
        self.enter("Undo", most=60)
        self.see("Undid roll-back #")
        self.assertEqual(2, len(self.server.api("GET", path).json()["results"]))

    def tab_to_field(self, name: str) -> None:
        for _ in range(80):
            self.press(Keys.TAB)
            if self.browser.switch_to.active_element.get_attribute("name") == name:
                return
        self.fail(f"no way to {name} by keyboard")


class GraphBrowserTests(KeyboardTestCase):
    def test_arrow_keys_walk_and_g_shows_the_graph_of_a_neighbour(self) -> None:
        path = f"projects/{self.project}"
        cause, effect = (
            self.rest("POST", f"{path}/memories", {"title": title, "content": f"{title}, in full"})["id"]
            for title in ("The cause", "The effect")
        )
        body = {"source": effect, "relation": "derived_from", "target": cause}
        self.rest("POST", f"{path}/relations", body)
        self.open(f"graph/{cause}/")
        self.script("document.querySelector('[data-diagram]').focus()")
        for title in ("The cause", "The effect"):
            self.press(Keys.ARROW_RIGHT)
            focused = self.script("return document.activeElement.querySelector('.diagram-text').textContent")
            self.assertEqual(focused, title)
        self.go("g")
        self.see("The effect", within="h1")
