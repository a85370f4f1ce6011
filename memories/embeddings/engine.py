"""What a process asks of the models: vectors of texts, and which documents are nearest to a question.

A process that holds models answers itself (``local``); every other one asks the hub that runs (``remote``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

Nearest = list[tuple[int, float]]
"""Ids of documents, nearest first, each with its cosine."""

Answer = Callable[[], Nearest]
"""Waits for an answer and returns it."""

Packed = tuple[float, bytes]
"""A vector: what its numbers are multiplied by, and the numbers, a signed byte each."""


@dataclass(frozen=True, slots=True)
class ModelId:
    """A model in one version."""

    name: str
    version: str
    dimensions: int


@dataclass(frozen=True, slots=True)
class StoreIndex:
    """The vectors that one store has of one model, as they stand."""

    path: str
    """The store's file."""
    key: int
    """The model's number in that store."""
    model: ModelId
    revision: int


class Engine(Protocol):
    """Every function raises ``Unavailable`` with the reason where it cannot answer."""

    def describe(self, name: str) -> ModelId:
        """Return a model by its name, in the version that is to be had now; it is fetched and loaded for that."""

    def embed(self, model: ModelId, texts: Sequence[str]) -> list[Packed]:
        """Return a vector a text."""

    def asking(self, index: StoreIndex, question: str, limit: int) -> AbstractContextManager[Answer]:
        """Ask which documents of a store have texts that mean most nearly what the question does.

        Inside the block something else can be done, until the answer is called for.
        """
