from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from selenium.webdriver.common.keys import Keys

from tests.admin.browser import BrowserTestCase
from tests.sessions_app.test_git import Repository

PAGE = "governance/affirmation/"
BEFORE = b"def check(token):\n    return token.age < 3600\n"
AFTER = b"def check(token):\n    # <shorter>\n    return token.age < 60\n"


class StalenessBrowserTests(BrowserTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.repository = Repository(Path(tempfile.mkdtemp(prefix="repository-")))
        self.addCleanup(shutil.rmtree, self.repository.folder)
        self.rest("PATCH", f"projects/{self.project}", {"root_path": str(self.repository.folder)})
        self.repository.commit("Begin", src=BEFORE)
        links = [{"uri": "src", "type": "governs"}]
        body = {"title": "Check tokens at the edge", "content": "In **one** place.", "kind": "guideline"}
        self.guideline = self.call("memories", {**body, "resource_links": links})["id"]
        choice = {"title": "Tokens live an hour", "chosen": "3600 seconds", "files": ["src"], "impact": "high"}
        self.decision = self.call("decisions", choice)["id"]
        other = {"title": "Tokens are signed", "chosen": "HMAC", "files": ["src"]}
        self.other = self.call("decisions", other)["id"]
        self.repository.hours = int(time.time() - 1_700_000_000) // 3600 + 1
        sha = self.repository.commit("Shorten the life of tokens", src=AFTER)
        self.call("commits/read", {"sha": sha, "directory": str(self.repository.folder)})

    def call(self, path: str, body: dict[str, Any]) -> Any:
        return self.rest("POST", f"projects/{self.project}/{path}", body)

    def go(self, key: str) -> None:
        with self.new_page():
            self.press(key)

    def test_everything_is_done_by_keys(self) -> None:
        self.open(PAGE)
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
        self.open(PAGE)
        self.see("1 of 3")
        self.assertLessEqual(self.script("return document.documentElement.scrollWidth"), 400)
        with self.new_page():
            self.find(".verdicts > form button").click()
        self.see(f"Confirmed #{self.guideline}", ".live-messages")
