"""The yardstick: adapters, the readers of sets, and servers whose figures are known, as real processes."""

from __future__ import annotations

import json
import sys
import tempfile
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

from django.core.management import CommandError, call_command
from django.test import SimpleTestCase, tag

from benchmarks.sets.beliefs import belief_set
from benchmarks.sets.chats import beam, locomo, sde
from benchmarks.sets.model import Collection, EvaluationSet, SetDocument, SetQuery
from benchmarks.sets.notes import json_sets
from benchmarks.yardstick.adapters import CHECKOUT, SERVERS, ServerAdapter, read_adapter
from benchmarks.yardstick.command import Command
from benchmarks.yardstick.measures import DoorResult, Share, chosen_queries, measure_system
from benchmarks.yardstick.operations import Effort, ServerResult, measure_server
from benchmarks.yardstick.systems import KEY, AdaptedServer, LibraryBm25, answer_from
from benchmarks.yardstick.table import SetResults, YardstickResults, better_elsewhere, definitions, markdown
from memoryhub.core.errors import Invalid
from tests.benchmarks.test_quality import SAMPLE
from tests.support import HubTestCase

# Keeps texts in memory, or in a file; finds texts by any word, or gives all of them
SERVER = """
import json, pathlib, sys
path = pathlib.Path(sys.argv[1]) / "texts" if "forgets" not in sys.argv else None
texts = json.loads(path.read_text()) if path and path.exists() else []
for line in sys.stdin:
    request = json.loads(line)
    params = request.get("params") or {}
    arguments = params.get("arguments") or {}
    answer = {"serverInfo": {"name": "fake", "version": "1"}, "tools": [{"name": "store"}, {"name": "find"}]}
    if params.get("name") == "store":
        texts.append(arguments["text"])
        if path:
            path.write_text(json.dumps(texts))
        answer["content"] = [{"type": "text", "text": f"stored as <{len(texts)}>"}]
        answer["isError"] = "too long" in texts[-1]
    elif params.get("name") == "drop":
        if "drops" in sys.argv:
            texts[int(arguments["number"]) - 1] = ""
        answer["content"] = []
    elif params.get("name") == "find":
        words = set(arguments["query"].lower().split())
        hits = [text for text in texts if "all" in sys.argv or words & set(text.lower().split())]
        answer["content"] = [{"type": "text", "text": chr(10).join(hits[:arguments["most"]])}]
    if "id" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": answer}), flush=True)
"""
ADAPTER = """
name = "fake"
licence = "MIT"
install = "none"
source = "here"
settings = "None."
command = ["{python}", "{program}/server.py", "{home}"%s]
[write]
tool = "store"
arguments = { text = "{text}" }
id = 'stored as <(.+)>'
[search]
tool = "find"
arguments = { query = "{query}", most = "{limit}" }
[delete]
tool = "drop"
arguments = { number = "{id}" }
"""
ENTRIES = [
    {"key": "old", "title": "Oven", "content": "The oven listens on port 8080", "kind": "knowledge", "type": ""},
    {"key": "new", "title": "Its oven", "content": "The oven listens on port 9443", "kind": "knowledge", "type": ""},
    {"key": "rye", "title": "Rye", "content": "Rye is baked on Mondays", "kind": "knowledge", "type": ""},
]
CASES = [
    {"query": "which port has our oven", "right": ["new"], "wrong": ["old"], "harm": "superseded"},
    {"query": "Is rye baked on Mondays?", "right": ["rye"], "wrong": [], "harm": ""},
    {"query": "locomotive", "right": [], "wrong": [], "harm": "absent"},
]


class YardstickCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def write_adapter(self, *words: str, text: str = ADAPTER) -> Path:
        (self.folder / "fake").mkdir(exist_ok=True)
        (self.folder / "fake" / "server.py").write_text(SERVER)
        (self.folder / "fake.toml").write_text(text.replace("%s", "".join(f', "{word}"' for word in words)))
        return self.folder

    def server(self, *words: str) -> AdaptedServer:
        return AdaptedServer(read_adapter("fake", self.write_adapter(*words)), self.folder)

    def write_set(self) -> Path:
        data = {"project": "bakery", "nature": "toy", "entries": ENTRIES, "cases": CASES}
        folder = self.folder / "toy"
        folder.mkdir()
        (folder / "bakery.json").write_text(json.dumps(data))
        return folder


class PageTests(SimpleTestCase):
    def test_the_page_defines_every_column_as_the_report_does(self):
        self.assertIn(definitions(), (CHECKOUT / "docs" / "internals" / "yardstick.md").read_text())


class AnswerTests(SimpleTestCase):
    def test_a_warning_beside_an_entry_marks_it_but_its_text_and_fields_that_say_no_do_not(self):
        texts = {
            f"{number:05}": (f"key{number}", text) for number, text in enumerate(("a conflict", "b", "c", "d", "e"))
        }
        text = (
            "k00002 (amended by #4): c\n[k00000] a conflict\nexpired: k00004\n"
            '{"content": "[k00001] b", "superseded_by": null, "stale": false}\nd k00003, not merged k00001 k99999'
        )
        answer = answer_from(text, KEY, texts)
        self.assertEqual(answer.keys, ("key2", "key0", "key4", "key1", "key3"))
        self.assertEqual(answer.marked, {"key2", "key3", "key4"})
        self.assertEqual(answer.tokens, len(text) // 4)


class AdapterTests(YardstickCase):
    def test_each_adapter_of_the_project_can_be_read(self):
        names = [path.stem for path in SERVERS.glob("*.toml")]
        self.assertIn("memory-hub", names)
        for name in names:
            with self.subTest(name):
                self.assertIsInstance(read_adapter(name), ServerAdapter)

    def test_placeholders_become_values_of_their_type(self):
        adapter = read_adapter("fake", self.write_adapter())
        arguments = adapter.search.filled({"query": "a {limit} of {query}", "limit": 10})
        self.assertEqual(arguments, {"query": "a {limit} of {query}", "most": 10})
        command = adapter.command_in(self.folder, Path("/tmp/home"))
        self.assertEqual(command, [sys.executable, f"{self.folder.resolve()}/fake/server.py", "/tmp/home"])

    def test_a_mistake_in_an_adapter_is_one_sentence(self):
        mistakes = {
            "fake.toml: licence: Field required": ('licence = "MIT"\n', ""),
            "fake.toml: colour: Extra inputs are not permitted": ('name = "fake"', 'name = "fake"\ncolour = 1'),
            "fake.toml: write.id: needs exactly one group, around the id": ("<(.+)>", "<.+>"),
            "fake.toml: write.id: is no regular expression": ("<(.+)>", "<(.+>"),
            "fake.toml: search.arguments has no {query}, so every call": ('"{query}"', '"all"'),
            "fake.toml cannot be read as TOML": ('name = "fake"', "name ="),
        }
        for message, (before, after) in mistakes.items():
            with self.subTest(message), self.assertRaisesMessage(Invalid, message):
                read_adapter("fake", self.write_adapter(text=ADAPTER.replace(before, after)))
        with self.assertRaisesMessage(Invalid, "there is no adapter 'other'; there are: fake"):
            read_adapter("other", self.folder)


@tag("process")
class ServerTests(YardstickCase):
    def rows(self, *words: str) -> dict[str, Any]:
        (row,) = measure_system(self.server(*words), json_sets(self.write_set()), str)
        self.assertEqual(row.failure, "")
        return {name: share.value for name, share in row.shares.items()}

    def test_a_server_that_finds_words_gives_the_outdated_entry_first(self):
        figures = self.rows()
        self.assertEqual((figures["recall_5"], figures["silence"], figures["newest"]), (1.0, 1.0, 0.0))
        # "on" is in all entries, so all are given for the question about rye
        self.assertEqual((round(figures["precision"], 3), figures["harm"]), (0.417, 0.5))

    def test_a_server_that_gives_everything_is_never_silent(self):
        figures = self.rows("all")
        self.assertEqual((figures["recall_5"], figures["silence"], figures["harm"]), (1.0, 0.0, 1.0))
        self.assertAlmostEqual(figures["precision"], 1 / 3)

    def test_a_server_that_refuses_some_documents_is_measured_with_the_others(self):
        documents = [SetDocument(f"{number}", f"Loaf {number}") for number in range(19)]
        query = SetQuery("loaf", frozenset({"3"}), "", 0)
        for refused in (1, 2):
            texts = [SetDocument(f"long-{number}", "A text that is too long") for number in range(refused)]
            chosen = EvaluationSet("x", "Loaves", [Collection("x", [*documents, *texts], [query])])
            (row,) = measure_system(self.server(), chosen, str)
            with self.subTest(refused=refused):
                self.assertEqual(
                    (row.refused, "store failed" in row.failure), (1, False) if refused == 1 else (0, True)
                )
            results = YardstickResults("all", sets=[SetResults("x", "Loaves", 20, 1, [row])])
            self.assertEqual("fake (refused 1 document)" in markdown(results), refused == 1)

    def costs(self, *words: str) -> ServerResult:
        effort = Effort(writes=5, searches=3, starts=1, secrets=3, kills=2)
        return measure_server(self.server(*words), effort, str)

    def test_a_server_that_writes_a_file_loses_nothing_and_hides_no_secret(self):
        result = self.costs()
        self.assertEqual(result.failures, [])
        self.assertEqual((result.lost, result.kills), (0, 2))
        self.assertEqual((result.secrets_in_answers, result.secrets_in_files, result.secrets), (3, 3, 3))
        self.assertEqual((result.still_given, result.deletions), (5, 5))
        self.assertGreater(result.disk_bytes or 0, 100)
        self.assertEqual((result.write and result.write.samples, result.search and result.search.samples), (5, 3))

    def test_a_server_that_forgets_at_a_kill_has_lost_every_write(self):
        with mock.patch("benchmarks.yardstick.operations._PATIENCE", 0):
            result = self.costs("forgets", "drops")
        self.assertEqual((result.failures, result.lost, result.secrets_in_files), ([], 2, 0))
        self.assertEqual(result.still_given, 0)

    def test_a_server_that_does_not_start_is_a_row_with_the_reason(self):
        server = AdaptedServer(self.server().adapter.model_copy(update={"command": ["/no/such"]}), self.folder)
        (row,) = measure_system(server, json_sets(self.write_set()), str)
        self.assertIn("'/no/such' can't be started", row.failure)
        self.assertIn("kills: '/no/such' can't be started", measure_server(server, Effort(), str).failures[-1])

    def test_one_command_writes_the_tables_and_begins_with_where_others_are_better(self):
        folder, page, data = self.write_adapter("all"), self.folder / "page.md", self.folder / "data.json"
        options = {"programs": folder, "adapters": folder, "servers": ("fake",), "sets": [self.write_set()]}
        options |= {"words_alone": True, "no_costs": True, "markdown": page, "json": data}
        call_command(Command(), stdout=StringIO(), stderr=StringIO(), **options)
        text = page.read_text()
        self.assertTrue(text.startswith("## Where others are better"))
        self.assertIn("## toy: 3 documents, 3 queries", text)
        rows = {(row["system"], row["door"]): row["shares"] for row in json.loads(data.read_text())["sets"][0]["doors"]}
        self.assertEqual(rows["fake", "search"]["silence"]["value"], 0.0)
        hub = rows["Memory Hub, words alone", "search"]
        self.assertEqual((hub["recall_5"]["value"], hub["silence"]["value"]), (1.0, 1.0))
        # The pack was given before, in another session
        recall = rows["Memory Hub, words alone", "recall"]
        self.assertEqual((recall["recall_5"]["value"], recall["silence"]["value"]), (1.0, 1.0))

    def test_a_run_is_resumed_with_what_its_results_lack(self):
        folder, data = self.write_adapter("all"), self.folder / "data.json"
        options = {"programs": folder, "adapters": folder, "sets": [self.write_set()], "words_alone": True}
        options |= {"no_costs": True, "json": data, "stdout": StringIO()}
        call_command(Command(), stderr=StringIO(), **options)
        first = json.loads(data.read_text())
        progress = StringIO()
        call_command(Command(), stderr=progress, resume=True, servers=("fake",), **options)
        (name, *more) = progress.getvalue().splitlines()
        self.assertEqual((name, more), ("toy: fake, toy-1", []))
        second = json.loads(data.read_text())
        self.assertEqual(second["sets"][0]["doors"][:-1], first["sets"][0]["doors"])
        self.assertEqual(second["sets"][0]["doors"][-1]["system"], "fake")
        self.assertEqual([adapter["name"] for adapter in second["adapters"]], ["fake"])
        for mistake, sentence in (({"half": "tuned"}, "--half all"), ({"json": None}, "needs --json")):
            with self.subTest(sentence), self.assertRaisesMessage(CommandError, sentence):
                call_command(Command(), stderr=StringIO(), resume=True, **options | mistake)
        data.write_text("{}")
        with self.assertRaisesMessage(CommandError, "has no results of the yardstick"):
            call_command(Command(), stderr=StringIO(), resume=True, **options)


class SetReaderTests(YardstickCase):
    def write(self, path: str, data: Any) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(data))

    def test_locomo_leaves_out_conversations_of_another_file(self):
        samples = [{**SAMPLE, "sample_id": name} for name in ("a", "b")]
        self.write("all.json", samples)
        self.write("some.json", samples[:1])
        (collection,) = locomo(self.folder / "all.json", without=self.folder / "some.json").collections
        self.assertEqual([document.session for document in collection.documents], ["s1", "s1", "s2"])
        self.assertEqual([sorted(query.right) for query in collection.queries], [["D1:1"], ["D2:1"]])

    def test_beam_has_messages_without_their_marks_and_evidence_in_any_nesting(self):
        turn = [
            {"role": "user", "id": 0, "time_anchor": "March-15-2024", "content": "Plan it ->-> 1,1"},
            {"role": "assistant", "id": 1, "content": "Done"},
        ]
        self.write("chats/100K/1/chat.json", [{"batch_number": 1, "turns": [turn]}])
        asked = {"source_chat_ids": {"first": [0], "second": [[1], 7]}, "question": "What?"}
        questions = {"temporal_reasoning": [asked], "abstention": [{"question": "Nothing?"}]}
        self.write("chats/100K/1/probing_questions/probing_questions.json", questions)
        (collection,) = beam(self.folder).collections
        first = collection.documents[0]
        self.assertEqual((first.text, first.time and first.time.day), ("Plan it", 15))
        self.assertEqual([(q.category, set(q.right)) for q in collection.queries], [("temporal reasoning", {"0", "1"})])
        with self.assertRaisesMessage(Invalid, "has no chats of BEAM"):
            beam(self.folder / "fake")

    def test_sde_bench_has_unrelated_chats_and_outdated_ones(self):
        chat = [{"role": "user", "text": "Round half even"}, {"role": "assistant", "text": "Agreed"}]
        self.write("gen/decoy_conversations.json", [{"topic": "x", "turns": chat}])
        task = {"source": "conversation", "bug_report": "A cent is off", "conversations": chat}
        self.write("boltons-cents/tasks/main/task.json", task)
        amended = task | {"source": "conversation-amended", "conversations": [chat, chat]}
        self.write("boltons-dedupe-amended/tasks/main/task.json", amended)
        self.write("boltons-old/tasks/main/task.json", {"source": "history", "bug_report": "?"})
        usual, changed = sde(self.folder).collections
        self.assertEqual(len(usual.documents), 4)
        self.assertEqual(usual.queries[0].right, {"cents/0:0", "cents/0:1"})
        query = changed.queries[0]
        self.assertEqual((query.harm, query.wrong), ("superseded", {f"dedupe-amended/0:{n}" for n in (0, 1)}))
        self.assertEqual(query.right, {f"dedupe-amended/1:{n}" for n in (0, 1)})

    def test_beliefs_of_the_scopes_of_a_case_are_one_collection(self):
        usual = {"user_id": "test-user", "aliases": ["k8s"], "why_it_matters": "", "resolved_at": None}
        newer, older = {"_id": "new", "superseded_by": None}, {"_id": "old", "superseded_by": "new"}
        extra = {"canonical_name": "cluster", "content": "Kubernetes", "scope": ["code"]}
        self.write("fixtures/beliefs.seed.json", [usual | extra | newer, usual | extra | older])
        expected = {"relevantBeliefs": {"shouldOnlyInclude": ["new"], "mustExclude": ["old"]}}
        case = {"category": "alias", "scope": ["code"], "query": "k8s?", "expect": expected}
        self.write("fixtures/retrieval.cases.json", [case, case | {"query": " "}])
        (collection,) = belief_set(self.folder).collections
        self.assertEqual(collection.documents[0].supersedes, ("old",))
        self.assertEqual([(query.right, query.wrong) for query in collection.queries], [({"new"}, {"old"})])

    def test_a_key_that_no_entry_has_is_refused(self):
        self.write("bad/x.json", {"nature": "", "entries": ENTRIES, "cases": [{**CASES[0], "right": ["nowhere"]}]})
        with self.assertRaisesMessage(Invalid, "no entry has the key 'nowhere'"):
            json_sets(self.folder / "bad")

    def test_others_are_named_best_first_and_with_what_they_find_where_that_is_little(self):
        def row(system: str, recall: float, harm: float) -> DoorResult:
            figures = {"recall_10": recall, "harm": harm}
            return DoorResult(system, "search", {key: Share(value, (0, 1), 9) for key, value in figures.items()})

        doors = [row("Memory Hub", 0.6, 0.3), row("words", 0.7, 0.3), row("near", 0.8, 0.9), row("mute", 0.1, 0.0)]
        results = YardstickResults("all", sets=[SetResults("x", "Notes", 9, 9, doors)])
        self.assertEqual(
            list(better_elsewhere(results)),
            [
                "Notes, R@10: the hub's search .600; near .800, words .700",
                "Notes, harm: the hub's search .300; mute (which finds .100) .000",
            ],
        )

    def test_halves_and_samples_are_the_same_on_every_run(self):
        read = json_sets(self.write_set())
        (unread,) = chosen_queries(read, "unread", None).collections
        self.assertEqual([query.text for query in unread.queries], ["Is rye baked on Mondays?"])
        self.assertEqual(chosen_queries(read, "all", 2), chosen_queries(read, "all", 2))
        (row,) = measure_system(LibraryBm25(), read, str)
        self.assertEqual((row.shares["recall_5"].value, row.shares["silence"].value), (1.0, 1.0))

    def test_nothing_is_given_from_a_collection_without_documents(self):
        empty = EvaluationSet("x", "x", [Collection("empty", [], [SetQuery("rye?", frozenset(), "", 0)])])
        (row,) = measure_system(LibraryBm25(), empty, str)
        self.assertEqual((row.failure, row.shares["silence"].value), ("", 1.0))
