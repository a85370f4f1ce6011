from __future__ import annotations

import unicodedata
from itertools import product
from typing import Literal

from django.test import SimpleTestCase
from hypothesis import example, given
from hypothesis import strategies as st

from memories import selectors, services
from memories.schemas import MemorySearch, MemoryWrite
from memories.search.folding import folded, folded_with_places
from memories.search.shaping import shaped
from memories.search.snippets import LENGTH, excerpt
from memories.search.text import phrases, terms
from memories.search.text_index import text_index
from memories.search.words import words_in
from memoryhub.core import log
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import current_store, forget, use_store
from tests.memories.test_search_messages import MessagesTestCase
from tests.support import HubTestCase

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
FORMS: tuple[Form, ...] = ("NFC", "NFD", "NFKC", "NFKD")
WORDS = ("résumé", "Müller", "ﬁnance", "ｄｅｐｌｏｙ", "Việt", "q̃uay", "한국어", "ガイド", "ｶﾞｲﾄﾞ", "Ångström", "ĳsland")

signs = st.one_of(
    st.characters(codec="utf-8"),
    st.sampled_from("aeéüñqAＡｄﬁﬄĳ½²™…，。한국각가ガｶﾞﾟ数据\u0301\u0302\u0323\u0327\u00ad\u3099\u1161\u11a8\uffc2 .-_"),
)
texts = st.text(signs, max_size=40)


class FoldingTests(SimpleTestCase):
    def test_forms_of_a_word_are_one(self):
        for word in WORDS:
            forms = {tuple(terms(unicodedata.normalize(form, word))) for form in FORMS}
            self.assertEqual(len(forms), 1, word)
        self.assertEqual(terms("ｄｅｐｌｏｙ the ﬁle"), ["deploy", "file"])
        self.assertEqual(terms("ｶﾞｲﾄﾞ"), terms("ガイド"))
        self.assertEqual(terms("co\u00adoperate q̃"), ["cooperate", "q"])
        self.assertEqual(phrases("ｏｓ．ｐａｔｈ"), ["os path"])
        self.assertEqual(shaped("ｇｅｔＮａｍｅ"), shaped("getName"))

    @given(texts)
    def test_a_text_folds_the_same_in_every_canonical_form_and_once_for_all(self, text: str):
        self.assertEqual(folded(unicodedata.normalize("NFD", text)), folded(unicodedata.normalize("NFC", text)))
        self.assertEqual(folded(folded(text)), folded(text))

    @given(texts)
    @example("각" + "\u11a8")
    @example("e\u0323\u0302\u0301x")
    def test_every_character_of_a_folded_text_has_a_source(self, text: str):
        plain, places = folded_with_places(text)
        if places is None:
            self.assertEqual(plain, text)
            return
        self.assertEqual(len(places), len(plain))
        self.assertEqual(places, sorted(places))
        self.assertTrue(all(0 <= start < end <= len(text) for start, end in places))

    @given(texts)
    def test_folding_by_pieces_equals_folding_at_once(self, text: str):
        self.assertEqual(folded_with_places(text)[0], folded(text))


class MarkedTests(SimpleTestCase):
    def marked(self, text: str, question: str) -> list[str]:
        found = excerpt(text, terms(question))
        return [found.text[start:end] for start, end in found.matches]

    def test_words_are_marked_as_they_are_written_in_whatever_form(self):
        text = unicodedata.normalize("NFD", "Her résumé, ") + "ｄｅｐｌｏｙ by ﬁnance … ｶﾞｲﾄﾞ。"
        self.assertEqual(self.marked(text, "résumé"), [unicodedata.normalize("NFD", "résumé")])
        self.assertEqual(self.marked(text, "deploy FINANCE"), ["ｄｅｐｌｏｙ", "ﬁnance"])
        self.assertEqual(self.marked(text, "ガイド"), ["ｶﾞｲﾄﾞ"])
        self.assertEqual(words_in(text, terms("finance résumé ガイド")), terms("finance résumé ガイド"))

    def test_the_snippet_is_cut_where_the_word_stands_in_another_form(self):
        text = unicodedata.normalize("NFD", "é" * 300 + " " + "mañana ïs … " * 60 + "the résumé is here")
        found = excerpt(text, terms("résumé"))
        self.assertIn(unicodedata.normalize("NFD", "résumé"), found.text)

    @given(texts, texts, st.sampled_from(WORDS), st.sampled_from(list(product(FORMS, FORMS))))
    def test_marks_are_within_what_is_shown_and_hold_the_word(
        self, before: str, after: str, word: str, forms: tuple[Form, Form]
    ):
        written, asked = (unicodedata.normalize(form, word) for form in forms)
        found = excerpt(f"{before} {written} {after}", terms(asked))
        self.assertLessEqual(len(found.text), LENGTH + 4)
        self.assertTrue(all(0 <= start < end <= len(found.text) for start, end in found.matches))
        shown = [folded(found.text[start:end]) for start, end in found.matches]
        self.assertTrue(any(folded(word) in hit for hit in shown), (found, shown))


class FoundTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha"))

    def test_every_form_finds_every_form(self):
        written = {}
        for word, form in product(WORDS, FORMS):
            text = unicodedata.normalize(form, word)
            command = MemoryWrite(title=f"{form} of {word!a}", content=f"It says {text} here.")
            written[word, form] = services.write_memory(command=command).id
        for word, form in product(WORDS, FORMS):
            question = MemorySearch(query=unicodedata.normalize(form, word), limit=30)
            found = {hit["id"] for hit in selectors.search(command=question).results}
            self.assertLessEqual({written[word, item] for item in FORMS}, found, word)


class UpgradeTests(MessagesTestCase):
    def test_an_index_in_an_old_form_is_rebuilt_when_the_store_is_opened(self):
        kept = services.write_memory(command=MemoryWrite(title="Plan", content="We ｄｅｐｌｏｙ at noon.")).id
        text_index.remove(kept)
        rows.execute("UPDATE store_meta SET value = '1' WHERE key IN ('search_form', 'fingerprint')")
        store = current_store()
        forget(store)
        with use_store(store):
            self.assertEqual(self.found("deploy"), [kept])
            self.assertEqual(rows.fetch("SELECT value FROM store_meta WHERE key = 'search_form'"), [("3",)])
            self.assertTrue(log.rebuild().identical)
            self.assertEqual(self.found("deploy"), [kept])
