"""People of the hub: made, given a role, let in by a link, deactivated; what roles may; and who changed what."""

from __future__ import annotations

import getpass
import re
from functools import partial
from io import StringIO
from unittest import mock

from django.contrib.auth.models import Group, Permission, User
from django.core.management import call_command
from django.test import Client

from memoryhub.core.errors import ConflictError, Forbidden, Gone, Invalid, NotFound
from memoryhub.core.permissions import PERMISSIONS, ROLES, Act, Grant, demand, may, require, use_grant
from memoryhub.models import AccessChange, AgentToken, SignInLink, Subject
from memoryhub.ops.jobs.schedules import JobPlan, change_plan
from memoryhub.registry import people, tokens
from memoryhub.registry.access_history import PAGE, history_of, note_change
from memoryhub.registry.people import activate_person, change_role, deactivate_person, list_people
from memoryhub.web import signin
from memoryhub.web.signin import create_link_token, ensure_owner
from tests.permissions.base import ADMIN, PermissionTestCase, add, browser_of
from tests.support import HubTestCase

ME = getpass.getuser()
_LINK = re.compile(r'value="http://localhost(/signin/[^"]+)"')


class RoleTests(PermissionTestCase):
    def test_the_roles_are_groups_with_djangos_permissions(self) -> None:
        for role, acts in ROLES.items():
            held = Permission.objects.filter(group__name=role).values_list("codename", flat=True)
            self.assertEqual({f"memoryhub.{each}" for each in held}, {PERMISSIONS[act] for act in acts})
        self.assertEqual(Group.objects.count(), len(ROLES))

    def test_each_role_may_what_its_acts_say_and_nobody_else_anything(self) -> None:
        for role, user in self.people.items():
            self.assertEqual({act for act in Act if may(user, act)}, ROLES[role])
            user.is_active = False
            self.assertFalse(any(may(user, act) for act in Act))

    def test_a_refusal_names_the_person_and_the_role_that_is_needed(self) -> None:
        sentence = "Vic may not create or set up projects and organisations; that needs the role owner"
        answer = self.browsers["viewer"].post("/new/project", {"id": "gamma"})
        self.assertContains(answer, sentence, status_code=403)
        erase = f"{ADMIN}memories/memory/{self.gone}/erase/"
        answer = self.browsers["reviewer"].post(erase, {"number": str(self.gone)})
        self.assertContains(answer, "that needs the role owner", status_code=403)
        with self.assertRaisesMessage(Forbidden, "vic may not redact, erase"):
            require(self.people["viewer"], Act.GOVERN)
        with use_grant(Grant(ROLES["reviewer"])), self.assertRaisesMessage(Forbidden, "needs the role owner"):
            demand(Act.GOVERN)

    def test_a_role_that_is_taken_away_counts_at_once(self) -> None:
        self.people["reviewer"].groups.set([Group.objects.get(name="viewer")])
        answer = self.browsers["reviewer"].post(f"{ADMIN}memories/memory/{self.memory}/delete/")
        self.assertEqual(answer.status_code, 403)
        self.people["viewer"].groups.clear()
        self.assertEqual(self.browsers["viewer"].get(ADMIN).status_code, 302)


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
        with self.assertRaisesMessage(ConflictError, "the last active owner"):
            change_role(name="owner", role="viewer")
        with self.assertRaisesMessage(ConflictError, "the last active owner"):
            deactivate_person(name="owner")
        change_role(name="rea", role="owner")
        change_role(name="owner", role="viewer")
        self.assertEqual(self.browsers["owner"].get("/people").status_code, 403)
        with self.assertRaises(ConflictError):
            deactivate_person(name="rea")
        self.assertEqual(signin.ensure_owner().username, "rea")

    def test_an_administrator_is_offered_no_change_of_those_with_a_role_in_the_whole_hub(self) -> None:
        page = browser_of(add("ada", "administrator").get_username()).get("/people").content.decode()
        self.assertIn("/people/ada/link", page)
        self.assertIn("changed by owners", page)
        self.assertNotRegex(page, "/people/vic/(role|link|deactivate)")

    def test_a_person_that_does_not_exist_and_an_empty_role_are_refused(self) -> None:
        for call in (
            partial(change_role, role="viewer", name="nobody"),
            partial(deactivate_person, name="nobody"),
            partial(activate_person, name="nobody"),
            partial(create_link_token, username="nobody"),
        ):
            with self.assertRaisesMessage(NotFound, "there is no person 'nobody'"):
                call()
        with self.assertRaises(Invalid):
            change_role(name="rea", role="")
        self.assertFalse(SignInLink.objects.exists())


class HistoryTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        with self.store("alpha"):
            pass
        self.client.force_login(ensure_owner())

    def lines(self, subject: Subject) -> list[str]:
        rows = AccessChange.objects.filter(subject=subject).order_by("id")
        return [f"{row.name} {row.what} by {row.by} at {row.door}" for row in rows]

    def test_each_change_of_a_person_is_told_once_with_who_made_it(self) -> None:
        self.client.post("/people", {"name": "ann", "role": "viewer"})
        for what in ("role", "role", "deactivate", "deactivate", "activate", "activate"):
            self.client.post(f"/people/ann/{what}", {"role": "reviewer"})
        lines = [
            "owner added as the first owner by unknown at service",
            "ann added as viewer by owner at admin",
            "ann sign-in link created by owner at admin",
            "ann role changed from viewer to reviewer by owner at admin",
            "ann deactivated by owner at admin",
            "ann activated again by owner at admin",
        ]
        self.assertEqual(self.lines(Subject.PERSON), lines)
        page = self.client.get("/people").content.decode()
        self.assertInHTML("<strong>ann</strong>: role changed from viewer to reviewer", page)
        self.assertLess(page.index("activated again"), page.index("as the first owner"))

    def test_what_is_refused_leaves_no_trace_and_nothing_is_changed_without_one(self) -> None:
        before = self.lines(Subject.PERSON)
        with self.assertRaises(ConflictError):
            people.deactivate_person(name="owner")
        with self.assertRaises(ConflictError):
            add("owner")
        with mock.patch.object(AccessChange.objects, "create", side_effect=RuntimeError):
            for change in (
                partial(add, "ann"),
                partial(tokens.create_token, command=tokens.TokenCreate(name="ci"), by="ann"),
                create_link_token,
                partial(change_plan, command=JobPlan(job="backup", every="off")),
            ):
                with self.assertRaises(RuntimeError):
                    change()
        self.assertEqual((self.lines(Subject.PERSON), AgentToken.objects.count()), (before, 0))
        self.assertEqual([each.name for each in people.list_people()], ["owner"])

    def test_tokens_and_schedules_by_the_page_and_in_a_terminal(self) -> None:
        form = {"name": "ci", "verbs": "read", "reach": "some", "projects": ["alpha"], "days": "30"}
        text = str(self.client.post("/tokens", form).context["text"])
        for _ in range(2):
            call_command("token", "revoke", "ci", stdout=StringIO())
        (created, revoked) = self.lines(Subject.TOKEN)
        self.assertRegex(created, r"^ci created; may read in alpha until 20\d\d-\d\d-\d\d by owner at admin$")
        self.assertEqual(revoked, f"ci revoked by {ME} at cli")
        self.assertContains(self.client.get("/tokens"), f"by {ME}, in a terminal")
        self.assertNotIn(text.rpartition("_")[2], "".join(self.lines(Subject.TOKEN)))
        self.client.post("/jobs/plan", {"job": "backup", "every": "day", "at": "03:00"})
        call_command("jobs", "look-for-secrets", "--off", stdout=StringIO())
        lines = [
            "backup set to run every day at 03:00 UTC by owner at admin",
            f"look-for-secrets switched off by {ME} at cli",
        ]
        self.assertEqual(self.lines(Subject.JOB), lines)
        self.assertContains(self.client.get("/jobs"), "<strong>look-for-secrets</strong>: switched off")

    def test_a_long_history_is_shown_page_by_page_and_to_owners_alone(self) -> None:
        for number in range(2 * PAGE + 1):
            note_change(Subject.TOKEN, f"t{number}", "revoked", by="ann")
        first = history_of(Subject.TOKEN)
        second = history_of(Subject.TOKEN, before=str(first.earlier))
        last = history_of(Subject.TOKEN, before=str(second.earlier))
        names = [each.name for part in (first, second, last) for each in part.changes]
        self.assertEqual(names, [f"t{number}" for number in reversed(range(2 * PAGE + 1))])
        self.assertIsNone(last.earlier)
        self.assertContains(self.client.get("/tokens"), f'href="?before={first.earlier}#history"')
        for odd in ("x", "-1", "9" * 40):
            self.assertEqual(self.client.get("/tokens", {"before": odd}).status_code, 200)
        add("vic", "viewer")
        change_plan(command=JobPlan(job="backup", every="off"))
        self.client.force_login(people.find_person("vic"))
        self.assertNotContains(self.client.get("/tokens"), 'id="history"')
        self.assertNotContains(self.client.get("/jobs"), "</strong>: switched off")
