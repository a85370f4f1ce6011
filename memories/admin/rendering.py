"""Markdown that others wrote, as HTML that can do nothing: no HTML of its own, no image, no link but to the web."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt

from memoryhub.core.kind_registry import Rendering

MAX_RENDERED = 60_000
"""Longer texts are shown as they are."""

_REDACTED = re.compile(r"\[REDACTED:([a-z0-9-]{1,40})(?::([0-9a-f]{4}))?\]")
_WEB = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)


class _Markdown(MarkdownIt):
    """Follows links to the web alone: a relative one would lead into this hub."""

    def validateLink(self, url: str) -> bool:  # noqa: N802 - the library's name
        """Whether a link may be followed."""
        return bool(_WEB.match(url)) and super().validateLink(url)


def render(text: str, rendering: Rendering = Rendering.MARKDOWN) -> SafeString:
    """Return a text as HTML; in Markdown, redacted parts are marked."""
    if rendering is Rendering.CODE:
        return format_html('<pre class="json" tabindex="0">{}</pre>', text)
    if rendering is Rendering.PLAIN or len(text) > MAX_RENDERED:
        return format_html('<pre class="plain">{}</pre>', text)
    rendered: SafeString = mark_safe(_renderer().render(text))  # noqa: S308 - it escapes everything; see the tests
    return rendered


@cache
def _renderer() -> MarkdownIt:
    markdown = _Markdown("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")
    markdown.add_render_rule("text", _text)
    markdown.add_render_rule("link_open", _link_open)
    return markdown


def _text(_renderer: Any, tokens: Sequence[Any], index: int, _options: Any, _env: Any) -> str:
    return _REDACTED.sub(_mark, escape(tokens[index].content))


def _mark(tag: re.Match[str]) -> str:
    """Return a tag as it is shown; the same secret has the same digits, so that one sees that it is the same."""
    digits = f" · {tag[2]}" if tag[2] else ""
    return f'<mark class="redacted">{tag[1]} redacted{digits}</mark>'


def _link_open(renderer: Any, tokens: Sequence[Any], index: int, options: Any, env: Any) -> str:
    tokens[index].attrSet("rel", "noopener noreferrer nofollow")
    rendered: str = renderer.renderToken(tokens, index, options, env)
    return rendered
