"""The interface to embedding models: ``local`` in the process that loads them, ``remote`` in all others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

# Document ids with their cosine similarity, nearest first
Nearest = list[tuple[int, float]]

# Blocks until the answer is there
Answer = Callable[[], Nearest]

# A vector: scale factor, and one signed byte per dimension
Packed = tuple[float, bytes]


@dataclass(frozen=True, slots=True)
class ModelId:
    name: str
    version: str
    dimensions: int


@dataclass(frozen=True, slots=True)
class StoreIndex:
    """The vectors that one store has of one model, at a revision."""

    # Where the store is, as its backend names it
    path: str
    # The model's id in that store
    key: int
    model: ModelId
    revision: int


class Engine(Protocol):
    """All methods raise ``Unavailable`` with the reason if they cannot answer."""

    def describe(self, name: str) -> ModelId:
        """Return the current version of a model; downloads and loads it if needed."""

    def embed(self, model: ModelId, texts: Sequence[str]) -> list[Packed]:
        """Return one vector per text."""

    def asking(self, index: StoreIndex, question: str, limit: int) -> AbstractContextManager[Answer]:
        """Start a search for the documents of a store nearest in meaning.

        The caller may do other work inside the block before it calls for the answer.
        """
