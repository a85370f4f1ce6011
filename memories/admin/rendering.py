"""Untrusted Markdown as safe HTML: raw HTML and images are disabled, and links lead only to the web."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML

from memoryhub.core.kinds import Rendering

MAX_RENDERED = 60_000  # longer texts are shown as source

_REDACTED = re.compile(r"\[REDACTED:([a-z0-9-]{1,40})(?::([0-9a-f]{4}))?\]")
_WEB = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)


class _Markdown(MarkdownIt):
    def validateLink(self, url: str) -> bool:  # noqa: N802 - the library's name
        # A relative link would lead into this hub.
        return bool(_WEB.match(url)) and super().validateLink(url)


def render(text: str, rendering: Rendering = Rendering.MARKDOWN) -> SafeString:
    """Return a text as HTML; placeholders of secrets in Markdown become badges."""
    if rendering is Rendering.CODE:
        return format_html('<pre class="json" tabindex="0">{}</pre>', text)
    if len(text) > MAX_RENDERED:
        return format_html('<pre class="plain" tabindex="0">{}</pre>', text)
    rendered: SafeString = mark_safe(_renderer().render(text))  # noqa: S308 - it escapes everything; see the tests
    return rendered


@cache
def _renderer() -> MarkdownIt:
    markdown = _Markdown("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")
    markdown.add_render_rule("text", _text)
    markdown.add_render_rule("link_open", _link_open)
    scroll_by_keyboard(markdown)
    return markdown


def scroll_by_keyboard(markdown: MarkdownIt) -> None:
    """Let the keyboard reach code blocks, which scroll if a line is long."""
    for name in ("fence", "code_block"):
        markdown.add_render_rule(name, _reachable(name))


def _reachable(name: str) -> Callable[..., str]:
    def block(renderer: Any, *arguments: Any) -> str:
        rendered: str = getattr(RendererHTML, name)(renderer, *arguments)
        return rendered.replace("<pre>", '<pre tabindex="0">', 1)

    return block


def _text(_renderer: Any, tokens: Sequence[Any], index: int, _options: Any, _env: Any) -> str:
    return _REDACTED.sub(_mark, escape(tokens[index].content))


def _mark(tag: re.Match[str]) -> str:
    # The same secret has the same four digits.
    digits = f" · {tag[2]}" if tag[2] else ""
    return f'<mark class="redacted">{tag[1]} redacted{digits}</mark>'


def _link_open(renderer: Any, tokens: Sequence[Any], index: int, options: Any, env: Any) -> str:
    tokens[index].attrSet("rel", "noopener noreferrer nofollow")
    rendered: str = renderer.renderToken(tokens, index, options, env)
    return rendered
