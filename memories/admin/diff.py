"""The diff of two texts as HTML, readable by a screen reader."""

from __future__ import annotations

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from memories.diff import Effort, Piece, compare

_REMOVED = '<del><span class="visually-hidden">[removed:</span>{}<span class="visually-hidden">]</span></del>'
_ADDED = '<ins><span class="visually-hidden">[added:</span>{}<span class="visually-hidden">]</span></ins>'


def word_diff(before: str, after: str, effort: Effort | None = None) -> SafeString:
    """Return the changed lines with two lines of context; deletions in ``del``, insertions in ``ins``."""
    return _joined([_html(piece) for piece in compare(before, after, effort)])


def side_by_side(before: str, after: str, effort: Effort | None = None) -> tuple[SafeString, SafeString]:
    """Return both texts, the first with the deletions marked, the second with the insertions."""
    pieces = list(compare(before, after, effort))
    first = [_html(Piece(piece.text, piece.gone, "", piece.hidden_lines)) for piece in pieces]
    second = [_html(Piece(piece.text, "", piece.come, piece.hidden_lines)) for piece in pieces]
    return _joined(first), _joined(second)


def marked(word: str, *, is_new: bool) -> SafeString:
    return format_html(_ADDED if is_new else _REMOVED, word)


def _joined(parts: list[SafeString]) -> SafeString:
    return format_html_join("", "{}", ((part,) for part in parts))


def _html(piece: Piece) -> SafeString:
    if piece.hidden_lines:
        noun = "line" if piece.hidden_lines == 1 else "lines"
        return format_html('<span class="gap">{} unchanged {}</span>', piece.hidden_lines, noun)
    removed = marked(piece.gone, is_new=False) if piece.gone else ""
    added = marked(piece.come, is_new=True) if piece.come else ""
    return format_html("{}{}{}", piece.text, removed, added)
