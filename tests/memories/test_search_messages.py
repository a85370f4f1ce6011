from __future__ import annotations

from datetime import UTC, datetime, timedelta

from memories import selectors, services
from memories.models import SearchDocument
from memories.schemas import MemorySearch, MemoryTouch, MemoryWrite
from memories.search import engine
from memories.search.index import forget_removed
from memories.search.parsed_query import parse
from memories.search.pipeline import USUAL, Pipeline
from memoryhub.core import clock, log
from memoryhub.core.models import RawEvent
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import current_store, forget, use_store
from memoryhub.core.stores.wiping import wipe_free_space
from sessions_app.schemas import SessionStart
from sessions_app.services import start_session
from sessions_app.services.turns import append_automatically, automatic_turn, close_turn
from tests import tampering
from tests.databases import sqlite_only
from tests.support import HubTestCase

BEGAN = datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
WORDS_ALONE = Pipeline(near=0, date=0, neighbours=0, session=0, speaker=0)


class MessagesTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="ada"))

    def say(self, session: str, *texts: str, began: datetime = BEGAN) -> list[int]:
        ids = []
        with clock.frozen(began):
            start_session(command=SessionStart(session_id=session))
        for index, text in enumerate(texts):
            with clock.frozen(began + timedelta(minutes=index)):
                turn = automatic_turn(session_id=session)
                event = append_automatically(turn=turn, type="message.user", payload={"content": text})
                close_turn(turn)
            ids.append(event.position)
        return ids

    def found(self, query: str, pipeline: Pipeline = USUAL) -> list[int]:
        return [hit for hit, _ in engine.rank(parse(query), pipeline=pipeline).hits]

    def matching(self, expression: str) -> set[int]:
        found = rows.fetch("SELECT rowid FROM search_fts WHERE search_fts MATCH %s", [expression])
        return {hit for (hit,) in found}


class SurroundingsTests(MessagesTestCase):
    @sqlite_only("expressions of its full-text index")
    def test_an_answer_is_found_by_the_words_of_its_question(self):
        question, answer, other = self.say(
            "s", "Which paint for the boathouse?", "The dark green one.", "Fine, thanks."
        )
        self.assertEqual(self.found("boathouse")[:2], [question, answer])
        self.assertNotIn(other, self.found("boathouse"))
        self.assertEqual(self.matching("near : boathouse"), {answer})
        self.assertEqual(self.matching("near : green"), {question, other})

    def test_neighbours_are_of_the_same_session(self):
        self.say("one", "The lantern is broken.")
        (alone,) = self.say("two", "Let us eat.", began=BEGAN + timedelta(hours=1))
        self.assertNotIn(alone, self.found("lantern"))

    def test_a_message_is_found_by_its_date_in_words_or_digits(self):
        (may,) = self.say("s5", "We painted the fence.")
        (june,) = self.say("s6", "We painted the fence.", began=BEGAN + timedelta(days=30))
        self.assertEqual(self.found("what was painted in May 2023")[0], may)
        self.assertEqual(self.found("fence painted 2023-06-07")[0], june)

    def test_the_session_that_hits_most_comes_first(self):
        (stray,) = self.say("one", "kayak", began=BEGAN)
        self.say("two", *["The kayak trip to the lake was long.", "Fog.", "We took the kayak trip with the lake crew."])
        hits = self.found("kayak trip lake crew weather")
        self.assertEqual(hits[-1], stray)
        ranked = engine.rank(parse("kayak trip lake crew weather"))
        self.assertGreater(ranked.factors[hits[0]]["session"], 1.5)
        self.assertLess(ranked.factors[stray].get("session", 1), 1.01)

    def test_messages_of_the_named_speaker_rank_first(self):
        to, by = self.say("s", "Ben: Ada, was the marathon fun?", "Ada: The marathon was fun, Ben.")
        self.assertEqual(self.found("how did Ada like the marathon")[0], by)
        self.assertEqual(self.found("how did Ben like the marathon")[0], to)

    def test_without_stages_only_own_words_count(self):
        question, _ = self.say("s", "Which paint for the boathouse?", "The dark green one.")
        ranked = engine.rank(parse("boathouse"), pipeline=WORDS_ALONE)
        self.assertEqual(ranked.hits[0][0], question)
        self.assertEqual(ranked.factors, {})

    def test_a_hit_explains_its_rank(self):
        self.say("s", "Ada: the heron nests on the roof", "Ben: herons, again?")
        best = selectors.search(command=MemorySearch(query="where do Ada's herons nest")).results[0]
        self.assertRegex(best["why"], r"^ada, herons, nest; neighbours ×\d\.\d; session ×2\.0; speaker ×2\.0$")


class MixedSourcesTests(MessagesTestCase):
    def test_messages_do_not_outrank_a_memory_on_the_subject(self):
        known = services.write_memory(
            command=MemoryWrite(title="Retry policy", content="Uploads are retried five times with growing pauses.")
        ).id
        for session in range(4):
            texts = [f"Is the retry of uploads {part} done yet? Let me see, {session}." for part in range(8)]
            self.say(f"s{session}", *texts, began=BEGAN + timedelta(days=session))
        for question in ("how often are uploads retried", "retry policy of uploads", "pauses between retries"):
            with self.subTest(question):
                self.assertEqual(self.found(question)[0], known)

    def test_the_best_message_has_the_score_it_had_without_the_stages(self):
        self.say("s", "The heron nests.", "Herons, again?", "Another heron nest.")
        plain = engine.rank(parse("heron nest"), pipeline=Pipeline(neighbours=0, session=0, speaker=0))
        usual = engine.rank(parse("heron nest"))
        self.assertAlmostEqual(usual.hits[0][1], plain.hits[0][1])
        self.assertEqual({hit for hit, _ in usual.hits}, {item for item, _ in plain.hits})


class KeepingTests(MessagesTestCase):
    def index(self) -> list[tuple[object, ...]]:
        words = "heron quicksilverish roof again may 2023".split()
        sizes = rows.fetch("SELECT id, sz FROM search_fts_docsize ORDER BY id")
        columns = [f"{column} : {word}" for word in words for column in ("body", "near", "date")]
        return [*sizes, *((item, sorted(self.matching(item))) for item in columns)]

    @sqlite_only("expressions of its full-text index")
    def test_a_rebuild_gives_the_same_rows_and_index(self):
        self.say("s", "The heron nests on the roof.", "Again?", "Yes, the heron.")
        before = self.index()
        self.assertTrue(log.rebuild().identical)
        self.assertEqual(self.index(), before)

    @sqlite_only("expressions of its full-text index")
    def test_an_erased_message_leaves_nothing_with_its_neighbours(self):
        first, second, third = self.say("s", "The heron nests.", "It is quicksilverish.", "On the roof, again.")
        self.assertEqual(self.matching("near : quicksilverish"), {first, third})
        stream = RawEvent.objects.get(position=second).stream_id
        log.erase_streams([stream], reason="asked")
        forget_removed()
        wipe_free_space()
        self.assertEqual(self.matching("quicksilverish"), set())
        self.assertEqual(self.matching("near : roof"), {first})
        self.assertEqual(self.matching("near : heron"), {third})
        self.assertEqual(tampering.places_with(current_store(), "quicksil"), [])
        before = self.index()
        self.assertTrue(log.rebuild().identical)
        self.assertEqual(self.index(), before)

    def test_past_states_do_not_contain_later_messages(self):
        first, second = self.say("s", "Which paint for the boathouse?", "The dark green one.")
        past = selectors.search(command=MemorySearch(query="green", as_of=second - 1))
        self.assertEqual(past.results, [])
        self.assertIn(first, self.found("green"))


@sqlite_only("an earlier form of its full-text index")
class UpgradeTests(MessagesTestCase):
    def test_an_older_index_is_rebuilt_when_the_store_is_opened(self):
        first, second = self.say("s", "Which paint for the boathouse?", "The dark green one.")
        kept = services.write_memory(command=MemoryWrite(title="Paint", content="Boathouse paint is in the cellar.")).id
        gone = services.write_memory(command=MemoryWrite(title="Old paint", content="Boathouse paint is lead.")).id
        services.delete_memory(command=MemoryTouch(id=gone))
        before = sorted(SearchDocument.objects.values_list())
        self.make_old()
        store = current_store()
        forget(store)
        with use_store(store):
            self.assertEqual(self.matching("near : boathouse"), {second})
            self.assertEqual(set(self.found("boathouse")), {first, second, kept})
            self.assertEqual(sorted(SearchDocument.objects.values_list()), before)
            self.assertTrue(log.rebuild().identical)

    def test_a_rebuild_of_an_open_store_renews_it_too(self):
        _, second = self.say("s", "Which paint for the boathouse?", "The dark green one.")
        self.make_old()
        log.rebuild()
        self.assertEqual(self.matching("near : boathouse"), {second})

    def make_old(self) -> None:
        rows.execute("DROP TABLE search_fts")
        rows.execute("CREATE VIRTUAL TABLE search_fts USING fts5(title, body, content='', contentless_delete=1)")
        rows.execute("UPDATE store_meta SET value = 'of an earlier version' WHERE key = 'fingerprint'")
