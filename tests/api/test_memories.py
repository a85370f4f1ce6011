from __future__ import annotations

import io
import tarfile

from django.test import tag

from memoryhub.core import log
from memoryhub.core.models import RawEvent
from memoryhub.core.paging import estimate_tokens
from memoryhub.registry.tokens import TokenCreate, create_token
from memoryhub.rest.api import api
from memoryhub.rest.auth import read_token
from memoryhub.transfer.jsonl import Export
from memoryhub.transfer.replaying import replay_export
from tests.api.client import RestTestCase

MEMORIES = "projects/alpha/memories"


class WriteTests(RestTestCase):
    def test_a_new_memory_has_the_address_in_location(self) -> None:
        answer = self.call("POST", MEMORIES, {"title": "Use WAL", "content": "it is fast", "tags": ["DB"]}, expect=201)
        self.assertEqual(answer.data["status"], "created")
        self.assertEqual(answer["ETag"], '"1"')
        found = self.call("GET", answer["Location"].removeprefix("/api/v1/")).data
        self.assertEqual((found["title"], found["tags"]), ("Use WAL", ["db"]))

    def test_identical_text_is_counted_and_answers_200(self) -> None:
        first = self.write()
        answer = self.call("POST", MEMORIES, {"title": "Again", "content": "readers do not wait for writers"})
        self.assertEqual((answer.data["id"], answer.data["status"]), (first, "seen"))

    def test_a_taken_title_is_a_conflict_that_names_the_id(self) -> None:
        first = self.write()
        answer = self.call("POST", MEMORIES, {"title": "Use WAL", "content": "another text"}, expect=409)
        self.assertEqual(answer.data["id"], first)

    def test_an_event_has_source_actor_and_session(self) -> None:
        answer = self.call(
            "POST", MEMORIES, {"title": "t", "content": "c"}, expect=201, X_Session_Id="working-on-search"
        )
        with self.store("alpha"):
            event = RawEvent.objects.get(position=answer.data["id"])
        self.assertEqual((event.source, event.actor, event.session_id), ("rest", "token", "working-on-search"))

    @tag("backend")
    def test_the_same_idempotency_key_again_gives_the_first_answer(self) -> None:
        body = {"title": "Once", "content": "only once"}
        first = self.call("POST", MEMORIES, body, expect=201, Idempotency_Key="k1")
        again = self.call("POST", MEMORIES, {**body, "content": "something else"}, expect=201, Idempotency_Key="k1")
        self.assertEqual(first.data["id"], again.data["id"])
        self.assertEqual(self.call("GET", MEMORIES).data["meta"]["total_count"], 1)

    def test_a_key_that_was_used_for_something_else_is_a_conflict(self) -> None:
        self.call("POST", MEMORIES, {"title": "Once", "content": "c"}, expect=201, Idempotency_Key="k1")
        self.call("POST", "projects/alpha/sessions", {}, expect=409, Idempotency_Key="k1")

    def test_a_key_that_is_too_long_is_refused(self) -> None:
        answer = self.call("POST", MEMORIES, {"title": "t", "content": "c"}, expect=422, Idempotency_Key="k" * 201)
        self.assertIn("'idempotency_key' must have at most 200 characters", answer.data["detail"])

    def test_a_secret_is_redacted_and_the_answer_says_so(self) -> None:
        answer = self.call(
            "POST", MEMORIES, {"title": "Database", "content": "postgres://user:hunter2pass@db.example/x"}, expect=201
        )
        self.assertTrue(answer.data["redacted"])
        self.assertNotIn(b"hunter2pass", self.call("GET", f"{MEMORIES}/{answer.data['id']}").content)


class VersionTests(RestTestCase):
    def test_a_change_with_the_tag_that_was_read_makes_a_version(self) -> None:
        path = f"{MEMORIES}/{self.write()}"
        tag = self.call("GET", path)["ETag"]
        answer = self.call("PATCH", path, {"content": "new", "change_reason": "better"}, If_Match=tag)
        self.assertEqual((answer.data["version"], answer["ETag"]), (2, '"2"'))
        history = self.call("GET", f"{path}/versions").data["results"]
        self.assertEqual([version["content"] for version in history], ["new", "readers do not wait for writers"])
        self.assertEqual(history[0]["reason"], "better")
        self.assertEqual(self.call("GET", f"{path}?versions=true").data["versions"], history)

    def test_a_change_with_an_older_tag_fails_the_precondition(self) -> None:
        path = f"{MEMORIES}/{self.write()}"
        self.call("PATCH", path, {"content": "second"}, If_Match='"1"')
        answer = self.call("PATCH", path, {"content": "third"}, expect=412, If_Match='"1"')
        self.assertEqual(answer.data["version"], 2)
        self.assertEqual(self.call("GET", path).data["content"], "second")

    def test_a_star_matches_every_version_and_anything_else_is_refused(self) -> None:
        path = f"{MEMORIES}/{self.write()}"
        self.call("PATCH", path, {"content": "second"}, If_Match="*")
        for etag in ('W/"2"', "two", '"2', '""', '"-1"', '"0"', '"1", "2"', '"\u0662"', ""):
            with self.subTest(etag=etag):
                answer = self.call("PATCH", path, {"content": "x"}, expect=422, If_Match=etag)
                self.assertIn("If-Match must be the ETag of a read", answer.data["detail"])

    def test_a_tag_and_a_base_version_that_differ_are_refused(self) -> None:
        path = f"{MEMORIES}/{self.write()}"
        self.call("PATCH", path, {"content": "x", "base_version": 2}, expect=422, If_Match='"1"')

    def test_the_id_is_taken_from_the_path_alone(self) -> None:
        path = f"{MEMORIES}/{self.write()}"
        answer = self.call("PATCH", path, {"id": 7, "content": "x"}, expect=422)
        self.assertIn("'id' is not known", answer.data["detail"])


class DeleteTests(RestTestCase):
    def test_a_deleted_memory_is_gone_until_it_is_restored(self) -> None:
        path = f"{MEMORIES}/{self.write()}"
        self.assertEqual(self.call("DELETE", f"{path}?reason=old").data["status"], "deleted")
        self.call("GET", path, expect=410)
        self.call("DELETE", path, expect=410)
        self.call("PATCH", path, {"content": "x"}, expect=410)
        self.assertEqual(self.call("GET", MEMORIES).data["results"], [])
        self.assertEqual(self.call("GET", "projects/alpha/search?q=readers").data["results"], [])
        self.assertIsNotNone(self.call("GET", f"{path}?include_deleted=true").data["deleted_at"])
        self.assertEqual(self.call("POST", f"{path}/restore", {"reason": "needed"}).data["status"], "restored")
        self.assertIsNone(self.call("GET", path).data["deleted_at"])

    def test_restoring_needs_no_body_and_what_is_not_deleted_is_a_conflict(self) -> None:
        path = f"{MEMORIES}/{self.write()}"
        self.call("POST", f"{path}/restore", expect=409)


class ReadTests(RestTestCase):
    @tag("backend")
    def test_pages_follow_each_other_without_gap_or_repeat(self) -> None:
        written = [self.write(f"Note {number}", f"text number {number}") for number in range(7)]
        seen, cursor = [], ""
        while cursor is not None:
            answer = self.call("GET", f"{MEMORIES}?limit=3{cursor and f'&cursor={cursor}'}").data
            seen += [memory["id"] for memory in answer["results"]]
            cursor = answer["meta"]["next_cursor"]
        self.assertEqual(seen, written[::-1])

    def test_a_search_finds_by_other_words_and_names_its_evidence(self) -> None:
        memory_id = self.write()
        for name in ("q", "query"):
            hit = self.call("GET", f"projects/alpha/search?{name}=which+writers+wait").data["results"][0]
            self.assertEqual((hit["id"], hit["event"]), (memory_id, memory_id))

    def test_lists_filter_by_every_one_of_the_tags(self) -> None:
        both = self.write("Both", "one", tags=["a", "b"])
        self.write("One", "two", tags=["a"])
        found = self.call("GET", f"{MEMORIES}?tags=a&tags=b").data["results"]
        self.assertEqual([memory["id"] for memory in found], [both])

    def test_a_misspelt_filter_is_refused_and_the_known_ones_are_named(self) -> None:
        answer = self.call("GET", f"{MEMORIES}?tag=a", expect=422)
        self.assertIn("there is no parameter 'tag' here; known: as_of, compact, cursor,", answer.data["detail"])

    @tag("backend")
    def test_the_log_is_read_in_pages_and_verified(self) -> None:
        for number in range(5):
            self.write(f"Note {number}", f"text number {number}")
        first = self.call("GET", "projects/alpha/events?limit=3").data
        self.assertEqual([event["position"] for event in first["results"]], [1, 2, 3])
        rest = self.call("GET", f"projects/alpha/events?limit=3&cursor={first['meta']['next_cursor']}").data
        self.assertEqual(([event["position"] for event in rest["results"]], rest["meta"]["has_more"]), ([4, 5], False))
        self.assertEqual(rest["results"][0]["payload"]["title"], "Note 3")
        verified = self.call("GET", "projects/alpha/events/verify").data
        self.assertEqual((verified["ok"], verified["events"]), (True, 5))

    def test_the_timeline_and_the_stats_describe_the_store(self) -> None:
        memory_id = self.write()
        events = self.call("GET", f"projects/alpha/timeline?id={memory_id}").data["results"]
        self.assertEqual([event["type"] for event in events], ["memory.written"])
        stats = self.call("GET", "projects/alpha/stats").data
        self.assertEqual((stats["store"], stats["events"], stats["memories"]), ("alpha", 1, {"note": 1}))


class SessionTests(RestTestCase):
    def test_a_session_begins_is_found_and_ends_once(self) -> None:
        begun = self.call("POST", "projects/alpha/sessions", {"purpose": "search", "session_id": "s/1 ü"}, expect=201)
        self.assertEqual(begun["Location"], "/api/v1/projects/alpha/sessions/s%2F1%20%C3%BC")
        self.call("POST", "projects/alpha/sessions", {"session_id": "s2"}, expect=201)
        self.assertEqual(self.call("GET", "projects/alpha/sessions/s2").data["status"], "active")
        ended = self.call("POST", "projects/alpha/sessions/s2/end", {"summary": "done"})
        self.assertEqual((ended.data["status"], ended.data["summary"]), ("completed", "done"))
        self.call("POST", "projects/alpha/sessions/s2/end", expect=409)
        self.call("GET", "projects/alpha/sessions/unknown", expect=404)
        listed = self.call("GET", "projects/alpha/sessions?status=active").data["results"]
        self.assertEqual([session["session_id"] for session in listed], ["s/1 ü"])

    def test_a_session_with_slashes_has_the_address_in_location(self) -> None:
        made = self.call("POST", "projects/alpha/sessions", {"session_id": "feature/tides & more"}, expect=201)
        path = made["Location"].removeprefix("/api/v1/")
        self.assertEqual(self.call("GET", path).data["id"], made.data["id"])
        self.assertEqual(self.call("POST", f"{path}/pause").data["status"], "paused")
        self.assertEqual(self.call("POST", f"{path}/resume").data["status"], "active")
        self.assertEqual(self.call("POST", f"{path}/end", {"summary": "s"}).data["status"], "completed")

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
            path
            for path, methods in api.get_openapi_schema()["paths"].items()
            if any(field["name"] == "max_tokens" for field in methods.get("get", {}).get("parameters", []))
            and path.count("{") <= 1
        ]
        self.assertGreater(len(routes), 10, routes)
        for path in routes:
            route = path.removeprefix("/api/v1/").replace("{project_id}", "alpha")
            for budget in (200, 700):
                with self.subTest(route=route, budget=budget):
                    query = "&query=pump" if route.endswith("search") else ""
                    answer = self.call("GET", f"{route}?max_tokens={budget}{query}")
                    meta = answer.data["meta"]
                    if estimate_tokens(answer.content.decode()) > budget:
                        self.assertEqual((meta.get("returned_count", 1), meta["truncated"]), (1, True), answer.data)

    def test_a_deletion_says_when_and_whether_it_can_be_undone_and_an_erased_id_is_gone(self) -> None:
        path = f"{MEMORIES}/{self.write()}"
        deleted = self.call("DELETE", path).data
        self.assertTrue(deleted["can_restore"] and deleted["deleted_at"].endswith("Z"), deleted)
        token = self.call("DELETE", f"{path}?permanent=true", expect=409).data["confirm_token"]
        erased = self.call("DELETE", f"{path}?permanent=true&confirm_token={token}").data
        self.assertEqual((erased["can_restore"], bool(erased["deleted_at"])), (False, True))
        for method, part in (("GET", ""), ("DELETE", ""), ("GET", "/versions"), ("GET", "?include_deleted=true")):
            answer = self.call(method, path + part, expect=410)
            self.assertIn("permanently erased", answer.data["detail"])


ALPHA = "projects/alpha"


class TagRouteTests(RestTestCase):
    def test_a_tag_is_described_and_listed(self) -> None:
        body = {"name": "billing", "category": "domain"}
        made = self.call("POST", f"{ALPHA}/tags", body, expect=201).data
        found = self.call("GET", f"{ALPHA}/tags?prefix=bill").data
        self.assertEqual((found["results"][0]["id"], found["meta"]["total_count"]), (made["id"], 1))
        self.assertEqual(self.call("POST", f"{ALPHA}/tags", body, expect=409).data["id"], made["id"])
        self.assertIn(
            "no parameter 'categroy'", self.call("GET", f"{ALPHA}/tags?categroy=x", expect=422).data["detail"]
        )

    def test_tags_are_attached_and_detached(self) -> None:
        path = f"{ALPHA}/memories/{self.write(tags=['a'])}/tags"
        added = self.call("POST", path, {"tags": ["b", "c"]}, Idempotency_Key="k")
        self.assertEqual((added.data["tags"], added["ETag"]), (["a", "b", "c"], '"2"'))
        again = self.call("POST", path, {"tags": ["b", "c"]}, Idempotency_Key="k")
        self.assertEqual(again.data, added.data)
        taken = self.call("DELETE", f"{path}?tags=a&tags=c")
        self.assertEqual((taken.data["tags"], taken["ETag"]), (["b"], '"3"'))
        self.call("POST", f"{ALPHA}/memories/999/tags", {"tags": ["b"]}, expect=404)
        self.assertIn("'tags' must not be empty", self.call("POST", path, {"tags": []}, expect=422).data["detail"])


class RelationRouteTests(RestTestCase):
    def test_a_relation_is_created_kept_listed_and_deleted(self) -> None:
        first, second = self.write("One", "1"), self.write("Two", "2")
        body = {"source": first, "relation": "depends_on", "target": second}
        made = self.call("POST", f"{ALPHA}/relations", body, expect=201, Idempotency_Key="make")
        self.assertEqual(made["Location"], f"/api/v1/{ALPHA}/relations/{made.data['id']}")
        self.assertEqual(self.call("POST", f"{ALPHA}/relations", body).data["status"], "kept")
        (found,) = self.call("GET", f"{ALPHA}/relations?id={first}&direction=out").data["results"]
        self.assertEqual((found["target"]["title"], found["actor"]), ("Two", made.data["actor"]))
        shown = self.call("GET", f"{ALPHA}/memories/{first}?relations=true").data
        self.assertEqual([relation["id"] for relation in shown["relations"]], [found["id"]])
        circle = {"source": second, "relation": "depends_on", "target": first}
        self.assertEqual(self.call("POST", f"{ALPHA}/relations", circle, expect=409).data["path"], [first, second])
        gone = self.call("DELETE", f"{ALPHA}/relations/{made.data['id']}?reason=wrong").data
        self.assertEqual((gone["id"], gone["status"]), (made.data["id"], "deleted"))
        self.call("DELETE", f"{ALPHA}/relations/{made.data['id']}", expect=404)
        self.assertEqual(self.call("GET", f"{ALPHA}/relations").data["results"], [])

    def test_a_deleted_end_is_gone(self) -> None:
        first, second = self.write("One", "1"), self.write("Two", "2")
        self.call("DELETE", f"{ALPHA}/memories/{second}")
        body = {"source": first, "relation": "depends_on", "target": second}
        self.assertIn("restore it first", self.call("POST", f"{ALPHA}/relations", body, expect=410).data["detail"])
        self.call("GET", f"{ALPHA}/relations?id={second}", expect=410)


QUERY = "projects/alpha/query"
CONFLICTS = "projects/alpha/conflicts"


class QueryTests(RestTestCase):
    @tag("backend")
    def test_a_query_is_the_body_and_pages_by_its_cursor(self):
        for number in range(3):
            self.write(f"Rule {number}", content=f"text {number}", kind="guideline", tags=["python"])
        question = {
            "types": ["guidelines"],
            "scope": {"type": "project", "id": "alpha"},
            "tags": {"require": ["python"]},
        }
        first = self.call("POST", QUERY, {**question, "limit": 2}).data
        self.assertEqual((first["meta"]["total_count"], first["meta"]["returned_count"]), (3, 2))
        rest = self.call("POST", QUERY, {**question, "cursor": first["meta"]["next_cursor"]}).data
        self.assertEqual(
            sorted(item["title"] for item in first["results"] + rest["results"]), ["Rule 0", "Rule 1", "Rule 2"]
        )
        self.assertEqual(first["results"][0]["parts"]["tags"], {"value": 1.0, "points": 3.0})
        self.assertEqual(self.call("POST", "projects/beta/query", {}).data["results"], [])

    def test_invalid_queries_are_refused_in_one_sentence(self):
        for body, output in (
            ({"types": ["decisions"]}, "'types[0]' must be one of"),
            ({"tags": {"all": ["x"]}}, "'tags.all' is not known"),
            ({"scope": {"type": "project", "id": "beta"}}, "bound to project alpha"),
            ({"limit": 0}, "'limit' must be at least 1"),
        ):
            with self.subTest(output):
                self.assertIn(output, self.call("POST", QUERY, body, expect=422).data["detail"])
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
    def download(self, query: str = "", project: str = "alpha") -> bytes:
        answer = self.client.get(
            f"/api/v1/projects/{project}/export{query}", headers={"Authorization": f"Bearer {self.token}"}
        )
        self.assertTrue(answer.streaming)
        return b"".join(answer)

    def setUp(self) -> None:
        super().setUp()
        self.token = read_token()
        self.write("Use WAL", tags=["storage"])
        self.write("Locks", content="Other text", kind="guideline")

    @tag("backend")
    def test_a_whole_store_is_streamed_and_can_be_imported(self) -> None:
        path = self.home / "export.jsonl"
        path.write_bytes(self.download())
        with self.store("alpha"):
            digests = log.table_digests()
        with self.store("copy"):
            replay_export(Export(path))
            self.assertEqual(log.table_digests(), digests)

    def test_files_are_streamed_as_an_archive(self) -> None:
        with tarfile.open(fileobj=io.BytesIO(self.download("?form=markdown"))) as archive:
            self.assertEqual(archive.getnames(), ["memories/0001-use-wal.md", "memories/0002-locks.md"])
            entry = archive.extractfile("memories/0001-use-wal.md")
            assert entry
            self.assertIn("# Use WAL\n\nreaders do not wait", entry.read().decode())
        with tarfile.open(fileobj=io.BytesIO(self.download("?form=obsidian&kind=guideline"))) as archive:
            self.assertEqual(archive.getnames(), ["memories/0002-locks.md"])

    def test_what_is_refused(self) -> None:
        for query, status in (("?tag=a", 422), ("?form=xml", 422), ("?form=markdown&since=2026", 422)):
            self.call("GET", f"projects/alpha/export{query}", expect=status)
        self.call("GET", "projects/none/export", expect=404)
        _, token = create_token(command=TokenCreate(name="bot", verbs=["write"]), by="ann")
        self.call("GET", "projects/alpha/export", token=token, expect=403)


MEMORY = {"title": "T", "content": "text"}


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
        self.assertEqual(self.call("POST", f"{ALPHA}/memories", MEMORY, expect=412).data["reason"], "no_token")
        token = turn["ack_token"]
        self.call("POST", f"{ALPHA}/memories", MEMORY, expect=201, X_Ack_Token=token)

    def test_an_unknown_setting_is_422_and_changes_nothing(self) -> None:
        self.call("PATCH", f"{ALPHA}/settings", {"settings": {"colour": "red"}}, expect=422)
        self.assertEqual(self.call("GET", f"{ALPHA}/settings").data["turn_policy"], "auto")

    def test_returned_settings_can_be_sent_back_and_protected_ones_stay(self) -> None:
        rule = {"what": "deleted", "kind": "guideline", "after_days": "never"}
        changed = {"settings": {"retention_days": "never", "retention": [rule]}}
        answered = self.call("PATCH", f"{ALPHA}/settings", changed).data
        self.assertEqual((answered["retention_days"], answered["retention"][0]["after_days"]), ("never", "never"))
        self.assertEqual(self.call("PATCH", f"{ALPHA}/settings", {"settings": answered}).data, answered)

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

    def test_sessions_pause_and_resume(self) -> None:
        self.begin()
        self.assertEqual(self.call("POST", f"{ALPHA}/sessions/s1/pause").data["status"], "paused")
        self.call("POST", f"{ALPHA}/sessions/s1/pause", expect=409)
        self.assertEqual(self.call("POST", f"{ALPHA}/sessions/s1/resume").data["status"], "active")

    @tag("backend")
    def test_a_turn_finds_the_session_by_its_sanitised_name(self) -> None:
        for turn in ("t1", "t2"):
            body = {"session_id": "a\0b", "turn_id": turn}
            self.call("POST", "projects/alpha/turns/begin", body, expect=201)
