"""The page of a file's lines, each with what led to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from pydantic import ValidationError

from governance.blame.schemas import BlamedRange, BlameRequest
from governance.blame.selectors import Blame, blame
from memories.admin.answers import sentence
from memoryhub.core.errors import HubError
from memoryhub.core.validation import explain
from sessions_app.git import Line

# Lines that a page shows
_PAGE = 500


@dataclass(frozen=True, slots=True)
class Part:
    """A range with its lines."""

    range: BlamedRange
    lines: list[Line]
    # The trail of its commit is above
    is_repeated: bool


def show_blame(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    file, first, last = (request.GET.get(name, "").strip() for name in ("file", "first", "last"))
    shown: dict[str, Any] = {"file": file, "first": first, "last": last}
    if file:
        try:
            shown |= _shown(blame(command=_asked(file, first, last)))
        except HubError as error:
            shown["problem"] = sentence(error)
        except ValidationError as error:
            shown["problem"] = f"{explain(error)}."
    title = f"Blame {file}" if file else "Blame"
    return TemplateResponse(request, "admin/blame.html", {**context, "title": title, **shown})


def _asked(file: str, first: str, last: str) -> BlameRequest:
    start = int(first) if first.isdecimal() and first.isascii() else 1
    end = int(last) if last.isdecimal() and last.isascii() else start + _PAGE - 1
    return BlameRequest(file=file, first=start, last=min(end, start + _PAGE - 1), limit=_PAGE)


def _shown(found: Blame) -> dict[str, Any]:
    view = found.view
    parts: list[Part] = []
    seen: set[str] = set()
    for part in view.ranges:
        sha = part.commit.sha if part.commit else ""
        parts.append(Part(part, found.lines[part.first - view.first : part.last - view.first + 1], sha in seen))
        seen.add(sha)
    is_cut = len(found.lines) == _PAGE
    return {"view": view, "parts": parts, "next": view.last + 1 if is_cut else None}
