"""The full-text index in PostgreSQL gives FTS5's answers."""

from __future__ import annotations

import random
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any, ClassVar
from unittest import TestCase, mock

from django.test import tag
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memories import services
from memories.schemas import MemorySearch, MemoryWrite
from memories.search import fts5, posting_lists, posting_merge, postings
from memories.search.index import forget_removed, index_problem
from memories.search.text import term
from memories.search.unicode61 import tokens
from memories.selectors import search
from memoryhub.core import log
from memoryhub.core.errors import Locked
from memoryhub.core.log.rebuilding import compare, compare_sample
from memoryhub.core.stores import rows
from tests import postgresql
from tests.databases import postgresql_only
from tests.programs import needs
from tests.support import HubTestCase

_TOKENIZER = "porter unicode61 remove_diacritics 2"
_SUFFIXES = (
    "ational tional enci anci izer logi bli alli entli eli ousli ization ation ator alism iveness fulness ousness "
    "aliti iviti biliti ical ness icate iciti ful ative alize al ance ence er ic able ible ant "
    "ement ment ent ion ou ism ate iti ous ive ize s sses ies es ed eed ing "
    "y e ll at bl iz sion tion ss "
).split()
_WEIGHTS = (3.0, 0.3, 0.7)
_LONG = "x" * 1500
_WORDS = ("run running é Straße 日本 一 一二 日 word words a b c deadbeef1 fox Ω 12 " + f"{_LONG} {_LONG}y").split()
_FORMS = [*_WORDS, "fo*", "un*", "quux", "deadbe*", "run word", "a b", "b a c", "word fo*", "\u0301", "!"]


class TokenTests(TestCase):
    connection: ClassVar[sqlite3.Connection]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.connection = cls.enterClassContext(closing(sqlite3.connect(":memory:", isolation_level=None)))
        cls.connection.text_factory = bytes
        cls.connection.execute(f"CREATE VIRTUAL TABLE texts USING fts5(text, tokenize='{_TOKENIZER}')")
        cls.connection.execute("CREATE VIRTUAL TABLE terms USING fts5vocab(texts, instance)")

    def check(self, texts: Sequence[str]) -> None:
        """Compare the tokens of the texts with those of FTS5."""
        self.connection.execute("BEGIN")
        self.connection.executemany("INSERT INTO texts (rowid, text) VALUES (?, ?)", list(enumerate(texts)))
        words: list[dict[int, str]] = [{} for _ in texts]
        for document, offset, word in self.connection.execute("SELECT doc, offset, term FROM terms"):
            words[document][offset] = word.decode(errors="backslashreplace")
        self.connection.execute("ROLLBACK")
        for text, by_offset in zip(texts, words, strict=True):
            expected = [by_offset[offset] for offset in sorted(by_offset)]
            if tokens(text) != expected:
                self.assertEqual(tokens(text), expected, repr(text))

    def test_every_character_is_folded_or_separates_as_in_fts5(self):
        characters = [chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
        # All of them in the planes that have letters, samples of the others
        sample = characters[:0x20000] + characters[0x20000::97]
        for start in range(0, len(sample), 20_000):
            self.check([f"{each}ae{each}ed y{each}" for each in sample[start : start + 20_000]])

    def test_stems_are_those_of_fts5(self):
        source = random.Random(1)
        words = []
        for _ in range(40_000):
            stem = "".join(source.choices("aeiouybcdlstzwxé", k=source.randint(0, 6)))
            words.append(stem + "".join(source.choices(_SUFFIXES, k=source.randint(0, 3))))
        self.check(words)
        self.check([f"{'x' * length}ing" for length in (1, 60, 61, 62, 900)] + ["é" * 31 + "ed", "é" * 32 + "s"])

    @given(st.text())
    @settings(max_examples=300, deadline=None)
    def test_any_text_has_the_tokens_of_fts5(self, text: str):
        self.check([text.replace("\0", " ")])

    def test_words_that_are_too_long_for_an_index_keep_their_differences(self):
        (first,), (second,) = tokens(_LONG), tokens(_LONG + "y")
        self.assertNotEqual(first, second)
        self.assertLess(len(first.encode()), 2000)


# What ``memoryhub.core.stores.rows`` does in a store
class Rows:
    def __init__(self, connection: Any, mark: str) -> None:
        self._connection = connection
        self._mark = mark

    def fetch(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._run(sql, parameters).fetchall()  # type: ignore[no-any-return]

    def column(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        return [value for (value,) in self.fetch(sql, parameters)]

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        self._run(sql, parameters)

    def put(self, _table: str, sql: str, row: Sequence[Any]) -> None:
        self._run(sql, row)

    def require_transaction(self) -> None:
        pass

    def fetch_together(self, queries: Sequence[rows.Query]) -> rows.Answers:
        return [self.fetch(*query) for query in queries]

    def finish(self, steps: rows.Steps[Any]) -> Any:
        with mock.patch.object(rows, "fetch_together", self.fetch_together):
            return rows.finish(steps)

    def _run(self, sql: str, parameters: Sequence[Any]) -> Any:
        return self._connection.execute(sql.replace("%s", self._mark), list(parameters) or ())


@needs("postgresql")
class AnswerTests(TestCase):
    cluster: ClassVar[postgresql.Cluster]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.cluster = cls.enterClassContext(postgresql.Cluster(durable=False))

    @contextmanager
    def indexes(self) -> Iterator[tuple[Rows, Rows]]:
        import psycopg

        with ExitStack() as stack:
            lite = stack.enter_context(closing(sqlite3.connect(":memory:", isolation_level=None)))
            connection = psycopg.connect(self.cluster.url(), autocommit=True, cursor_factory=psycopg.ClientCursor)
            server = stack.enter_context(closing(connection))
            server.execute("CREATE TEMPORARY TABLE first_temporary_table (id bigint)")
            server.execute("SET search_path TO pg_temp")
            theirs, ours = Rows(lite, "?"), Rows(server, "%s")
            stack.enter_context(mock.patch.object(fts5, "rows", theirs))
            for module in (posting_lists, posting_merge, postings):
                stack.enter_context(mock.patch.object(module, "rows", ours))
            stack.enter_context(mock.patch.object(rows, "fetch_together", ours.fetch_together))
            theirs.execute(fts5.CREATE)
            for statement in postings.CREATE:
                ours.execute(statement)
            for each in (theirs, ours):
                each.execute("CREATE TABLE memories_searchdocument (id bigint PRIMARY KEY, source text, kind text)")
            yield theirs, ours

    def fill(self, source: random.Random, theirs: Rows, ours: Rows, changes: int) -> list[int]:
        """Put, replace and remove documents in both; return the ids of those that are left."""
        left: list[int] = []
        newest = 0
        for _ in range(changes):
            match source.choices(["new", "replace", "remove", "again", "optimize"], [60, 20, 10, 5, 5])[0]:
                case "replace" | "remove" | "again" as change if left:
                    document = source.choice(left)
                    if change != "replace":
                        self.both(lambda index, document=document: index.remove(document))
                    if change == "remove":
                        left.remove(document)
                    else:
                        self.put(source, document, is_new=False)
                case "optimize":
                    self.both(lambda index: index.optimize())
                case _:
                    newest += source.randint(1, 4) if source.random() < 0.95 else 70_000
                    left.append(newest)
                    self.put(source, newest, is_new=True)
                    kind = source.choice("xy")
                    for each in (theirs, ours):
                        each.execute("INSERT INTO memories_searchdocument VALUES (%s, '', %s)", [newest, kind])
        return left

    def put(self, source: random.Random, document: int, *, is_new: bool) -> None:
        lengths = (3, source.choice([8, 8, 8, 300]), 6, 2)
        texts = [" ".join(source.choices(_WORDS, k=source.randint(0, length))) for length in lengths]
        self.both(lambda index: index.put((document, *texts), is_new=is_new))

    def both(self, change: Any) -> None:
        for index in (fts5, postings):
            change(index)

    def same(self, ask: Any) -> None:
        self.assertEqual(ask(postings), ask(fts5))

    def words(self, source: random.Random, most: int) -> list[str]:
        chosen = source.choices(_FORMS, k=source.randint(1, most))
        return [term(word, source.choices(_FORMS, k=2)) if source.random() < 0.3 else word for word in chosen]

    def compare(self, source: random.Random, theirs: Rows, ours: Rows, documents: list[int]) -> None:
        required = self.words(source, 5)
        words = required if source.random() < 0.5 else [*required, *self.words(source, 3)]
        conditions, values = source.choice([([], []), (["d.kind = %s"], ["x"])])
        most = source.choice([5, 1000])
        hits, expected = (
            index.score(required, words, conditions, values, weights=_WEIGHTS, most=most) for index in (postings, fts5)
        )
        self.assertEqual([(hit, own) for hit, _, own in hits], [(hit, own) for hit, _, own in expected])
        for (_, score, _), (_, expected_score, _) in zip(hits, expected, strict=True):
            self.assertAlmostEqual(score, expected_score, delta=1e-9)
        ids = source.sample(documents, min(5, len(documents)))
        self.same(lambda index: [index.count(words[0], most=count) for count in (most, None)])
        self.same(lambda index: index.rows.finish(index.counts(words, most=20)))
        self.same(lambda index: index.matches(words, [*ids, -1]))
        self.same(lambda index: [index.existing(words), index.lacks_newest()])
        plain = [word.rstrip("*") for word in words]
        groups = [group for group in (plain[:2], plain[1:], plain[-1:]) if group]
        pairs = ((ours, postings), (theirs, fts5))
        for by_score in (True, False):
            statements = [index.with_any(groups, by_score=by_score, most=7) for _, index in pairs]
            self.assertEqual(ours.fetch(*statements[0]), theirs.fetch(*statements[1]))
        self.assertEqual(*(sorted(each.fetch(*index.shares(plain))) for each, index in pairs))

    @given(seed=st.integers(0, 1 << 32), row=st.sampled_from([3, 5, 2000]), waiting=st.sampled_from([1, 4, 1 << 30]))
    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_answers_are_those_of_fts5_after_any_changes(self, seed: int, row: int, waiting: int):
        source = random.Random(seed)
        with (
            mock.patch.object(posting_merge, "_ROW_AT_MOST", row),
            mock.patch.object(postings, "WAITING_AT_MOST", waiting),
            self.indexes() as (theirs, ours),
        ):
            left = self.fill(source, theirs, ours, 60)
            for _ in range(10):
                self.compare(source, theirs, ours, left)

    def test_long_documents_are_merged_before_they_are_many(self):
        with self.indexes() as (_, ours):
            for number in range(1, 9):
                text = " ".join(f"word{number}of{place}" for place in range(4_000))
                postings.put((number, "", text, "", ""), is_new=True)
            ((waiting,),) = ours.fetch(
                "SELECT count(*) FROM search_waiting WHERE batch = (SELECT batch FROM search_totals)"
            )
            self.assertLess(waiting, 6)

    def test_an_optimized_index_has_no_word_of_a_removed_document_and_a_renewed_one_none(self):
        with self.indexes() as (_, ours):
            postings.put((1, "", "secretword kept", "", ""), is_new=True)
            postings.put((2, "", "kept", "", ""), is_new=True)
            postings.optimize()
            postings.remove(1)
            postings.optimize()
            for table in ("search_waiting", "search_texts", "search_postings"):
                self.assertNotIn("secretword", repr(ours.fetch(f"SELECT * FROM {table}")))
            self.assertEqual(postings.count("kept", most=None), 1)
            self.assertTrue(postings.exists() and postings.has_columns())
            postings.renew()
            self.assertEqual(postings.count("kept", most=None), 0)

    def test_a_word_in_thousands_of_places_is_counted(self):
        with self.indexes() as (_, _):
            text = "many " * 70_000
            self.both(lambda index: index.put((1, "many", text, "", ""), is_new=True))
            self.both(lambda index: index.put((2, "", "few many", "", ""), is_new=True))
            for _ in range(2):
                self.same(lambda index: index.score(["many"], ["many"], [], [], weights=_WEIGHTS, most=9))
                self.same(lambda index: index.score(["many many"], ["many many"], [], [], weights=_WEIGHTS, most=9))
                postings.optimize()

    def test_documents_with_other_words_differ(self):
        with self.indexes() as (_, ours):
            for number in range(1, 8):
                postings.put((number, "title", f"word{number} of several", "", ""), is_new=True)
                ours.execute("INSERT INTO memories_searchdocument VALUES (%s, 'memory', '')", [number])
            postings.optimize()
            self.copies(ours)
            postings.put((3, "title", "word3 of many", "", ""), is_new=False)
            postings.remove(5)
            postings.put((9, "title", "word9", "", ""), is_new=True)
            with mock.patch.object(posting_merge, "rows", ours), self.names():
                self.assertEqual(postings.differing(None), [3, 5, 9])
                self.assertEqual(postings.differing([1, 3, 5]), [3, 5])
                postings.optimize()
                self.assertEqual(postings.differing(None), [3, 5, 9])

    # A second index, with the present content
    def copies(self, ours: Rows) -> None:
        for table in ("search_waiting", "search_texts", "search_postings", "search_totals", "memories_searchdocument"):
            ours.execute(f"DROP TABLE IF EXISTS live_{table}")
            ours.execute(f"CREATE TEMPORARY TABLE live_{table} AS SELECT * FROM {table}")

    @contextmanager
    def names(self) -> Iterator[None]:
        fetch = Rows.fetch

        def renamed(self: Rows, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
            return fetch(self, sql.replace("main.", "").replace("live.", "live_"), parameters)

        with mock.patch.object(Rows, "fetch", renamed):
            yield


@tag("backend")
@postgresql_only("posting lists are PostgreSQL's")
class MergeTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        with self.store():
            for number in range(3):
                self.write(f"early {number}")

    def write(self, title: str) -> None:
        services.write_memory(command=MemoryWrite(title=title, content=f"about {title}"))

    def found(self, question: str) -> list[str]:
        return [hit["title"] for hit in search(command=MemorySearch(query=question)).results]

    def test_what_is_written_while_removed_words_are_forgotten_is_found(self) -> None:
        from memoryhub.core.backends.postgresql import base

        refused: list[Locked] = []

        def other() -> None:
            try:
                with self.store():
                    self.write("zebra")
            except Locked as error:
                refused.append(error)

        def interleaved(waiting: Any) -> Any:
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            return changes(waiting)

        changes = posting_merge._changes
        with self.store():
            with (
                mock.patch.object(posting_merge, "_changes", interleaved),
                mock.patch.object(base, "BUSY_TIMEOUT_SECONDS", 0.05),
            ):
                base._preamble.cache_clear()
                forget_removed()
            base._preamble.cache_clear()
            if refused:  # it waited for the write lock
                self.write("zebra")
            self.assertEqual((self.found("zebra"), index_problem()), (["zebra"], ""))
            self.assertEqual(compare().differences, ())

    def test_a_merge_outside_a_transaction_is_refused(self) -> None:
        with self.store(), self.assertRaisesRegex(RuntimeError, "needs an open transaction"):
            postings.optimize()

    def test_a_document_without_postings_is_noticed(self) -> None:
        with self.store():
            forget_removed()
            self.assertEqual((index_problem(), compare_sample().differences), ("", ()))
            (newest,) = rows.fetch("SELECT max(id) FROM memories_memory")[0]
            for lost in (newest, 1):
                with self.subTest(lost=lost), log.transaction():
                    self.lose(lost)
            self.assertEqual(index_problem(), "the full-text index is behind; run rebuild")
            with mock.patch("memoryhub.core.log.rebuilding._sampled_positions", lambda last: [last - 1]):
                found = [each for each in compare_sample().differences if each.what == "the full-text index"]
            self.assertEqual([each.keys for each in found], [("1", str(newest))])
            log.rebuild()
            self.assertEqual((index_problem(), compare().differences), ("", ()))

    # As a merge without the write lock did
    def lose(self, document: int) -> None:
        (words,) = rows.fetch("SELECT words FROM search_texts WHERE id = %s", [document])[0]
        posting_merge._change({word: {document: None} for word in words.split()})
