"""People: made, given a role, let in by a link, deactivated; and the last owner stays."""

from __future__ import annotations

import re

from django.contrib.auth.models import User
from django.test import Client

from memoryhub.core.errors import Conflict, Forbidden, Gone, Invalid, NotFound
from memoryhub.models import SignInLink
from memoryhub.registry.people import activate_person, change_role, deactivate_person, list_people
from memoryhub.web import signin
from tests.permissions.base import PermissionTestCase

_LINK = re.compile(r'value="http://localhost(/signin/[^"]+)"')


class PeopleTests(PermissionTestCase):
    def send(self, path: str, **fields: str) -> str:
        return self.browsers["owner"].post(path, fields, follow=True).content.decode()

    def follow(self, page: str) -> Client:
        """Open the link that a page shows, in a browser of its own."""
        link = _LINK.search(page)
        assert link, page
        browser = Client(headers={"host": "localhost"})
        self.assertRedirects(browser.get(link[1]), "/", fetch_redirect_response=False)
        self.assertNotIn(link[1], self.send("/people/rea/role", role="reviewer"))
        return browser

    def test_a_new_person_signs_in_by_the_link_that_is_shown_once(self) -> None:
        browser = self.follow(self.send("/people", name="dora", role="viewer"))
        self.assertEqual(browser.get("/").context["user"].username, "dora")
        dora = next(person for person in list_people() if person.name == "dora")
        self.assertEqual(dora.role, "viewer")
        self.assertIsNotNone(dora.signed_in_at)
        self.assertFalse(User.objects.get(username="dora").has_usable_password())

    def test_a_name_that_is_not_plain_is_refused_with_what_is(self) -> None:
        for name in ("", "Dora", "-x", "a" * 65, "a b", "../x", "token:ci"):
            with self.subTest(name=name):
                self.assertIn("use 1 to 64 of a-z", self.send("/people", name=name, role="viewer"))
        self.assertIn("this name is reserved for other actors", self.send("/people", name="token", role="viewer"))
        self.assertIn("there is a person", self.send("/people", name="rea", role="viewer").lower())
        self.assertEqual(User.objects.count(), 3)

    def test_a_role_is_changed_on_the_page(self) -> None:
        self.assertIn("vic now has the role reviewer", self.send("/people/vic/role", role="reviewer"))
        self.assertEqual({person.name: person.role for person in list_people()}["vic"], "reviewer")
        self.assertIn("role must be one of", self.send("/people/vic/role", role="god").lower())
        self.assertEqual(self.browsers["owner"].post("/people/vic/erase").status_code, 404)
        self.assertEqual(self.browsers["owner"].post("/people/nobody/link").status_code, 404)

    def test_deactivating_ends_sessions_and_links_at_once(self) -> None:
        waiting = signin.create_link_token(username="rea")
        self.send("/people/rea/deactivate")
        self.assertRedirects(self.browsers["reviewer"].get("/"), "/admin/login/", fetch_redirect_response=False)
        with self.assertRaises(Gone):
            signin.redeem_link_token(waiting)
        with self.assertRaisesMessage(Forbidden, "rea is deactivated"):
            signin.create_link_token(username="rea")
        activate_person(name="rea")
        self.assertEqual(self.follow(self.send("/people/rea/link")).get("/").status_code, 200)

    def test_the_last_active_owner_can_be_neither_demoted_nor_deactivated(self) -> None:
        self.assertIn("the last owner", self.send("/people/vic/role", role="viewer"))
        for refused in (lambda: change_role(name="owner", role="viewer"), lambda: deactivate_person(name="owner")):
            with self.assertRaisesMessage(Conflict, "the last active owner"):
                refused()
        change_role(name="rea", role="owner")
        change_role(name="owner", role="viewer")
        self.assertEqual(self.browsers["owner"].get("/people").status_code, 403)
        with self.assertRaises(Conflict):
            deactivate_person(name="rea")
        self.assertEqual(signin.ensure_owner().username, "rea")

    def test_an_administrator_is_offered_no_change_of_those_with_a_role_in_the_whole_hub(self) -> None:
        page = self.browser(self.add("ada", "administrator")).get("/people").content.decode()
        self.assertIn("/people/ada/link", page)
        self.assertIn("changed by owners", page)
        self.assertNotRegex(page, "/people/vic/(role|link|deactivate)")

    def test_what_is_not_there_is_said(self) -> None:
        for call in (
            lambda: change_role(name="nobody", role="viewer"),
            lambda: deactivate_person(name="nobody"),
            lambda: activate_person(name="nobody"),
            lambda: signin.create_link_token(username="nobody"),
        ):
            with self.assertRaisesMessage(NotFound, "there is no person 'nobody'"):
                call()
        with self.assertRaises(Invalid):
            change_role(name="rea", role="")
        self.assertFalse(SignInLink.objects.exists())
