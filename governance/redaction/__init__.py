"""Remove text from the log and from every copy of it."""

from __future__ import annotations


def register() -> None:
    from governance import projectors  # noqa: F401
