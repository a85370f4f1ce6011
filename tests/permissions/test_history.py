"""Who changed people, tokens and schedules is kept with the change, and shown to owners."""

from __future__ import annotations

import getpass
from io import StringIO
from unittest import mock

from django.core.management import call_command

from memoryhub.core.errors import Conflict
from memoryhub.models import AccessChange, AgentToken, Subject
from memoryhub.ops.jobs.planning import JobPlan, change_plan
from memoryhub.registry import people, tokens
from memoryhub.registry.access_history import SHOWN, history_of, note_change
from memoryhub.web.signin import create_link_token, ensure_owner
from tests.support import HubTestCase

ME = getpass.getuser()


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
        for what, form in (
            ("role", {"role": "reviewer"}),
            ("role", {"role": "reviewer"}),
            ("deactivate", {}),
            ("deactivate", {}),
            ("activate", {}),
            ("activate", {}),
        ):
            self.client.post(f"/people/ann/{what}", form)
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
        with self.assertRaises(Conflict):
            people.deactivate_person(name="owner")
        with self.assertRaises(Conflict):
            people.add_person(command=people.PersonAdd(name="owner", role="viewer"))
        with mock.patch.object(AccessChange.objects, "create", side_effect=RuntimeError):
            for change in (
                lambda: people.add_person(command=people.PersonAdd(name="ann", role="viewer")),
                lambda: tokens.create_token(command=tokens.TokenCreate(name="ci"), by="ann"),
                create_link_token,
                lambda: change_plan(command=JobPlan(job="backup", every="off")),
            ):
                with self.assertRaises(RuntimeError):
                    change()
        self.assertEqual((self.lines(Subject.PERSON), AgentToken.objects.count()), (before, 0))
        self.assertEqual([each.name for each in people.list_people()], ["owner"])

    def test_tokens_by_the_page_and_in_a_terminal(self) -> None:
        form = {"name": "ci", "verbs": "read", "reach": "some", "projects": ["alpha"], "days": "30"}
        text = str(self.client.post("/tokens", form).context["text"])
        for _ in range(2):
            call_command("token", "revoke", "ci", stdout=StringIO())
        (made, revoked) = self.lines(Subject.TOKEN)
        self.assertRegex(made, r"^ci created; may read in alpha until 20\d\d-\d\d-\d\d by owner at admin$")
        self.assertEqual(revoked, f"ci revoked by {ME} at cli")
        page = self.client.get("/tokens").content.decode()
        self.assertIn(f"by {ME}, in a terminal", page)
        self.assertNotIn(text.rpartition("_")[2], "".join(self.lines(Subject.TOKEN)))

    def test_schedules_by_the_page_and_in_a_terminal(self) -> None:
        self.client.post("/jobs/plan", {"job": "backup", "every": "day", "at": "03:00"})
        call_command("jobs", "look-for-secrets", "--off", stdout=StringIO())
        lines = [
            "backup set to run every day at 03:00 UTC by owner at admin",
            f"look-for-secrets switched off by {ME} at cli",
        ]
        self.assertEqual(self.lines(Subject.JOB), lines)
        self.assertInHTML("<strong>look-for-secrets</strong>: switched off", self.client.get("/jobs").content.decode())

    def test_a_long_history_is_shown_page_by_page_and_to_owners_alone(self) -> None:
        for number in range(2 * SHOWN + 1):
            note_change(Subject.TOKEN, f"t{number}", "revoked", by="ann")
        first = history_of(Subject.TOKEN)
        second = history_of(Subject.TOKEN, before=str(first.earlier))
        last = history_of(Subject.TOKEN, before=str(second.earlier))
        names = [each.name for part in (first, second, last) for each in part.changes]
        self.assertEqual(names, [f"t{number}" for number in reversed(range(2 * SHOWN + 1))])
        self.assertIsNone(last.earlier)
        self.assertContains(self.client.get("/tokens"), f'href="?before={first.earlier}#history"')
        for odd in ("x", "-1", "9" * 40):
            self.assertEqual(self.client.get("/tokens", {"before": odd}).status_code, 200)
        people.add_person(command=people.PersonAdd(name="vic", role="viewer"))
        change_plan(command=JobPlan(job="backup", every="off"))
        self.client.force_login(people.find_person("vic"))
        self.assertNotContains(self.client.get("/tokens"), 'id="history"')
        self.assertNotContains(self.client.get("/jobs"), "</strong>: switched off")
