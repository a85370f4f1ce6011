from __future__ import annotations

from memoryhub.core import clock, log
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.stores.store import org_store, project_store, use_store
from memoryhub.models import StoreCheck
from memoryhub.registry.projects import ProjectList, list_projects
from sessions_app.selectors import profile
from tests.api.client import RestTestCase

GITHUB_TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


class OrgTests(RestTestCase):
    def test_an_organisation_is_created_described_and_read(self) -> None:
        body = {"org_id": "acme", "name": "Acme", "metadata": {"house style": "plain"}}
        made = self.call("POST", "orgs", body, expect=201)
        self.assertEqual(made["Location"], "/api/v1/orgs/acme")
        self.assertEqual(self.call("GET", "orgs/acme").data, made.data)
        changed = self.call("PATCH", "orgs/acme", {"description": "Makes everything."}).data
        self.assertEqual((changed["name"], changed["description"]), ("Acme", "Makes everything."))
        self.assertEqual(changed["metadata"], {"house style": "plain"})
        self.call("POST", "orgs", body, expect=409)
        again = self.call("POST", "orgs", {"id": "acme", "name": "ACME", "if_exists": "update"}, expect=201).data
        self.assertEqual((again["name"], again["description"]), ("ACME", "Makes everything."))

    def test_the_list_names_the_projects_of_each(self) -> None:
        for org in ("acme", "umbrella", "zeta"):
            self.call("POST", "orgs", {"org_id": org}, expect=201)
        self.call("PATCH", "projects/beta", {"org_id": "acme"})
        self.call("PATCH", "projects/alpha", {"org_id": "acme"})
        listed = self.call("GET", "orgs?limit=2").data
        self.assertEqual([org["org_id"] for org in listed["results"]], ["acme", "umbrella"])
        self.assertEqual(listed["results"][0]["projects"], ["alpha", "beta"])
        rest = self.call("GET", f"orgs?limit=2&cursor={listed['meta']['next_cursor']}").data
        self.assertEqual([org["org_id"] for org in rest["results"]], ["zeta"])
        self.assertEqual((rest["meta"]["total_count"], rest["meta"]["has_more"]), (3, False))

    def test_an_unknown_organisation_is_not_found_and_not_created(self) -> None:
        self.call("POST", "orgs", {"org_id": "acme"}, expect=201)
        for method, body in (("GET", None), ("PATCH", {"name": "x"})):
            answer = self.call(method, "orgs/umbrella", body, expect=404)
            self.assertIn("there is no org 'umbrella' in this hub; known: acme", answer.data["detail"])
        self.assertFalse(path_of(org_store("umbrella")).parent.exists())
        for name in ("UPPER", "..", "%2e%2e", "x" * 65):
            self.call("GET", f"orgs/{name}", expect=422)
            self.call("POST", "orgs", {"org_id": name}, expect=422)

    def test_callers_must_authenticate(self) -> None:
        for method, path in (("GET", "orgs"), ("POST", "orgs"), ("GET", "orgs/acme"), ("PATCH", "projects/alpha")):
            self.call(method, path, {} if method != "GET" else None, token="wrong", expect=401)


class ProjectTests(RestTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.call("POST", "orgs", {"org_id": "acme"}, expect=201)

    def test_a_project_is_created_with_its_description(self) -> None:
        body = {
            "project_id": "gamma",
            "name": "Gamma",
            "description": "An aquarium.",
            "org_id": "acme",
            "root_path": "/src/gamma",
            "metadata": {"goals": ["ship"], "state": "begun"},
            "tags": ["Fish"],
        }
        made = self.call("POST", "projects", body, expect=201).data
        self.assertEqual({name: made[name] for name in body}, {**body, "tags": ["fish"]})
        self.assertEqual((made["events"], made["chain_ok"]), (1, None))
        with use_store(project_store("gamma")):
            (event,) = log.read(log.ReplayWindow())
        self.assertEqual(
            (event.type, event.stream_id, event.actor, event.source), ("project.described", "project", "token", "rest")
        )

    def test_a_change_keeps_other_fields_and_null_removes_the_organisation(self) -> None:
        self.call("PATCH", "projects/alpha", {"name": "Alpha", "org_id": "acme"})
        changed = self.call("PATCH", "projects/alpha", {"description": "x", "org_id": None}).data
        self.assertEqual((changed["name"], changed["description"], changed["org_id"]), ("Alpha", "x", None))

    def test_a_refused_project_is_not_created(self) -> None:
        for fields, status in (
            ({"org_id": "umbrella"}, 404),
            ({"metadata": {"a": "x" * 16_000}}, 422),
            ({"org_id": "../x"}, 422),
            ({"colour": "red"}, 422),
        ):
            self.call("POST", "projects", {"project_id": "gamma", **fields}, expect=status)
        self.assertFalse(path_of(project_store("gamma")).parent.exists())
        detail = self.call("PATCH", "projects/alpha", {"metadata": {"a": "x" * 16_000}}, expect=422).data["detail"]
        self.assertIn("'metadata' is not valid: it has 16,009 characters as JSON and may have at most 16,000", detail)

    def test_the_same_key_again_gives_the_first_answer(self) -> None:
        body = {"project_id": "gamma", "name": "Gamma"}
        first = self.call("POST", "projects", body, expect=201, Idempotency_Key="k").data
        self.assertEqual(self.call("POST", "projects", body, expect=201, Idempotency_Key="k").data, first)
        self.assertIn("if_exists=update", self.call("POST", "projects", body, expect=409).data["detail"])

    def test_secrets_are_removed_and_reported(self) -> None:
        answer = self.call("PATCH", "projects/alpha", {"description": f"token {GITHUB_TOKEN}"}).data
        self.assertEqual(answer["redacted"], ["github-token"])
        self.assertNotIn(GITHUB_TOKEN, answer["description"])

    def test_the_list_can_be_filtered_by_organisation(self) -> None:
        self.call("PATCH", "projects/beta", {"org_id": "acme", "description": "y" * 400})
        (found,) = self.call("GET", "projects?org_id=acme").data["results"]
        self.assertEqual((found["project_id"], len(found["description"])), ("beta", 300))
        self.assertEqual(len(self.call("GET", "projects").data["results"]), 2)
        compact = self.call("GET", "projects?limit=1&compact=true").data
        self.assertEqual((compact["results"][0]["project_id"], compact["meta"]["has_more"]), ("alpha", True))
        self.assertIn("no parameter 'colour'", self.call("GET", "projects?colour=red", expect=422).data["detail"])

    def test_the_last_check_of_the_chain_is_included(self) -> None:
        StoreCheck.objects.create(
            store=project_store("alpha").alias, checked_at=clock.now(), ok=False, events=1, finding="broken at #1"
        )
        self.assertEqual(self.call("GET", "projects/alpha").data["chain_finding"], "broken at #1")
        self.assertIs(self.call("GET", "projects").data["results"][0]["chain_ok"], False)

    def test_more_projects_than_may_be_open_are_listed_all_the_same(self) -> None:
        for number in range(70):
            with use_store(project_store(f"many-{number:02}"), create=True):
                pass
        with self.store("alpha"):
            found = list_projects(command=ProjectList(limit=100))
            self.assertEqual(found.meta.total_count, 72)
            self.assertEqual([project for project in found.results if "problem" in project], [])
            self.assertEqual(profile().name, "")
