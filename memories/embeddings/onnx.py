from __future__ import annotations

import json
import os
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memories.embeddings.engine import ModelFiles
from memoryhub.core.errors import Unavailable

# Otherwise onnxruntime stores a machine id in ~/.cache and sends telemetry. The variable is read at import.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime

Matrix = NDArray[np.float32]

# Tokens of a text that are embedded; the rest is found by its words only
MAX_TOKENS = 256
# Memory grows with rows times the longest row: 8 rows of 256 tokens took 500 MB and twice the time of 2 rows at once.
_BATCH_TOKENS = 512
_BATCH_ROWS = 8
# One batch of a job and one question of a search; others wait, as each running batch takes its own memory
_RUNS_AT_ONCE = 2

Encode = Callable[[str], list[int]]


class OnnxEmbedder:
    def __init__(self, files: ModelFiles) -> None:
        """Load the model: about half a second and 180 MB for the bundled one.

        Raises:
            Unavailable: its files cannot be read, or have an unknown format.
        """
        self.name, self.version = files.name, files.version
        self._first_token = files.first_token
        self._encode = _encoder(files)
        try:
            self._session = onnxruntime.InferenceSession(str(files.model), _options())
        except Exception as error:
            raise Unavailable(f"the model {files.name!r} cannot be read: {type(error).__name__}") from error
        self._inputs = {tensor.name for tensor in self._session.get_inputs()}
        self._turns = threading.BoundedSemaphore(_RUNS_AT_ONCE)
        self.dimensions = int(self.embed(["dimensions"]).shape[1])

    def embed(self, texts: Sequence[str]) -> Matrix:
        encoded = list(map(self._encode, texts))
        rows: dict[int, Matrix] = {}
        for batch in batches(list(map(len, encoded))):
            with self._turns:
                rows |= zip(batch, self._run([encoded[index] for index in batch]), strict=True)
        return np.stack([rows[index] for index in range(len(texts))])

    def _run(self, encoded: list[list[int]]) -> Matrix:
        tokens = np.zeros((len(encoded), max(map(len, encoded))), np.int64)
        mask = np.zeros_like(tokens)
        for row, ids in enumerate(encoded):
            tokens[row, : len(ids)] = ids
            mask[row, : len(ids)] = 1
        inputs = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": np.zeros_like(tokens)}
        accepted = {name: values for name, values in inputs.items() if name in self._inputs}
        vectors = self._pooled(self._session.run(None, accepted)[0], mask)
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
    """Yield the indexes of texts to run together, given their lengths in tokens.

    Texts of similar length share a batch; padded, it has at most ``_BATCH_TOKENS`` tokens.
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
    # Both would keep the memory of the longest batch allocated
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    options.log_severity_level = 3
    return options


# WordPiece vocabularies need no package: ours reads them. Others need ``tokenizers``.
def _encoder(files: ModelFiles) -> Encode:
    if files.vocabulary.suffix != ".json":
        return _word_pieces(WordPiece.from_file(files.vocabulary, lowercase=files.lowercase))
    described = json.loads(files.vocabulary.read_text(encoding="utf-8"))
    if described["model"].get("type") == "WordPiece":
        pieces = sorted(described["model"]["vocab"].items(), key=lambda item: item[1])
        lowercase = (described.get("normalizer") or {}).get("lowercase", files.lowercase)
        return _word_pieces(WordPiece([piece for piece, _ in pieces], lowercase=lowercase))
    return _package_encoder(files.vocabulary)


def _word_pieces(tokenizer: WordPiece) -> Encode:
    return lambda text: tokenizer.encode(text, at_most=MAX_TOKENS)


def _package_encoder(path: Path) -> Encode:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise Unavailable(f"{path.name} needs another package: pip install tokenizers") from error
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    return lambda text: list(tokenizer.encode(text).ids)


_LONGEST_WORD = 100
# Characters read per token at most; no text has longer tokens on average
_READ_CHARACTERS = 20
_IDEOGRAPHS = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))


class WordPiece:
    """BERT's tokenizer, with one vocabulary; lower-cases and strips accents unless ``lowercase`` is off."""

    def __init__(self, pieces: Iterable[str], *, lowercase: bool = True) -> None:
        self._ids = {piece: number for number, piece in enumerate(pieces)}
        self._lowercase = lowercase
        self._unknown = self._ids["[UNK]"]
        self._begin, self._end = self._ids["[CLS]"], self._ids["[SEP]"]
        self._pieces_of = lru_cache(maxsize=20_000)(self._cut)

    @classmethod
    def from_file(cls, path: Path, *, lowercase: bool = True) -> WordPiece:
        return cls(path.read_text(encoding="utf-8").splitlines(), lowercase=lowercase)

    def encode(self, text: str, *, at_most: int) -> list[int]:
        ids: list[int] = []
        for word in self._words(text[: at_most * _READ_CHARACTERS]):
            ids += self._pieces_of(word)
            if len(ids) >= at_most - 2:
                break
        return [self._begin, *ids[: at_most - 2], self._end]

    def _words(self, text: str) -> list[str]:
        clean = "".join(map(_cleaned, text))
        if self._lowercase:
            clean = clean.lower()
        if self._lowercase and not clean.isascii():
            decomposed = unicodedata.normalize("NFD", clean)
            clean = "".join(character for character in decomposed if unicodedata.category(character) != "Mn")
        return "".join(map(_parted, clean)).split()

    def _cut(self, word: str) -> tuple[int, ...]:
        if len(word) > _LONGEST_WORD:
            return (self._unknown,)
        pieces, start = [], 0
        while start < len(word):
            piece, start = self._longest(word, start)
            if piece is None:
                return (self._unknown,)
            pieces.append(piece)
        return tuple(pieces)

    def _longest(self, word: str, start: int) -> tuple[int | None, int]:
        prefix = "##" if start else ""
        for end in range(len(word), start, -1):
            piece = self._ids.get(prefix + word[start:end])
            if piece is not None:
                return piece, end
        return None, start


# Control characters go, every space becomes one, and an ideograph is a word of its own
@lru_cache(maxsize=4096)
def _cleaned(character: str) -> str:
    if character in "\t\n\r":
        return " "
    category = unicodedata.category(character)
    if category.startswith("C") or character == "\ufffd":
        return ""
    if category == "Zs":
        return " "
    code = ord(character)
    return f" {character} " if any(first <= code <= last for first, last in _IDEOGRAPHS) else character


# Punctuation is a word of its own
@lru_cache(maxsize=4096)
def _parted(character: str) -> str:
    is_sign = "!" <= character <= "~" and not character.isalnum()
    is_punctuation = is_sign or unicodedata.category(character).startswith("P")
    return f" {character} " if is_punctuation else character
