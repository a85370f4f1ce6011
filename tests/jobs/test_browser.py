from __future__ import annotations

from selenium.webdriver.common.keys import Keys

from tests.admin.browser import NARROW, BrowserTestCase


class JobsPageTests(BrowserTestCase):
    has_own_server = True

    def test_jobs_are_read_and_asked_for_by_keyboard_and_fit_a_narrow_screen(self) -> None:
        self.browser.get(f"{self.server.address}/jobs")
        self.tab_to("Run now the job backup")
        with self.new_page():
            self.press(Keys.ENTER)
        self.see("memory-hub jobs backup", within=".messagelist")  # no worker here: it says how
        self.tab_to("1 store and the hub of backup")
        self.press(Keys.SPACE)
        self.see(f"Project {self.project}", within="#stores-backup")
        self.tab_to("Edit schedule of retention")
        self.press(Keys.SPACE, Keys.TAB, "every w")
        self.tab_to("at")
        self.press("04:30")  # over the time that is there, which Tab has selected
        self.tab_to("Save the schedule of retention")
        with self.new_page():
            self.press(Keys.ENTER)
        self.see("The job retention runs every week at 04:30 UTC", within=".messagelist")
        self.see("every week at 04:30 UTC", within="#retention .job-facts")
        self.narrow()
        self.assertLessEqual(self.script("return document.documentElement.scrollWidth"), NARROW["width"])
