from __future__ import annotations

import os
import random
import subprocess
import sys
import unicodedata
from datetime import datetime
from itertools import product
from typing import Literal

from django.test import SimpleTestCase, tag
from hypothesis import example, given
from hypothesis import strategies as st

from memories import selectors
from memories.schemas import MemorySearch
from memories.search.folding import folded, folded_with_places
from memories.search.index import text_row
from memories.search.shaping import date_words, shaped
from memories.search.snippets import LENGTH, excerpt
from memories.search.text import forms_of, match_any, phrases, terms
from memories.search.text_index import text_index
from memories.search.words import words_in
from memoryhub.core import clock
from memoryhub.core.search.searchable import Document
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import current_store, forget, use_store
from tests.memories.base import MemoriesTestCase
from tests.memories.test_search import MessagesTestCase


class QuestionTests(SimpleTestCase):
    def test_a_question_is_cut_into_terms_without_stop_words(self):
        for question, expected in (
            ("getUserName", "getusername get user name"),
            ("HTTPServer", "httpserver http server"),
            (
                "TypeError: 'NoneType' object is not subscriptable",
                "typeerror type error nonetype none object subscriptable",
            ),
            ("¿Cuándo es la reunión de los arquitectos?", "reunión arquitectos"),
            ("donde esta el fichero", "fichero"),
            ("on 2023-05-08", "8 may 2023"),
            ("数据库连接", "数据 据库 库连 连接"),
            ("what's Ada's plan, we'll see", "ada plan see"),
        ):
            with self.subTest(question):
                self.assertEqual(terms(question), expected.split())
        self.assertEqual(match_any(terms("库")), '"库"* OR "庫"*')

    def test_names_of_several_parts_are_also_searched_as_a_whole(self):
        question = "os.path.join fails in src/core/stores.py:42 for snake_case, not write-ahead"
        self.assertEqual(phrases(question), ["os path join", "src core stores py 42", "snake case", "write ahead"])
        self.assertEqual(match_any(["os path", "load"]), '"os path" OR "load"')


class ShapeTests(SimpleTestCase):
    def test_parts_of_names_and_pairs_of_characters_are_added_and_plain_text_stays(self):
        self.assertEqual(shaped("call getUserName now"), "call getUserName now\nget User Name")
        self.assertEqual(shaped("snake_case stays"), "snake_case stays")
        self.assertEqual(shaped("用 数据库 ok").split(), ["用", "数据", "据库", "库", "ok"])
        self.assertEqual(shaped("aB" * 50_000), "aB" * 50_000 + "\n", "a long run of letters is no name")

    def test_repeated_titles_and_dates_of_empty_texts_are_not_indexed(self):
        moment = datetime(2023, 5, 8, tzinfo=clock.now().tzinfo)
        self.assertEqual(date_words(moment), "8 May 2023")
        repeated = text_row(Document(1, "message", "Hello", "Hello\nthere", moment))
        empty = text_row(Document(2, "session", "session x", "", moment))
        self.assertEqual(repeated[1:], ("", "Hello\nthere", "", "8 May 2023"))
        self.assertEqual(empty[1:], ("session x", "", "", ""))


@tag("backend")
class ScriptsTests(MemoriesTestCase):
    def test_a_text_in_any_script_is_found_by_a_part_of_it(self):
        code = "def get_user_name(self): return self.userStore.loadByKey(self.key)"
        error = "TypeError: 'NoneType' object is not subscriptable in memoryhub/core/stores/store.py:42"
        entries = (
            ("我们把数据库连接放进池里。", ["数据库", "池"]),
            ("設定ファイルは起動時に読み込まれます。", ["設定ファイル"]),
            ("검색 색인은 매일 다시 만들어집니다.", ["색인"]),
            ("La reunión de los arquitectos fue el viernes.", ["¿cuándo fue la reunion?"]),
            (code, ["load user store", "getUserName", "userStore.loadByKey"]),
            (error, ["core/stores.py:42", "NoneType"]),
        )
        self.write_all({text: text for text, _ in entries})
        for text, questions in entries:
            for question in questions:
                with self.subTest(question):
                    self.assertEqual(self.titles(question)[0], text)


class LanguagesTests(MemoriesTestCase):
    @tag("backend")
    def test_other_forms_of_words_are_found_marked_and_named(self):
        german = "Die Schlüssel liegen in der Tabelle der Bestellungen."
        commit = "The build broke with 3f2a9c81d4e07b65f1a2c3d4e5f60718293a4b5c."
        entries = (
            ("wo liegt der Schluessel?", german, ["Schlüssel"]),
            ("welche Bestelltabelle", german, ["Tabelle", "Bestellungen"]),
            ("Bestelltabelle", german, ["Tabelle", "Bestellungen"]),
            (
                "¿cuándo caduca una conexión?",
                "Las conexiones caducan a los quince minutos.",
                ["conexiones", "caducan"],
            ),
            ("где хранится копия", "Резервные копии хранятся тридцать дней.", ["копии", "хранятся"]),
            ("備份", "备份保存在数据库里。", ["备份"]),
            ("邮件", "郵件經過佇列發送。", ["郵件"]),
            ("3f2a9c8", commit, ["3f2a9c81d4e07b65f1a2c3d4e5f60718293a4b5c"]),
            ("9b1deb4d3b7d4bad9bdd2b0d7b3dcb6d1f2e3a4b", "Rolled back to 9b1deb4.", ["9b1deb4"]),
            ("what runs at 30 6 * * 1", "The report runs at 30 6 * * 1 on the old host.", ["runs", "30 6 * * 1"]),
            ("* * * * *", "The entry is * * * * * and stays.", ["* * * * *"]),
            ("💥", "Breaking changes carry 💥.", ["💥"]),
        )
        self.write("english", "Classes value the queue; das modal dialog of die cast parts.")
        self.write_all({f"Entry {len(text)}": text for _, text, _ in entries})
        for question, text, marked in entries:
            with self.subTest(question):
                hit = self.search(question).results[0]
                self.assertEqual(self.get(hit["id"])["content"], text)
                self.assertEqual([hit["snippet"][start:end] for start, end in hit["matches"]], marked)
                self.assertNotIn("words near it", hit["why"])

    def test_questions_in_english_have_no_other_forms(self):
        questions = "why does the queue die|das modal|naïve classes in the cache|no car|an index|comment syntax|dies"
        for question in questions.split("|"):
            self.assertEqual([form for word in terms(question) for form in forms_of(word)], [], question)

    def test_the_libraries_are_imported_only_by_the_questions_that_need_them(self):
        code = (
            "import sys, django; django.setup(); from memories.search.parsed_query import parse; "
            "parse('why was the cache 3f2a9c8 replaced 💥?'); print({'Stemmer', 'opencc'} & {*sys.modules})"
        )
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "memoryhub.settings_store"}
        shown = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
        self.assertEqual(shown.strip(), "set()")


SIGNS = [*"\"*-()^:{}+'\\%_\x00", "NEAR(", " AND ", " OR ", " NOT "]
PLAIN = (
    "coffee machine retries uploads lantern getUserName os.path.join 2023-05-08 数据库 réunion 🙂 title: near near: in"
)


class ArbitraryQueryTests(MemoriesTestCase):
    def query(self, source: random.Random) -> str:
        parts = []
        for _ in range(source.randrange(1, 9)):
            noise = "".join(chr(source.randrange(1, 0xD800)) for _ in range(source.randrange(1, 6)))
            rare = chr(source.randrange(0x10000, 0x30000))
            words = (source.choice(SIGNS), source.choice(PLAIN.split(" ")), noise, rare)
            parts.append(source.choice((*words, "betaish", "deletedish", "erasedish")))
        return source.choice(("", " ")).join(parts)[:2000]

    def test_no_query_raises_or_returns_deleted_or_foreign_memories(self):
        with self.store("beta", actor="ben"):
            self.write("betaish", f"betaish {PLAIN}")
        kept = set(self.write_all({f"Kept {word}": f"{word} {PLAIN}" for word in PLAIN.split()}))
        self.delete(self.write("deletedish", f"deletedish {PLAIN}"))
        self.erase(self.write("erasedish", f"erasedish {PLAIN}"))
        source = random.Random(6)
        for number in range(int(os.environ.get("MEMORY_HUB_TEST_QUERIES", "300"))):
            query = self.query(source)
            mode = "basic" if number % 10 == 0 else "auto"
            with self.subTest(query):
                hits = selectors.search(command=MemorySearch(query=query, limit=100), mode=mode).results
                self.assertLessEqual({hit["id"] for hit in hits}, kept)
                self.assertFalse([hit for hit in hits if "ish" in hit["snippet"] + hit["title"]])


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
    def test_words_are_marked_as_they_are_written_in_whatever_form(self):
        forms = unicodedata.normalize("NFD", "Her résumé, ") + "ｄｅｐｌｏｙ by ﬁnance … ｶﾞｲﾄﾞ。"
        long = "filler words " * 100 + "the coffee machine is here " + "more filler " * 100
        decomposed = unicodedata.normalize("NFD", "é" * 300 + " " + "mañana ïs … " * 60 + "the résumé is here")
        machines = "The machines were descaled; logging in to the catalogue is another matter."
        resume = unicodedata.normalize("NFD", "résumé")
        for text, question, marked in (
            (machines, "descaling a machine", ["machines", "descaled"]),
            (machines, "log", ["logging"]),
            ("see getUserName()", "user", ["User"]),
            ("la reunión fue ayer", "reunion", ["reunión"]),
            ("我们的数据库连接", "数据库", ["数据库"]),
            (long, "coffee machine", ["coffee", "machine"]),
            (forms, "résumé", [resume]),
            (forms, "deploy FINANCE", ["ｄｅｐｌｏｙ", "ﬁnance"]),
            (forms, "ガイド", ["ｶﾞｲﾄﾞ"]),
            (decomposed, "résumé", [resume]),
        ):
            with self.subTest(question, text=text):
                cut = excerpt(text, terms(question))
                self.assertEqual([cut.text[start:end] for start, end in cut.matches], marked)
        self.assertEqual(words_in("A catalogue of logs", ["log", "cat", "dog"]), ["log", "cat"])
        self.assertEqual(words_in(forms, terms("finance résumé ガイド")), terms("finance résumé ガイド"))

    @given(texts, texts, st.sampled_from(WORDS), st.sampled_from(list(product(FORMS, FORMS))))
    def test_marks_are_within_what_is_shown_and_hold_the_word(
        self, before: str, after: str, word: str, forms: tuple[Form, Form]
    ):
        written, asked = (unicodedata.normalize(form, word) for form in forms)
        cut = excerpt(f"{before} {written} {after}", terms(asked))
        self.assertLessEqual(len(cut.text), LENGTH + 4)
        self.assertTrue(all(0 <= start < end <= len(cut.text) for start, end in cut.matches))
        marked = [folded(cut.text[start:end]) for start, end in cut.matches]
        self.assertTrue(any(folded(word) in hit for hit in marked), (cut, marked))


@tag("backend")
class FoundTests(MemoriesTestCase):
    def test_every_form_finds_every_form(self):
        written = {}
        for word, form in product(WORDS, FORMS):
            content = f"It says {unicodedata.normalize(form, word)} here."
            written[word, form] = self.write(f"{form} of {word!a}", content)
        for word, form in product(WORDS, FORMS):
            hits = self.hits(unicodedata.normalize(form, word), limit=30)
            self.assertLessEqual({written[word, item] for item in FORMS}, {*hits}, word)


@tag("backend")
class UpgradeTests(MessagesTestCase):
    def test_an_index_in_an_old_form_is_rebuilt_when_the_store_is_opened(self):
        kept = self.write("Plan", "We ｄｅｐｌｏｙ at noon.")
        text_index.remove(kept)
        rows.execute("UPDATE store_meta SET value = '1' WHERE key IN ('search_form', 'fingerprint')")
        store = current_store()
        forget(store)
        with use_store(store):
            self.assertEqual(self.found("deploy"), [kept])
            self.assertEqual(rows.fetch("SELECT value FROM store_meta WHERE key = 'search_form'"), [("3",)])
            self.assert_rebuilds()
            self.assertEqual(self.found("deploy"), [kept])
