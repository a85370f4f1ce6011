"""The inbox page: the list beside each item's own page, and verdicts on several items at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse

from governance.inbox import MOST, InboxItem, InboxItemType, by_session, count_entries, open_entries, with_texts
from governance.staleness.schemas import Affirm
from governance.staleness.selectors import stale_groups
from governance.staleness.service import affirm
from memories.admin.base import sentence
from memories.admin.lists import AT_ONCE, CAN_UNDO, review_and_report
from memories.events import Verdict
from memories.review.schemas import ReviewVerdict
from memories.review.selectors import last_verdict_of
from memoryhub.core.errors import HubError
from memoryhub.core.kinds import KINDS
from memoryhub.core.permissions import Act, may
from memoryhub.core.text import counted
from memoryhub.web.live import HEADER
from memoryhub.web.pages import number_from, with_query

# Label of the filter, label of a row, view of an item
_TYPES = {
    InboxItemType.SECRET: ("Secrets", "Secrets", "admin:governance_redaction_changelist"),
    InboxItemType.CONFLICT: ("Conflicts", "Conflict", "admin:memories_conflict_change"),
    InboxItemType.PROPOSAL: ("Proposals", "Proposal", "admin:memories_review_item"),
    InboxItemType.AMENDMENT: ("Amendments", "Amendment", "admin:memories_amendment_change"),
    InboxItemType.FILE: ("Changed files", "Changed file", "admin:governance_affirmation_group"),
    InboxItemType.BRANCH: ("Dropped branches", "Dropped branch", "admin:governance_affirmation_group"),
    InboxItemType.RECHECK: ("Recheck", "Recheck", "admin:governance_affirmation_item"),
    InboxItemType.NOTES: ("Notes", "Notes", "admin:worth"),
}
_RECHECKS = (InboxItemType.RECHECK, InboxItemType.FILE, InboxItemType.BRANCH)
# Types whose verdicts can be given to several at once, by verdict
_TYPES_OF = {"accepted": (InboxItemType.PROPOSAL,), "rejected": (InboxItemType.PROPOSAL,), "affirmed": _RECHECKS}
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
class InboxRow:
    entry: InboxItem
    url: str
    label: str
    kind_label: str
    is_current: bool
    can_select: bool

    @property
    def value(self) -> str:
        return f"{self.entry.key}-{self.entry.version}"

    @property
    def judged_as(self) -> InboxItemType:
        """The type that its box selects for a verdict."""
        return InboxItemType.RECHECK if self.entry.type in _RECHECKS else self.entry.type


def inbox_of(request: HttpRequest) -> dict[str, Any]:
    """Return the list beside an item's page: the rows of the item's part of it, in groups, and its neighbours."""
    type_filter = _type_filter(request)
    counts = count_entries()
    current = getattr(request, "inbox_key", "")  # set by the view of an item
    entries = open_entries([type_filter] if type_filter else tuple(InboxItemType))
    keys = [entry.key for entry in entries]
    number = keys.index(current) + 1 if current in keys else None
    page = min(_page_number(request), max(len(entries) - 1, 0) // MOST)
    if number:
        page = (number - 1) // MOST
    listed = with_texts(entries[page * MOST : (page + 1) * MOST])
    can_select = may(request.user, Act.REVIEW)
    groups = []
    for group in by_session(listed):
        rows = [_inbox_row(entry, type_filter, current, can_select=can_select) for entry in group.entries]
        groups.append((group, rows))
    home = reverse("admin:inbox")
    context: dict[str, Any] = {
        **_neighbours(entries, number, page, type_filter),
        "groups": groups,
        "number": number,
        "total": len(entries),
        "listed": len(listed),
        "first": page * MOST + 1,
        "last_listed": min((page + 1) * MOST, len(entries)),
        "filters": _filters(counts, type_filter),
        "url": _inbox_url(home, type_filter, page),
        "action": _inbox_url(reverse("admin:inbox_verdicts"), type_filter, page),
    }
    if page:
        context["earlier"] = _inbox_url(home, type_filter, page - 1)
    if (page + 1) * MOST < len(entries):
        context["later"] = _inbox_url(home, type_filter, page + 1)
    if HEADER not in request.headers:
        # The memories whose verdicts were given together are offered once.
        context["undo_ids"] = request.session.pop(CAN_UNDO, [])
    if can_select:
        context["last"] = last_verdict_of(request.user.get_username())
    return context


def _neighbours(
    entries: list[InboxItem], number: int | None, page: int, type_filter: InboxItemType | None
) -> dict[str, str]:
    # Where a verdict leads: to the next item, else to the one before, else to the list
    urls = {"next": _inbox_url(reverse("admin:inbox"), type_filter)}
    if number is None:
        # Beside no item, the next one is the first of the list.
        if entries:
            urls["after"] = _url(entries[page * MOST], type_filter)
        return urls
    if number > 1:
        urls["before"] = urls["next"] = _url(entries[number - 2], type_filter)
    if number < len(entries):
        urls["after"] = urls["next"] = _url(entries[number], type_filter)
    return urls


def _page_number(request: HttpRequest) -> int:
    return max(0, number_from(request.GET.get("page", "")) - 1)


def _type_filter(request: HttpRequest) -> InboxItemType | None:
    name = request.GET.get("show", "")
    return InboxItemType(name) if name in set(InboxItemType) else None


def _inbox_row(entry: InboxItem, type_filter: InboxItemType | None, current: str, *, can_select: bool) -> InboxRow:
    kind = entry.kind.capitalize()
    if entry.kind in KINDS:
        kind = KINDS[entry.kind].label
    selectable = can_select and (entry.type is InboxItemType.PROPOSAL or entry.type in _RECHECKS)
    return InboxRow(entry, _url(entry, type_filter), _TYPES[entry.type][1], kind, entry.key == current, selectable)


def _url(entry: InboxItem, type_filter: InboxItemType | None) -> str:
    view = _TYPES[entry.type][2]
    if entry.type is InboxItemType.SECRET:
        return f"{reverse(view)}?way=rules"
    if entry.type is InboxItemType.NOTES:
        return f"{reverse(view)}#kinds"
    return _inbox_url(reverse(view, args=[entry.id]), type_filter)


def _inbox_url(url: str, type_filter: InboxItemType | None, page: int = 0) -> str:
    return with_query(url, show=type_filter, page=page and page + 1)


def _filters(counts: dict[InboxItemType, int], type_filter: InboxItemType | None) -> list[dict[str, Any]]:
    home = reverse("admin:inbox")
    filters = [{"label": "All", "count": sum(counts.values()), "url": home, "is_shown": type_filter is None}]
    for name, count in counts.items():
        is_shown = name == type_filter
        label, url = _TYPES[name][0], _inbox_url(home, name)
        filters.append({"label": label, "count": count, "url": url, "is_shown": is_shown})
    return filters


def show_inbox(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    return TemplateResponse(request, "admin/inbox.html", {**context, "title": "Inbox"})


def give_verdicts(request: HttpRequest) -> HttpResponse:
    """Give one verdict on the items that were selected in the list; it applies to some types of them."""
    verdict = request.POST.get("verdict", "")
    entry_types = _TYPES_OF.get(verdict, ())
    selected = filter(None, map(_parse_entry, request.POST.getlist("entry")))
    chosen = [(name, number, version) for name, number, version in selected if name in entry_types]
    if not chosen:
        messages.error(request, "Select items and choose a verdict for their type. Nothing was changed.")
    elif len(chosen) > AT_ONCE:
        messages.error(request, f"Select at most {AT_ONCE} items at a time. Nothing was changed.")
    elif entry_types is _RECHECKS:
        _affirm(request, _ids_of([(name, number) for name, number, _ in chosen]))
    else:
        commands = []
        for _, number, version in chosen:
            commands.append(ReviewVerdict(id=number, base_version=version, verdict=Verdict(verdict)))
        review_and_report(request, commands)
    return redirect(_inbox_url(reverse("admin:inbox"), _type_filter(request), _page_number(request)))


def _parse_entry(value: str) -> tuple[InboxItemType, int, int] | None:
    name, _, numbers = value.partition("-")
    number, _, version = numbers.partition("-")
    if name not in set(InboxItemType) or not all(part.isdecimal() and len(part) < 16 for part in (number, version)):
        return None
    if not int(number) or (name == InboxItemType.PROPOSAL and not int(version)):
        return None
    return InboxItemType(name), int(number), int(version)


# The items, and the entries of the files and branches
def _ids_of(chosen: list[tuple[InboxItemType, int]]) -> list[int]:
    ids = [number for name, number in chosen if name is InboxItemType.RECHECK]
    groups = {number for name, number in chosen if name is not InboxItemType.RECHECK}
    if groups:
        for group in stale_groups():
            ids += group.ids if group.id in groups else []
    return ids


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
