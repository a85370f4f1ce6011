"""What an error of PostgreSQL means, by its SQLSTATE."""

from __future__ import annotations

import psycopg

_LOCKED = {"55P03", "40P01", "40001", "53300"}
# Classes of a connection that is lost, and of a server that ends or fails; and of a completion that is unknown
_UNDECIDED = ("08", "57", "58", "XX", "40003")
_DAMAGED = {"XX001", "XX002", "42P01", "42703", "3F000", "42P07", "22021"}


def is_locked(error: BaseException) -> bool:
    return _sqlstate(error) in _LOCKED


def is_interrupted(error: BaseException) -> bool:
    return _sqlstate(error) == "57014"


# psycopg refuses it in a parameter, the server in JSON
def has_nul(error: BaseException) -> bool:
    return isinstance(error, psycopg.DataError) and (_sqlstate(error) == "22P05" or "(0x00)" in str(error))


def is_refused(error: BaseException) -> bool:
    return _sqlstate(error) == "42501"


def is_full(error: BaseException) -> bool:
    return _sqlstate(error) == "53100"


def may_have_committed(error: BaseException) -> bool:
    state = _sqlstate(error)
    # Without a state there was no answer at all
    return state is None or state.startswith(_UNDECIDED)


def is_missing_table(error: BaseException) -> bool:
    return _sqlstate(error) in ("42P01", "3F000")


# The schema of a store that has moved has another name
is_fenced = is_missing_table


def is_damage(error: BaseException | None) -> bool:
    return error is not None and _sqlstate(error) in _DAMAGED


def shorten(error: psycopg.Error) -> None:
    """Keep the first sentence of an error, for users; a traceback has the statement and the context too."""
    text = str(error)
    sentence = error.diag.message_primary or text.partition("\n")[0]
    if text != sentence:
        error.add_note(text)
        error.args = (sentence,)


def _sqlstate(error: BaseException) -> str | None:
    # Django's errors have the driver's as their cause
    while True:
        state: str | None = getattr(error, "sqlstate", None)
        if state or error.__cause__ is None:
            return state
        error = error.__cause__
