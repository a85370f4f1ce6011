from __future__ import annotations

from functools import partial
from typing import Any
from unittest import mock

from django.test import tag

from memories import selectors, services
from memories.models import Memory
from memories.pack import pack_context
from memories.query import query
from memories.schemas import MemoryGet, MemoryList, MemorySearch, MemoryWrite, WriteResult
from memories.schemas.query import ContextPackRequest, MemoryQuery
from memories.search.text import terms_without
from memories.selectors import search
from memories.tools import SearchByOffset, search_by_offset
from memoryhub.core import log
from memoryhub.core.backends.selected import stores
from memoryhub.core.contributions import recall_of
from memoryhub.core.errors import ConflictError, Invalid, NotFound, PreconditionFailed
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import GLOBAL_STORE, current_store, org_store, project_store, use_store
from sessions_app import services as session_services
from sessions_app.models import SessionMode
from sessions_app.schemas import SessionEnd, SessionStart, SessionTouch, SettingsChange
from sessions_app.selectors import view_session
from sessions_app.services.profile import change_settings
from tests import tampering
from tests.memories.base import AcmeTestCase, MemoriesTestCase, pages


class ScopesTestCase(AcmeTestCase):
    def written(self, title: str, content: str = "", **fields: Any) -> WriteResult:
        return super().written(title, content or f"{title} in {fields.get('scope', 'project')}.", **fields)

    def found(self, query: str, **filters: object) -> list[tuple[str, str]]:
        command = MemorySearch.model_validate({"query": query, **filters})
        return [(hit["scope"], hit["title"]) for hit in selectors.search(command=command).results]

    def named(self, name: str, **fields: object) -> dict:
        return selectors.get_memories(command=MemoryGet.model_validate({"name": name, **fields}))[0]


class WriteTests(ScopesTestCase):
    @tag("backend")
    def test_each_scope_is_in_its_own_store(self):
        for scope in ("project", "org", "global", "session"):
            self.written(f"Rule of {scope}", scope=scope)
        stores = {}
        for store in (current_store(), org_store("acme"), GLOBAL_STORE):
            with use_store(store):
                stores[store.name] = sorted(Memory.objects.values_list("scope", flat=True))
        self.assertEqual(stores, {"alpha": ["project", "session"], "acme": ["org"], "global": ["global"]})

    def test_a_scope_that_is_not_there_is_refused_with_the_next_step(self):
        with self.store("gamma"), self.assertRaisesRegex(Invalid, "'gamma' belongs to no organisation; set one"):
            self.written("Rule", scope="org")
        with use_origin(session_id=""), self.assertRaisesRegex(Invalid, "start one with session_start"):
            self.written("Note", scope="session")
        commands = [MemoryWrite(title=scope, content=scope, scope=scope) for scope in ("project", "global")]
        with self.assertRaisesRegex(Invalid, "must have the same scope"):
            services.write_memories(commands=commands)

    def test_a_strict_project_asks_for_its_token_before_a_write_elsewhere(self):
        change_settings(command=SettingsChange(settings={"turn_policy": "strict"}))
        with use_origin(source="mcp"), self.assertRaises(PreconditionFailed):
            self.written("Rule", scope="global")
        self.assertFalse(stores.exists(GLOBAL_STORE))

    def test_names_are_unique_within_a_scope_and_a_session(self):
        first = self.written("Deploy", scope="session", content="Mine.")
        self.written("Deploy", scope="project", content="Ours.")
        with use_origin(session_id="s-2"):
            self.written("Deploy", scope="session", content="Hers.")
        with self.assertRaisesRegex(ConflictError, f"of scope session exists as #{first.id}"):
            self.written("Deploy", scope="session", content="Mine again.")

    def test_a_memory_of_another_scope_is_changed_in_its_store_by_the_callers_session(self):
        rule = self.written("Rule", scope="global")
        self.update(rule.id, scope="global", content="Changed.")
        self.assertEqual(self.named("Rule")["content"], "Changed.")
        self.delete(rule.id, scope="global")
        with self.assertRaises(NotFound):
            self.named("Rule")
        with use_store(GLOBAL_STORE):
            self.assertEqual(set(RawEvent.objects.values_list("session_id", "actor")), {("s-1", "ada")})


class InheritanceTests(ScopesTestCase):
    def setUp(self) -> None:
        super().setUp()
        for scope in ("global", "org", "project", "session"):
            self.written("Port", scope=scope)

    def test_the_nearest_wins_by_name_and_shows_its_scope(self):
        for project, session, fields, scope in (
            ("alpha", "s-1", {}, "session"),
            ("alpha", "", {}, "project"),
            ("alpha", "s-1", {"scope": "org"}, "org"),
            ("alpha", "s-1", {"scope": "global", "inherit": False}, "global"),
            ("beta", "s-1", {}, "org"),
        ):
            with self.subTest(project=project, session=session, **fields), self.store(project, session_id=session):
                self.assertEqual(self.named("Port", **fields)["scope"], scope)
        self.assertEqual(self.get(1, scope="global")["scope"], "global")

    @tag("backend")
    def test_a_search_covers_all_visible_scopes_and_the_nearest_of_a_name_hides_others(self):
        every_scope = ("global", "org", "project", "session")
        for scope in every_scope:
            self.written(f"Port of {scope}", scope=scope)
        for project, session, filters, nearest, scopes in (
            ("alpha", "s-1", {}, "session", every_scope),
            ("alpha", "s-2", {}, "project", every_scope[:3]),
            ("alpha", "s-1", {"scope": "global"}, "global", ["global"]),
            ("alpha", "s-1", {"scope": "project"}, "project", ["project"]),
            ("alpha", "s-1", {"as_of": log.head()[0]}, "session", ["project", "session"]),
            ("beta", "s-1", {}, "org", ["global", "org"]),
            ("gamma", "s-1", {}, "global", ["global"]),
        ):
            with self.subTest(project=project, session=session, **filters), self.store(project, session_id=session):
                expected = sorted([(nearest, "Port"), *((scope, f"Port of {scope}") for scope in scopes)])
                for compact in (False, True):
                    self.assertEqual(sorted(self.found("port", compact=compact, **filters)), expected)
        answers = pages(partial(self.search, "port"), limit=1)
        self.assertEqual([(len(answer.results), answer.meta.total_count) for answer in answers], [(1, 5)] * 5)
        with use_origin(session_id="s-2"):
            listed = selectors.list_memories(command=MemoryList()).results
            self.assertEqual({memory["scope"] for memory in listed}, {"project"})

    def test_the_resource_of_searches_has_the_nearest_of_a_name_and_nothing_of_other_sessions(self):
        for session, scopes in (("s-1", ["session"]), ("s-2", ["project"])):
            with self.subTest(session=session), use_origin(session_id=session):
                answer = search_by_offset(command=SearchByOffset(query="port"))
                self.assertEqual([memory["scope"] for memory in answer["memories"]], scopes)

    @tag("backend")
    def test_a_nearer_memory_of_the_same_topic_hides_others_whatever_its_title_and_kind(self):
        for kind in ("observation", "guideline", "tool", "knowledge"):
            with self.subTest(kind=kind):
                port = {"kind": kind, "topic_key": f"dev-port-{kind}"}
                self.written(f"{kind}: the server listens on 8000 everywhere", scope="global", **port)
                near = self.written(f"{kind}: the server listens on 9000 here", **port)
                (hit,) = self.search("server listens", kind=kind).results
                self.assertEqual((hit["id"], hit["scope"]), (near.id, "project"))
                self.assertEqual(len(self.search("server listens", kind=kind, scope="global").results), 1)
                text = pack_context(command=ContextPackRequest()).text
                self.assertIn("9000 here", text)
                self.assertNotIn(f"{kind}: the server listens on 8000", text)
                self.delete(near.id)
                self.assertEqual([hit["scope"] for hit in self.search("server listens", kind=kind).results], ["global"])

    @tag("backend")
    def test_a_prompt_recalls_the_nearest_of_a_name_only(self):
        for scope, port in (("global", 8000), ("project", 9000)):
            self.written("Dev server port", content=f"The dev server listens on port {port}.", scope=scope)
        text = recall_of("s-1", "On which port does the dev server listen?")
        self.assertIn("9000", text)
        self.assertNotIn("8000", text)
        self.assertNotIn("8000", recall_of("s-1", "On which port does the dev server listen?"))

    def test_hits_of_a_small_store_can_outrank_those_of_a_large_one(self):
        common = "of servers, in words that are rare elsewhere."
        self.write_all({f"Rule {number}": f"Rule {number} {common}" for number in range(30)}, scope="global")
        with self.store("gamma"):
            self.written("Port of the server", content="The server listens on 8321.")
            self.assertEqual(self.found("which port has the server")[0], ("project", "Port of the server"))

    def test_the_question_is_parsed_once_for_all_scopes(self):
        self.written("Port of the office", scope="global")
        for ask in (self.found, lambda words: query(command=MemoryQuery(search=words)).results):
            with mock.patch("memories.search.parsed_query.terms_without", wraps=terms_without) as parse:
                self.assertGreater(len(ask("port of the server")), 1)
            parse.assert_called_once()

    @tag("backend")
    def test_an_empty_scope_is_reported(self):
        with use_store(project_store("delta"), create=True):
            tampering.lose(GLOBAL_STORE)
        with use_store(project_store("delta")), self.assertRaisesRegex(NotFound, "the global scope is empty"):
            self.get(1, scope="global")


class PromotionTests(ScopesTestCase):
    @tag("backend")
    def test_a_session_memory_is_promoted_to_the_project_and_every_store_rebuilt_the_same(self):
        note = self.written("Finding", scope="session")
        result = self.update(note.id, promote=True)
        self.assertEqual((result.version, Memory.objects.get().scope), (2, "project"))
        with use_origin(session_id="s-2"):
            self.assertEqual(self.named("Finding")["id"], note.id)
        self.written("Rule", scope="org")
        for store in (current_store(), org_store("acme")):
            with use_store(store):
                self.assert_rebuilds()

    def test_impossible_promotions_are_refused_with_the_id_in_the_way(self):
        ours = self.written("How to build", topic_key="build/command")
        note = self.written("How we build", topic_key="build/command", scope="session")
        with self.assertRaisesRegex(ConflictError, f"#{ours.id} has topic 'build/command'"):
            self.update(note.id, promote=True)
        note = self.written("How to build", scope="session", content="Mine.")
        with self.assertRaisesRegex(ConflictError, f"of scope project exists as #{ours.id}"):
            self.update(note.id, promote=True)
        with self.assertRaisesRegex(Invalid, "promote is for memories in scope session"):
            self.update(ours.id, promote=True)


class ScratchTests(MemoriesTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.lasting = self.note("Lasting", session="")
        session_services.start_session(command=SessionStart(session_id="s1", mode=SessionMode.SCRATCH))
        self.first, self.second = self.note("First"), self.note("Second")

    def note(self, title: str, session: str = "s1", **fields: str) -> int:
        with use_origin(session_id=session):
            return self.write(title, f"kettle text of {title} in {session or 'no session'}", **fields)

    def end(self, **fields: object) -> None:
        session_services.end_session(command=SessionEnd(session_id="s1", **fields))

    def found(self) -> set[int]:
        return {hit["id"] for hit in search(command=MemorySearch(query="kettle")).results}

    def test_ephemeral_entries_and_those_of_the_session_become_the_projects_when_it_ends(self) -> None:
        ephemeral = set(Memory.objects.filter(ephemeral=True).values_list("id", flat=True))
        self.assertEqual(ephemeral, {self.first, self.second})
        with self.assertRaisesRegex(Invalid, "2 entries; ask the user, then end it with promote=true") as asked:
            self.end(summary="worth keeping")
        self.assertEqual(asked.exception.data["entries"], [f"#{self.first} First", f"#{self.second} Second"])
        third = self.note("Third", scope="session", topic_key="third")
        same = self.note("Lasting", scope="session")
        self.assertEqual(self.found(), {self.lasting, self.first, self.second})
        self.end(summary="worth keeping", promote=True)
        self.assertFalse(Memory.objects.filter(ephemeral=True).exists())
        self.assertEqual(self.found(), {self.lasting, self.first, self.second, third, same})
        titles = dict(Memory.objects.filter(id__in=[third, same]).values_list("title", "scope"))
        self.assertEqual(titles, {"Third": "project", f"Lasting (#{same})": "project"})
        self.assert_rebuilds()

    def test_a_session_with_auto_promote_does_not_ask(self) -> None:
        metadata = {"mode": "scratch", "auto_promote": True, "ephemeral_entries": ["a"], "notes": {"a": 1}}
        session_services.start_session(command=SessionStart(session_id="s3", metadata=metadata))
        third = self.note("Third", session="s3", scope="session")
        ended = session_services.end_session(command=SessionEnd(session_id="s3"))
        self.assertEqual((ended.status, view_session(ended)["metadata"]), ("completed", metadata))
        self.assertIn(third, self.found())

    def test_discarded_entries_can_be_restored_and_kept_ones_become_the_projects(self) -> None:
        third = self.note("Third", scope="session")
        self.end(discard=True, keep=[self.second, third])
        self.assertEqual(self.found(), {self.lasting, self.second, third})
        self.assert_rebuilds()
        self.assertEqual(self.found(), {self.lasting, self.second, third})
        self.restore(self.first)
        self.assertEqual(self.found(), {self.lasting, self.first, self.second, third})

    def test_a_status_alone_promotes_nothing_and_lists_the_entries(self) -> None:
        head = log.head()
        with self.assertRaisesRegex(Invalid, "2 entries; ask the user") as asked:
            self.end(status="completed")
        self.assertEqual(asked.exception.data["entries"], [f"#{self.first} First", f"#{self.second} Second"])
        self.assertEqual(log.head(), head)
        self.end(status="completed", promote=True)
        self.assertFalse(Memory.objects.filter(ephemeral=True).exists())

    def test_a_session_that_nobody_ends_is_paused_until_someone_decides_about_its_entries(self) -> None:
        ended = session_services.end_unattended(command=SessionEnd(session_id="s1", summary="The client left."))
        self.assertEqual(ended.status, "paused")
        self.assertEqual(Memory.objects.filter(ephemeral=True).count(), 2)
        self.end(promote=True)
        self.assertEqual(self.found(), {self.lasting, self.first, self.second})
        session_services.start_session(command=SessionStart(session_id="s2", mode=SessionMode.SCRATCH))
        ended = session_services.end_unattended(command=SessionEnd(session_id="s2", summary="The client left."))
        self.assertEqual((ended.status, ended.summary), ("completed", "The client left."))

    def test_keeping_and_discarding_are_for_scratch_sessions(self) -> None:
        session_services.start_session(command=SessionStart(session_id="s2"))
        head = log.head()
        for fields in ({"discard": True}, {"keep": [1]}, {"promote": True, "discard": True}):
            with self.subTest(fields=fields), self.assertRaises(Invalid):
                session_services.end_session(command=SessionEnd(session_id="s2", **fields))
        self.assertEqual(log.head(), head)

    def test_only_an_active_session_is_paused_and_only_a_paused_one_resumed(self) -> None:
        session_services.pause_session(command=SessionTouch(session_id="s1"))
        with self.assertRaises(ConflictError):
            session_services.pause_session(command=SessionTouch(session_id="s1"))
        self.assertEqual(session_services.resume_session(command=SessionTouch(session_id="s1")).status, "active")
        with self.assertRaises(ConflictError):
            session_services.resume_session(command=SessionTouch(session_id="s1"))
