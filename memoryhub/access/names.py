"""What people and tokens may be called: as projects are, so that a name is plain wherever it is shown."""

from __future__ import annotations

from memoryhub.core.stores import SLUG


def plain_name(name: str) -> str:
    """Return the name if it is plain.

    Raises:
        ValueError: it is not; the text says what is.
    """
    if not SLUG.fullmatch(name):
        raise ValueError("use 1 to 64 of a-z, 0-9, '.', '_', '-', starting with a letter or digit")
    return name
