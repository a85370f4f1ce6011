"""SQLite has no server."""

from __future__ import annotations


def address() -> str:
    return "SQLite files in the home folder"


def problems() -> list[tuple[str, str, str]]:
    return []
