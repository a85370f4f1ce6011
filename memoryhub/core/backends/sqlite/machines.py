"""A hub on one machine, without a server: a lease is a locked file with its holder's text (decision 22)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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


def agreed_secret(_name: str, proposal: str) -> str:
    return proposal


class _Lease:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.abandoned = _lease_text(descriptor)

    def write(self, text: str) -> None:
        os.pwrite(self._descriptor, text.encode().ljust(_WIDTH), 0)


# A file lock ends with its process, however that ends. Content of a file that nobody locks was left by one that died.
@contextmanager
def holding(name: str) -> Iterator[_Lease | None]:
    descriptor = _open_file(name)
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
        descriptor = os.open(_locks_folder() / name, os.O_RDWR)
    except FileNotFoundError:
        yield "", ""
        return
    try:
        content = _lease_text(descriptor)
        if not content:
            yield "", ""
        elif try_lock(descriptor):
            yield "", _lease_text(descriptor)  # the holder may have ended meanwhile
            os.ftruncate(descriptor, 0)
        else:
            yield content, ""
    finally:
        os.close(descriptor)


def texts() -> dict[str, str]:
    lease_texts = {}
    for path in _locks_folder().iterdir():
        with path.open("rb") as file:
            if content := _lease_text(file.fileno()):
                lease_texts[path.name] = content
    return lease_texts


# Shared, so that the processes that this one forks share the lock until the last has ended
def announce(name: str) -> ExitStack:
    descriptor = _open_file(name)
    share_lock(descriptor)
    presence = ExitStack()
    presence.callback(os.close, descriptor)
    return presence


def is_present(name: str) -> bool:
    descriptor = _open_file(name)
    try:
        return not try_lock(descriptor)
    finally:
        os.close(descriptor)


def stamp(_store: StoreId) -> object:
    return None


def _lease_text(descriptor: int) -> str:
    return os.pread(descriptor, _WIDTH, 0).decode("utf-8", "replace").strip("\0 ")


def _open_file(name: str) -> int:
    return os.open(_locks_folder() / name, os.O_RDWR | os.O_CREAT, 0o600)


def _locks_folder() -> Path:
    folder = env.prepare_home() / "locks"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def server_address() -> str:
    return "SQLite files in the home folder"


def server_problems() -> list[tuple[str, str, str]]:
    return []
