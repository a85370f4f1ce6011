"""The inbox page: the list beside each item's own page, and verdicts on several items at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import urlencode

from governance.inbox import Entry, EntryType, by_session, count_entries, list_entries
from governance.staleness.schemas import Affirm
from governance.staleness.services import affirm
from memories.admin.answers import sentence
from memories.admin.review_item import AT_ONCE, CAN_UNDO, review_and_report
from memories.events import Verdict
from memories.review.schemas import ReviewVerdict
from memories.review.selectors import last_verdict_of
from memoryhub.core.errors import HubError
from memoryhub.core.permissions import Act, may
from memoryhub.core.text import counted
from memoryhub.web.live import HEADER

_LABELS = {
    EntryType.SECRET: "Secrets",
    EntryType.CONFLICT: "Conflicts",
    EntryType.PROPOSAL: "Proposals",
    EntryType.RECHECK: "Recheck",
}
_NAMES = {
    EntryType.SECRET: "Secrets",
    EntryType.CONFLICT: "Conflict",
    EntryType.PROPOSAL: "Proposal",
    EntryType.RECHECK: "Recheck",
}
_VIEWS = {
    EntryType.SECRET: "admin:governance_redaction_changelist",
    EntryType.CONFLICT: "admin:memories_conflict_change",
    EntryType.PROPOSAL: "admin:memories_review_item",
    EntryType.RECHECK: "admin:governance_affirmation_item",
}
# Types whose verdicts can be given to several at once
_IN_BULK = (EntryType.PROPOSAL, EntryType.RECHECK)
KEYS = (
    ("j", "next item"),
    ("k", "previous item"),
    ("x", "select"),
    ("Shift j", "select, and the next"),
    ("a", "accept, or still valid"),
    ("r", "reject or retire, with an optional reason"),
    ("e", "edit, then accept"),
    ("m", "merge into another memory"),
    ("n", "still valid, with a note"),
    ("s", "supersede the decision or revise the memory"),
    ("u", "undo your last verdict"),
    ("Esc", "close, or go back"),
)


@dataclass(frozen=True, slots=True)
class Row:
    entry: Entry
    url: str
    label: str
    is_current: bool
    can_select: bool

    @property
    def value(self) -> str:
        """What the row's checkbox sends."""
        return f"{self.entry.key}-{self.entry.version}"


def inbox_of(request: HttpRequest) -> dict[str, Any]:
    """Return the list beside an item's page: rows in groups, and where the neighbours of the item are."""
    shown = _shown(request)
    counts = count_entries()
    current = getattr(request, "inbox_key", "")  # set by the view of an item
    entries = list_entries([shown] if shown else tuple(EntryType))
    can_select = may(request.user, Act.REVIEW)
    groups = [
        (session_id, [_row(entry, shown, current, can_select=can_select) for entry in group])
        for session_id, group in by_session(entries)
    ]
    rows = [row for _, group in groups for row in group]
    at = next((number for number, row in enumerate(rows) if row.is_current), None)
    before = rows[at - 1] if at else None
    after = (rows[at + 1] if at + 1 < len(rows) else None) if at is not None else (rows[0] if rows else None)
    following = after if at is not None and after else before
    return {
        "groups": groups,
        "number": at + 1 if at is not None else None,
        "total": sum(count for name, count in counts.items() if not shown or name == shown),
        "listed": len(rows),
        "filters": _filters(counts, shown),
        "before": before.url if before else "",
        "after": after.url if after else "",
        # Where a verdict leads
        "next": following.url if following else reverse("admin:inbox"),
        "undo_ids": _to_undo(request),
        "last": last_verdict_of(request.user.get_username()) if can_select else None,
        "url": _with_filter(reverse("admin:inbox"), shown),
    }


def _to_undo(request: HttpRequest) -> list[int]:
    """Return the memories whose verdicts were given together; they are offered once."""
    found: list[int] = request.session.pop(CAN_UNDO, []) if HEADER not in request.headers else []
    return found


def _shown(request: HttpRequest) -> EntryType | None:
    wanted = request.GET.get("show", "")
    return EntryType(wanted) if wanted in set(EntryType) else None


def _row(entry: Entry, shown: EntryType | None, current: str, *, can_select: bool) -> Row:
    view = _VIEWS[entry.type]
    url = f"{reverse(view)}?way=rules" if entry.type is EntryType.SECRET else reverse(view, args=[entry.id])
    return Row(
        entry,
        url if entry.type is EntryType.SECRET else _with_filter(url, shown),
        _NAMES[entry.type],
        entry.key == current,
        can_select and entry.type in _IN_BULK,
    )


def _with_filter(url: str, shown: EntryType | None) -> str:
    return f"{url}?{urlencode({'show': shown})}" if shown else url


def _filters(counts: dict[EntryType, int], shown: EntryType | None) -> list[dict[str, Any]]:
    url = reverse("admin:inbox")
    every = {"label": "All", "count": sum(counts.values()), "url": url, "is_shown": shown is None}
    return [
        every,
        *(
            {"label": _LABELS[name], "count": count, "url": _with_filter(url, name), "is_shown": name == shown}
            for name, count in counts.items()
        ),
    ]


def show_inbox(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    return TemplateResponse(request, "admin/inbox.html", {**context, "title": "Inbox"})


def give_verdicts(request: HttpRequest) -> HttpResponse:
    """Give one verdict on the items that were selected in the list."""
    here = _with_filter(reverse("admin:inbox"), _shown(request))
    chosen = [parts for value in request.POST.getlist("entry") if (parts := _parsed(value))]
    verdict = request.POST.get("verdict", "")
    if not chosen or verdict not in ("accepted", "rejected", "affirmed"):
        messages.error(request, "Select items and choose a verdict. Nothing was changed.")
    elif len(chosen) > AT_ONCE:
        messages.error(request, f"Select at most {AT_ONCE} items at a time. Nothing was changed.")
    elif verdict == "affirmed":
        _affirm(request, [number for name, number, _ in chosen if name is EntryType.RECHECK])
    else:
        proposals = [(number, version) for name, number, version in chosen if name is EntryType.PROPOSAL]
        commands = [
            ReviewVerdict(id=number, base_version=version or None, verdict=Verdict(verdict))
            for number, version in proposals
        ]
        review_and_report(request, commands)
    return redirect(here)


def _parsed(value: str) -> tuple[EntryType, int, int] | None:
    name, _, rest = value.partition("-")
    number, _, version = rest.partition("-")
    if name not in set(EntryType) or not (number.isdecimal() and version.isdecimal()) or len(rest) > 30:
        return None
    return EntryType(name), int(number), int(version)


def _affirm(request: HttpRequest, ids: list[int]) -> None:
    done = 0
    for entity_id in ids:
        try:
            affirm(command=Affirm(id=entity_id))
            done += 1
        except HubError as error:
            messages.warning(request, sentence(error))
    if done:
        messages.success(request, f"{counted(done, 'item')} confirmed as still valid.")
