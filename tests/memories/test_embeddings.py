from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from unittest import TestCase

import numpy as np
from django.test import tag

from memories import services
from memories.embeddings import engine as remote
from memories.embeddings import local, meaning, vectors
from memories.embeddings.engine import (
    ADDRESS_FILE,
    BUNDLED,
    BUNDLED_VOCABULARY,
    NOT_RUNNING,
    RemoteEngine,
    find_files,
    use_engine,
    wanted_name,
)
from memories.embeddings.following import embed_current_store
from memories.embeddings.local import IndexFile, LocalEngine, quantized
from memories.embeddings.onnx import WordPiece, batches
from memories.models import EmbeddingModel, Vector
from memories.schemas import MemoryWrite
from memoryhub.core import log
from memoryhub.core.backends.selected import stores
from memoryhub.core.errors import Unavailable
from memoryhub.core.jobs import find_job
from memoryhub.core.log.views import as_of
from memoryhub.core.models import ProjectionOffset
from memoryhub.core.stores.store import current_store, project_store
from memoryhub.core.stores.store_id import folder_of
from memoryhub.ops import jobs  # noqa: F401 - defines all jobs
from memoryhub.ops.jobs import run_job
from memoryhub.ops.metrics import render
from memoryhub.ops.serving.embedding import run_model
from memoryhub.ops.serving.process import Child
from sessions_app.schemas import SettingsChange
from sessions_app.services.profile import change_settings
from tests.memories.base import MemoriesTestCase
from tests.web.server import poll

ROOT = Path(__file__).parents[2]
CATS = "Cats sleep on warm roofs all afternoon"
DATABASE = "We chose SQLite, since it needs no server"
DEPLOY = "Releases go out on Friday evenings"


@cache
def local_engine() -> LocalEngine:
    return LocalEngine()


class EmbeddingTestCase(MemoriesTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(use_engine(local_engine()))

    def note(self, *texts: str) -> list[int]:
        return self.write_all({f"{text[:20]} {number}": text for number, text in enumerate(texts)})

    def embed(self, seconds: float = 60.0) -> str:
        return embed_current_store(until=time.monotonic() + seconds)

    def first(self, question: str) -> int | None:
        hits = meaning.nearest(question).hits
        return hits[0][0] if hits else None

    def index_files(self) -> list[Path]:
        return sorted((folder_of(current_store()) / "index").glob("*"))


class FollowingTests(EmbeddingTestCase):
    @tag("backend")
    def test_an_embedded_text_is_found_by_meaning_in_its_project_and_never_embedded_twice(self):
        cats, database, deploy = self.note(CATS, DATABASE, DEPLOY)
        self.assertIn("no text is embedded", meaning.nearest("felines").problem)
        self.assertEqual(self.embed(), "embedded 3 texts")
        questions = ("feline animals", "storage engine", "shipping a version")
        self.assertEqual([self.first(question) for question in questions], [cats, database, deploy])
        self.update(cats, tags=["pets"])
        self.write(f"{CATS[:20]} 0", CATS, kind="knowledge")
        self.assertEqual((self.embed(), Vector.objects.count()), ("", 4))
        self.assert_rebuilds()
        self.assertEqual((self.embed(), Vector.objects.count(), meaning.nearest("felines").problem), ("", 4, ""))
        before = dict(meaning.nearest("shops").hits)[deploy]
        self.update(deploy, title="Bakery", content="The bakery and the shops open at seven")
        self.assertEqual(self.embed(), "embedded 1 text")
        self.assertGreater(dict(meaning.nearest("shops").hits)[deploy], before)
        with self.store("beta"):
            (other,) = self.note(DEPLOY)
            self.embed()
            self.assertEqual([hit for hit, _ in meaning.nearest("felines").hits], [other])

    @tag("backend")
    def test_an_interrupted_run_continues_where_it_stopped(self):
        self.note(*(f"Note {number}" for number in range(34)))
        head = log.head()[0]
        self.assertEqual(self.embed(seconds=0), f"embedded 32 texts, {head - 32} events to go")
        self.assertEqual(ProjectionOffset.objects.get(projector__startswith="embeddings-").position, 32)
        self.assertEqual(self.embed(), "embedded 2 texts")
        self.assertEqual(Vector.objects.count(), 34)


@tag("backend")
class EraseTests(EmbeddingTestCase):
    def test_a_deleted_text_has_no_vector_and_nothing_derived_from_an_erased_one_is_left(self):
        cats, _ = self.note(CATS, DATABASE)
        self.embed()
        vector = Vector.objects.filter(document_id=cats)
        self.delete(cats)
        self.assertFalse(vector.exists())
        self.restore(cats)
        self.embed()
        self.first("felines")
        numbers = bytes(vector.get().numbers)
        self.assertTrue(any(numbers in path.read_bytes() for path in self.index_files()))
        self.erase(cats)
        files = [path for path in folder_of(current_store()).rglob("*") if path.is_file()]
        self.assertEqual([path.name for path in files if numbers in path.read_bytes()], [])
        self.assertNotIn(cats, [hit for hit, _ in meaning.nearest("felines").hits])


class ModelTests(EmbeddingTestCase):
    def folder(self) -> str:
        folder = self.home / "model"
        folder.mkdir()
        (folder / "model.onnx").symlink_to(find_files(BUNDLED).model)
        (folder / "vocab.txt").symlink_to(BUNDLED_VOCABULARY)
        return str(folder)

    def choose(self, model: str) -> None:
        change_settings(command=SettingsChange(settings={"embedding_model": model}))

    def names(self) -> list[str]:
        return list(EmbeddingModel.objects.order_by("id").values_list("name", flat=True))

    def test_the_old_model_answers_until_the_new_one_is_done(self):
        texts = [*(f"Note {number}" for number in range(33)), CATS]
        cats = self.note(*texts)[-1]
        self.embed()
        self.choose(self.folder())
        self.assertIn("to go", self.embed(seconds=0))
        self.assertEqual(len(self.names()), 2)
        self.assertEqual((self.first("felines"), meaning.nearest("felines").model), (cats, BUNDLED))
        self.embed()
        self.assertEqual(self.names(), [str(self.home / "model")])
        self.assertEqual(self.first("felines"), cats)
        self.assertEqual(Vector.objects.count(), 34)

    def test_the_setting_none_keeps_no_vectors_and_searches_say_so(self):
        self.note(CATS)
        self.embed()
        self.choose("none")
        self.assertEqual(self.embed(), "")
        self.assertEqual((Vector.objects.count(), self.names()), (0, []))
        problem = "embedding_model is 'none'; set it to 'auto' to search by meaning, too"
        self.assertEqual(meaning.nearest("felines"), meaning.Meaning(problem=problem))
        self.assertEqual(meaning.renewal(), "off")

    def test_a_write_reports_the_state_of_its_vector(self):
        first = self.written("Cats", CATS)
        results = [first, self.update(first.id, tags=["pets"]), self.update(first.id, content=DATABASE)]
        results += [self.delete(first.id), self.restore(first.id)]
        self.assertEqual([result.embedding for result in results], ["queued", "kept", "queued", None, "queued"])

    def test_a_folder_or_name_without_a_model_is_refused_with_what_it_needs(self):
        self.assertEqual((wanted_name("auto"), wanted_name("none"), wanted_name("a/b")), (BUNDLED, None, "a/b"))
        with self.assertRaisesRegex(Unavailable, "use auto, none, a folder that begins with / or ~, or a hub id"):
            find_files("not a model")
        self.choose(str(self.home))
        self.note(CATS)
        with self.assertRaisesRegex(Unavailable, r"contains no model: a model.onnx and a tokenizer.json or vocab.txt"):
            self.embed()

    def test_a_model_replaced_in_its_folder_does_not_use_old_vectors(self):
        folder = Path(self.folder())
        self.choose(str(folder))
        self.note(CATS)
        self.embed()
        pieces = BUNDLED_VOCABULARY.read_text().replace("[unused0]", "[other]")
        (folder / "vocab.txt").unlink()
        (folder / "vocab.txt").write_text(pieces)
        with use_engine(LocalEngine()):
            self.assertIn("has changed", meaning.nearest("felines").problem)
            self.embed()
            self.assertEqual(meaning.nearest("felines").problem, "")
        self.assertEqual(len(self.names()), 1)


class IndexTests(EmbeddingTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.cats, self.database = self.note(CATS, DATABASE)
        self.embed()
        self.assertEqual(self.first("felines"), self.cats)
        (self.path,) = self.index_files()

    @tag("backend")
    def test_a_missing_or_damaged_index_is_rebuilt(self):
        whole = self.path.read_bytes()
        self.path.unlink()
        self.assertEqual(self.first("felines"), self.cats)
        for case, damage in (
            ("a byte", whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:]),
            ("half of it", whole[: len(whole) // 2]),
            ("nothing in it", b""),
            ("other things in it", b"x" * len(whole)),
        ):
            with self.subTest(case), self.assertLogs("memories.embeddings.local", "WARNING"):
                self.path.write_bytes(damage)
                self.assertEqual(self.first("felines"), self.cats)
                self.assertEqual(self.path.read_bytes(), whole)
        (deploy,) = self.note(DEPLOY)
        self.embed()
        self.assertEqual(self.first("shipping a version"), deploy, "the next answer includes new writes")

    def test_without_vectors_or_a_running_hub_the_reason_is_reported(self):
        with as_of(1):
            self.assertEqual(meaning.nearest("felines").problem, "past states have no vectors")
        with use_engine(RemoteEngine()):
            self.assertEqual(meaning.nearest("felines").problem, NOT_RUNNING)
            with self.assertRaisesRegex(Unavailable, "is not running"):
                self.embed()
        vectors.drop_all()
        self.assertIsNone(meaning.model_name())


class WordPieceTests(TestCase):
    def test_words_are_cut_into_the_longest_pieces_of_the_vocabulary(self):
        tokenizer = WordPiece.from_file(BUNDLED_VOCABULARY)
        ids = {piece: number for number, piece in enumerate(BUNDLED_VOCABULARY.read_text().splitlines())}
        for text, pieces in (
            ("I like strawberries", ["i", "like", "straw", "##berries"]),
            ("Déjà\u00a0VU\t\n", ["de", "##ja", "vu"]),
            ("a-b", ["a", "-", "b"]),
            ("日本", ["日", "本"]),
            ("\U0001f600 " + "x" * 101, ["[UNK]", "[UNK]"]),
            ("c\x00a\u200bt", ["cat"]),
            ("cat " * 1000, ["cat"] * 8),
            ("", []),
        ):
            with self.subTest(text[:20]):
                tokens = ["[CLS]", *pieces, "[SEP]"]
                self.assertEqual(tokenizer.encode(text, at_most=10), [ids[token] for token in tokens])


class IndexFileTests(TestCase):
    def setUp(self) -> None:
        self.path = Path(self.enterContext(tempfile.TemporaryDirectory())) / "index" / "vectors-1.bin"
        self.random = np.random.default_rng(20261121)

    def vectors(self, count: int, dimensions: int) -> local.Matrix:
        groups = self.random.standard_normal((max(1, count // 100), dimensions))
        near = groups[self.random.integers(0, len(groups), count)]
        raw = near + 0.7 * self.random.standard_normal((count, dimensions))
        return np.asarray(raw / np.linalg.norm(raw, axis=1, keepdims=True), np.float32)

    def written(self, vectors: local.Matrix) -> IndexFile:
        rows = [(10 * number, scale, data) for number, (scale, data) in enumerate(quantized(vectors))]
        local.write_index(self.path, rows, count=len(rows), dimensions=vectors.shape[1], revision=7)
        found = local.read_index(self.path)
        assert found
        return found

    def test_the_nearest_are_those_of_the_vectors_themselves_or_nearly_among_many(self):
        empty = self.written(np.zeros((0, 8), np.float32))
        self.assertEqual((empty.revision, empty.nearest(np.ones(8, np.float32), 5)), (7, []))
        vectors = self.vectors(500, 100)
        exact = vectors @ vectors[42]
        hits = self.written(vectors).nearest(vectors[42], 10)
        self.assertEqual(hits[0][0], 420)
        self.assertEqual([hit for hit, _ in hits[:5]], [10 * int(row) for row in np.argsort(-exact)[:5]])
        for document_id, score in hits:
            self.assertAlmostEqual(score, float(exact[document_id // 10]), delta=0.02)
        vectors = self.vectors(25_000, 64)
        index = self.written(vectors)
        matches = 0
        for question in vectors[:20]:
            best = {10 * int(row) for row in np.argsort(-(vectors @ question))[:20]}
            matches += len(best.intersection(item for item, _ in index.nearest(question, 20)))
        self.assertGreaterEqual(matches, 0.95 * 400)

    def test_a_failing_writer_leaves_only_the_previous_index(self):
        self.written(self.vectors(10, 16))
        before = self.path.read_bytes()

        def failing() -> Iterator[local.Row]:
            yield 1, 1.0, bytes(16)
            raise OSError("the disk is full")

        with self.assertRaises(OSError):
            local.write_index(self.path, failing(), count=5, dimensions=16, revision=8)
        self.assertEqual([item.name for item in self.path.parent.iterdir()], [self.path.name])
        self.assertEqual(self.path.read_bytes(), before)

    def test_a_truncated_or_changed_file_is_rejected(self):
        self.written(self.vectors(10, 16))
        whole = self.path.read_bytes()
        for place in range(0, len(whole), 97):
            damaged = bytearray(whole)
            damaged[place] ^= 0x10
            self.path.write_bytes(damaged)
            self.assertIsNone(local.read_index(self.path), place)
        self.path.write_bytes(whole[:-1])
        self.assertIsNone(local.read_index(self.path))
        self.path.unlink()
        self.assertIsNone(local.read_index(self.path))


class BatchTests(TestCase):
    def test_a_batch_has_texts_of_similar_length_and_is_bounded(self):
        lengths = [256, 3, 256, 40, 7, 256, 128, *([5] * 20)]
        lots = list(batches(lengths))
        in_order = [index for batch in lots for index in batch]
        self.assertEqual(sorted(in_order), list(range(len(lengths))))
        self.assertEqual([lengths[index] for index in in_order], sorted(lengths))
        self.assertLessEqual(max(len(batch) for batch in lots), 8)
        self.assertLessEqual(max(len(batch) * max(lengths[index] for index in batch) for batch in lots), 512)
        self.assertEqual(list(batches([600, 600])), [[0], [1]], "a text longer than a batch goes alone")
        self.assertEqual(list(batches([])), [])

    def test_running_a_model_leaves_nothing_in_the_users_home(self):
        home = self.enterContext(tempfile.TemporaryDirectory())
        environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
        environment |= {"HOME": home, "XDG_CACHE_HOME": f"{home}/cache", "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run([sys.executable, "-c", "import memories.embeddings.onnx"], env=environment, cwd=ROOT, check=True)
        self.assertEqual(list(Path(home).rglob("*")), [])


EMBED_ONCE = """
import django
django.setup()
from memoryhub.ops.hub_databases import prepare_databases
prepare_databases()
from memoryhub.core.jobs import find_job
from memoryhub.ops.jobs import run_job
for outcome in run_job(job=find_job("embed texts"), asked_by="ada"):
    print(outcome.message, flush=True)
"""
COUNT = 150  # so many that one is killed in the middle
FEW = 12


def peak_megabytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) // 1024


@tag("attack")
class ProcessTests(MemoriesTestCase):
    def setUp(self) -> None:
        super().setUp()
        remote._silent_until = 0.0

    def note(self, count: int) -> None:
        notes = {f"Note {n}": f"Note {n} on locks, queues and the order of events" for n in range(count)}
        self.cats = self.write_all({**notes, "Cats": CATS})[-1]

    def spawn(self, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "memoryhub.settings", "MEMORY_HUB_LOG": "ERROR"}
        command, pipe, both = [sys.executable, *arguments], subprocess.PIPE, subprocess.STDOUT
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, stderr=both)
        self.enterContext(process)
        self.addCleanup(process.kill)
        return process

    def model_process(self, *, idle_seconds: float = 300.0) -> Child:
        child = self.enterContext(run_model(idle_seconds=idle_seconds))
        self.assertIsNone(child.pid)
        RemoteEngine().describe(BUNDLED)
        return child

    def embed(self) -> str:
        return "".join(item.message for item in run_job(job=find_job("embed texts"), asked_by="ada"))

    def lag(self) -> float:
        lines = [line for line in render().decode().splitlines() if 'projector="embeddings-' in line]
        return float(lines[0].rpartition(" ")[2])

    def first(self) -> int:
        hits = poll(lambda: meaning.nearest("feline animals").hits, what="an answer by meaning")
        return int(hits[0][0])

    def test_after_a_killed_worker_answers_go_on_and_the_next_one_finishes(self):
        self.note(COUNT)
        self.model_process()
        worker = self.spawn("-c", EMBED_ONCE)
        poll(Vector.objects.count, what="the first vectors")
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        done = Vector.objects.count()
        self.assertTrue(0 < done < COUNT, done)
        self.assertGreater(self.lag(), 0)
        self.assertEqual(len(meaning.nearest("locks").hits), done)
        # A lease in a database ends some seconds after its holder did
        ended = poll(lambda: "already running" not in (message := self.embed()) and message, what="the lease ends")
        self.assertIn(f"embedded {COUNT + 1 - done} texts", ended)
        self.assertEqual(self.lag(), 0)
        self.assertEqual((self.first(), Vector.objects.count()), (self.cats, COUNT + 1))
        self.assertTrue(EmbeddingModel.objects.get().complete)
        self.assertTrue(log.verify().ok)

    def test_after_a_killed_model_process_the_reason_is_reported_and_the_next_one_answers(self):
        self.note(FEW)
        holder = self.model_process()
        self.embed()
        self.assertEqual(self.first(), self.cats)
        with self.assertLogs("memoryhub.ops.serving.process", logging.ERROR):
            os.kill(holder.pid or 0, signal.SIGKILL)
            poll(lambda: holder.pid is None, what="the end of the process")
            self.assertNotEqual(meaning.nearest("feline animals").problem, "")
            services.write_memory(command=MemoryWrite(title="While it is away", content="writes go on"))
            self.assertGreater(self.lag(), 0)
        index = folder_of(current_store()) / "index" / "vectors-1.bin"
        index.write_bytes(index.read_bytes()[:-100])
        self.assertIn("embedded 1 text", self.embed())
        self.assertEqual(self.first(), self.cats)
        self.assertEqual(self.lag(), 0)

    def test_an_idle_process_ends_and_the_next_request_starts_it_again(self):
        child = self.model_process(idle_seconds=0.5)
        poll(lambda: child.pid is None, what="the end of the idle process")
        self.assertEqual(RemoteEngine().describe(BUNDLED).name, BUNDLED)

    def test_only_callers_with_the_secret_are_answered_about_stores_of_this_hub(self):
        self.note(FEW)
        self.model_process()
        self.embed()
        with self.assertRaisesRegex(Unavailable, "not in this hub"):
            index = {"path": "/etc/events.db", "key": 1, "revision": 1}
            model = {"name": "all-MiniLM-L6-v2-int8", "version": "1", "dimensions": 384}
            remote._ask({"do": "nearest", "index": {**index, "model": model}, "question": "q", "limit": 1}, 30)
        address = self.home / ADDRESS_FILE
        self.assertEqual(address.stat().st_mode & 0o777, 0o600)
        contact = json.loads(address.read_text())
        socket.create_connection(("127.0.0.1", contact["port"])).close()  # a silent client is not an error
        address.write_text(json.dumps({**contact, "secret": "guessed"}))
        self.assertIn("wrong secret", meaning.nearest("feline animals").problem)
        self.assertTrue(stores.exists(project_store("alpha")))

    def test_long_texts_of_many_clients_at_once_take_a_bounded_amount_of_memory(self):
        holder = self.model_process()
        engine = RemoteEngine()
        model = engine.describe("all-MiniLM-L6-v2-int8")
        texts = [f"{number} " + "every word of a long text is a token " * 60 for number in range(16)]
        with ThreadPoolExecutor(4) as clients:
            found = list(clients.map(lambda _: engine.embed(model, texts), range(4)))
        self.assertEqual(found, [found[0]] * 4)
        self.assertLess(peak_megabytes(holder.pid or 0), 400)
