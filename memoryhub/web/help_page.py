"""The documentation inside the hub: it needs no network and describes the installed version."""

from __future__ import annotations

import mimetypes
import posixpath
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.safestring import mark_safe
from django.views.decorators.http import require_safe
from markdown_it import MarkdownIt

from memories.admin.rendering import scroll_by_keyboard

_PACKAGE = Path(__file__).parents[1]
# In a wheel the documentation is inside the package; in a checkout it is beside it.
DOCS = next(filter(Path.is_dir, (_PACKAGE / "docs", _PACKAGE.parent / "docs"))).resolve()
_START = "index.md"

# Which document the link "Help" of a page opens, by the beginning of the page's URL name.
GUIDES = {
    "memories_review": "guides/review.md",
    "worth": "guides/worth.md",
    "memories_conflict": "concepts.md#memories",
    "memories_contextpack": "concepts.md#context-packs-and-search",
    "memories_pack": "concepts.md#context-packs-and-search",
    "memories_searchdocument": "concepts.md#context-packs-and-search",
    "memories_memory_changelist": "guides/lists.md",
    "memories_tag": "guides/lists.md#tags",
    "blame": "guides/blame.md",
    "imports": "guides/switch-from-another-tool.md",
    "import": "guides/switch-from-another-tool.md",
    "graph": "guides/lists.md#see-what-surrounds-an-item",
    "inbox": "guides/review.md",
    "memories_": "concepts.md#memories",
    "decisions_": "guides/decision-records.md",
    "governance_redaction": "guides/redact.md",
    "governance_retentionrun": "guides/retention.md",
    "governance_hold": "guides/retention.md",
    "governance_rollback": "guides/roll-back.md",
    "governance_affirmation": "guides/recheck.md",
    "sessions_app_": "concepts.md#sessions-turns-and-iterations",
    "core_rawevent": "concepts.md#home-stores-and-the-log",
    "replay": "concepts.md#home-stores-and-the-log",
    "as_of": "concepts.md#home-stores-and-the-log",
    "secrets": "internals/sanitising.md",
    "settings": "reference/settings.md",
    "describe": "concepts.md#projects",
    "new-": "concepts.md#projects",
    "index": "quick-start.md",
    "home": "quick-start.md",
    "people": "guides/team.md",
    "tokens": "guides/team.md",
    "revoke-token": "guides/team.md",
    "signin": "troubleshooting.md#the-sign-in-link-does-not-work",
    "jobs": "reference/jobs.md",
}


def guide_for(url_name: str) -> str:
    """Return the document about a page, as a path below ``docs``; the table of contents if there is none."""
    return next((guide for prefix, guide in GUIDES.items() if url_name.startswith(prefix)), _START)


@require_safe
def show_help(request: HttpRequest, page: str = _START) -> HttpResponse:
    path = (DOCS / page).resolve()
    if path.is_dir():
        path /= "README.md"
    if not path.is_relative_to(DOCS) or not path.is_file():
        raise Http404("the documentation has no such page")
    if path.suffix != ".md":
        return HttpResponse(path.read_bytes(), content_type=mimetypes.guess_type(path)[0])
    text = path.read_text("utf-8")
    rendered = mark_safe(_renderer().render(text, {"page": page}))  # noqa: S308 - our own text, and HTML is escaped
    title = text.partition("\n")[0].lstrip("# ")
    return render(request, "memoryhub/help.html", {"title": title, "text": rendered, "is_start": page == _START})


@cache
def _renderer() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    markdown.add_render_rule("heading_open", _heading_open)
    markdown.add_render_rule("link_open", _link_open)
    scroll_by_keyboard(markdown)
    return markdown


def _heading_open(renderer: Any, tokens: Sequence[Any], index: int, options: Any, env: Any) -> str:
    words = re.sub(r"[^\w\- ]", "", tokens[index + 1].content.lower())  # the anchor that GitHub gives a heading
    tokens[index].attrSet("id", words.replace(" ", "-"))
    return str(renderer.renderToken(tokens, index, options, env))


def _link_open(renderer: Any, tokens: Sequence[Any], index: int, options: Any, env: Any) -> str:
    target = posixpath.normpath(posixpath.join(posixpath.dirname(env["page"]), tokens[index].attrs["href"]))
    if target.startswith("../"):
        del tokens[index].attrs["href"]  # a file of the repository that no wheel contains
    return str(renderer.renderToken(tokens, index, options, env))
