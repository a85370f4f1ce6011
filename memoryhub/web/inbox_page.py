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

from governance.inbox import MOST, InboxItem, InboxItemType, by_session, count_entries, open_entries, with_texts
from governance.staleness.schemas import Affirm
from governance.staleness.service import affirm
from memories.admin.base import sentence
from memories.admin.review_item import AT_ONCE, CAN_UNDO, review_and_report
from memories.events import Verdict
from memories.review.schemas import ReviewVerdict
from memories.review.selectors import last_verdict_of
from memoryhub.core.errors import HubError
from memoryhub.core.kinds import KINDS
from memoryhub.core.permissions import Act, may
from memoryhub.core.text import counted
from memoryhub.web.live import HEADER

_LABELS = {
    InboxItemType.SECRET: "Secrets",
    InboxItemType.CONFLICT: "Conflicts",
    InboxItemType.PROPOSAL: "Proposals",
    InboxItemType.RECHECK: "Recheck",
}
_NAMES = {
    InboxItemType.SECRET: "Secrets",
    InboxItemType.CONFLICT: "Conflict",
    InboxItemType.PROPOSAL: "Proposal",
    InboxItemType.RECHECK: "Recheck",
}
_VIEWS = {
    InboxItemType.SECRET: "admin:governance_redaction_changelist",
    InboxItemType.CONFLICT: "admin:memories_conflict_change",
    InboxItemType.PROPOSAL: "admin:memories_review_item",
    InboxItemType.RECHECK: "admin:governance_affirmation_item",
}
# Types whose verdicts can be given to several at once
_IN_BULK = (InboxItemType.PROPOSAL, InboxItemType.RECHECK)
_TYPE_OF = {"accepted": InboxItemType.PROPOSAL, "rejected": InboxItemType.PROPOSAL, "affirmed": InboxItemType.RECHECK}
KEYS = (
    ("j", "next item"),
    ("k", "previous item"),
    ("x", "select"),
    ("Shift j", "select, and the next"),
    ("a", "accept, or still valid"),
    ("v", "still valid"),
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
    entry: InboxItem
    url: str
    label: str
    kind_label: str
    is_current: bool
    can_select: bool

    @property
    def value(self) -> str:
        """What the row's checkbox sends."""
        return f"{self.entry.key}-{self.entry.version}"


def inbox_of(request: HttpRequest) -> dict[str, Any]:
    """Return the list beside an item's page: the rows of the item's part of it, in groups, and its neighbours."""
    type_filter, counts = _shown(request), count_entries()
    current = getattr(request, "inbox_key", "")  # set by the view of an item
    entries = open_entries([type_filter] if type_filter else tuple(InboxItemType))
    at = next((number for number, entry in enumerate(entries) if entry.key == current), None)
    page = min(_page(request), max(len(entries) - 1, 0) // MOST) if at is None else at // MOST
    listed = with_texts(entries[page * MOST : (page + 1) * MOST])
    can_select = may(request.user, Act.REVIEW)
    home = reverse("admin:inbox")
    return {
        **_neighbours(entries, at, page, type_filter),
        "groups": [
            (group, [_row(entry, type_filter, current, can_select=can_select) for entry in group.entries])
            for group in by_session(listed)
        ],
        "number": at + 1 if at is not None else None,
        "total": len(entries),
        "listed": len(listed),
        "first": page * MOST + 1,
        "last_listed": min((page + 1) * MOST, len(entries)),
        "earlier": _address(home, type_filter, page - 1) if page else "",
        "later": _address(home, type_filter, page + 1) if (page + 1) * MOST < len(entries) else "",
        "filters": _filters(counts, type_filter),
        "undo_ids": _to_undo(request),
        "last": last_verdict_of(request.user.get_username()) if can_select else None,
        "url": _address(home, type_filter, page),
        "action": _address(reverse("admin:inbox_verdicts"), type_filter, page),
    }


def _neighbours(
    entries: list[InboxItem], at: int | None, page: int, type_filter: InboxItemType | None
) -> dict[str, str]:
    # Beside no item, the next one is the first of the list
    before = entries[at - 1] if at else None
    after = next(iter(entries[page * MOST if at is None else at + 1 :]), None)
    following = (after or before) if at is not None else None
    return {
        "before": _url(before, type_filter) if before else "",
        "after": _url(after, type_filter) if after else "",
        # Where a verdict leads
        "next": _url(following, type_filter) if following else _address(reverse("admin:inbox"), type_filter),
    }


def _page(request: HttpRequest) -> int:
    """Return the number of the requested page, from 0."""
    number = request.GET.get("page", "")
    return max(0, int(number) - 1) if number.isdecimal() and len(number) < 9 else 0


def _to_undo(request: HttpRequest) -> list[int]:
    """Return the memories whose verdicts were given together; they are offered once."""
    ids: list[int] = request.session.pop(CAN_UNDO, []) if HEADER not in request.headers else []
    return ids


def _shown(request: HttpRequest) -> InboxItemType | None:
    name = request.GET.get("show", "")
    return InboxItemType(name) if name in set(InboxItemType) else None


def _row(entry: InboxItem, type_filter: InboxItemType | None, current: str, *, can_select: bool) -> Row:
    kind = KINDS[entry.kind].label if entry.kind in KINDS else entry.kind.capitalize()
    selectable = can_select and entry.type in _IN_BULK
    return Row(entry, _url(entry, type_filter), _NAMES[entry.type], kind, entry.key == current, selectable)


def _url(entry: InboxItem, type_filter: InboxItemType | None) -> str:
    view = _VIEWS[entry.type]
    if entry.type is InboxItemType.SECRET:
        return f"{reverse(view)}?way=rules"
    return _address(reverse(view, args=[entry.id]), type_filter)


def _address(url: str, type_filter: InboxItemType | None, page: int = 0) -> str:
    query = {"show": str(type_filter or ""), "page": str(page + 1) if page else ""}
    query = {name: value for name, value in query.items() if value}
    return f"{url}?{urlencode(query)}" if query else url


def _filters(counts: dict[InboxItemType, int], type_filter: InboxItemType | None) -> list[dict[str, Any]]:
    url = reverse("admin:inbox")
    every = {"label": "All", "count": sum(counts.values()), "url": url, "is_shown": type_filter is None}
    return [
        every,
        *(
            {"label": _LABELS[name], "count": count, "url": _address(url, name), "is_shown": name == type_filter}
            for name, count in counts.items()
        ),
    ]


def show_inbox(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    return TemplateResponse(request, "admin/inbox.html", {**context, "title": "Inbox"})


def give_verdicts(request: HttpRequest) -> HttpResponse:
    """Give one verdict on the items that were selected in the list; it applies to one type of them."""
    verdict = request.POST.get("verdict", "")
    entry_type = _TYPE_OF.get(verdict)
    selected = [parts for value in request.POST.getlist("entry") if (parts := _parsed(value))]
    chosen = [(number, version) for name, number, version in selected if name is entry_type]
    if not chosen:
        messages.error(request, "Select items and choose a verdict for their type. Nothing was changed.")
    elif len(chosen) > AT_ONCE:
        messages.error(request, f"Select at most {AT_ONCE} items at a time. Nothing was changed.")
    elif entry_type is InboxItemType.RECHECK:
        _affirm(request, [number for number, _ in chosen])
    else:
        review_verdict = Verdict(verdict)
        commands = [
            ReviewVerdict(id=number, base_version=version, verdict=review_verdict) for number, version in chosen
        ]
        review_and_report(request, commands)
    return redirect(_address(reverse("admin:inbox"), _shown(request), _page(request)))


def _parsed(value: str) -> tuple[InboxItemType, int, int] | None:
    name, _, numbers = value.partition("-")
    number, _, version = numbers.partition("-")
    if name not in set(InboxItemType) or not all(part.isdecimal() and len(part) < 16 for part in (number, version)):
        return None
    if not int(number) or (name == InboxItemType.PROPOSAL and not int(version)):
        return None
    return InboxItemType(name), int(number), int(version)


def _affirm(request: HttpRequest, ids: list[int]) -> None:
    count = 0
    for entity_id in ids:
        try:
            affirm(command=Affirm(id=entity_id))
            count += 1
        except HubError as error:
            messages.warning(request, sentence(error))
    if count:
        messages.success(request, f"{counted(count, 'item')} confirmed as still valid. This cannot be undone.")
