"""A hub on one machine, without a server: a lease is a locked file, whose content is what its holder shows (decision 22)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memoryhub import env
from memoryhub.core.file_locks import lock, share_lock, try_lock
from memoryhub.core.stores.store_id import StoreId

SHARED = False
_WIDTH = 512
# Inspecting a lease takes its lock for a moment
_LOCK_SECONDS = 0.1


def machine() -> str:
    return ""


def agreed_secret(_name: str, own: str) -> str:
    return own


class _Lease:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.left = _content(descriptor)

    def write(self, text: str) -> None:
        os.pwrite(self._descriptor, text.encode().ljust(_WIDTH), 0)


# A file lock ends with its process, however that ends. Content of a file that nobody locks was left by one that died.
@contextmanager
def holding(name: str) -> Iterator[_Lease | None]:
    descriptor = os.open(_path(name), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not lock(descriptor, seconds=_LOCK_SECONDS):
            yield None
            return
        yield _Lease(descriptor)
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


@contextmanager
def inspect(name: str) -> Iterator[tuple[str, str]]:
    try:
        descriptor = os.open(_path(name), os.O_RDWR)
    except FileNotFoundError:
        yield "", ""
        return
    try:
        content = _content(descriptor)
        if not content:
            yield "", ""
        elif try_lock(descriptor):
            yield "", _content(descriptor)  # the holder may have ended meanwhile
            os.ftruncate(descriptor, 0)
        else:
            yield content, ""
    finally:
        os.close(descriptor)


def texts() -> dict[str, str]:
    found = {}
    for path in _folder().iterdir():
        with path.open("rb") as file:
            if content := _content(file.fileno()):
                found[path.name] = content
    return found


class _Presence:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def close(self) -> None:
        os.close(self._descriptor)


# Shared, so that the processes that this one forks share the lock until the last has ended
def announce(name: str) -> _Presence:
    descriptor = os.open(_path(name), os.O_RDWR | os.O_CREAT, 0o600)
    share_lock(descriptor)
    return _Presence(descriptor)


def is_present(name: str) -> bool:
    descriptor = os.open(_path(name), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        return not try_lock(descriptor)
    finally:
        os.close(descriptor)


def stamp(_store: StoreId) -> object:
    return None


def _content(descriptor: int) -> str:
    return os.pread(descriptor, _WIDTH, 0).decode("utf-8", "replace").strip("\0 ")


def _path(name: str) -> Path:
    return _folder() / name


def _folder() -> Path:
    folder = env.prepare_home() / "locks"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def address() -> str:
    return "SQLite files in the home folder"


def problems() -> list[tuple[str, str, str]]:
    return []
