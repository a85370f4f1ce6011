"""Whom this process asks of the models."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from memories.embeddings.engine import Engine
from memories.embeddings.remote import RemoteEngine

_own: ContextVar[Engine | None] = ContextVar("embedding_engine", default=None)


def current_engine() -> Engine:
    """Return what this process asks: the running hub, unless ``use_engine`` says otherwise."""
    return _own.get() or RemoteEngine()


@contextmanager
def use_engine(engine: Engine) -> Iterator[None]:
    """Ask ``engine`` inside the block."""
    token = _own.set(engine)
    try:
        yield
    finally:
        _own.reset(token)
