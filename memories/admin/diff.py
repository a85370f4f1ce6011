"""The comparison of two texts as HTML."""

from __future__ import annotations

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from memories.diff import Piece, compare


def word_diff(before: str, after: str) -> SafeString:
    """Return the changed lines with two lines around them; what went is in ``del``, what came is in ``ins``."""
    return format_html_join("", "{}", ((_html(piece),) for piece in compare(before, after)))


def _html(piece: Piece) -> SafeString:
    if piece.hidden_lines:
        noun = "line" if piece.hidden_lines == 1 else "lines"
        return format_html('<span class="gap">{} unchanged {}</span>', piece.hidden_lines, noun)
    gone = format_html("<del>{}</del>", piece.gone) if piece.gone else ""
    come = format_html("<ins>{}</ins>", piece.come) if piece.come else ""
    return format_html("{}{}{}", piece.text, gone, come)
