"""The evaluation of search and of secrets: what it asks, that the answers are not in the stores, and its figures."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock
from xml.etree import ElementTree

from django.core.management import CommandError, call_command
from django.test import SimpleTestCase

from benchmarks.quality.command import Command
from benchmarks.quality.questions import Question
from benchmarks.quality.recall import DEFAULT
from benchmarks.quality.run import evaluate
from benchmarks.quality.scores import interval, means, score
from benchmarks.quality.secrets import clean_texts, rivals, run
from benchmarks.quality.secrets.adversarial import SIZE, adversarial_texts
from benchmarks.quality.secrets.clean_texts import CleanTexts
from benchmarks.quality.secrets.measures import is_gone, mistakes_of, recall_of
from benchmarks.quality.secrets.rivals import Rival
from benchmarks.quality.secrets.samples import Sample, bare_tokens, escaped
from benchmarks.quality.stages import references, stages
from benchmarks.quality.stores import write_collection, write_set
from benchmarks.sets.chats import locomo
from benchmarks.sets.functions import Function, choose, documented, functions, standard_library
from benchmarks.sets.model import Collection, SetDocument
from benchmarks.sets.notes import beir, languages
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.errors import Invalid
from memoryhub.core.models import RawEvent
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import project_store, use_store
from sessions_app.events.client import MAX_TEXT
from tests.core.test_sanitize import BODY, TOKENS
from tests.support import HubTestCase

SAMPLE: dict[str, Any] = {
    "conversation": {
        "speaker_a": "Ada",
        "speaker_b": "Ben",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {"speaker": "Ada", "dia_id": "D1:1", "text": "I adopted a heron.", "blip_caption": "a grey bird"},
            {"speaker": "Ben", "dia_id": "D1:2", "text": "What do you call it?"},
        ],
        "session_2_date_time": "10:00 am on 1 June, 2023",
        "session_2": [{"speaker": "Ada", "dia_id": "D2:1", "text": "The heron flew off to the lake."}],
    },
    "qa": [
        {"question": "What did Ada adopt?", "answer": "zebra", "evidence": ["D1:1"], "category": 4},
        {"question": "When did the heron fly off?", "answer": "June", "evidence": ["D2:1"], "category": 2},
        {"question": "Unanswerable?", "evidence": ["D1:1"], "category": 5},
        {"question": "Of nothing that is there?", "evidence": ["D9:9"], "category": 1},
    ],
}


class ConversationTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.path = self.home / "conversations.json"
        self.path.write_text(json.dumps([SAMPLE]))

    def test_turns_are_messages_at_their_dates_without_anything_of_the_answers(self):
        asked = write_set(locomo(self.path))
        self.assertEqual((asked.documents, len(asked.questions)), (3, 2))
        first, second = asked.questions
        self.assertEqual((first.category, first.half, first.sessions), ("one turn", 0, {"s1"}))
        self.assertEqual((second.category, second.half, second.sessions), ("time", 1, {"s2"}))
        with use_store(project_store("conversation-1")) as store:
            event = RawEvent.objects.get(position=next(iter(first.answers)))
            rows.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            stored = path_of(store).read_bytes()
        self.assertEqual(event.occurred_at, "2023-05-08T13:56:00.000Z")
        text = "Ada: I adopted a heron. [picture: a grey bird]"
        self.assertEqual(json.loads(event.payload_json), {"content": text})
        self.assertIn(b"adopted a heron", stored)
        self.assertEqual([word for word in (b"D1:1", b"D2:1", b"zebra", b"What did Ada") if word in stored], [])

    def test_a_longer_message_than_a_store_takes_is_shortened_as_hooks_do(self):
        written = write_collection(
            Collection("long", [SetDocument("a", "heron " * 20_000, session="s", role="user")], [])
        )
        with use_store(written.store):
            content = json.loads(RawEvent.objects.get(position=written.ids["a"]).payload_json)["content"]
        self.assertLessEqual(len(content), MAX_TEXT)
        self.assertTrue(content.startswith("heron"))

    def test_every_stage_is_measured_over_all_halves_and_categories(self):
        result = evaluate(write_set(locomo(self.path)), stages())
        self.assertEqual([measured.stage.key for measured in result.stages], [stage.key for stage in stages()])
        last = result.stages[-1]
        self.assertEqual((last.all.questions, last.all.recall_10, last.all.session_5), (2, 1.0, 1.0))
        self.assertEqual([half.questions for half in last.halves], [1, 1])
        self.assertEqual(set(last.categories), {"one turn", "time"})
        self.assertEqual(result.cost.milliseconds.samples, 2)
        self.assertGreater(result.cost.tokens, 10)


class FolderTests(HubTestCase):
    def test_a_folder_in_beirs_format_is_ranked_beside_bm25_with_intervals_and_another_refused(self):
        folder = self.home / "Birds 1"
        qrels = folder / "qrels" / "test.tsv"
        qrels.parent.mkdir(parents=True)
        documents = [
            {"_id": "a", "title": "Herons", "text": "They nest near water."},
            {"_id": "b", "title": "herons", "text": "They stand still."},
            {"_id": "c", "text": "A crow builds in a tree."},
        ]
        texts = {"1": "water nests", "2": "still standing", 3: "tree"}
        questions = [{"_id": number, "text": text} for number, text in texts.items()]
        (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, documents)))
        (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, questions)))
        qrels.write_text("query-id\tcorpus-id\tscore\n1\ta\t2\n1\tb\t0\n2\tb\t1\n3\tz\t1\n")
        result = evaluate(write_set(beir(folder)), stages(), references=references())
        self.assertEqual((result.set.key, result.set.documents, len(result.set.questions)), ("birds-1", 3, 2))
        last = result.stages[-1]
        self.assertEqual((last.all.recall_10, last.all.top_3, last.all.ndcg_10), (1.0, 1.0, 1.0))
        self.assertEqual((last.recall_interval, last.gain_interval), ((1.0, 1.0), (0.0, 0.0)))
        self.assertEqual([measured.all.recall_10 for measured in result.references], [1.0] * bool(find_spec("bm25s")))
        (folder / "corpus.jsonl").write_text('{"id": "a"}')
        with self.assertRaisesMessage(Invalid, "Birds 1 cannot be read as a set in BEIR's format"):
            beir(folder)
        qrels.unlink()
        with self.assertRaisesMessage(Invalid, "has no qrels.tsv"):
            beir(folder)

    def test_questions_in_ten_languages_find_their_memory(self):
        asked = write_set(languages())
        categories = Counter(question.category for question in asked.questions)
        self.assertEqual((len(categories) - 1, min(categories.values())), (10, 16))
        for half in evaluate(asked, stages()[-1:]).stages[-1].halves:
            self.assertGreaterEqual(half.top_3, 0.95)


class FunctionTests(HubTestCase):
    def test_a_function_loses_its_docstring_and_nothing_else(self):
        source = (
            "class A:\n    def spin(self):\n        '''Turn the big wheel slowly round.\n\n        More.'''\n"
            "        return 1  # spun\n\n    def quiet(self):\n        return 2\n"
        )
        (function,) = documented(source)
        self.assertEqual(function.sentence, "Turn the big wheel slowly round.")
        self.assertEqual(function.source, "    def spin(self):\n        return 1  # spun")

    def test_the_choice_is_the_same_on_every_run_and_leaves_out_what_is_not_unique(self):
        library = [Function(f"f{number}", f"source {number}", f"sentence {number // 2 * 2}") for number in range(4)]
        library += [Function(f"g{number}", f"body {number}", f"asks {number}") for number in range(50)]
        sample = choose(library, 20)
        self.assertEqual(sample, choose(library, 20))
        self.assertTrue(all(function.name.startswith("g") for function in sample))

    def test_functions_of_the_standard_library_are_memories_that_answer_questions_they_do_not_hold(self):
        library = list(standard_library())
        sample = choose(library, 1_500)
        self.assertEqual(len(sample), 1_500)
        self.assertFalse([function for function in sample if function.sentence in function.source])
        with mock.patch("benchmarks.sets.functions.standard_library", return_value=library):  # read once
            asked = write_set(functions(20))
        with use_store(project_store("functions")):
            titles = dict(rows.fetch("SELECT id, title FROM memories_memory"))
        self.assertEqual({answer for question in asked.questions for answer in question.answers}, set(titles))


class ScoreTests(SimpleTestCase):
    def test_intervals_are_over_groups(self):
        asked = [Question(project_store("alpha"), "?", frozenset({1}), "x", 0, group=f"g{n // 10}") for n in range(40)]
        alike = [score(question, [(1, "")] if question.group in {"g0", "g1"} else []) for question in asked]
        self.assertEqual(interval(alike, lambda index: alike[index].recall_10), (0.0, 1.0))
        alone = [score(replace(scored.question, group=""), [(1, "")] * (scored.recall_10 > 0)) for scored in alike]
        low, high = interval(alone, lambda index: alone[index].recall_10)
        self.assertTrue(0.3 < low < 0.5 < high < 0.7)

    def test_recall_rank_and_sessions_are_those_of_the_first_hits(self):
        question = Question(project_store("alpha"), "?", frozenset({7, 8}), "x", 0, frozenset({"s9"}))
        scored = score(question, [(number, f"s{number}") for number in (1, 2, 7, 3, 4, 8, 9)])
        self.assertEqual((scored.recall_5, scored.recall_10), (0.5, 1.0))
        self.assertEqual((scored.reciprocal_rank, scored.session_5), (1 / 3, 0.0))
        self.assertEqual(means([scored, score(question, [])]).recall_10, 0.5)
        with self.assertRaisesMessage(ValueError, "there are no scores"):
            means([])


class CommandTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.output, self.json = StringIO(), self.folder / "e.json"

    def run_quality(self, samples: list[Any], **options: Any) -> Any:
        (self.folder / "data.json").write_text(json.dumps(samples))
        call_command(Command(), json=self.json, stdout=self.output, **options)
        return json.loads(self.json.read_text())

    def test_it_prints_tables_and_writes_json_and_a_drawing(self):
        self.enterContext(mock.patch.dict("os.environ", MEMORY_HUB_EVALUATION_DATA=str(self.folder / "data.json")))
        options = {"only": ("conversations", "functions"), "functions": 10, "svg": self.folder / "e.svg"}
        turns, library = self.run_quality([SAMPLE], **options)["sets"]
        self.assertIn("LoCoMo, turns: 3 documents, 2 questions", self.output.getvalue())
        self.assertIn("standard library, functions: 10 documents", self.output.getvalue())
        self.assertEqual([turns["key"], library["key"]], ["conversations", "functions"])
        last = turns["stages"][-1]
        self.assertEqual((last["key"], last["all"]["recall_10"]), ("meaning", 1.0))
        self.assertEqual(library["targets"], {"recall_10": {"floor": 0.76, "goal": 0.82}})
        drawing = ElementTree.fromstring((self.folder / "e.svg").read_text())
        self.assertEqual(len(drawing.findall(".//{*}rect")), 4 * len(stages(meaning=True)))
        self.assertFalse(any(self.home.glob("projects/*")))

    def test_it_measures_what_prompts_are_given(self):
        other = {"speaker_a": "Cleo", "speaker_b": "Dan", "session_1_date_time": "1:56 pm on 8 May, 2023"}
        texts = ("My bakery sells rye bread.", "Which flour is in it?")
        speech = [{"speaker": "Cleo", "dia_id": f"D1:{place}", "text": text} for place, text in enumerate(texts, 1)]
        asked = [{"question": "Which bread does the bakery sell?", "evidence": ["D1:1"], "category": 4}]
        samples = [SAMPLE, {"conversation": {**other, "session_1": speech}, "qa": asked * 2}]
        figures = self.run_quality(samples, data=self.folder / "data.json", recall=True, words_alone=True)
        usual = {figure["nature"]: figure for figure in figures if figure["threshold"] == DEFAULT}
        own, other = usual["checked on: own conversation"], usual["checked on: another"]
        self.assertEqual((own["prompts"], own["correct"], own["anything"]), (2, 1.0, 1.0))
        self.assertEqual((other["prompts"], other["correct"]), (2, 1.0))
        self.assertIn(f"{DEFAULT:.2f} (default)", self.output.getvalue())

    def test_it_measures_what_prompts_of_a_set_are_given(self):
        entries = [
            {
                "key": "flour",
                "title": "Bread",
                "content": "The bakery sells rye bread.",
                "kind": "knowledge",
                "type": "",
            },
            {"key": "oven", "title": "Oven", "content": "The oven is cold.", "kind": "guideline", "type": ""},
        ]
        prompts = [
            {"text": "Which rye bread does the bakery sell?", "right": ["flour"], "nature": "question"},
            {"text": "The locomotive won't start", "right": [], "nature": "unrelated"},
        ]
        data = {"project": "bakery", "nature": "short", "entries": entries, "prompts": prompts}
        (self.folder / "sets").mkdir()
        (self.folder / "sets" / "bakery.json").write_text(json.dumps(data))
        figures = self.run_quality([], set=[self.folder / "sets"], recall=True, words_alone=True)
        usual = {figure["nature"]: figure["correct"] for figure in figures if figure["threshold"] == DEFAULT}
        self.assertEqual(usual, dict.fromkeys(("short: question", "short: all of these", "short: unrelated"), 1.0))

    def test_beliefs_of_a_benchmark_are_scored_as_it_scores_them(self):
        usual = {"user_id": "test-user", "scope": ["code"], "aliases": [], "why_it_matters": "", "pinned": False}
        usual |= {"resolved_at": None, "superseded_by": None, "type": "entity"}
        texts = {"rye": "The bakery sells rye bread.", "cold": "The oven is cold.", "pin": "Say please."}
        beliefs = [usual | {"_id": name, "canonical_name": name, "content": text} for name, text in texts.items()]
        beliefs[2]["pinned"] = True
        expected = {"rye": ["rye"], "none": [], "cold": ["cold"]}
        cases = [
            {"caseId": name, "category": "", "scope": ["code"], "query": "Which rye bread does the bakery sell?"}
            | {"expect": {"relevantBeliefs": {"shouldOnlyInclude": only}, "pinnedFacts": {"mustInclude": ["pin"]}}}
            for name, only in expected.items()
        ]
        (self.folder / "fixtures").mkdir()
        (self.folder / "fixtures" / "beliefs.seed.json").write_text(json.dumps(beliefs))
        (self.folder / "fixtures" / "retrieval.cases.json").write_text(json.dumps(cases))
        (scores,) = self.run_quality([], set=[self.folder], recall=True, words_alone=True)
        self.assertEqual((scores["passed"], scores["active"], list(scores["failed"])), (1, 1, ["none", "cold"]))
        self.assertEqual((round(scores["precision"], 2), scores["recall"]), (0.33, 0.5))

    def test_a_file_that_is_missing_or_no_data_is_refused(self):
        for options, message in (
            ({"recall": True}, "give LoCoMo's JSON"),
            ({"recall": True, "set": [self.folder]}, "has no sets of prompts"),
            ({"data": Path("nowhere.json")}, r"nowhere\.json is no file; give LoCoMo's JSON"),
            ({"secrets": Path("nowhere.gz")}, "holds no labelled texts"),
        ):
            with self.subTest(message), self.assertRaisesRegex(CommandError, message):
                call_command(Command(), stdout=StringIO(), **options)

    def test_it_prints_figures_of_secrets_beside_goals_and_writes_json(self):
        texts = {f"key {TOKEN}": TOKEN, "plain words": None, "x hidden": "hidden"}
        samples = [
            {"text": text, "secret": secret, "type": "npm", "source": "made" if secret else "made-clean"}
            for text, secret in texts.items()
        ]
        path = self.folder / "s.jsonl.gz"
        path.write_bytes(gzip.compress("\n".join(map(json.dumps, samples)).encode()))
        clean = [CleanTexts("words", {"a": "nothing to see " * 40})]
        self.enterContext(mock.patch.object(run, "clean_texts", return_value=clean))
        self.enterContext(mock.patch.object(run, "adversarial_texts", return_value={"x": "x" * 100}))
        data = self.run_quality([], secrets=path)
        self.assertIn("Secrets: 3 labelled texts", self.output.getvalue())
        self.assertIn("secrets found", self.output.getvalue())
        self.assertEqual([goal["verdict"] for goal in data["goals"]][:4], ["MISSED", "goal", "goal", "goal"])
        self.assertEqual(data["rivals"][0]["by_source"]["made"], {"found": 1, "all": 2})


TOKEN = TOKENS["npm-token"]


class SecretMeasureTests(SimpleTestCase):
    def test_recall_counts_by_source_and_type_and_flags_and_mistakes_by_kind_of_text(self):
        secret = Sample("say abcdef twice: abcdef", "abcdef", "", "")
        self.assertTrue(is_gone(secret, [(4, 10), (19, 23)]))
        self.assertFalse(is_gone(secret, [(4, 10)]))
        rival = Rival("x", "X", lambda text: [(0, 3)] if text.startswith("abc") else [])
        samples = [Sample("abc", "abc", "t", "s"), Sample("xabc", "abc", "t", "s"), Sample("abc", None, "t", "c")]
        recall = recall_of(rival, samples)
        shares = (recall.by_source["s"].share, recall.by_type["t"].all, recall.flagged["c"].share)
        self.assertEqual(shares, (0.5, 2, 1.0))
        (mistakes,) = mistakes_of(rival, [CleanTexts("k", {"a": "abc", "b": "no", "c": "abc"})])
        self.assertEqual((mistakes.findings, mistakes.files), (2, 3))

    def test_tokens_are_put_bare_into_prose_and_escaped_as_json_does(self):
        samples = [Sample("x", TOKEN, "", ""), Sample("x", "no prefix", "", ""), Sample('a "q" b', '"q"', "", "")]
        self.assertEqual([sample.secret for sample in bare_tokens(samples)], [TOKEN])
        self.assertIn('\\"q\\"', escaped(samples[2]).text)
        self.assertEqual(escaped(samples[2]).secret, '\\"q\\"')

    def test_texts_are_clean_of_several_kinds_or_slow_and_a_megabyte_each(self):
        kinds = clean_texts.clean_texts(20_000)
        self.assertGreaterEqual(len(kinds), 4)
        self.assertTrue(all(0 < kind.megabytes < 0.1 for kind in kinds))
        self.assertTrue(all(SIZE - 10 <= len(text) <= SIZE for text in adversarial_texts().values()))

    def test_rules_of_rivals_run_as_they_are_and_only_where_they_are_installed(self):
        self.assertEqual(len(rivals._naive_rules()), 221)
        self.assertEqual(rivals._gitleaks(f"key ghp_{BODY[:36]} "), [(4, 44)])
        self.assertEqual(rivals._for_python(r"a(b(?i)c[)]d)e\z"), r"a(b(?i:c[)]d))e\Z")
        self.assertEqual(rivals._for_python("(?i)a"), "(?i)a")
        self.assertEqual(rivals._own("é password=hunter2x9"), [(11, 20)])
        with mock.patch.object(rivals, "has_detect_secrets", return_value=False):
            self.assertNotIn("detect-secrets", [rival.key for rival in rivals.rivals()])
