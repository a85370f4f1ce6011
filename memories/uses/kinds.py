"""The ways in which a memory comes to use."""

from __future__ import annotations

from enum import StrEnum


class Use(StrEnum):
    """What happened to a memory; each is a column of ``MemoryUse``."""

    GIVEN = "given"
    """A context pack told it."""
    FOUND = "found"
    """A search or a query showed it."""
    FETCHED = "fetched"
    """It was asked for by id or name."""
    CITED = "cited"
    """A later memory, decision, answer or summary names it."""
    UPDATED = "updated"
    """It got a new version."""


NOTED = (Use.GIVEN, Use.FOUND, Use.FETCHED)
"""What leaves no event by itself; of packs, what they told of other stores than their own."""
