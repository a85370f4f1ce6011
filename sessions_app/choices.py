"""Choices that more than one module of this app names."""

from __future__ import annotations

from enum import StrEnum


class TurnPolicy(StrEnum):
    """Who keeps the turns of a project."""

    AUTO = "auto"
    """The hub opens and closes them by itself."""
    STRICT = "strict"
    """The client does, and shows a token with every write."""


class EndedWith(StrEnum):
    """What becomes of a scratch session's entries when it ends."""

    PROMOTE = "promote"
    DISCARD = "discard"


class ReviewPolicy(StrEnum):
    """Which of what agents write waits for a person."""

    OFF = "off"
    SAMPLED = "sampled"
    ALL = "all"


class SearchMode(StrEnum):
    """How a store is searched."""

    AUTO = "auto"
    """By words, and by meaning where vectors are at hand; by LIKE where SQLite has no FTS5."""
    FTS5 = "fts5"
    """By words alone, and not at all without the full-text index."""
    BASIC = "basic"
    """By LIKE, although there is a full-text index."""
