from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import TestCase

import numpy as np

from memories.embeddings import index_file
from memories.embeddings.index_file import IndexFile, quantized
from memories.embeddings.onnx import batches
from memories.embeddings.wordpiece import BUNDLED_VOCABULARY, WordPiece

BEGIN, END, UNKNOWN = 101, 102, 100


class WordPieceTests(TestCase):
    tokenizer: WordPiece
    ids: dict[str, int]

    @classmethod
    def setUpClass(cls) -> None:
        cls.tokenizer = WordPiece.from_file(BUNDLED_VOCABULARY)
        cls.ids = {piece: number for number, piece in enumerate(BUNDLED_VOCABULARY.read_text().splitlines())}

    def read(self, text: str, at_most: int = 256) -> list[int]:
        return self.tokenizer.encode(text, at_most=at_most)

    def pieces(self, *names: str) -> list[int]:
        return [BEGIN, *(self.ids[name] for name in names), END]

    def test_words_are_cut_into_the_longest_pieces(self):
        self.assertEqual(self.read("I like strawberries"), [BEGIN, 1045, 2066, 13137, 20968, END])

    def test_case_accents_and_odd_spaces_do_not_matter(self):
        self.assertEqual(self.read("Déjà\u00a0VU\t\n"), self.read("deja vu"))

    def test_punctuation_and_ideographs_are_words_of_their_own(self):
        self.assertEqual(self.read("a-b"), self.pieces("a", "-", "b"))
        self.assertEqual(self.read("日本"), self.pieces("日", "本"))

    def test_a_word_outside_the_vocabulary_is_one_unknown_token(self):
        self.assertEqual(self.read("\U0001f600 " + "x" * 101), [BEGIN, UNKNOWN, UNKNOWN, END])

    def test_control_characters_are_not_read(self):
        self.assertEqual(self.read("c\x00a\u200bt"), self.pieces("cat"))

    def test_a_long_text_is_read_from_its_beginning(self):
        read = self.read("cat " * 1000, at_most=10)
        self.assertEqual(read, [BEGIN, *[self.ids["cat"]] * 8, END])

    def test_an_empty_text_has_no_tokens(self):
        self.assertEqual(self.read(""), [BEGIN, END])


class IndexFileTests(TestCase):
    def setUp(self) -> None:
        self.path = Path(self.enterContext(tempfile.TemporaryDirectory())) / "index" / "vectors-1.bin"
        self.random = np.random.default_rng(20261121)

    def vectors(self, count: int, dimensions: int) -> index_file.Matrix:
        groups = self.random.standard_normal((max(1, count // 100), dimensions))
        near = groups[self.random.integers(0, len(groups), count)]
        found = near + 0.7 * self.random.standard_normal((count, dimensions))
        return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), np.float32)

    def written(self, vectors: index_file.Matrix) -> IndexFile:
        rows = [(10 * number, scale, data) for number, (scale, data) in enumerate(quantized(vectors))]
        index_file.write(self.path, rows, count=len(rows), dimensions=vectors.shape[1], revision=7)
        found = index_file.read(self.path)
        assert found
        return found

    def test_the_nearest_are_those_of_the_vectors_themselves(self):
        vectors = self.vectors(500, 100)
        index = self.written(vectors)
        exact = vectors @ vectors[42]
        found = index.nearest(vectors[42], 10)
        self.assertEqual(found[0][0], 420)
        self.assertEqual([hit for hit, _ in found[:5]], [10 * int(row) for row in np.argsort(-exact)[:5]])
        for document_id, score in found:
            self.assertAlmostEqual(score, float(exact[document_id // 10]), delta=0.02)

    def test_among_many_nearly_all_of_the_nearest_are_found(self):
        vectors = self.vectors(25_000, 64)
        index = self.written(vectors)
        found = 0
        for question in vectors[:20]:
            best = {10 * int(row) for row in np.argsort(-(vectors @ question))[:20]}
            found += len(best.intersection(item for item, _ in index.nearest(question, 20)))
        self.assertGreaterEqual(found, 0.95 * 400)

    def test_an_empty_index_finds_nothing(self):
        index = self.written(np.zeros((0, 8), np.float32))
        self.assertEqual((index.revision, index.nearest(np.ones(8, np.float32), 5)), (7, []))

    def test_a_failing_writer_leaves_only_the_previous_index(self):
        self.written(self.vectors(10, 16))
        before = self.path.read_bytes()

        def failing() -> Iterator[index_file.Row]:
            yield 1, 1.0, bytes(16)
            raise OSError("the disk is full")

        with self.assertRaises(OSError):
            index_file.write(self.path, failing(), count=5, dimensions=16, revision=8)
        self.assertEqual([item.name for item in self.path.parent.iterdir()], [self.path.name])
        self.assertEqual(self.path.read_bytes(), before)

    def test_a_truncated_or_changed_file_is_rejected(self):
        self.written(self.vectors(10, 16))
        whole = self.path.read_bytes()
        for place in range(0, len(whole), 97):
            damaged = bytearray(whole)
            damaged[place] ^= 0x10
            self.path.write_bytes(damaged)
            self.assertIsNone(index_file.read(self.path), place)
        self.path.write_bytes(whole[:-1])
        self.assertIsNone(index_file.read(self.path))
        self.path.unlink()
        self.assertIsNone(index_file.read(self.path))


class BatchTests(TestCase):
    def test_a_batch_has_texts_of_similar_length_and_is_bounded(self):
        lengths = [256, 3, 256, 40, 7, 256, 128, *([5] * 20)]
        found = list(batches(lengths))
        self.assertEqual(sorted(index for batch in found for index in batch), list(range(len(lengths))))
        self.assertLessEqual(max(len(batch) for batch in found), 8)
        self.assertLessEqual(max(len(batch) * max(lengths[index] for index in batch) for batch in found), 512)
        self.assertEqual([lengths[index] for batch in found for index in batch], sorted(lengths))

    def test_a_text_longer_than_a_batch_goes_alone(self):
        self.assertEqual(list(batches([600, 600])), [[0], [1]])
        self.assertEqual(list(batches([])), [])


class QuietTests(TestCase):
    def test_running_a_model_leaves_nothing_in_the_users_home(self):
        with tempfile.TemporaryDirectory() as home:
            kept = {name: value for name, value in os.environ.items() if name not in ("ORT_DISABLE_TELEMETRY",)}
            subprocess.run(
                [sys.executable, "-c", "import memories.embeddings.onnx"],
                env={**kept, "HOME": home, "XDG_CACHE_HOME": f"{home}/cache", "PYTHONDONTWRITEBYTECODE": "1"},
                cwd=Path(__file__).parents[2],
                check=True,
            )
            self.assertEqual(list(Path(home).rglob("*")), [])
