"""A model in ONNX, run by onnxruntime on one core."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memories.embeddings.choice import ModelFiles
from memories.embeddings.wordpiece import WordPiece
from memoryhub.core.errors import Unavailable

# Else it gives the machine an id, keeps it in the user's ~/.cache, and sends events to its maker where it can; that is
# read when it is imported.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime

Matrix = NDArray[np.float32]

MAX_TOKENS = 256
"""Tokens of a text that are read; what follows is found by its words alone."""
# The activations of a batch take memory with its tokens, its rows and its longest row: 8 rows of 256 tokens took 500 MB
# and, on one core, twice the time of 2 rows at a time.
_BATCH_TOKENS = 512
_BATCH_ROWS = 8
# A job's batch and a search's question: more callers wait, because each batch at work takes its own memory.
_RUNS_AT_ONCE = 2

Encode = Callable[[str], list[int]]


class OnnxEmbedder:
    """Texts to vectors: tokens through the model, their mean or the first one's, scaled to length 1."""

    def __init__(self, files: ModelFiles) -> None:
        """Load the model: about half a second and 180 MB for the one that is bundled.

        Raises:
            Unavailable: its files cannot be read, or are of a kind that is not known here.
        """
        self.name, self.version = files.name, files.version
        self._first_token = files.first_token
        self._encode = _encoder(files)
        try:
            self._session = onnxruntime.InferenceSession(str(files.model), _options())
        except Exception as error:
            raise Unavailable(f"the model {files.name!r} cannot be read: {type(error).__name__}") from error
        self._inputs = {each.name for each in self._session.get_inputs()}
        self._turns = threading.BoundedSemaphore(_RUNS_AT_ONCE)
        self.dimensions = int(self.embed(["dimensions"]).shape[1])

    def embed(self, texts: Sequence[str]) -> Matrix:
        """Return a row a text, each of length 1, as float32."""
        encoded = [self._encode(text) for text in texts]
        rows: dict[int, Matrix] = {}
        for batch in batches([len(tokens) for tokens in encoded]):
            with self._turns:
                rows |= zip(batch, self._run([encoded[index] for index in batch]), strict=True)
        return np.stack([rows[index] for index in range(len(texts))])

    def _run(self, encoded: list[list[int]]) -> Matrix:
        tokens = np.zeros((len(encoded), max(map(len, encoded))), np.int64)
        mask = np.zeros_like(tokens)
        for row, ids in enumerate(encoded):
            tokens[row, : len(ids)] = ids
            mask[row, : len(ids)] = 1
        known = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": np.zeros_like(tokens)}
        given = {name: values for name, values in known.items() if name in self._inputs}
        vectors = self._pooled(self._session.run(None, given)[0], mask)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.maximum(lengths, 1e-12), np.float32)

    def _pooled(self, hidden: Any, mask: Any) -> Any:
        if hidden.ndim == 2:
            return hidden
        if self._first_token:
            return hidden[:, 0]
        weights = mask[..., None].astype(np.float32)
        return (hidden * weights).sum(axis=1) / weights.sum(axis=1)


def batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the indexes of texts that go through the model together, by their lengths in tokens.

    Texts of similar length are in one batch; padded to its longest text, a batch has at most ``_BATCH_TOKENS`` tokens.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) == _BATCH_ROWS or (len(batch) + 1) * lengths[index] > _BATCH_TOKENS):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _options() -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    # Both would keep the memory of the longest batch for good.
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    options.log_severity_level = 3
    return options


def _encoder(files: ModelFiles) -> Encode:
    """Return the model's tokenizer: our own for a vocabulary of word pieces, else that of the tokenizers package."""
    if files.vocabulary.suffix != ".json":
        return _word_pieces(WordPiece.from_file(files.vocabulary, lowercase=files.lowercase))
    described = json.loads(files.vocabulary.read_text(encoding="utf-8"))
    if described["model"].get("type") == "WordPiece":
        pieces = sorted(described["model"]["vocab"].items(), key=lambda item: item[1])
        lowercase = (described.get("normalizer") or {}).get("lowercase", files.lowercase)
        return _word_pieces(WordPiece([piece for piece, _ in pieces], lowercase=lowercase))
    return _of_package(files.vocabulary)


def _word_pieces(tokenizer: WordPiece) -> Encode:
    return lambda text: tokenizer.encode(text, at_most=MAX_TOKENS)


def _of_package(path: Path) -> Encode:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise Unavailable(f"{path.name} is read by another package: pip install tokenizers") from error
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    return lambda text: list(tokenizer.encode(text).ids)
