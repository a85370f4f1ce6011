"""The main tasks of a person, in a real browser: what each takes in clicks and keys, from the overview.

With ``MEMORY_HUB_TEST_TASKS`` set to a file, a line for each task is added to it: task, clicks and keys, seconds.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from selenium.webdriver import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.admin.browser import BrowserTestCase


class TaskTests(BrowserTestCase):
    has_own_server = True
    acts = 0

    def setUp(self) -> None:
        super().setUp()
        if not (self.server.home / "projects" / "demo").exists():
            self.open("")
            self.follow("Load the sample project")
        self.project = "demo"
        self.open("")
        self.acts = 0
        self.started = time.perf_counter()

    def click(self, text: str, within: str = "main") -> None:
        self.acts += 1
        super().click(text, within)

    def press(self, *keys: str) -> None:
        self.acts += len(keys)  # a text that is typed is one act
        super().press(*keys)

    def done(self, task: str, *, most: int) -> None:
        seconds = time.perf_counter() - self.started
        if file := os.environ.get("MEMORY_HUB_TEST_TASKS"):
            with Path(file).open("a") as results:
                results.write(f"{task}\t{self.acts}\t{seconds:.1f}\n")
        self.assertLessEqual(self.acts, most)

    def go(self, *keys: str) -> None:
        with self.new_page():
            self.press(*keys)

    def palette(self, text: str, wanted: str) -> None:
        """Go to an entry by a part of its title."""
        keys = ActionChains(self.browser).key_down(Keys.CONTROL).send_keys("k").key_up(Keys.CONTROL)
        keys.perform()
        self.acts += 1
        self.press(text)
        self.see(wanted, within="dialog.palette [aria-selected=true]")
        self.go(Keys.ENTER)

    def confirm(self, button: str) -> None:
        """Type the word that the form asks for, and send it."""
        self.type_into("typed", self.find("label[for=id_typed] code").text)
        self.acts += 1
        self.follow(button)

    def test_review_50_proposals_by_keyboard(self) -> None:
        self.project = "reviewed"
        self.rest("POST", "projects", {"project_id": self.project})
        self.rest("PATCH", f"projects/{self.project}/settings", {"settings": {"review_policy": "all"}})
        for number in range(50):
            body = {"title": f"Proposal {number}", "content": f"What number {number} says of the work at hand."}
            self.rest("POST", f"projects/{self.project}/memories", body)
        self.open("")
        self.started = time.perf_counter()
        self.follow("50 memories need review")
        for number in range(50):
            self.see(f"Proposal {number}", within="article h2")
            self.go("a")
        self.see("The inbox is empty")
        self.done("review 50 proposals", most=51)

    def test_find_a_memory_and_its_evidence(self) -> None:
        self.press("/", "sms gateway")
        self.go(Keys.ENTER)
        self.follow("The SMS gateway takes 20 seconds")
        self.see("it does not confirm delivery")
        with self.new_page():
            self.acts += 1
            self.find("a[href$='/core/rawevent/160/change/']").click()
        self.see("The SMS gateway takes 20 seconds")
        self.done("find a memory and its evidence", most=5)

    def test_see_what_an_agent_was_told(self) -> None:
        self.palette("before the water", "Warn before the water is over the quay")
        self.see("Given to the agent", within="#given")
        self.find("#given .given-line a[href*='/stream/memory:']")
        self.done("see what an agent was told", most=3)

    def test_see_why_something_was_decided(self) -> None:
        self.palette("by mail", "Warn by SMS and by mail until spring")
        self.see("A warning twice is a nuisance; none is a flood.")
        self.follow("sms")
        self.see("Wire it up, but warn by mail as well until we trust it.")
        self.done("see why something was decided, with the prompt", most=4)

    def test_redact_a_secret(self) -> None:
        self.rest("POST", "projects/demo/memories", {"title": "The pump's door", "content": "Its code is 8841-tide."})
        self.started = time.perf_counter()
        self.palette("pump's door", "The pump's door")
        self.follow("Redact…")
        self.type_into("wanted", "8841-tide")
        self.acts += 1
        self.follow("Preview")
        self.see("Permanently redact 1 match in 1 event?")
        self.confirm("Redact permanently")
        self.see("Redacted 1 match in 1 event")
        self.see("No copy was found")
        self.done("redact a secret", most=8)

    def test_roll_back_a_session(self) -> None:
        self.palette("quick fixes", "A few quick fixes before the weekend")
        self.follow("Roll back…")
        self.follow("Quarantine 10 items")
        self.see("Made roll-back", within=".messagelist")
        self.done("roll back a session", most=5)

    def test_run_retention(self) -> None:
        self.rest("PATCH", "projects/demo/settings", {"settings": {"retention_days": 30}})
        self.open("")
        self.started = time.perf_counter()
        self.follow("Governance", within="nav[@id='nav']")
        self.follow("Retention", within="nav[@id='nav']")
        self.see("Captured events are deleted after 30 days")
        self.confirm("Delete permanently")
        self.see("Deleted 16 items in 16 events")
        self.done("run retention", most=4)
