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
