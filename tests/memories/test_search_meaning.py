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

    def test_a_document_without_the_words_is_found_by_meaning_and_explained(self):
        found = self.search("feline pets")
        self.assertEqual(found.meta.mode, "hybrid")
        self.assertEqual([hit["id"] for hit in found.results], [self.cats])
        self.assertRegex(found.results[0]["why"], r"^meaning 0\.\d\d$")

    def test_a_hit_by_words_and_meaning_explains_both(self):
        (hit, *_) = self.search("which SQLite server was chosen").results
        self.assertEqual(hit["id"], self.database)
        self.assertRegex(hit["why"], r"^(text|sqlite.*); meaning 0\.\d\d")

    def test_a_document_with_neither_is_not_found(self):
        self.assertEqual(self.search("quantum chromodynamics lecture").results, [])

    def test_filters_apply_to_hits_by_meaning(self):
        self.assertEqual(self.search("feline pets", kind="guideline").results, [])
        self.assertEqual(self.search("feline pets", tags=["none"]).results, [])

    def test_without_the_model_words_are_used_and_the_answer_reports_it(self):
        with use_engine(RemoteEngine()):
            found = self.search("warm roofs")
        self.assertEqual([hit["id"] for hit in found.results], [self.cats])
        self.assertEqual(found.meta.mode, "fts5")
        self.assertIn("by words alone: memory-hub serve", found.meta.note or "")

    def test_the_past_is_searched_by_words_only(self):
        found = self.search("warm roofs", as_of=3)
        self.assertEqual(found.meta.mode, "fts5")
        self.assertEqual(found.meta.note, "by words alone: past states have no vectors")

    def test_another_projects_texts_are_never_found(self):
        with self.store("beta"):
            self.write(DEPLOY)
            self.embed()
            self.assertEqual(self.search("feline pets").results, [])

    def test_reproducible_searches_use_words_only(self):
        question = parse("feline pets")
        self.assertEqual(engine.rank(question).hits, [])
        self.assertEqual([hit for hit, _ in engine.rank(question, others=True).hits], [self.cats])

    def test_the_session_weight_is_halved_with_meaning(self):
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
        self.assertEqual([memory["id"] for memory in answer["memories"]], [self.cats])
