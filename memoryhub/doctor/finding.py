"""One thing that is wrong."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong, and what to do about it."""

    where: str
    """Whose it is: ``project alpha``, ``hub.db``, …"""
    what: str
    """What is wrong, as a sentence without its stop."""
    mend: str
    """What to do."""
