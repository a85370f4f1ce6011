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
from benchmarks.quality.conversations import conversations
from benchmarks.quality.folders import folder_set, languages
from benchmarks.quality.functions import Function, choose, documented, functions, standard_library
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
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.errors import Invalid
from memoryhub.core.models import RawEvent
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import project_store, use_store
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

    def test_turns_are_messages_at_their_dates_and_questions_know_their_answers(self):
        found = conversations(self.path)
        self.assertEqual((found.documents, len(found.questions)), (3, 2))
        first, second = found.questions
        self.assertEqual((first.category, first.half, first.sessions), ("one turn", 0, {"s1"}))
        self.assertEqual((second.category, second.half, second.sessions), ("time", 1, {"s2"}))
        with use_store(project_store("conversation-1")):
            (adopted,) = first.answers
            event = RawEvent.objects.get(position=adopted)
            self.assertEqual(event.occurred_at, "2023-05-08T13:56:00.000Z")
            self.assertEqual(
                json.loads(event.payload_json), {"content": "Ada: I adopted a heron. [picture: a grey bird]"}
            )

    def test_nothing_of_the_answers_is_in_the_store(self):
        conversations(self.path)
        with use_store(project_store("conversation-1")) as store:
            rows.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            content = path_of(store).read_bytes()
        self.assertIn(b"adopted a heron", content)
        for word in (b"D1:1", b"D2:1", b"zebra", b"What did Ada"):
            self.assertNotIn(word, content)

    def test_every_stage_is_measured_over_all_halves_and_categories(self):
        result = evaluate(conversations(self.path), stages())
        self.assertEqual([found.stage.key for found in result.stages], [stage.key for stage in stages()])
        last = result.stages[-1]
        self.assertEqual((last.all.questions, last.all.recall_10, last.all.session_5), (2, 1.0, 1.0))
        self.assertEqual([half.questions for half in last.halves], [1, 1])
        self.assertEqual(set(last.categories), {"one turn", "time"})
        self.assertEqual(result.cost.milliseconds.samples, 2)
        self.assertGreater(result.cost.tokens, 10)


class FolderTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.folder = self.home / "Birds 1"
        (self.folder / "qrels").mkdir(parents=True)
        documents = [
            {"_id": "a", "title": "Herons", "text": "They nest near water."},
            {"_id": "b", "title": "herons", "text": "They stand still."},
            {"_id": "c", "text": "A crow builds in a tree."},
        ]
        (self.folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, documents)))
        (self.folder / "queries.jsonl").write_text(
            '{"_id": "1", "text": "water nests"}\n{"_id": "2", "text": "still standing"}\n{"_id": 3, "text": "tree"}'
        )
        self.qrels = self.folder / "qrels" / "test.tsv"
        self.qrels.write_text("query-id\tcorpus-id\tscore\n1\ta\t2\n1\tb\t0\n2\tb\t1\n3\tz\t1\n")

    def test_a_folder_in_beirs_format_is_ranked_beside_bm25_with_intervals(self):
        result = evaluate(folder_set(self.folder), stages(), references=references())
        self.assertEqual((result.set.key, result.set.documents, len(result.set.questions)), ("birds-1", 3, 2))
        last = result.stages[-1]
        self.assertEqual((last.all.recall_10, last.all.top_3, last.all.ndcg_10), (1.0, 1.0, 1.0))
        self.assertEqual((last.recall_interval, last.gain_interval), ((1.0, 1.0), (0.0, 0.0)))
        self.assertEqual([found.all.recall_10 for found in result.references], [1.0] * bool(find_spec("bm25s")))

    def test_a_folder_in_another_format_is_refused(self):
        (self.folder / "corpus.jsonl").write_text('{"id": "a"}')
        with self.assertRaisesMessage(Invalid, "Birds 1 cannot be read as a set in BEIR's format"):
            folder_set(self.folder)
        self.qrels.unlink()
        with self.assertRaisesMessage(Invalid, "has no qrels.tsv"):
            folder_set(self.folder)


class LanguagesTests(HubTestCase):
    def test_questions_in_ten_languages_find_their_memory(self):
        found = languages()
        categories = Counter(question.category for question in found.questions)
        self.assertEqual((len(categories) - 1, min(categories.values())), (10, 16))
        last = evaluate(found, stages()[-1:]).stages[-1]
        for half in last.halves:
            self.assertGreaterEqual(half.top_3, 0.95)


class FunctionTests(HubTestCase):
    library: list[Function]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.library = list(standard_library())

    def test_a_function_loses_its_docstring_and_nothing_else(self):
        source = (
            "class A:\n    def spin(self):\n        '''Turn the big wheel slowly round.\n\n        More.'''\n"
            "        return 1  # spun\n\n    def quiet(self):\n        return 2\n"
        )
        (found,) = documented(source)
        self.assertEqual(found.sentence, "Turn the big wheel slowly round.")
        self.assertEqual(found.source, "    def spin(self):\n        return 1  # spun")

    def test_the_choice_is_the_same_on_every_run_and_leaves_out_what_is_not_unique(self):
        found = [Function(f"f{number}", f"source {number}", f"sentence {number // 2 * 2}") for number in range(4)]
        found += [Function(f"g{number}", f"body {number}", f"asks {number}") for number in range(50)]
        chosen = choose(found, 20)
        self.assertEqual(chosen, choose(found, 20))
        self.assertTrue(all(function.name.startswith("g") for function in chosen))

    def test_the_standard_library_has_enough_of_them_and_no_document_has_its_question(self):
        chosen = choose(self.library, 1_500)
        self.assertEqual(len(chosen), 1_500)
        self.assertFalse([function for function in chosen if function.sentence in function.source])

    def test_each_is_a_memory_that_answers_its_question(self):
        with mock.patch("benchmarks.quality.functions.standard_library", return_value=self.library):  # read once
            found = functions(20)
        with use_store(project_store("functions")):
            titles = dict(rows.fetch("SELECT id, title FROM memories_memory"))
        self.assertEqual({answer for question in found.questions for answer in question.answers}, set(titles))


class ScoreTests(SimpleTestCase):
    def test_intervals_are_over_groups(self):
        asked = [Question(project_store("alpha"), "?", frozenset({1}), "x", 0, group=f"g{n // 10}") for n in range(40)]
        alike = [score(question, [(1, "")] if question.group in {"g0", "g1"} else []) for question in asked]
        self.assertEqual(interval(alike, lambda index: alike[index].recall_10), (0.0, 1.0))
        alone = [score(replace(found.question, group=""), [(1, "")] * (found.recall_10 > 0)) for found in alike]
        low, high = interval(alone, lambda index: alone[index].recall_10)
        self.assertTrue(0.3 < low < 0.5 < high < 0.7)

    def test_recall_rank_and_sessions_are_those_of_the_first_hits(self):
        question = Question(project_store("alpha"), "?", frozenset({7, 8}), "x", 0, frozenset({"s9"}))
        found = [(number, f"s{number}") for number in (1, 2, 7, 3, 4, 8, 9)]
        scored = score(question, found)
        self.assertEqual((scored.recall_5, scored.recall_10), (0.5, 1.0))
        self.assertEqual((scored.reciprocal_rank, scored.session_5), (1 / 3, 0.0))
        self.assertEqual(means([scored, score(question, [])]).recall_10, 0.5)

    def test_no_questions_have_no_means(self):
        with self.assertRaisesMessage(ValueError, "there are no scores"):
            means([])


class CommandTests(HubTestCase):
    def test_it_prints_tables_and_writes_json_and_a_drawing(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        (folder / "data.json").write_text(json.dumps([SAMPLE]))
        out = StringIO()
        with mock.patch.dict("os.environ", MEMORY_HUB_EVALUATION_DATA=str(folder / "data.json")):
            options = {"only": ("conversations", "functions"), "functions": 10}
            call_command(Command(), json=folder / "e.json", svg=folder / "e.svg", stdout=out, **options)
        self.assertIn("LoCoMo, turns: 3 documents, 2 questions", out.getvalue())
        self.assertIn("standard library, functions: 10 documents", out.getvalue())
        data = json.loads((folder / "e.json").read_text())
        self.assertEqual([set_["key"] for set_ in data["sets"]], ["conversations", "functions"])
        self.assertEqual(data["sets"][0]["stages"][-1]["key"], "meaning")
        self.assertEqual(data["sets"][1]["targets"], {"recall_10": {"floor": 0.76, "goal": 0.82}})
        self.assertEqual(data["sets"][0]["stages"][-1]["all"]["recall_10"], 1.0)
        drawing = ElementTree.fromstring((folder / "e.svg").read_text())
        self.assertEqual(len(drawing.findall(".//{*}rect")), 4 * len(stages(meaning=True)))
        self.assertFalse(any(self.home.glob("projects/*")))

    def test_it_measures_what_prompts_are_given(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        other = {"speaker_a": "Cleo", "speaker_b": "Dan", "session_1_date_time": "1:56 pm on 8 May, 2023"}
        texts = ("My bakery sells rye bread.", "Which flour is in it?")
        speech = [{"speaker": "Cleo", "dia_id": f"D1:{place}", "text": text} for place, text in enumerate(texts, 1)]
        asked = [{"question": "Which bread does the bakery sell?", "evidence": ["D1:1"], "category": 4}]
        samples = [SAMPLE, {"conversation": {**other, "session_1": speech}, "qa": asked * 2}]
        (folder / "data.json").write_text(json.dumps(samples))
        options = {"recall": True, "words_alone": True, "json": folder / "e.json"}
        out = StringIO()
        call_command(Command(), data=folder / "data.json", stdout=out, **options)
        figures = {
            (figure["half"], figure["threshold"]): figure for figure in json.loads((folder / "e.json").read_text())
        }
        found = figures["checked on", DEFAULT]
        self.assertEqual((found["prompts"], found["relevant"], found["anything"], found["nothing"]), (2, 0.5, 0.5, 1.0))
        self.assertIn(f"{DEFAULT:.2f} (default)", out.getvalue())
        with self.assertRaisesRegex(CommandError, "give LoCoMo's JSON"):
            call_command(Command(), recall=True, stdout=StringIO())

    def test_a_file_that_is_not_there_is_refused(self):
        with self.assertRaisesRegex(CommandError, r"nowhere\.json is no file; give LoCoMo's JSON"):
            call_command(Command(), data=Path("nowhere.json"), stdout=StringIO())


TOKEN = TOKENS["npm-token"]
CLEAN = [CleanTexts("words", {"a": "nothing to see " * 40})]


def sample(text: str, secret: str | None) -> dict[str, str | None]:
    return {"text": text, "secret": secret, "type": "npm", "source": "made" if secret else "made-clean"}


class MeasureTests(SimpleTestCase):
    RIVAL = Rival("x", "X", lambda text: [(0, 3)] if text.startswith("abc") else [])

    def test_a_secret_is_found_where_nothing_of_it_is_left_whole(self):
        secret = Sample("say abcdef twice: abcdef", "abcdef", "", "")
        self.assertTrue(is_gone(secret, [(4, 10), (19, 23)]))
        self.assertFalse(is_gone(secret, [(4, 10)]))

    def test_recall_counts_by_source_and_type_and_what_is_flagged_apart(self):
        found = recall_of(
            self.RIVAL, [Sample("abc", "abc", "t", "s"), Sample("xabc", "abc", "t", "s"), Sample("abc", None, "t", "c")]
        )
        self.assertEqual((found.by_source["s"].share, found.by_type["t"].all, found.flagged["c"].share), (0.5, 2, 1.0))

    def test_mistakes_are_counted_by_kind_of_text(self):
        (found,) = mistakes_of(self.RIVAL, [CleanTexts("k", {"a": "abc", "b": "no", "c": "abc"})])
        self.assertEqual((found.findings, found.files), (2, 3))

    def test_tokens_are_put_bare_into_prose_and_escaped_as_json_does(self):
        given = [Sample("x", TOKEN, "", ""), Sample("x", "no prefix", "", ""), Sample('a "q" b', '"q"', "", "")]
        self.assertEqual([sample.secret for sample in bare_tokens(given)], [TOKEN])
        self.assertIn('\\"q\\"', escaped(given[2]).text)
        self.assertEqual(escaped(given[2]).secret, '\\"q\\"')

    def test_this_machine_has_clean_texts_of_several_kinds(self):
        kinds = clean_texts.clean_texts(20_000)
        self.assertGreaterEqual(len(kinds), 4)
        self.assertTrue(all(0 < kind.megabytes < 0.1 for kind in kinds))

    def test_texts_made_to_be_slow_are_a_megabyte_each(self):
        self.assertTrue(all(SIZE - 10 <= len(text) <= SIZE for text in adversarial_texts().values()))


class RivalTests(SimpleTestCase):
    def test_the_rules_of_gitleaks_run_as_they_are_in_pythons_engine(self):
        self.assertEqual(len(rivals._naive_rules()), 221)
        self.assertEqual(rivals._gitleaks(f"key ghp_{BODY[:36]} "), [(4, 44)])

    def test_flags_in_the_middle_of_a_pattern_hold_to_the_end_of_their_group(self):
        self.assertEqual(rivals._for_python(r"a(b(?i)c[)]d)e\z"), r"a(b(?i:c[)]d))e\Z")
        self.assertEqual(rivals._for_python("(?i)a"), "(?i)a")

    def test_the_own_rules_alone_find_by_structure_and_by_name(self):
        self.assertEqual(rivals._own("é password=hunter2x9"), [(11, 20)])

    def test_detect_secrets_is_asked_only_where_it_is_installed(self):
        with mock.patch.object(rivals, "has_detect_secrets", return_value=False):
            self.assertNotIn("detect-secrets", [rival.key for rival in rivals.rivals()])


class SecretsCommandTests(SimpleTestCase):
    def test_it_prints_figures_beside_goals_and_writes_json(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        lines = [sample(f"key {TOKEN}", TOKEN), sample("plain words", None), sample("x hidden", "hidden")]
        (folder / "s.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
        out = StringIO()
        with (
            mock.patch.object(run, "clean_texts", return_value=CLEAN),
            mock.patch.object(run, "adversarial_texts", return_value={"x": "x" * 100}),
        ):
            call_command(Command(), secrets=folder / "s.jsonl.gz", json=folder / "e.json", stdout=out)
        self.assertIn("Secrets: 3 labelled texts", out.getvalue())
        self.assertIn("secrets found", out.getvalue())
        data = json.loads((folder / "e.json").read_text())
        self.assertEqual([goal["verdict"] for goal in data["goals"]][:4], ["MISSED", "goal", "goal", "goal"])
        self.assertEqual(data["rivals"][0]["by_source"]["made"], {"found": 1, "all": 2})

    def test_a_file_without_labelled_texts_is_refused(self):
        with self.assertRaisesRegex(CommandError, "holds no labelled texts"):
            call_command(Command(), secrets=Path("nowhere.gz"), stdout=StringIO())
