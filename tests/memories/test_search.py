from __future__ import annotations

from datetime import timedelta
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from memories import selectors, services
from memories.schemas import MemoryList, MemorySearch, MemoryTouch, MemoryWrite
from memories.schemas.links import RelationCreate
from memories.search import engine, fulltext
from memories.search.parsed_query import parse_search
from memories.search.snippets import snippet
from memories.search.text import match_any, terms
from memories.services.relations import create_relation
from memories.tools.core import search, search_text
from memoryhub.core import clock, log
from memoryhub.core.errors import Invalid
from memoryhub.core.stores import rows
from sessions_app.schemas import CommitRecord
from sessions_app.services import record_commits
from tests.databases import on_postgresql
from tests.support import HubTestCase

TEXTS = {
    "Storage engine": "We keep every project in its own SQLite file with write-ahead logging.",
    "Sign-in": "A one-time link signs the owner in; there is no password anywhere.",
    "Kitchen": "The coffee machine is descaled on Fridays.",
    "Search": "Ranking uses bm25 over porter stems; stop words are dropped from questions.",
}


class SearchTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="ada"))
        self.ids = {
            title: services.write_memory(command=MemoryWrite(title=title, content=text, tags=[title[:3]])).id
            for title, text in TEXTS.items()
        }

    def found(self, query: str, mode: str = "auto", **filters: object) -> list[str]:
        listing = selectors.search(command=MemorySearch(query=query, **filters), mode=mode)
        return [hit["title"] for hit in listing.results]


class FullTextTests(SearchTestCase):
    def test_a_memory_is_found_by_other_words_than_its_title(self):
        self.assertEqual(self.found("how do projects log what was written?")[0], "Storage engine")
        self.assertEqual(self.found("when was the descaling of the coffee machines?")[0], "Kitchen")

    def test_every_hit_carries_its_evidence(self):
        (hit,) = selectors.search(command=MemorySearch(query="coffee")).results
        self.assertEqual((hit["id"], hit["event"], hit["source"]), (self.ids["Kitchen"], self.ids["Kitchen"], "memory"))
        self.assertIn("coffee", hit["snippet"])
        self.assertTrue(hit["created_at"])

    def test_the_text_does_not_depend_on_the_explanations(self):
        for query, limits in (
            ("coffee password", {}),
            ("project", {"limit": 1}),
            ("coffee", {"compact": True}),
            ("zz", {}),
        ):
            command = MemorySearch.model_validate({"query": query, **limits})
            self.assertEqual(search_text(command), search(command).text)

    def test_filters_restrict_the_hits(self):
        self.assertEqual(self.found("coffee password ranking", tags=["sig"]), ["Sign-in"])
        self.assertEqual(self.found("coffee", since=clock.now() + timedelta(days=1)), [])
        self.assertEqual(self.found("coffee", sources=["commit"]), [])
        self.assertEqual(self.found("coffee", type="task"), [])

    def test_deleted_and_old_texts_are_not_found(self):
        services.delete_memory(command=MemoryTouch(id=self.ids["Kitchen"]))
        self.assertEqual(self.found("coffee"), [])
        services.restore_memory(command=MemoryTouch(id=self.ids["Kitchen"]))
        self.assertEqual(self.found("coffee"), ["Kitchen"])

    def test_a_question_of_stop_words_is_still_searched(self):
        self.assertEqual(terms("what is it"), ["what", "is", "it"])

    def test_punctuation_finds_nothing(self):
        self.assertEqual(self.found('"* - ( ^ :'), [])

    def test_no_query_raises(self):
        @settings(max_examples=200, deadline=None)
        @given(st.text(alphabet=st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=60))
        def check(query: str) -> None:
            selectors.search(command=MemorySearch(query=query))
            selectors.search(command=MemorySearch(query=query), mode="basic")

        check()
        for query in ['"', "NEAR(a b)", "a AND", "title:x", "x*", "-x", "NOT", "{a}", "a\x00b", "über", "日本語", "🙂"]:
            selectors.search(command=MemorySearch(query=query))

    def test_pages_cover_everything_once(self):
        query, seen, cursor = "sqlite link coffee ranking", [], None
        while True:
            listing = selectors.search(command=MemorySearch(query=query, limit=1, cursor=cursor))
            seen += [hit["id"] for hit in listing.results]
            cursor = listing.meta.next_cursor
            if cursor is None:
                break
        self.assertEqual(sorted(seen), sorted(self.ids.values()))
        self.assertEqual(listing.meta.total_count, 4)

    def test_a_cursor_of_another_kind_is_refused(self):
        with self.assertRaisesRegex(Invalid, "cursor"):
            selectors.search(command=MemorySearch(query="coffee", cursor="bm9uc2Vuc2U"))

    def test_the_token_budget_is_kept_and_omissions_are_reported(self):
        listing = selectors.search(command=MemorySearch(query="sqlite link coffee ranking", max_tokens=50))
        self.assertLess(listing.meta.returned_count, 4)
        self.assertTrue(listing.meta.truncated)
        self.assertTrue(listing.meta.has_more)
        self.assertLessEqual(listing.meta.estimated_tokens, 50)
        rest = selectors.search(
            command=MemorySearch(query="sqlite link coffee ranking", cursor=listing.meta.next_cursor)
        )
        self.assertEqual(rest.meta.returned_count + listing.meta.returned_count, 4)


class LargeStoreTests(SearchTestCase):
    def setUp(self) -> None:
        super().setUp()
        commands = [
            MemoryWrite(title=f"Note {number}", content=f"common words about topic {number % 7} item {number}")
            for number in range(400)
        ]
        services.write_memories(commands=commands)

    def hits(self, query: str, **filters: object) -> list[tuple[int, float]]:
        return engine.rank(parse_search(MemorySearch(query=query, **filters))).hits

    def test_skipping_common_words_gives_the_same_best_hits(self):
        questions = ["common item 42", "words about topic 3", "common words topic", "coffee about common"]
        for question in questions:
            plain = self.hits(question)
            with mock.patch.multiple(fulltext, _LARGE_STORE=0, _TELLING_MATCHES=100, _ENOUGH=10):
                quick = self.hits(question)
            with self.subTest(question=question):
                self.assertEqual([entry for entry, _ in quick[:10]], [element for element, _ in plain[:10]])
                for (_, mine), (_, theirs) in zip(quick[:10], plain[:10], strict=True):
                    self.assertAlmostEqual(mine, theirs, places=12)  # the sums are added up in another order

    def test_with_too_few_hits_common_words_are_used(self):
        with mock.patch.multiple(fulltext, _LARGE_STORE=0, _TELLING_MATCHES=100, _ENOUGH=10):
            found = self.hits("coffee link common topic 3", tags=["sig"])
        self.assertEqual([document_id for document_id, _ in found], [self.ids["Sign-in"]])


class WithoutFullTextTests(SearchTestCase):
    def setUp(self) -> None:
        super().setUp()
        rows.execute(f"DROP TABLE {'search_postings' if on_postgresql() else 'search_fts'}")
        self.forget_probe()

    def forget_probe(self) -> None:
        from django.db import connections

        delattr(connections["store:project:alpha"], "hub_has_full_text")

    def test_like_is_used_and_reported(self):
        listing = selectors.search(command=MemorySearch(query="coffee machine"))
        self.assertEqual([hit["title"] for hit in listing.results], ["Kitchen"])
        self.assertEqual(listing.meta.mode, "basic")

    def test_writing_works(self):
        services.write_memory(command=MemoryWrite(title="Tea", content="Green tea at four."))
        self.assertEqual(self.found("green"), ["Tea"])

    def test_filters_restrict_the_hits(self):
        self.assertEqual(self.found("coffee password ranking", tags=["sig"]), ["Sign-in"])

    def test_a_rebuild_restores_the_index(self):
        self.assertTrue(log.rebuild().identical)
        listing = selectors.search(command=MemorySearch(query="descaling"))
        self.assertEqual(listing.meta.mode, "fts5")
        self.assertEqual(listing.results[0]["title"], "Kitchen")


class ListTests(SearchTestCase):
    def test_a_page_neither_skips_nor_repeats_while_others_write(self):
        first = selectors.list_memories(command=MemoryList(limit=2))
        services.write_memory(command=MemoryWrite(title="Late", content="came in between"))
        second = selectors.list_memories(command=MemoryList(limit=2, cursor=first.meta.next_cursor))
        ids = [memory["id"] for memory in [*first.results, *second.results]]
        self.assertEqual(sorted(ids), sorted(self.ids.values()))

    def test_compact_returns_only_ids_and_titles(self):
        listing = selectors.list_memories(command=MemoryList(compact=True, limit=1))
        self.assertEqual(listing.results, [{"id": self.ids["Search"], "title": "Search"}])


class TextTests(HubTestCase):
    def test_terms_are_quoted_and_joined_by_or(self):
        self.assertEqual(match_any(terms('WAL "mode" OR snake_case')), '"wal" OR "mode" OR "snake" OR "case"')

    def test_a_snippet_shows_where_the_words_are(self):
        text = "filler words " * 100 + "the coffee machine is here " + "more filler " * 100
        cut = snippet(text, ["coffee", "machine"])
        self.assertIn("coffee machine", cut)
        self.assertLessEqual(len(cut), 210)


class ChangeTests(SearchTestCase):
    def setUp(self) -> None:
        super().setUp()
        messages = ["Update gizmo to 2.1", "Upgrade gizmo", "Bump gizmo", "Fix the use of gizmo in tests"]
        messages.append("cli: replace gizmo with widget and what supports it\n\nIt took ten seconds to compile.")
        record_commits(
            commits=[
                CommitRecord(sha=f"{number:040x}", message=message, committed_at=clock.now())
                for number, message in enumerate(messages)
            ]
        )

    def test_the_commit_that_made_a_change_comes_first(self):
        for question in ("why was gizmo replaced", "when was gizmo removed", "What did we switch to from gizmo?"):
            with self.subTest(question):
                self.assertIn("replace gizmo", self.found(question)[0])
        self.assertNotIn("replace gizmo", self.found("gizmo")[0])

    def test_a_commit_that_says_little_counts_less(self):
        self.assertEqual(self.found("gizmo")[0], "Fix the use of gizmo in tests")
        for hit in selectors.search(command=MemorySearch(query="gizmo")).results:
            self.assertEqual("says little ×0.6" in hit["why"], hit["title"].startswith(("Bump", "Up")), hit)

    def test_a_changelog_line_that_tells_of_the_change_raises_its_section(self):
        for title, text in {
            "1.0": "gizmo gizmo works\ngizmo is fast",
            "2.0": "Added\n- Dropped gizmo\n- Much more",
        }.items():
            services.write_memory(command=MemoryWrite(title=f"Changelog {title}", content=text))
        self.assertEqual(self.found("when was gizmo dropped", sources=["memory"])[0], "Changelog 2.0")

    def test_a_superseded_memory_is_lowered_below_what_replaces_it(self):
        old = services.write_memory(command=MemoryWrite(title="Session length", content="Sessions last an hour."))
        new = services.write_memory(command=MemoryWrite(title="How long people stay", content="A day."))
        create_relation(command=RelationCreate(source=str(new.id), relation="supersedes", target=str(old.id)))
        self.assertEqual(self.found("session length hour")[:2], ["How long people stay", "Session length"])
