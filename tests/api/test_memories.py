from __future__ import annotations

import io
import tarfile
from typing import Any
from urllib.parse import urlencode

from django.test import tag

from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub.core import log
from memoryhub.core.models import RawEvent
from memoryhub.core.paging import estimate_tokens
from memoryhub.core.stores.store import current_store
from memoryhub.registry.tokens import TokenCreate, create_token
from memoryhub.rest.api import api
from memoryhub.rest.auth import read_token
from memoryhub.transfer.bundles.applying import apply_bundle
from memoryhub.transfer.bundles.archive import open_bundle
from tests.api.client import RestTestCase

ALPHA = "projects/alpha"
MEMORIES = f"{ALPHA}/memories"
QUERY = f"{ALPHA}/query"
CONFLICTS = f"{ALPHA}/conflicts"


class WriteTests(RestTestCase):
    def test_a_new_memory_has_the_address_in_location_and_its_event_the_session(self) -> None:
        body = {"title": "Use WAL", "content": "it is fast", "tags": ["DB"]}
        answer = self.call("POST", MEMORIES, body, expect=201, X_Session_Id="working-on-search")
        self.assertEqual((answer.data["status"], answer["ETag"]), ("created", '"1"'))
        memory = self.call("GET", answer["Location"].removeprefix("/api/v1/")).data
        self.assertEqual((memory["title"], memory["tags"]), ("Use WAL", ["db"]))
        with self.store("alpha"):
            event = RawEvent.objects.get(position=answer.data["id"])
        self.assertEqual((event.source, event.actor, event.session_id), ("rest", "token", "working-on-search"))

    def test_identical_text_is_counted_and_a_taken_title_is_a_conflict_that_names_the_id(self) -> None:
        first = self.write()
        answer = self.call("POST", MEMORIES, {"title": "Again", "content": "readers do not wait for writers"})
        self.assertEqual((answer.data["id"], answer.data["status"]), (first, "seen"))
        answer = self.call("POST", MEMORIES, {"title": "Use WAL", "content": "another text"}, expect=409)
        self.assertEqual(answer.data["id"], first)

    @tag("backend")
    def test_the_same_idempotency_key_again_gives_the_first_answer(self) -> None:
        body = {"title": "Once", "content": "only once"}
        first = self.call("POST", MEMORIES, body, expect=201, Idempotency_Key="k1")
        again = self.call("POST", MEMORIES, {**body, "content": "something else"}, expect=201, Idempotency_Key="k1")
        self.assertEqual(first.data["id"], again.data["id"])
        self.assertEqual(self.call("GET", MEMORIES).data["meta"]["total_count"], 1)
        self.call("POST", f"{ALPHA}/sessions", {}, expect=409, Idempotency_Key="k1")
        answer = self.call("POST", MEMORIES, body, expect=422, Idempotency_Key="k" * 201)
        self.assertIn("'idempotency_key' must have at most 200 characters", answer.data["detail"])

    def test_a_secret_is_redacted_and_the_answer_says_so(self) -> None:
        body = {"title": "Database", "content": "postgres://user:hunter2pass@db.example/x"}
        answer = self.call("POST", MEMORIES, body, expect=201)
        self.assertTrue(answer.data["redacted"])
        self.assertNotIn(b"hunter2pass", self.call("GET", f"{MEMORIES}/{answer.data['id']}").content)


class VersionTests(RestTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.path = f"{MEMORIES}/{self.write()}"

    def test_a_change_with_the_tag_that_was_read_makes_a_version(self) -> None:
        etag = self.call("GET", self.path)["ETag"]
        answer = self.call("PATCH", self.path, {"content": "new", "change_reason": "better"}, If_Match=etag)
        self.assertEqual((answer.data["version"], answer["ETag"]), (2, '"2"'))
        history = self.call("GET", f"{self.path}/versions").data["results"]
        self.assertEqual([version["content"] for version in history], ["new", "readers do not wait for writers"])
        self.assertEqual(history[0]["reason"], "better")
        self.assertEqual(self.call("GET", f"{self.path}?versions=true").data["versions"], history)
        answer = self.call("PATCH", self.path, {"content": "third"}, expect=412, If_Match=etag)
        self.assertEqual(answer.data["version"], 2)
        self.assertEqual(self.call("GET", self.path).data["content"], "new")

    def test_a_star_matches_every_version_and_anything_else_is_refused(self) -> None:
        self.call("PATCH", self.path, {"content": "second"}, If_Match="*")
        for etag in ('W/"2"', "two", '"2', '""', '"-1"', '"0"', '"1", "2"', '"\u0662"', ""):
            with self.subTest(etag=etag):
                answer = self.call("PATCH", self.path, {"content": "x"}, expect=422, If_Match=etag)
                self.assertIn("If-Match must be the ETag of a read", answer.data["detail"])
        self.call("PATCH", self.path, {"content": "x", "base_version": 2}, expect=422, If_Match='"1"')
        answer = self.call("PATCH", self.path, {"id": 7, "content": "x"}, expect=422)  # the path has the id
        self.assertIn("'id' is not known", answer.data["detail"])


class DeleteTests(RestTestCase):
    def test_a_deleted_memory_is_gone_until_it_is_restored_and_an_erased_one_for_good(self) -> None:
        path = f"{MEMORIES}/{self.write()}"
        self.assertIn("is not deleted", self.call("POST", f"{path}/restore", expect=409).data["detail"])
        deleted = self.call("DELETE", f"{path}?reason=old").data
        self.assertEqual((deleted["status"], deleted["can_restore"]), ("deleted", True))
        self.assertTrue(deleted["deleted_at"].endswith("Z"), deleted)
        for method, body in (("GET", None), ("DELETE", None), ("PATCH", {"content": "x"})):
            self.call(method, path, body, expect=410)
        for route in (MEMORIES, "projects/alpha/search?q=readers"):
            self.assertEqual(self.call("GET", route).data["results"], [], route)
        self.assertIsNotNone(self.call("GET", f"{path}?include_deleted=true").data["deleted_at"])
        self.assertEqual(self.call("POST", f"{path}/restore", {"reason": "needed"}).data["status"], "restored")
        self.assertIsNone(self.call("GET", path).data["deleted_at"])
        self.call("DELETE", path)
        token = self.call("DELETE", f"{path}?permanent=true", expect=409).data["confirm_token"]
        erased = self.call("DELETE", f"{path}?permanent=true&confirm_token={token}").data
        self.assertEqual((erased["can_restore"], bool(erased["deleted_at"])), (False, True))
        for method, part in (("GET", ""), ("DELETE", ""), ("GET", "/versions"), ("GET", "?include_deleted=true")):
            self.assertIn("permanently erased", self.call(method, path + part, expect=410).data["detail"])


class ReadTests(RestTestCase):
    @tag("backend")
    def test_lists_come_in_pages_and_filter_by_every_one_of_the_tags(self) -> None:
        written = [self.write(f"Note {number}", f"text number {number}", tags=["a"]) for number in range(6)]
        written.append(self.write("Both", "one", tags=["a", "b"]))
        seen, cursor = [], ""
        while cursor is not None:
            answer = self.call("GET", f"{MEMORIES}?limit=3{cursor and f'&cursor={cursor}'}").data
            seen += [memory["id"] for memory in answer["results"]]
            cursor = answer["meta"]["next_cursor"]
        self.assertEqual(seen, written[::-1])
        tagged = self.call("GET", f"{MEMORIES}?tags=a&tags=b").data["results"]
        self.assertEqual([memory["id"] for memory in tagged], written[-1:])
        answer = self.call("GET", f"{MEMORIES}?tag=a", expect=422)
        self.assertIn("there is no parameter 'tag' here; known: as_of, compact, cursor,", answer.data["detail"])

    def test_a_search_finds_by_other_words_and_names_its_evidence(self) -> None:
        memory_id = self.write()
        for name in ("q", "query"):
            hit = self.call("GET", f"{ALPHA}/search?{name}=which+writers+wait").data["results"][0]
            self.assertEqual((hit["id"], hit["event"]), (memory_id, memory_id))

    @tag("backend")
    def test_the_log_is_read_in_pages_and_verified_and_timeline_and_stats_describe_it(self) -> None:
        for number in range(5):
            self.write(f"Note {number}", f"text number {number}")
        first = self.call("GET", "projects/alpha/events?limit=3").data
        self.assertEqual([event["position"] for event in first["results"]], [1, 2, 3])
        second = self.call("GET", f"projects/alpha/events?limit=3&cursor={first['meta']['next_cursor']}").data
        self.assertEqual([event["position"] for event in second["results"]], [4, 5])
        self.assertEqual((second["meta"]["has_more"], second["results"][0]["payload"]["title"]), (False, "Note 3"))
        verified = self.call("GET", "projects/alpha/events/verify").data
        self.assertEqual((verified["ok"], verified["events"]), (True, 5))
        events = self.call("GET", "projects/alpha/timeline?id=5").data["results"]
        self.assertIn("memory.written", [event["type"] for event in events])
        stats = self.call("GET", "projects/alpha/stats").data
        self.assertEqual((stats["store"], stats["events"], stats["memories"]), ("alpha", 5, {"note": 5}))


class SessionTests(RestTestCase):
    def test_a_session_with_slashes_begins_pauses_resumes_and_ends_once(self) -> None:
        body = {"purpose": "search", "session_id": "s/1 ü"}
        begun = self.call("POST", "projects/alpha/sessions", body, expect=201)
        self.assertEqual(begun["Location"], "/api/v1/projects/alpha/sessions/s%2F1%20%C3%BC")
        path = begun["Location"].removeprefix("/api/v1/")
        session = self.call("GET", path).data
        self.assertEqual((session["id"], session["status"]), (begun.data["id"], "active"))
        self.assertEqual(self.call("POST", f"{path}/pause").data["status"], "paused")
        self.call("POST", f"{path}/pause", expect=409)
        self.assertEqual(self.call("POST", f"{path}/resume").data["status"], "active")
        self.call("POST", "projects/alpha/sessions", {"session_id": "s2"}, expect=201)
        ended = self.call("POST", f"{path}/end", {"summary": "done"}).data
        self.assertEqual((ended["status"], ended["summary"]), ("completed", "done"))
        self.call("POST", f"{path}/end", expect=409)
        self.call("GET", "projects/alpha/sessions/unknown", expect=404)
        listed = self.call("GET", "projects/alpha/sessions?status=active").data["results"]
        self.assertEqual([session["session_id"] for session in listed], ["s2"])

    def test_commits_are_recorded_once(self) -> None:
        commit = {"sha": "a" * 40, "message": "Add search", "committed_at": "2026-11-20T08:30:00Z"}
        answers = [self.call("POST", "projects/alpha/commits", [commit]).data for _ in range(2)]
        self.assertEqual(answers, [{"recorded": 1, "known": 0}, {"recorded": 0, "known": 1}])
        listed = self.call("GET", "projects/alpha/commits").data["results"]
        self.assertEqual([commit["sha"] for commit in listed], ["a" * 40])


class BudgetTests(RestTestCase):
    def test_no_list_is_longer_than_its_budget(self) -> None:
        for number in range(25):
            self.write(f"Pump {number} «ä»", f"The pump {number} hums “é”. " * 20, tags=[f"tag-{number}"])
            decision = {"title": f"Use pump {number}", "rationale": "It is quiet. " * 20}
            self.call("POST", "projects/alpha/decisions", decision, expect=201)
        routes = [
            path.removeprefix("/api/v1/").replace("{project_id}", "alpha")
            for path, methods in api.get_openapi_schema()["paths"].items()
            if any(field["name"] == "max_tokens" for field in methods.get("get", {}).get("parameters", []))
            and path.count("{") <= 1
        ]
        self.assertGreater(len(routes), 10, routes)
        for route in routes:
            for budget in (200, 700):
                with self.subTest(route=route, budget=budget):
                    query = "&query=pump" if route.endswith("search") else ""
                    answer = self.call("GET", f"{route}?max_tokens={budget}{query}")
                    meta = answer.data["meta"]
                    if estimate_tokens(answer.content.decode()) > budget:
                        self.assertEqual((meta.get("returned_count", 1), meta["truncated"]), (1, True), answer.data)


class TagRouteTests(RestTestCase):
    def test_a_tag_is_described_listed_attached_and_detached(self) -> None:
        body = {"name": "billing", "category": "domain"}
        created = self.call("POST", f"{ALPHA}/tags", body, expect=201).data
        tags = self.call("GET", f"{ALPHA}/tags?prefix=bill").data
        self.assertEqual((tags["results"][0]["id"], tags["meta"]["total_count"]), (created["id"], 1))
        self.assertEqual(self.call("POST", f"{ALPHA}/tags", body, expect=409).data["id"], created["id"])
        refused = self.call("GET", f"{ALPHA}/tags?categroy=x", expect=422)
        self.assertIn("no parameter 'categroy'", refused.data["detail"])
        path = f"{MEMORIES}/{self.write(tags=['a'])}/tags"
        added = self.call("POST", path, {"tags": ["b", "c"]}, Idempotency_Key="k")
        self.assertEqual((added.data["tags"], added["ETag"]), (["a", "b", "c"], '"2"'))
        self.assertEqual(self.call("POST", path, {"tags": ["b", "c"]}, Idempotency_Key="k").data, added.data)
        detached = self.call("DELETE", f"{path}?tags=a&tags=c")
        self.assertEqual((detached.data["tags"], detached["ETag"]), (["b"], '"3"'))
        self.call("POST", f"{MEMORIES}/999/tags", {"tags": ["b"]}, expect=404)
        self.assertIn("'tags' must not be empty", self.call("POST", path, {"tags": []}, expect=422).data["detail"])


class RelationRouteTests(RestTestCase):
    def test_a_relation_is_created_kept_listed_and_deleted(self) -> None:
        relations = f"{ALPHA}/relations"
        first, second = self.write("One", "1"), self.write("Two", "2")
        body = {"source": first, "relation": "depends_on", "target": second}
        created = self.call("POST", relations, body, expect=201, Idempotency_Key="make")
        one = f"{relations}/{created.data['id']}"
        self.assertEqual(created["Location"], f"/api/v1/{one}")
        self.assertEqual(self.call("POST", relations, body).data["status"], "kept")
        (relation,) = self.call("GET", f"{relations}?id={first}&direction=out").data["results"]
        self.assertEqual((relation["target"]["title"], relation["actor"]), ("Two", created.data["actor"]))
        shown = self.call("GET", f"{MEMORIES}/{first}?relations=true").data["relations"]
        self.assertEqual([each["id"] for each in shown], [relation["id"]])
        circle = {"source": second, "relation": "depends_on", "target": first}
        self.assertEqual(self.call("POST", relations, circle, expect=409).data["path"], [first, second])
        deleted = self.call("DELETE", f"{one}?reason=wrong").data
        self.assertEqual((deleted["id"], deleted["status"]), (relation["id"], "deleted"))
        self.call("DELETE", one, expect=404)
        self.assertEqual(self.call("GET", relations).data["results"], [])
        self.call("DELETE", f"{MEMORIES}/{second}")
        self.assertIn("restore it first", self.call("POST", relations, body, expect=410).data["detail"])
        self.call("GET", f"{relations}?id={second}", expect=410)


class QueryTests(RestTestCase):
    @tag("backend")
    def test_a_query_is_the_body_and_pages_by_its_cursor(self):
        for number in range(3):
            self.write(f"Rule {number}", content=f"text {number}", kind="guideline", tags=["python"])
        scope = {"type": "project", "id": "alpha"}
        question = {"types": ["guidelines"], "scope": scope, "tags": {"require": ["python"]}}
        first = self.call("POST", QUERY, {**question, "limit": 2}).data
        self.assertEqual((first["meta"]["total_count"], first["meta"]["returned_count"]), (3, 2))
        second = self.call("POST", QUERY, {**question, "cursor": first["meta"]["next_cursor"]}).data
        titles = sorted(item["title"] for item in first["results"] + second["results"])
        self.assertEqual(titles, ["Rule 0", "Rule 1", "Rule 2"])
        self.assertEqual(first["results"][0]["parts"]["tags"], {"value": 1.0, "points": 3.0})
        self.assertEqual(self.call("POST", "projects/beta/query", {}).data["results"], [])
        refused = self.call("POST", QUERY, {"scope": {"type": "project", "id": "beta"}}, expect=422)
        self.assertIn("bound to project alpha", refused.data["detail"])
        self.call("POST", QUERY, {"related_to": {"type": "tool", "id": "Nothing"}}, expect=404)


class ConflictTests(RestTestCase):
    def test_conflicts_are_listed_read_and_resolved_once(self):
        memory_id = self.write("Rule")
        for text in ("Use tabs.", "Use spaces."):
            self.call("PATCH", f"{MEMORIES}/{memory_id}", {"content": text, "base_version": 1})
        (item,) = self.call("GET", CONFLICTS).data["results"]
        conflict_id = item["id"]
        one = self.call("GET", f"{CONFLICTS}/{conflict_id}").data
        self.assertEqual((one["a"]["content"], one["b"]["content"]), ("Use tabs.", "Use spaces."))
        self.assertIn("[-tabs-]{+spaces+}", one["diff"])
        body = {"resolution": "merge", "content": "Use either.", "reason": "agreed"}
        settled = self.call("POST", f"{CONFLICTS}/{conflict_id}/resolve", body).data
        self.assertEqual((settled["resolution"], settled["version"]), ("merge", 4))
        self.call("POST", f"{CONFLICTS}/{conflict_id}/resolve", body, expect=409)
        self.assertEqual(self.call("GET", CONFLICTS).data["results"], [])
        self.assertEqual(len(self.call("GET", f"{CONFLICTS}?all=true").data["results"]), 1)


class ExportTests(RestTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.write("Use WAL", tags=["storage"])
        self.write("Locks", content="Other text", kind="guideline")

    def download(self, query: str = "") -> bytes:
        headers = {"Authorization": f"Bearer {read_token()}"}
        answer: Any = self.client.get(f"/api/v1/{ALPHA}/export{query}", headers=headers)
        self.assertTrue(answer.streaming)
        return b"".join(answer)

    @tag("backend")
    def test_a_whole_store_is_streamed_and_can_be_imported(self) -> None:
        path = self.home / "export.jsonl"
        path.write_bytes(self.download())
        with self.store("alpha"):
            digests = log.table_digests()
        with self.store("copy"):
            apply_bundle(open_bundle(path), current_store())
            self.assertEqual(log.table_digests(), digests)

    def test_files_are_streamed_as_an_archive_and_other_questions_refused(self) -> None:
        with tarfile.open(fileobj=io.BytesIO(self.download("?form=markdown"))) as archive:
            self.assertEqual(archive.getnames(), ["memories/0001-use-wal.md", "memories/0002-locks.md"])
            entry = archive.extractfile("memories/0001-use-wal.md")
            assert entry
            self.assertIn("# Use WAL\n\nreaders do not wait", entry.read().decode())
        with tarfile.open(fileobj=io.BytesIO(self.download("?form=obsidian&kind=guideline"))) as archive:
            self.assertEqual(archive.getnames(), ["memories/0002-locks.md"])
        for query in ("?tag=a", "?form=xml", "?form=markdown&since=2026"):
            self.call("GET", f"{ALPHA}/export{query}", expect=422)
        self.call("GET", "projects/none/export", expect=404)
        _, token = create_token(command=TokenCreate(name="bot", verbs=["write"]), by="ann")
        self.call("GET", f"{ALPHA}/export", token=token, expect=403)


class WorkTests(RestTestCase):
    def begin(self) -> dict[str, str]:
        self.call("POST", f"{ALPHA}/sessions", {"session_id": "s1"}, expect=201)
        turn: dict[str, str] = self.call("POST", f"{ALPHA}/turns/begin", {"session_id": "s1"}, expect=201).data
        return turn

    def test_a_turn_is_begun_appended_to_and_ended(self) -> None:
        turn = self.begin()
        event = {"ack_token": turn["ack_token"], "type": "command_run", "payload": {"command": "make test"}}
        self.assertEqual(self.call("POST", f"{ALPHA}/turns/append", event, expect=201).data["type"], "command.run")
        ended = self.call("POST", f"{ALPHA}/turns/end", {"ack_token": turn["ack_token"]}).data
        self.assertEqual((ended["status"], ended["event_count"]), ("closed", 1))
        refused = self.call("POST", f"{ALPHA}/turns/append", event, expect=412).data
        self.assertEqual((refused["code"], refused["reason"]), ("precondition_failed", "closed"))
        listed = self.call("GET", f"{ALPHA}/turns?status=closed").data
        self.assertEqual([turn["turn_id"] for turn in listed["results"]], [turn["turn_id"]])
        self.assertNotIn("ack_token", str(listed))

    def test_strict_asks_for_the_token_in_a_header(self) -> None:
        turn = self.begin()
        self.call("PATCH", f"{ALPHA}/settings", {"settings": {"turn_policy": "strict"}})
        body = {"title": "T", "content": "text"}
        self.assertEqual(self.call("POST", MEMORIES, body, expect=412).data["reason"], "no_token")
        self.call("POST", MEMORIES, body, expect=201, X_Ack_Token=turn["ack_token"])

    def test_returned_settings_can_be_sent_back_and_an_unknown_one_changes_nothing(self) -> None:
        rule = {"what": "deleted", "kind": "guideline", "after_days": "never"}
        changed = {"settings": {"retention_days": "never", "retention": [rule]}}
        settings = self.call("PATCH", f"{ALPHA}/settings", changed).data
        self.assertEqual((settings["retention_days"], settings["retention"][0]["after_days"]), ("never", "never"))
        self.assertEqual(self.call("PATCH", f"{ALPHA}/settings", {"settings": settings}).data, settings)
        self.call("PATCH", f"{ALPHA}/settings", {"settings": {"colour": "red", "turn_policy": "strict"}}, expect=422)
        self.assertEqual(self.call("GET", f"{ALPHA}/settings").data, settings)

    def test_an_iteration_goes_through_its_phases(self) -> None:
        started = self.call("POST", f"{ALPHA}/iterations", {"command": "feature", "description": "x"}, expect=201).data
        self.call("POST", f"{ALPHA}/iterations", {"command": "fix"}, expect=409)
        path = f"{ALPHA}/iterations/{started['id']}"
        self.call("POST", f"{path}/advance", {"phase": "build"})
        advanced = self.call("POST", f"{path}/advance", {"phase": "test", "artifacts": ["a.py"]}).data
        self.assertEqual((advanced["phases_completed"], advanced["phase"]), (["build"], "test"))
        commit = {"sha": "a" * 40, "message": "Add a", "committed_at": "2026-11-20T08:00:00Z"}
        recorded = self.call("POST", f"{ALPHA}/commits/read", commit).data
        self.assertEqual(recorded["iteration_id"], started["id"])
        self.call("POST", f"{path}/complete", {"outcome": "done"})
        found = self.call("GET", f"{path}?events=2").data
        self.assertEqual((found["status"], len(found["commits"]), len(found["events"])), ("completed", 1, 2))
        self.assertEqual(found["left_out"], 3)
        self.call("POST", f"{path}/complete", {}, expect=409)

    @tag("backend")
    def test_a_turn_finds_the_session_by_its_sanitised_name(self) -> None:
        for turn in ("t1", "t2"):
            body = {"session_id": "a\0b", "turn_id": turn}
            self.call("POST", "projects/alpha/turns/begin", body, expect=201)


class AmendmentsTests(RestTestCase):
    def setUp(self) -> None:
        super().setUp()
        with self.store(actor="agent"):
            texts = ("User sessions are stored in Memcached.", "User sessions moved to Redis, Memcached is gone.")
            writes = [MemoryWrite(title=text[:-1], content=text) for text in texts]
            self.older, self.newer = (write_memory(command=write).id for write in writes)

    def waiting(self, **query: str) -> list[tuple[int, int]]:
        listed = self.call("GET", f"{ALPHA}/amendments?{urlencode(query)}").data["results"]
        return [(pair["newer"]["id"], pair["older"]["id"]) for pair in listed]

    def judge(self, expect: int = 200, **fields: Any) -> Any:
        body = {"newer_id": self.newer, "older_id": self.older, **fields}
        return self.call("POST", f"{ALPHA}/amendments/review", body, expect=expect).data

    def test_a_pair_is_listed_until_a_verdict(self) -> None:
        self.assertEqual(self.waiting(), [(self.newer, self.older)])
        self.assertTrue(self.judge(verdict="accepted")["is_accepted"])
        self.assertEqual(self.waiting(), [])
        older = self.call("GET", f"{MEMORIES}/{self.older}").data
        self.assertEqual(older["superseded_by"], [self.newer])

    def test_a_bad_verdict_is_one_sentence_and_changes_nothing(self) -> None:
        for status, fields in (
            (422, {"verdict": "perhaps"}),
            (422, {}),
            (422, {"verdict": "accepted", "newer_id": "x"}),
            (404, {"verdict": "accepted", "newer_id": 4_000}),
            (404, {"verdict": "dismissed", "older_id": self.newer}),
        ):
            with self.subTest(fields=fields):
                self.assertNotIn("\n", self.judge(status, **fields)["detail"])
        self.assertEqual(self.waiting(), [(self.newer, self.older)])

    def test_memories_are_listed_by_mark(self) -> None:
        listed = self.call("GET", f"{MEMORIES}?mark=amended").data
        self.assertEqual([memory["id"] for memory in listed["results"]], [self.older])
        self.assertEqual(listed["meta"]["total_count"], 1)
        self.assertEqual(self.call("GET", f"{MEMORIES}?mark=origin").data["results"], [])
        self.assertIn("mark", self.call("GET", f"{MEMORIES}?mark=perhaps", expect=422).data["detail"])

    def test_what_is_not_certain_is_listed_on_request(self) -> None:
        with self.store(actor="other"):
            text = "User sessions are stored in Valkey."
            third = write_memory(command=MemoryWrite(title="Where sessions are", content=text)).id
        self.assertNotIn(third, dict(self.waiting()))
        self.assertIn(third, dict(self.waiting(all="true")))
