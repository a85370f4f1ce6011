"""What an error of SQLite means. Its texts are stable; result codes do not reach Django's exceptions."""

from __future__ import annotations

from django.db import DatabaseError

_SIGNS_OF_DAMAGE = (
    "malformed",
    "corrupt",
    "decode",
    "not a database",
    "unsupported file format",
    "same text encoding",
    "no such table",
    "no such column",
    "already exists",
    "vtable constructor failed",
    "SQL logic error",
    "too big",
)

# What the trigger of a store that has moved says
FENCED = "the store has moved"


def is_locked(error: BaseException) -> bool:
    return "locked" in str(error)


def is_interrupted(error: BaseException) -> bool:
    return "interrupted" in str(error)


def is_full(error: BaseException) -> bool:
    return "disk is full" in str(error)


# The write-ahead log may have the whole transaction, for another process to recover. The driver does not tell an error
# of the sync, after which it may, from one of a write.
def may_have_committed(error: BaseException) -> bool:
    return getattr(error.__cause__, "sqlite_errorname", "").startswith("SQLITE_IOERR")


def is_fenced(error: BaseException) -> bool:
    return FENCED in str(error)


def is_missing_table(error: BaseException) -> bool:
    return "no such table" in str(error)


def is_damage(error: BaseException | None) -> bool:
    return isinstance(error, DatabaseError) and any(sign in str(error) for sign in _SIGNS_OF_DAMAGE)
