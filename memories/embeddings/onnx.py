"""A model in ONNX, run by onnxruntime on one core."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from itertools import islice
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
_AT_ONCE = 8

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
        self.dimensions = int(self.embed(["dimensions"]).shape[1])

    def embed(self, texts: Sequence[str]) -> Matrix:
        """Return a row a text, each of length 1, as float32."""
        encoded = [self._encode(text) for text in texts]
        by_length = iter(sorted(range(len(texts)), key=lambda index: len(encoded[index])))
        rows: dict[int, Matrix] = {}
        while some := list(islice(by_length, _AT_ONCE)):
            rows |= zip(some, self._run([encoded[index] for index in some]), strict=True)
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


def _options() -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False  # it would keep the memory of the longest batch for good
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
