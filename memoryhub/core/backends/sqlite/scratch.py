"""A second database beside a store: a file of its own, in whose connection the store is attached."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from memoryhub.core.backends.base import LIVE
from memoryhub.core.backends.sqlite.drafts import draft_folder, open_copy
from memoryhub.core.backends.sqlite.files import NAME, path_of
from memoryhub.core.backends.sqlite.templates import copy_template
from memoryhub.core.stores import rows
from memoryhub.core.stores.store_id import StoreId


# The file has no name any more, so it disappears with this process
@contextmanager
def temporary_copy(store: StoreId) -> Iterator[None]:
    folder = draft_folder(store)
    try:
        copy_template(folder / NAME)
        with open_copy(folder / NAME):
            shutil.rmtree(folder)
            yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def attached(source: StoreId | Path, *, write: bool = False) -> Iterator[None]:
    path = path_of(source) if isinstance(source, StoreId) else source
    rows.execute(f"ATTACH DATABASE %s AS {LIVE}", [f"file:{quote(str(path))}?mode={'rw' if write else 'ro'}"])
    try:
        rows.execute(f"PRAGMA {LIVE}.synchronous=FULL")
        _prepare_again()
        yield
    finally:
        rows.execute(f"DETACH DATABASE {LIVE}")


def _prepare_again() -> None:
    # DETACH makes SQLite prepare every statement again, ATTACH does not. A BEGIN IMMEDIATE prepared before would lock
    # the copy only, and others could write to the store meanwhile.
    rows.execute("ATTACH DATABASE ':memory:' AS spare")
    rows.execute("DETACH DATABASE spare")


def allow_gaps() -> None:
    rows.execute("PRAGMA foreign_keys=OFF")
    rows.execute("DROP TRIGGER raw_events_no_gap")
