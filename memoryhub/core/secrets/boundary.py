"""Where a word begins, also behind what is written as an escape."""

from __future__ import annotations

LETTERS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
_ESCAPED = frozenset((b"n", b"r", b"t", b"f", b"b", b"0"))
_HEX = frozenset(b"0123456789abcdefABCDEF")


def begins_word(data: bytes, start: int, first: int, not_after: bytes = b"") -> bool:
    """Say whether a word can begin at ``start``; what stands before ``first`` does not count."""
    if start <= first:
        return True
    before = data[start - 1]
    if before not in LETTERS and before not in not_after:
        return True
    return _ends_in_escape(data[max(first, start - 6) : start])


def _ends_in_escape(before: bytes) -> bool:
    """Say whether text ends as an escape does, with a backslash or ``%``: its end looks like a letter or digit."""
    if before[-2:-1] == b"\\":
        return before[-1:] in _ESCAPED
    if before[-6:-4] == b"\\u":
        return _HEX.issuperset(before[-4:])
    return (before[-4:-2] == b"\\x" or before[-3:-2] == b"%") and _HEX.issuperset(before[-2:])
