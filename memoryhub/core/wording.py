"""How numbers of things are said."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return ``1 memory`` or ``2 memories``.

    Args:
        number: how many.
        noun: one of them.
        plural: several; default: the noun with an s.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
