"""Unfinished copies of stores: files in folders of ``cache/views/`` that nobody else opens."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memoryhub import env
from memoryhub.core.backends.sqlite.files import connected
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import current_alias
from memoryhub.core.stores.store_id import StoreId, key_of

_ALIAS = "store:view:being-made"
# An unfinished copy is thrown away, so it needs no protection against a crash.
_PRAGMAS = (
    "PRAGMA journal_mode=OFF",
    "PRAGMA synchronous=OFF",
    "PRAGMA cache_size=-32000",
)


def drafts_folder() -> Path:
    folder = env.prepare_home() / "cache" / "views"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def draft_folder(store: StoreId) -> Path:
    """Create an empty folder for a copy of ``store``; the caller removes it."""
    folder = drafts_folder() / f".draft-{key_of(store)}-{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir(mode=0o700)
    return folder


@contextmanager
def open_copy(path: Path) -> Iterator[None]:
    with connected(path, _ALIAS):
        token = current_alias.set(_ALIAS)
        try:
            for pragma in _PRAGMAS:
                rows.execute(pragma)
            yield
        finally:
            current_alias.reset(token)
