"""Where a private key ends that was found by its first line."""

from __future__ import annotations

from .found import Found
from .pattern import Span, compiled

_MAX_KEY = 24_000
_LINE = rb"[A-Za-z0-9+/=]+|[A-Z][A-Za-z-]{2,20}: [^\n\\]{0,120}"
_BREAKS = rb"(?:\s|\\{1,4}[nrt]|[\"',+])+"


def whole_block(found: Found) -> Span | None:
    """Return the block up to its end line; of one that was cut short, as far as it reads as a key."""
    data, start, head = found.data, found.start, found.end
    limit = min(found.limit, head + _MAX_KEY)
    dashes = data.find(b"-----", head, limit)
    if dashes >= 0 and data.startswith(b"-----END", dashes):
        closing = data.find(b"-----", dashes + 8, min(limit, dashes + 80))
        end = closing + 5 if closing >= 0 else dashes + 8
        return (start, end) if end - head > 40 else None
    end = _end_of_lines(data, head, limit)
    return (start, end) if end - head > 16 else None


def _end_of_lines(data: bytes, position: int, limit: int) -> int:
    """Return where the lines of base64 or of headers stop."""
    end = position
    while position < limit:
        gap = compiled(_BREAKS).at(data, position, limit)
        line = compiled(_LINE).at(data, gap[0][1] if gap else position, limit)
        text = data[slice(*line[0])] if line else b""
        if line is None or (len(text) < 20 and not text.endswith(b"=") and b":" not in text):
            break
        position = end = line[0][1]
    return end
