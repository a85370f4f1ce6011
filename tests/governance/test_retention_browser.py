from __future__ import annotations

import unittest

from selenium.webdriver.common.keys import Keys

from tests.admin.browser import BrowserTestCase, project_of
from tests.web.server import command

PAGE = "governance/retentionrun/"
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


class RetentionBrowserTests(BrowserTestCase):
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
        with self.new_page():
            self.press("a lawsuit", Keys.ENTER)
        self.see("Retention skips memory:1")
        self.tab_to("Retention")
        with self.new_page():
            self.press(Keys.ENTER)
        self.see("Hold #5: a lawsuit", ".side-kept")
        self.see("deleted observation", ".side-going")
        self.tab_to("1 sample of deleted observation")
        self.press(Keys.ENTER)
        self.see("Cardamom", ".side-going .samples[open]")
        self.tab_to("typed")
        with self.new_page():
            self.press("another", Keys.ENTER)
        self.see(f"Type {self.project} to confirm. Nothing was deleted.")
        with self.new_page():
            self.press(self.project, Keys.ENTER)
        self.see("Deleted 1 item in 2 events")
        self.see("Hold #5: a lawsuit", ".side-kept")
        self.see("Completed", ".meta")

    def test_by_keyboard_a_rule_is_added_and_a_wrong_one_is_refused(self) -> None:
        self.open(PAGE)
        self.tab_to("Edit rules")
        self.press(Keys.ENTER)
        self.press(Keys.TAB)  # to the sort
        self.press("deleted")
        self.tab_to("rules-0-after_days", most=60)
        with self.new_page():
            self.press("soon", Keys.ENTER)
        self.see("must be a whole number, not 'soon'", ".rule")
        self.tab_to("rules-0-after_days", most=60)
        with self.new_page():
            self.press(Keys.BACKSPACE * 4, "500", Keys.ENTER)
        self.see("Deleted memories are purged after 500 days", ".rules")
        self.see("Nothing is due, or all due items are kept.", ".side-going")

    def test_on_a_narrow_screen_nothing_is_cut_off(self) -> None:
        self.narrow()
        for page in (PAGE, "governance/hold/"):
            self.open(page)
            self.assertLessEqual(self.script("return document.documentElement.scrollWidth"), 400)
