"""What lists and pages of decisions show of a decision at a glance."""

from __future__ import annotations

from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from decisions.models import Decision, DecisionStatus, Impact
from memoryhub.core.admin import cells

_FIRST = 160


def status(value: str) -> SafeString:
    """Return the status as a mark."""
    return cells.badge(value, str(DecisionStatus(value).label))


def impact(value: str) -> SafeString:
    """Return the impact as a mark."""
    return cells.badge(f"impact-{value}", str(Impact(value).label))


def warnings(decision: Decision) -> SafeString:
    """Return marks for what to know before relying on a decision."""
    found = [cells.badge("review", "To review")] if decision.review else []
    return format_html_join(" ", "{}", ((each,) for each in found))


def is_struck(value: str) -> bool:
    """Whether what has this status does not hold any more."""
    return value in (DecisionStatus.SUPERSEDED, DecisionStatus.REJECTED)


def brief(text: str) -> str:
    """Return the first paragraph of a text as one line of at most 160 characters, without the marks of Markdown."""
    paragraph = text.strip().split("\n\n", 1)[0]
    line = " ".join(paragraph.split()).lstrip("#>- ").replace("**", "").replace("`", "")
    return f"{line[:_FIRST].rstrip()} …" if len(line) > _FIRST else line
