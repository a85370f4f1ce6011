"""The page that describes REST, in a real browser under the real content security policy."""

from __future__ import annotations

import json

from tests.admin.browser import BrowserTestCase

ROUTE = "[id$=create_project]"


class DocsPageTests(BrowserTestCase):
    def test_a_signed_in_person_can_send_a_request(self) -> None:
        self.browser.get(f"{self.server.address}/api/v1/docs")
        self.assertEqual(self.make_project("by-session"), "201")

    def test_a_signed_out_person_can_enter_a_token(self) -> None:
        self.sign_out_for_this_test()
        self.browser.get(f"{self.server.address}/api/v1/docs")
        self.find("#api-token").send_keys(self.server.token)
        self.assertEqual(self.make_project("by-token"), "201")

    def test_the_fields_of_what_is_returned_are_a_link_away(self) -> None:
        self.browser.get(f"{self.server.address}/api/v1/docs")
        self.find(f"{ROUTE} summary").click()
        self.find(f"{ROUTE} .answers-list a[href='#schema-ProjectReport']").click()
        self.see("chain_finding", within="#schema-ProjectReport")

    def sign_out_for_this_test(self) -> None:
        for cookie in self.browser.get_cookies():
            self.addCleanup(self.browser.add_cookie, cookie)
        self.browser.delete_all_cookies()

    def make_project(self, project: str) -> str:
        """Fill in the form of POST projects, send it, and return the status that the page shows."""
        self.find(f"{ROUTE} summary").click()
        body = self.find(f"{ROUTE} textarea")
        body.clear()
        body.send_keys(json.dumps({"project_id": project}))
        self.find(f"{ROUTE} form button").click()
        status = f"{ROUTE} [role=status]"
        text: str = self.wait(lambda: self.find(status).text.removesuffix("Sending…"), "the status of the answer")
        return text.split(maxsplit=1)[0]
