"""What each role may do through the real pages, and that what it may not do changes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from django.contrib.auth.models import Group, Permission, User
from django.core.serializers import serialize
from django.db.models import Model
from django.urls import URLPattern, URLResolver, get_resolver

from memoryhub.core.errors import Forbidden
from memoryhub.core.permissions import PERMISSIONS, ROLES, Act, Grant, demand, may, require, use_grant
from memoryhub.models import AgentToken, SignInLink, StoreCheck
from tests.permissions.base import ADMIN, PermissionTestCase

_SAMPLES = {"version": "1", "relation": "1", "sha": "a" * 40, "stream": "memory:1", "what": "role", "token": "none"}
_FORM = re.compile(r"<form\b[^>]*>", re.IGNORECASE)


class GroupTests(PermissionTestCase):
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
        with self.assertRaisesMessage(Forbidden, "vic may not redact, erase"):
            require(self.people["viewer"], Act.GOVERN)
        with use_grant(Grant(ROLES["reviewer"])), self.assertRaisesMessage(Forbidden, "needs the role owner"):
            demand(Act.GOVERN)


class ActTests(PermissionTestCase):
    def reviewing(self) -> list[tuple[str, dict[str, Any]]]:
        """What a reviewer may send, in an order in which each is possible."""
        memory, decision = f"memories/memory/{self.memory}", f"decisions/decision/{self.decision}"
        return [
            (f"{memory}/edit/", {"title": "One", "content": "better", "type": "note", "base_version": "1"}),
            (f"{memory}/relate/", {"relation": "applies_to", "target": "project"}),
            (f"{memory}/delete/", {}),
            (f"{memory}/restore/", {}),
            (f"memories/conflict/{self.conflict}/settle/", {"resolution": "keep_b"}),
            ("memories/tag/add/", {"name": "urgent", "description": "now"}),
            ("memories/memory/add/", {"title": "New", "content": "new", "type": "note"}),
            (f"{decision}/mark/", {"status": "deprecated"}),
            (f"{decision}/evidence/", {"kind": "notes", "value": "seen"}),
            ("decisions/decision/add/", {"title": "D", "chosen": "d", "impact": "low", "status": "accepted"}),
            ("memories/memory/", {"action": "delete_chosen", "_selected_action": [str(self.memory)]}),
        ]

    def governing(self) -> list[tuple[str, dict[str, Any]]]:
        return [
            (f"memories/memory/{self.gone}/erase/", {"number": str(self.gone), "confirm_token": "x"}),
            ("describe/", {"name": "Alpha"}),
        ]

    def refused(self, role: str, path: str, fields: dict[str, Any]) -> None:
        before = self.head()
        answer = self.browsers[role].post(f"{ADMIN}{path}", fields)
        self.assertContains(answer, "that needs the role", status_code=403)
        self.assertEqual(self.head(), before)

    def test_a_viewer_is_refused_every_change(self) -> None:
        for path, fields in [*self.reviewing(), *self.governing()]:
            with self.subTest(path=path):
                self.refused("viewer", path, fields)

    def test_a_reviewer_reviews_and_does_not_govern(self) -> None:
        for path, fields in self.reviewing():
            with self.subTest(path=path):
                before = self.head()
                answer = self.browsers["reviewer"].post(f"{ADMIN}{path}", fields)
                self.assertEqual(answer.status_code, 302, answer.content[-3000:])
                self.assertGreater(self.head(), before)
        for path, fields in self.governing():
            with self.subTest(path=path):
                self.refused("reviewer", path, fields)

    def test_an_owner_governs(self) -> None:
        self.browsers["owner"].post(f"{ADMIN}describe/", {"name": "Alpha"})
        erase = f"{ADMIN}memories/memory/{self.gone}/erase/"
        shown = self.browsers["owner"].get(erase)
        token = re.search(r'name="confirm_token" value="([^"]+)"', shown.content.decode())
        assert token
        self.browsers["owner"].post(erase, {"number": str(self.gone), "confirm_token": token[1]})
        with self.store():
            events = list(_types())
        self.assertIn("project.described", events)
        self.assertIn("payload.erased", events)

    def test_hub_pages_are_an_owners(self) -> None:
        for path in ("/people", "/new/project", "/new/organisation"):
            for role, status in (("viewer", 403), ("reviewer", 403), ("owner", 200)):
                with self.subTest(path=path, role=role):
                    self.assertEqual(self.browsers[role].get(path).status_code, status)
            self.assertRedirects(self.client.get(path), "/admin/login/", fetch_redirect_response=False)

    def test_a_role_that_is_taken_away_counts_at_once(self) -> None:
        self.people["reviewer"].groups.set([Group.objects.get(name="viewer")])
        self.refused("reviewer", f"memories/memory/{self.memory}/delete/", {})
        self.people["viewer"].groups.clear()
        self.assertEqual(self.browsers["viewer"].get(ADMIN).status_code, 302)


class EveryPageTests(PermissionTestCase):
    """Holds for pages that are yet to come: it takes the addresses from the routes themselves."""

    def test_no_address_lets_a_viewer_change_anything(self) -> None:
        fields = {"title": "t", "content": "c", "name": "n", "role": "owner", "reason": "r", "status": "rejected"}
        before = self.everything()
        paths = [*self.store_paths(), *self.hub_paths()]
        self.assertGreater(len(paths), 60)
        for path in paths:
            with self.subTest(path=path):
                answer = self.browsers["viewer"].post(path, fields)
                self.assertLess(answer.status_code, 500)
                self.assertEqual(self.everything(), before)

    def test_no_page_shows_a_viewer_a_button_that_changes_something(self) -> None:
        seen = 0
        for path in self.store_paths():
            answer = self.browsers["viewer"].get(path)
            if answer.status_code != 200 or not answer["Content-Type"].startswith("text/html"):
                continue
            seen += 1
            with self.subTest(path=path):
                html = answer.content.decode()
                forms = [form for form in _FORM.findall(html) if 'method="post"' in form]
                harmless = ("/signout", "changelist-form", 'class="stack secrets"')  # the last tries a text, no more
                self.assertEqual([form for form in forms if not any(each in form for each in harmless)], [])
                self.assertNotRegex(html, r'name="do" value="(?!try")')
                self.assertNotRegex(html, r'href="[^"]*/(add|edit|delete|erase|supersede|describe)/')
                self.assertNotIn('name="action"', html)
        self.assertGreater(seen, 20)

    def everything(self) -> list[Any]:
        kept: list[type[Model]] = [AgentToken, SignInLink, StoreCheck, Group, User]
        return [self.head(), self.head("beta"), *(serialize("json", model._default_manager.all()) for model in kept)]

    def store_paths(self) -> list[str]:
        ids = {"memories": self.memory, "decisions": self.decision}
        return [
            f"{ADMIN}{path}"
            for path in _paths(get_resolver("memoryhub.web.store_urls"), "")
            for path in [self.filled(path.removeprefix("admin/"), ids)]
        ]

    def hub_paths(self) -> list[str]:
        skipped = ("api/", "signout")
        paths = _paths(get_resolver("memoryhub.urls"), "")
        return [f"/{self.filled(path, {})}" for path in paths if not path.startswith(skipped)]

    def filled(self, path: str, ids: dict[str, int]) -> str:
        of = self.conflict if "conflict" in path else ids.get(path.partition("/")[0], 1)
        samples = {**_SAMPLES, "name": "rea"}
        return re.sub(r"<(?:\w+:)?(\w+)>", lambda part: samples.get(part[1], str(of)), path)


def _paths(resolver: URLResolver, before: str) -> Iterator[str]:
    for each in resolver.url_patterns:
        path = before + str(each.pattern)
        if isinstance(each, URLPattern):
            if not re.search(r"[\^$(\\]", path):
                yield path
        else:
            yield from _paths(each, path)


def _types() -> Iterator[str]:
    from memoryhub.core.models import RawEvent

    yield from RawEvent.objects.values_list("event_type", flat=True)
