"""Limits to what glibc's allocator keeps."""

from __future__ import annotations

import ctypes
from contextlib import suppress

# Parameters of mallopt, from glibc's malloc.h
_M_TRIM_THRESHOLD, _M_ARENA_MAX = -1, -8


# By default glibc gives most threads an arena of their own, and what is free in one is of no use to the others. Only
# glibc keeps freed memory like this, so another C library needs none of it.
def bound_allocator(*, arenas: int, kept_free_bytes: int | None = None) -> None:
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_ARENA_MAX, arenas)
        if kept_free_bytes is not None:
            library.mallopt(_M_TRIM_THRESHOLD, kept_free_bytes)
