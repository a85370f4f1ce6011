"""Searches that blend words and meaning, and what they say where only the words answer."""

from __future__ import annotations

from typing import Any

from memories import selectors
from memories.embeddings.choice import use_engine
from memories.embeddings.remote import RemoteEngine
from memories.resources import SearchByOffset, search_by_offset
from memories.schemas import MemorySearch
from memories.search import engine
from memories.search.parsed_query import parse
from memories.search.pipeline import Pipeline
from memoryhub.core.schemas import Listing
from sessions_app.schemas import SessionStart
from sessions_app.services import start_session
from sessions_app.services.turns import append_automatically, automatic_turn, close_turn
from tests.memories.test_embeddings import CATS, DATABASE, DEPLOY, EmbeddingTestCase


class HybridTests(EmbeddingTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.cats, self.database, self.deploy = self.write(CATS, DATABASE, DEPLOY)
        self.embed()

    def search(self, query: str, **fields: Any) -> Listing:
        return selectors.search(command=MemorySearch(query=query, **fields))

    def test_what_has_none_of_the_words_is_found_by_its_meaning_and_says_so(self):
        found = self.search("feline pets")
        self.assertEqual(found.meta.mode, "hybrid")
        self.assertEqual([hit["id"] for hit in found.results], [self.cats])
        self.assertRegex(found.results[0]["why"], r"^meaning 0\.\d\d$")

    def test_what_has_both_says_both(self):
        (hit, *_) = self.search("which SQLite server was chosen").results
        self.assertEqual(hit["id"], self.database)
        self.assertRegex(hit["why"], r"^(text|sqlite.*); meaning 0\.\d\d")

    def test_nothing_is_found_that_has_neither(self):
        self.assertEqual(self.search("quantum chromodynamics lecture").results, [])

    def test_filters_hold_for_what_is_found_by_meaning(self):
        self.assertEqual(self.search("feline pets", kind="guideline").results, [])
        self.assertEqual(self.search("feline pets", tags=["none"]).results, [])

    def test_where_the_model_is_away_the_words_answer_and_the_answer_says_so(self):
        with use_engine(RemoteEngine()):
            found = self.search("warm roofs")
        self.assertEqual([hit["id"] for hit in found.results], [self.cats])
        self.assertEqual(found.meta.mode, "fts5")
        self.assertIn("by words alone: memory-hub serve", found.meta.note or "")

    def test_the_past_is_searched_by_words_alone(self):
        found = self.search("warm roofs", as_of=3)
        self.assertEqual(found.meta.mode, "fts5")
        self.assertEqual(found.meta.note, "by words alone: there are no vectors of a past moment")

    def test_another_projects_texts_are_never_found(self):
        with self.store("beta"):
            self.write(DEPLOY)
            self.embed()
            self.assertEqual(self.search("feline pets").results, [])

    def test_what_must_be_the_same_tomorrow_asks_the_words_alone(self):
        question = parse("feline pets")
        self.assertEqual(engine.rank(question).hits, [])
        self.assertEqual([each for each, _ in engine.rank(question, others=True).hits], [self.cats])

    def test_the_session_that_hits_most_counts_half_where_the_meaning_is_asked(self):
        start_session(command=SessionStart(session_id="s"))
        turn = automatic_turn(session_id="s")
        for text in ("The heron nests on the roof.", "Herons nest again?"):
            append_automatically(turn=turn, type="message.user", payload={"content": text})
        close_turn(turn)
        self.embed()
        question = parse("where does the heron nest")
        by_words, hybrid = engine.rank(question), engine.rank(question, others=True)
        self.assertEqual(hybrid.mode, "hybrid")
        self.assertAlmostEqual(by_words.factors[by_words.hits[0][0]]["session"], 2.0)
        self.assertAlmostEqual(hybrid.factors[hybrid.hits[0][0]]["session"], 1.5)
        without = engine.rank(question, others=True, pipeline=Pipeline(session=0))
        self.assertNotIn("session", without.factors[without.hits[0][0]])

    def test_the_resource_names_the_model(self):
        answer = search_by_offset(command=SearchByOffset(query="feline pets"))
        self.assertEqual(answer["metadata"]["embedding_model"], "all-MiniLM-L6-v2-int8")
        self.assertEqual([each["id"] for each in answer["memories"]], [self.cats])
