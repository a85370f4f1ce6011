from __future__ import annotations

import itertools
import shutil
from typing import Any
from unittest import mock

from django.test import tag

from memoryhub.core import validation
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.errors import Invalid
from memoryhub.core.stores import store
from memoryhub.core.stores.store import list_projects, project_store
from memoryhub.rest.framework import _object
from tests import tampering
from tests.api.client import RestTestCase
from tests.databases import sqlite_only
from tests.support import forget_all_stores

ALPHA = project_store("alpha")
MEMORIES = "projects/alpha/memories"
BODY = {"title": "t", "content": "c"}


COMMIT = {"sha": "a" * 40, "committed_at": "2026-01-01T00:00:00Z"}
# A body with a tool whose parameters have some default
TOOL = '{"title": "t", "content": "c", "kind": "tool", "attributes": {"parameters": {"default": %s}}}'
# Bodies that are refused, by route and by what the answer says
WRONG: dict[str, dict[str, Any]] = {
    "memories": {
        "'title' is required": {"content": "c"},
        "'title' must have at most 200 characters": {**BODY, "title": "x" * 201},
        "'type' must be one of": {**BODY, "type": "poem"},
        "'colour' is not known; leave it out": {**BODY, "colour": "red"},
        "'tags' must be a list, not 3": {**BODY, "tags": 3},
        "'tags[0]' must have at most 64 characters": {**BODY, "tags": ["x" * 65]},
        "'tags' must have at most 32 entries": {**BODY, "tags": [str(number) for number in range(33)]},
        "'title' must be one line, without a line break": {**BODY, "title": "a\nb"},
        "'resource_links[0].uri' is required": {**BODY, "resource_links": [{}]},
        "'attributes' must be an object": {**BODY, "related_chunks": ["a"], "attributes": [1]},
        "the body is not JSON: Expecting value at line 1, column 11": '{"title": ',
        "the body is not JSON: NaN is not a JSON number": '{"title": NaN}',
        "the body is not JSON: -Infinity is not a JSON number": '{"title": -Infinity}',
        "the body is nested too deeply": "[" * 100_000,
        "the body is not UTF-8": b'{"title": "\xff"}',
        "body' must be an object": "[]",
        "'body' must be an object": "null",
        "'title'": '{"title": "\\ud800", "content": "c"}',
        # On these, JSON parsers differ
        "the body contains 1e999, which exceeds a 64-bit number": TOOL % "1e999",
        "the body contains an integer of 5000 digits": TOOL % ("1" * 5_000),
        "the body names 'title' twice in one object": '{"title": "t", "content": "c", "title": "u"}',
        "the body names 'type' twice in one object": TOOL % '{"type": 1, "type": 2}',
    },
    "sessions": {
        "'metadata' must be an object, not 5": {"metadata": 5},
        "'metadata' must be an object": {"metadata": [[1]]},
        "'name' must be a text": {"name": [None, None]},
        "'name' must have at most 200 characters": {"name": "n" * 201},
        "mode": {"mode": "working", "metadata": {"mode": {}}},
    },
    "query": {
        "'types[0]' must be one of": {"types": ["decisions"]},
        "'tags.all' is not known": {"tags": {"all": ["x"]}},
        "'limit' must be at least 1": {"limit": 0},
    },
    # Integers that no column holds
    "commits": {
        "'[0].files[0].deletions' must be at least 0": [{**COMMIT, "files": [{"path": "a", "deletions": -5}]}],
        "'[0].files[0].insertions' must be at most": [{**COMMIT, "files": [{"path": "a", "insertions": 2**63}]}],
    },
    "commits/read": {
        "'files[0].deletions' must be at least 0": {
            **COMMIT, "message": "m", "files": [{"path": "a", "deletions": -5}]
        },
    },
    "rollbacks/preview": {
        "'since' must be at most": {"since": 10**30},
        "'until' must be at least 0": {"until": -1},
    },
}  # fmt: skip


class InputTests(RestTestCase):
    def test_an_unknown_address_and_method_are_problems(self) -> None:
        nowhere, nothing = (self.call("GET", path, expect=404).data for path in ("nowhere", f"{MEMORIES}/99"))
        for problem in (nowhere, nothing):
            self.assertEqual((problem["code"], problem["title"]), ("not_found", "Not Found"))
        answer = self.call("PUT", MEMORIES, BODY, expect=405)
        self.assertEqual(set(answer["Allow"].split(", ")), {"GET", "POST"})

    def test_a_name_that_is_no_slug_builds_no_path_and_an_unknown_project_is_not_created(self) -> None:
        for name in ("UPPER", "..", "%2e%2e", "a b", "-x", "x" * 65, "%00"):
            with self.subTest(name=name):
                self.call("GET", f"projects/{name}/memories", expect=422)
        for method, body in (("GET", None), ("POST", BODY)):
            answer = self.call(method, "projects/gamma/memories", body, expect=404)
            self.assertIn("there is no project 'gamma'", answer.data["detail"])
        self.assertEqual(list_projects(), ["alpha", "beta"])
        self.assertLessEqual({path.name for path in self.home.glob("projects/*")}, {"alpha", "beta"})

    def test_projects_are_created_once(self) -> None:
        created = self.call("POST", "projects", {"project_id": "gamma"}, expect=201)
        self.assertEqual(created["Location"], "/api/v1/projects/gamma")
        self.assertEqual(self.call("GET", "projects/gamma").data, created.data)
        self.call("GET", "projects/delta", expect=404)
        for name, status in (("gamma", 409), ("../x", 422)):
            self.call("POST", "projects", {"project_id": name}, expect=status)
        listed = self.call("GET", "projects").data["results"]
        self.assertEqual([project["project_id"] for project in listed], ["alpha", "beta", "gamma"])

    def test_what_is_wrong_with_a_body_is_one_clear_sentence_and_nothing_is_written(self) -> None:
        memory = f"memories/{self.write()}"
        before = self.call("GET", "projects/alpha/events").data
        for route, bodies in {**WRONG, f"{memory}/restore": {"'version' must be at most": {"version": 2**63}}}.items():
            for detail, body in bodies.items():
                with self.subTest(route=route, detail=detail):
                    answer = self.call("POST", f"projects/alpha/{route}", body, expect=422)
                    self.assertIn(detail, answer.data["detail"])
        self.assertEqual(self.call("GET", "projects/alpha/events").data, before)

    def test_a_missing_and_a_too_large_body_are_refused(self) -> None:
        answer = self.call("POST", MEMORIES, "", expect=422)
        detail = "the request has no body; send a JSON object, {} if there is nothing to set"
        self.assertEqual(answer.data["detail"], detail)
        answer = self.call("POST", MEMORIES, {**BODY, "content": "x" * (2 * 1024 * 1024)}, expect=413)
        self.assertEqual(answer.data["limit"], 2 * 1024 * 1024)

    def test_ids_that_no_store_can_have_are_refused(self) -> None:
        for memory_id in ("0", "-1", "x", "1.5", "9" * 30):
            with self.subTest(memory_id=memory_id):
                self.call("GET", f"{MEMORIES}/{memory_id}", expect=422)
        self.call("GET", f"{MEMORIES}/{2**53}", expect=404)

    @tag("backend")
    def test_times_are_iso_8601_and_within_the_calendar(self) -> None:
        routes = "memories?since search?q=x&until timeline?at events?since retention?now memories?as_of".split()
        moments = ("0001-01-01T00:00:00%2B14:00", "9999-12-31T23:59:59-14:00", "1e3", "inf")
        for route, moment in (*itertools.product(routes, moments), ("memories?since", "2026")):
            with self.subTest(moment=moment, route=route):
                self.call("GET", f"projects/alpha/{route}={moment}", expect=422)
        self.call("GET", "projects/alpha/retention?now=0001-01-02T00:00:00Z")
        commit = {"sha": "a" * 40, "committed_at": "0001-01-01T00:00:00+14:00"}
        self.call("POST", "projects/alpha/commits", [commit], expect=422)

    def test_a_folder_that_no_file_system_has_is_no_repository(self) -> None:
        for directory in ("d" * 300, "/" + "d" * 999, "a\0b"):
            with self.subTest(directory=directory[:9]):
                body = {"sha": "abcd1234", "directory": directory}
                self.call("POST", "projects/alpha/commits/read", body, expect=404)

    @tag("backend")
    def test_a_hooks_event_is_kept_whatever_its_folder_and_its_characters(self) -> None:
        event = {"session_id": "s\ud800", "cwd": "/" + "d" * 5_000, "prompt": "cut here \ud83d"}
        for data in (event, {**event, "cwd": "/a\0b"}, {**event, "cwd": "/\udc00"}):
            with self.subTest(cwd=data["cwd"][:9]):
                self.call("POST", "hooks/claude-code/UserPromptSubmit?project=alpha", data, expect=204)
        events = self.call("GET", "projects/alpha/events?type=message.user").data["results"]
        self.assertEqual([event["payload"]["content"] for event in events], ["cut here ?"] * 3)
        self.call("POST", "hooks/claude-code/UserPromptSubmit", {**event, "cwd": "/a\0b"}, expect=422)

    def test_headers_longer_than_a_name_are_refused_at_every_write(self) -> None:
        bodies: dict[str, Any] = {"memories": BODY, "sessions": {}, "turns/begin": {}, "commits": []}
        for header, route in itertools.product(("X_Session_Id", "X_Ack_Token"), bodies):
            with self.subTest(header=header, route=route):
                answer = self.call("POST", f"projects/alpha/{route}", bodies[route], expect=422, **{header: "x" * 221})
                self.assertIn(f"{header.replace('_', '-')} must have at most 200", answer.data["detail"])
        self.call("POST", "hooks/claude-code/Stop", {}, expect=422, Idempotency_Key="k" * 201)
        self.assertEqual(self.call("GET", "projects/alpha/events").data["results"], [])

    def test_the_type_of_every_problem_leads_to_what_it_means(self) -> None:
        for answer in (
            self.call("GET", "nowhere", expect=404),
            self.call("PUT", MEMORIES, BODY, expect=405),
            self.call("GET", MEMORIES, token="wrong", expect=401),
            self.call("POST", MEMORIES, {}, expect=422),
        ):
            address = answer.data["type"]
            self.assertTrue(address.startswith("/api/v1/problems/"), address)
            page = self.client.get(address)
            self.assertEqual((page.status_code, page.json()["status"]), (200, answer.status_code))
            self.assertTrue(page.json()["meaning"].endswith("."))
        self.call("GET", "problems/poem", expect=404)
        self.assertEqual(self.call("GET", "problems/damaged").data["status"], 503)
        for code in ("invalid", "gone", "locked", "unavailable", "confirmation_required"):
            self.call("GET", f"problems/{code}")

    def test_a_foreign_host_and_well_known_addresses_are_refused(self) -> None:
        for host in ("evil.example", "localhost.evil.example", ""):
            for path in ("/api/v1/health", "/static/memoryhub/hub.css", "/.well-known/oauth-protected-resource"):
                with self.subTest(host=host, path=path):
                    response = self.client.get(path, headers={"host": host})
                    self.assertEqual(response.status_code, 400)
                    if path.startswith("/api/"):
                        self.check_shape(response)
        for name in ("oauth-protected-resource", "oauth-authorization-server", "oauth-protected-resource/mcp"):
            response = self.client.get(f"/.well-known/{name}")
            self.assertEqual((response.status_code, response["Content-Type"]), (404, "text/plain"), name)
            self.assertEqual(response.content, b"Not found\n")

    def test_an_unexpected_error_reveals_no_internals(self) -> None:
        with mock.patch("memories.services.write_memory", side_effect=RuntimeError("the secret inside")):
            answer = self.call("POST", MEMORIES, BODY, expect=500)
        self.assertNotIn("secret", answer.content.decode())
        self.assertEqual(answer.data["code"], "internal_server_error")


class StoreTests(RestTestCase):
    @tag("backend")
    def test_a_locked_store_is_423_and_works_again_afterwards(self) -> None:
        with tampering.locked(ALPHA):
            with tampering.busy_timeout(0.2):
                answer = self.call("POST", MEMORIES, BODY, expect=423)
            self.assertEqual(answer.data["detail"], "memory database is locked by another process")
            self.call("GET", MEMORIES)
        self.call("POST", MEMORIES, BODY, expect=201)

    @sqlite_only("the header of a file")
    def test_a_corrupted_header_is_503_and_the_other_project_lives_on(self) -> None:
        forget_all_stores()
        with path_of(ALPHA).open("r+b") as file:
            file.write(b"not a database!!")
        for method, body in (("GET", None), ("POST", BODY)):
            answer = self.call(method, MEMORIES, body, expect=503)
            self.assertRegex(answer.data["detail"], "^memory database unavailable: ")
        self.call("POST", "projects/beta/memories", BODY, expect=201)
        self.assertIn("memory database unavailable", self.call("GET", "projects").data["results"][0]["problem"])

    @sqlite_only("a project is known by its folder")
    def test_a_missing_folder_is_503_and_is_not_recreated(self) -> None:
        shutil.rmtree(path_of(ALPHA).parent)
        answer = self.call("GET", MEMORIES, expect=503)
        self.assertIn("memory database unavailable: the file of 'alpha' is gone", answer.data["detail"])
        self.assertFalse(path_of(ALPHA).exists())

    @tag("backend")
    def test_a_store_that_a_newer_hub_wrote_is_503(self) -> None:
        tampering.change(
            ALPHA,
            "UPDATE store_meta SET value = 'of a newer version' WHERE key = 'fingerprint'",
            "INSERT INTO django_migrations (app, name, applied) VALUES ('memories', '9999_new', '2030-01-01')",
        )
        store.forget(ALPHA)
        answer = self.call("GET", MEMORIES, expect=503)
        self.assertIn("written by a newer Memory Hub (memories.9999_new)", answer.data["detail"])


class _CountedName(str):
    """A name that counts comparisons."""

    compared = 0
    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        _CountedName.compared += 1
        return str.__eq__(self, other)


class LongBodyTests(RestTestCase):
    def test_a_repeated_name_is_found_in_one_pass(self) -> None:
        body = [(_CountedName(f"k{number}"), 1) for number in range(500)]
        _CountedName.compared = 0
        with self.assertRaisesMessage(Invalid, "the body names 'k499' twice"):
            _object([*body, (_CountedName("k499"), 2)])
        self.assertLess(_CountedName.compared, 1_000)

    def test_only_the_first_faults_of_a_body_are_explained(self) -> None:
        body = {f"k{number}": 1 for number in range(2_000)}
        with mock.patch.object(validation, "_field", wraps=validation._field) as fields:
            detail = self.call("POST", MEMORIES, {**BODY, **body}, expect=422).data["detail"]
        self.assertIn("'k0' is not known", detail)
        self.assertTrue(detail.endswith("'k20', and more"), detail[-40:])
        self.assertLess(len(detail), 1_000)
        self.assertLess(fields.call_count, 500)
