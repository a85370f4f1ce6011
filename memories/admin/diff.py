"""The comparison of two texts as HTML; what colours and lines say is said in hidden words too."""

from __future__ import annotations

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from memories.diff import Piece, compare

_GONE = '<del><span class="visually-hidden">[gone:</span>{}<span class="visually-hidden">]</span></del>'
_COME = '<ins><span class="visually-hidden">[new:</span>{}<span class="visually-hidden">]</span></ins>'


def word_diff(before: str, after: str) -> SafeString:
    """Return the changed lines with two lines around them; what went is in ``del``, what came is in ``ins``."""
    return _joined([_html(piece) for piece in compare(before, after)])


def side_by_side(before: str, after: str) -> tuple[SafeString, SafeString]:
    """Return the same comparison as two texts: the first with what went, the second with what came."""
    pieces = list(compare(before, after))
    first = [_html(Piece(piece.text, piece.gone, "", piece.hidden_lines)) for piece in pieces]
    second = [_html(Piece(piece.text, "", piece.come, piece.hidden_lines)) for piece in pieces]
    return _joined(first), _joined(second)


def marked(word: str, *, is_new: bool) -> SafeString:
    """Return a word that came or went as a whole."""
    return format_html(_COME if is_new else _GONE, word)


def _joined(parts: list[SafeString]) -> SafeString:
    return format_html_join("", "{}", ((part,) for part in parts))


def _html(piece: Piece) -> SafeString:
    if piece.hidden_lines:
        noun = "line" if piece.hidden_lines == 1 else "lines"
        return format_html('<span class="gap">{} unchanged {}</span>', piece.hidden_lines, noun)
    gone = marked(piece.gone, is_new=False) if piece.gone else ""
    come = marked(piece.come, is_new=True) if piece.come else ""
    return format_html("{}{}{}", piece.text, gone, come)
