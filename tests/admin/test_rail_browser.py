"""The rail and the replay under a person's hands: folding, the slider by keyboard, playing, and a narrow screen."""

from __future__ import annotations

from typing import Any

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.admin.browser import NAVIGATION, BrowserTestCase

REPLAY = "core/rawevent/replay/"
STEP_MILLISECONDS = 900  # between two events that are played
POSITIONS = """
return [document.querySelector('#replayed > *').dataset.position,
        ...['slider', 'number'].map(name => document.getElementById(`replay-${name}`).value)]"""
# What was shown, one position after the other, and a press on Pause as soon as the second is there: by the page itself,
# lest a slow machine comes too late for it.
PAUSE_AT_THE_SECOND = """
window.seen = [];
new MutationObserver(() => {
    window.seen.push(Number(document.querySelector('#replayed > *').dataset.position));
    if (window.seen.length === 2) document.querySelector('[data-play]').click();
}).observe(document.getElementById('replayed'), {childList: true});"""


class WorkBrowserTestCase(BrowserTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.session = self.post("sessions", {"session_id": "s-1", "purpose": "Lay the floor"})["id"]
        self.iteration = self.post("iterations", {"command": "fix", "description": "Keep it short"})["id"]
        self.post(f"iterations/{self.iteration}/advance", {"phase": "build", "artifacts": ["docs/" + "a" * 90]})
        self.turns = [self.turn("Measure it", "make " + "x" * 300), self.turn("Cut it", "make cut")]

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self.rest("POST", f"projects/{self.project}/{path}", body)

    def turn(self, prompt: str, command: str) -> int:
        begun = self.post("turns/begin", {"session_id": "s-1"})
        for kind, payload in {"message.user": {"content": prompt}, "command.run": {"command": command}}.items():
            self.post("turns/append", {"ack_token": begun["ack_token"], "type": kind, "payload": payload})
        self.post("turns/end", {"ack_token": begun["ack_token"]})
        return int(begun["turn"]["id"] if "turn" in begun else begun["id"])

    @property
    def pages(self) -> list[str]:
        lists = [f"sessions_app/{name}/" for name in ("session", "turn", "iteration")]
        one = [f"sessions_app/turn/{self.turns[0]}/change/", f"sessions_app/session/{self.session}/change/"]
        return [*lists, *one, f"sessions_app/iteration/{self.iteration}/change/", REPLAY]


class RailTests(WorkBrowserTestCase):
    def test_a_turn_and_an_entry_fold_by_keyboard(self) -> None:
        self.open(f"sessions_app/session/{self.session}/change/")
        first, last = self.find_all(".rail-turn > details")
        self.assertIsNone(first.get_attribute("open"))
        self.assertEqual(last.get_attribute("open"), "true")
        self.assertFalse(self.find(f"#e{self.turns[0] + 1}").is_displayed())
        summary = first.find_element(By.TAG_NAME, "summary")
        self.browser.execute_script("arguments[0].focus()", summary)
        self.press(Keys.ENTER)
        entry = self.find(f"#e{self.turns[0] + 1}")
        self.wait(entry.is_displayed, "the first turn's prompt")
        payload = entry.find_element(By.TAG_NAME, "pre")
        self.assertFalse(payload.is_displayed())
        self.press(Keys.TAB, Keys.TAB, Keys.ENTER)
        self.wait(payload.is_displayed, "the payload of the prompt")
        self.assertIn('"content": "Measure it"', payload.text)
        self.press(Keys.ENTER)
        self.wait(lambda: not payload.is_displayed(), "the payload, folded again")

    def test_every_page_obeys_the_policy_and_fits_a_narrow_screen(self) -> None:
        self.narrow()
        for path in self.pages:
            self.open(path)
            self.assertTrue(self.find("h1").is_displayed(), path)
            for fold in self.find_all("main details:not([open])"):
                self.browser.execute_script("arguments[0].open = true", fold)
            self.assertEqual(self.browser.execute_script("return innerWidth"), 400)
            self.assertLessEqual(self.browser.execute_script("return document.documentElement.scrollWidth"), 400, path)

    def test_turns_and_iterations_are_in_the_navigation(self) -> None:
        self.open("")
        self.follow("Activity", within=NAVIGATION)
        self.follow("Turns", within=NAVIGATION)
        self.see("Cut it")
        self.follow("Iterations", within=NAVIGATION)
        self.see("now: build")
        with self.new_page():
            self.find("#result_list .title").click()
        self.see("Timeline")


class ReplayTests(WorkBrowserTestCase):
    def shows(self, position: int) -> None:
        """Wait until the event shown, the slider and the number are all at a position."""
        self.wait(lambda: self.script(POSITIONS) == [str(position)] * 3, f"#{position} in all three places")

    def stays_at(self, position: int) -> None:
        """Wait for a position at which nothing plays, and see that it is the same after the player's next step."""
        self.see("Play", "[data-play]")
        self.shows(position)
        self.let_timers_run_out(STEP_MILLISECONDS + 100)
        self.assertEqual(self.script(POSITIONS), [str(position)] * 3)
        self.assertEqual(self.find("[data-play]").text, "Play")

    @property
    def last(self) -> int:
        return int(self.find("[data-replay]").get_attribute("data-last") or 0)

    def test_the_slider_moves_by_keyboard_without_a_new_page(self) -> None:
        self.open(f"{REPLAY}?position=3")
        self.browser.execute_script("window.isSamePage = true; document.querySelector('#replay-slider').focus()")
        self.press(Keys.ARROW_RIGHT)
        self.shows(4)
        self.press(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
        self.shows(2)
        self.press(Keys.END)
        last = self.last
        self.shows(last)
        self.assertEqual(self.script("return location.search"), f"?position={last}")
        said = self.find("#replay-slider").get_attribute("aria-valuetext")
        self.assertEqual(said, f"#{last} turn.ended")
        self.assertTrue(self.script("return window.isSamePage"))

    def test_the_arrows_step_from_anywhere_on_the_page_and_stop_at_the_ends(self) -> None:
        self.open(f"{REPLAY}?position=1")
        self.press(Keys.ARROW_LEFT)
        self.press(Keys.ARROW_RIGHT)
        self.shows(2)
        self.find("[data-step='1']").click()
        self.shows(3)
        self.find("[data-step='-1']").click()
        self.shows(2)
        self.find(".chain-links a[href='?position=5']").click()
        self.shows(5)

    def test_a_number_leads_there(self) -> None:
        self.open(REPLAY)
        field = self.find("#replay-number")
        field.clear()
        field.send_keys("4", Keys.ENTER)
        self.shows(4)
        self.assertIn("Verified", self.find("#replayed").text)

    def test_playing_goes_on_to_the_end_and_stops_there(self) -> None:
        self.open(REPLAY)
        last = self.last
        field = self.find("#replay-number")
        field.clear()
        field.send_keys(str(last - 1), Keys.ENTER)
        self.shows(last - 1)
        self.click("Play")
        self.stays_at(last)

    def test_playing_from_the_end_starts_over_and_a_pause_holds_it(self) -> None:
        self.open(REPLAY)
        self.open(f"{REPLAY}?position={self.last}")
        self.shows(self.last)
        self.script(PAUSE_AT_THE_SECOND)
        self.click("Play")
        self.wait(lambda: self.script("return window.seen.length >= 2"), "two events, played")
        self.stays_at(2)
        self.assertEqual(self.script("return window.seen"), [1, 2])

    def test_without_script_the_slider_is_a_form(self) -> None:
        self.browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        self.addCleanup(self.browser.execute_cdp_cmd, "Emulation.setScriptExecutionDisabled", {"value": False})
        self.open(f"{REPLAY}?position=3")
        self.assertFalse(self.find("[data-play]").is_displayed())
        slider = self.find("#replay-slider")
        slider.send_keys(Keys.ARROW_RIGHT)
        self.click("Show")
        self.shows(4)
        self.find("[data-step='1']").click()
        self.shows(5)
