"""The page of a project's worth: what packs cost, what became of them, and sessions without memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse

from memories.admin.base import sentence
from memories.worth.report import FOLLOWED, reject_zombies, restore_zombies, worth_report
from memories.worth.schemas import Lines, Measure, Period, WorthRequest
from memoryhub.core.admin.svg import bar_chart
from memoryhub.core.errors import HubError
from memoryhub.core.kinds import KINDS
from memoryhub.core.permissions import Act, require
from memoryhub.core.stores.store import Scope, current_store
from memoryhub.core.text import counted

_CAN_UNDO = "zombies_to_undo"
# Widths of the SVGs' view boxes
_BAR, _SCALE = 600, 200
_OUTCOMES = {
    "cited": ("Cited", "named by what a session wrote"),
    "used": ("Used", "read again or changed"),
    "ignored": ("Ignored", "in five packs or more of sessions that did neither"),
    "undecided": ("Too early to say", "in fewer packs so far"),
}


def worth_page(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    if current_store().scope is not Scope.PROJECT:
        raise Http404("packs are sent in projects")
    chosen = request.GET.get("period", "")
    period = Period(chosen) if chosen in list(Period) else Period.MONTH
    if request.method == "POST":
        _change(request)
        return redirect(reverse("admin:worth", query={"period": period.value}))
    report = worth_report(command=WorthRequest(period=period))
    spent = {spent.day: spent.tokens for spent in report.spent}
    unit = "day" if report.step_days == 1 else "week"
    described = f"{sum(spent.values()):,} tokens in {counted(len(spent), unit)}"
    label_every = max(1, len(spent) // 5)
    page = {
        "report": report,
        "periods": [(choice.value, choice.label, choice is period) for choice in Period],
        "parts": _outcome_parts(report.lines),
        "chart": bar_chart(spent, description=f"{described}; a day begins at midnight UTC", label_every=label_every),
        "rows": list(map(_compared_outcome, report.experiment.measures)),
        "percents": {
            "used": _percent(report.lines.cited + report.lines.used, report.lines.total),
            "unused": _percent(report.judged.unused, report.judged.ended),
            "never_given": _percent(report.never_given, report.memories),
        },
        "followed": " and ".join(KINDS[kind].plural for kind in FOLLOWED),
        "can_undo": request.session.pop(_CAN_UNDO, ()),
    }
    return TemplateResponse(request, "admin/worth/page.html", {**context, **page})


def _change(request: HttpRequest) -> None:
    require(request.user, Act.REVIEW)
    is_undo = request.POST.get("do") == "undo"
    chosen = request.POST.getlist("all" if request.POST.get("do") == "all" else "memory")
    try:
        if is_undo:
            result = restore_zombies([int(value) for value in chosen if value.isdecimal()])
        else:
            result = reject_zombies(_versions(chosen))
    except HubError as error:
        messages.error(request, sentence(error))
        return
    for refusal in result.refused:
        messages.warning(request, sentence(HubError(refusal)))
    count = counted(len(result.ids), "memory", "memories")
    if result.ids and is_undo:
        messages.success(request, f"{count} back in packs and search.")
    elif result.ids:
        messages.success(request, f"{count} rejected; packs and searches leave them out.")
        request.session[_CAN_UNDO] = result.ids


# ``412:3``: the memory and the version that the page showed
def _versions(chosen: Sequence[str]) -> dict[int, int]:
    versions = {}
    for value in chosen:
        memory, _, version = value.partition(":")
        if memory.isdecimal() and version.isdecimal():
            versions[int(memory)] = int(version)
    return versions


def _percent(part: int, whole: int) -> int:
    return round(100 * part / whole) if whole else 0


# Parts of the bar of outcomes, and their rows in the legend
def _outcome_parts(lines: Lines) -> list[dict[str, Any]]:
    parts = []
    x = 0.0
    for name, (label, about) in _OUTCOMES.items():
        count = getattr(lines, name)
        width = _BAR * count / max(1, lines.total)
        part = {"name": name, "label": label, "help": about, "count": count, "percent": _percent(count, lines.total)}
        parts.append({**part, "x": round(x, 1), "width": round(width, 1)})
        x += width
    return parts


# An outcome with its interval, if it has one, on a scale around zero, in units of the SVG's view box
def _compared_outcome(measure: Measure) -> dict[str, Any]:
    if measure.low is None or measure.high is None:
        return {"measure": measure, "low": None}
    unit = _SCALE / 2 / (1.1 * max(abs(measure.low), abs(measure.high)))
    low = round(_SCALE / 2 + unit * measure.low, 1)
    high = round(_SCALE / 2 + unit * measure.high, 1)
    middle = round(_SCALE / 2 + unit * measure.difference, 1)
    return {"measure": measure, "low": low, "width": round(high - low, 1), "middle": middle}
