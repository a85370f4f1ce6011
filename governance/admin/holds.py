"""The page of holds: items that are exempt from deletion."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path
from django.views.decorators.http import require_POST

from governance.models import Hold
from governance.retention.schemas import HoldLift, HoldPlace
from governance.retention.service import lift_hold, place_hold
from memoryhub.core.admin import HubModelAdmin, needs
from memoryhub.core.admin.schema_form import SchemaForm
from memoryhub.core.entities import find_entities
from memoryhub.core.errors import HubError
from memoryhub.core.permissions import Act
from memoryhub.core.text import as_sentence
from sessions_app.models import Session

_SESSION = "session"
# Types whose streams end in the item's number.
_NUMBERED = frozenset({"memory", "decision", "iteration"})


def hold_rows(holds: Iterable[Hold]) -> list[dict[str, Any]]:
    """Return holds with ``type``, ``label`` and ``title`` of their items, with two queries for any number."""
    listed = list(holds)
    parts = [hold.stream_id.partition(":") for hold in listed]
    entities = find_entities(int(tail) for _, _, tail in parts if _is_number(tail))
    names = [tail for kind, _, tail in parts if kind == _SESSION]
    purposes = dict(Session.objects.filter(session_id__in=names).values_list("session_id", "purpose"))
    rows = []
    for hold, (kind, _, tail) in zip(listed, parts, strict=True):
        entity = entities.get(int(tail)) if _is_number(tail) else None
        title = f"#{tail}"
        if kind == _SESSION:
            purpose = purposes.get(tail)
            title = f"{purpose} ({tail})" if purpose else tail
        elif entity and entity.type == kind:
            title = f"{entity.title} (#{entity.id})"
        rows.append({"hold": hold, "type": kind, "label": kind.capitalize(), "title": title})
    return rows


def stream_of_number(typed: str) -> str:
    """Return the stream of the memory, decision, iteration or session with a number, or ""."""
    number = typed.removeprefix("#")
    if not _is_number(number):
        return ""
    entity = find_entities([int(number)]).get(int(number))
    if entity is None:
        return ""
    if entity.type == _SESSION:
        return f"{_SESSION}:{Session.objects.values_list('session_id', flat=True).get(id=entity.id)}"
    return f"{entity.type}:{entity.id}" if entity.type in _NUMBERED else ""


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 15


_LIFTED_SHOWN = 20


class HoldForm(SchemaForm[HoldPlace]):
    schema = HoldPlace
    stream_id = forms.CharField(
        label="Item",
        max_length=200,
        help_text="Number of a memory, decision or session, such as #412, or * for the whole store.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    reason = forms.CharField(label="Reason", max_length=1_000)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.initial.get("stream_id"):
            self.fields["reason"].widget.attrs["autofocus"] = True

    def clean_stream_id(self) -> str:
        typed: str = self.cleaned_data["stream_id"].strip()
        return stream_of_number(typed) or typed


@admin.register(Hold)
class HoldAdmin(HubModelAdmin):
    stream_kind = "hold"

    def get_urls(self) -> list[URLPattern]:
        urls = [
            path("place/", self._governed(self.place_view), name="governance_hold_place"),
            path("<int:hold_id>/lift/", self._governed(self.lift_view), name="governance_hold_lift"),
        ]
        return [*urls, *super().get_urls()]

    def _governed(self, view: Any) -> Any:
        return self.admin_site.admin_view(require_POST(needs(Act.GOVERN, view)))

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return self._page(request, HoldForm(initial={"stream_id": request.GET.get("stream", "")}))

    def change_view(self, request: HttpRequest, object_id: str, *_: Any, **_options: Any) -> HttpResponse:
        return redirect("admin:core_rawevent_change", self.find(request, object_id).pk)

    def place_view(self, request: HttpRequest) -> HttpResponse:
        form = HoldForm(request.POST)
        command = form.command()
        if command is None:
            return self._page(request, form)
        try:
            hold = place_hold(command=command)
        except HubError as error:
            form.add_error("stream_id", as_sentence(error.message))
            return self._page(request, form)
        messages.success(request, f"Placed hold #{hold.id}. Retention skips {hold.stream_id} until you lift it.")
        return redirect(self.url("changelist"))

    def lift_view(self, request: HttpRequest, hold_id: int) -> HttpResponse:
        try:
            hold = lift_hold(command=HoldLift(id=hold_id, reason=request.POST.get("reason", "")[:1_000]))
        except HubError as error:
            messages.error(request, as_sentence(error.message))
        else:
            messages.success(request, f"Lifted hold #{hold.id}. The retention rules apply to {hold.stream_id} again.")
        return redirect(self.url("changelist"))

    def _page(self, request: HttpRequest, form: HoldForm) -> HttpResponse:
        holds = Hold.objects.order_by("-id")
        context = {
            "title": "Holds",
            "form": form,
            "holds": hold_rows(holds.filter(lifted_at__isnull=True)),
            "lifted": hold_rows(holds.filter(lifted_at__isnull=False)[:_LIFTED_SHOWN]),
        }
        return self.page(request, "admin/governance/holds.html", None, **context)
