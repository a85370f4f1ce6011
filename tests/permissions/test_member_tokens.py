"""Tokens of members, and what members send from other machines."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from memoryhub.core.errors import Conflict, Forbidden, NotFound
from memoryhub.core.permissions import use_grant
from memoryhub.core.stores.store import project_store
from memoryhub.models import AgentToken
from memoryhub.registry import members, tokens
from memoryhub.registry.people import change_role, deactivate_person
from sessions_app.models import Session
from sessions_app.schemas import CommitRead
from sessions_app.services.commits import record_commit
from tests.permissions.member_case import MembersTestCase

BODY = {"title": "t", "content": "c"}


class PersonsTokenTests(MembersTestCase):
    def test_events_name_the_person_and_the_client(self) -> None:
        self.join("ann", "project:alpha")
        text = self.token("ann")
        self.call("POST", "projects/alpha/memories", BODY, token=text, expect=201)
        event = self.call("GET", "projects/alpha/events", token=text).data["results"][-1]
        self.assertEqual(event["actor"], "ann/laptop")

    def test_pages_show_person_and_client_and_filter_by_both(self) -> None:
        self.join("ann", "project:alpha")
        for client in ("laptop", "desk"):
            text = self.token("ann", client)
            self.call("POST", "projects/alpha/memories", {"title": client, "content": client}, token=text, expect=201)
        self.call("POST", "projects/alpha/memories", BODY, expect=201)
        browser, log = self.browser("ann"), "/p/alpha/admin/core/rawevent/"
        shown = '<span class="actor" data-initial="A">ann <span class="badge badge-client">{}</span></span>'
        self.assertContains(browser.get(log), shown.format("laptop"))
        self.assertContains(browser.get(log), "ann, all clients")
        for chosen, clients in (("ann/", ["laptop", "desk"]), ("ann/desk", ["desk"])):
            page = browser.get(log, {"actor": chosen})
            found = {event.actor for event in page.context["cl"].result_list}
            self.assertEqual(found, {f"ann/{client}" for client in clients})
        events = page.context["cl"].result_list
        self.assertContains(browser.get(f"{log}{events[0].position}/change/", follow=True), shown.format("desk"))

    def test_it_can_do_what_the_person_can_at_this_moment(self) -> None:
        text = self.token("ann", "laptop", "admin")
        self.call("GET", "projects/alpha", token=text, expect=404)
        self.join("ann", "project:alpha", "viewer")
        self.call("GET", "projects/alpha", token=text)
        self.call("POST", "projects/alpha/memories", BODY, token=text, expect=403)
        self.join("ann", "project:alpha", "reviewer")
        self.call("POST", "projects/alpha/memories", BODY, token=text, expect=201)
        self.call("PATCH", "projects/alpha/settings", {"retention_days": 30}, token=text, expect=403)
        members.remove_member(store=project_store("alpha"), name="ann")
        self.call("GET", "projects/alpha", token=text, expect=404)
        change_role(name="ann", role="viewer")
        self.call("GET", "projects/beta", token=text)
        deactivate_person(name="ann")
        self.call("GET", "projects/beta", token=text, expect=404)

    def test_it_is_for_the_places_and_verbs_that_were_chosen(self) -> None:
        self.join("ann", "org:acme", "owner")
        self.join("ann", "project:beta", "owner")
        text = self.token("ann", "laptop", "read", projects=["beta"])
        self.call("GET", "projects/beta", token=text)
        self.call("POST", "projects/beta/memories", BODY, token=text, expect=403)
        self.call("GET", "projects/alpha", token=text, expect=404)
        of_org = self.token("ann", "desk", "write", orgs=["acme"])
        self.call("POST", "projects/alpha/memories", BODY, token=of_org, expect=201)
        self.call("GET", "projects/beta", token=of_org, expect=404)
        with self.assertRaisesMessage(NotFound, "there is no project 'gamma' in this hub; known: alpha, beta"):
            self.token("ann", "tablet", projects=["gamma"])

    def test_everyone_makes_and_revokes_their_own(self) -> None:
        self.add("ben")
        self.join("ann", "project:alpha")
        ann, ben = self.browser("ann"), self.browser("ben")
        fields = {"name": "laptop", "verbs": "write", "reach": "some", "projects": ["alpha"], "days": "9"}
        made = ann.post("/tokens", fields)
        self.assertContains(made, "ann/laptop")
        self.assertContains(ann.get("/tokens"), "ann/laptop")
        self.assertNotContains(ben.get("/tokens"), "ann/laptop")
        self.assertNotContains(ben.post("/tokens", fields), "mh_")
        for method in (ben.get, ben.post):
            self.assertEqual(method("/tokens/ann/laptop/revoke").status_code, 404)
        self.assertEqual(AgentToken.objects.get().revoked_at, None)
        ann.post("/tokens/ann/laptop/revoke")
        self.assertEqual(AgentToken.objects.get().revoked_by, "ann")
        with self.assertRaisesMessage(Conflict, "ann/laptop"):
            self.token("ann")

    def test_nobody_makes_a_token_in_anothers_name(self) -> None:
        self.add("ben")
        with use_grant(self.grant("ben")), self.assertRaises(Forbidden):
            tokens.create_token(command=tokens.TokenCreate(name="x", person="ann"), by="ben")
        with self.assertRaisesMessage(NotFound, "there is no person 'eve'"):
            tokens.create_token(command=tokens.TokenCreate(name="x", person="eve"), by="owner")


class FolderTests(MembersTestCase):
    """Members work on other machines; a path that they send is none of the hub's."""

    def test_git_on_the_hubs_machine_is_read_for_those_who_administer_it(self) -> None:
        repository = Path(self.enterContext(tempfile.TemporaryDirectory()))
        git = ["git", "-C", str(repository), "-c", "user.name=A", "-c", "user.email=a@b.c"]
        subprocess.run([*git, "init", "--quiet"], check=True)
        subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "Secret plans"], check=True)
        sha = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
        self.join("ann", "project:alpha", "owner")
        command = CommitRead(sha=sha, directory=str(repository))
        token = self.token("ann", "laptop", "admin")
        with use_grant(self.grant("ann")), self.store(), self.assertRaises(NotFound):
            record_commit(command=command)
        self.call("PATCH", "projects/alpha", {"root_path": str(repository)}, token=token, expect=403)
        self.call("PATCH", "projects/alpha", {"root_path": str(repository)})
        self.call("PATCH", "projects/alpha", {"root_path": str(repository), "name": "A"}, token=token)
        with use_grant(self.grant("ann")), self.store():
            self.assertIn("Secret plans", record_commit(command=command).message)

    def test_a_sessions_folder_names_its_sender(self) -> None:
        self.join("ann", "project:alpha")
        body = {"session_id": "s1", "purpose": "p", "directory": "/home/ann/shop"}
        self.call("POST", "projects/alpha/sessions", body, token=self.token("ann"), expect=201)
        with self.store():
            self.assertEqual(Session.objects.get().directory, "ann/laptop:/home/ann/shop")
