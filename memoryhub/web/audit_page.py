"""The page of the audit: who was given which context pack, and who changed how much."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse

from governance.audit import AuditExport, AuditPeriod, AuditRequest, export_audit, list_activity, list_packs_read
from memoryhub.core.stores.store import current_store
from memoryhub.core.validation import command_from

_FILTERS = ("person", "since", "until")
_PAGE = 50


def show_audit(request: HttpRequest, context: dict[str, Any]) -> HttpResponseBase:
    chosen = {name: value for name in _FILTERS if (value := request.GET.get(name, "").strip())}
    if "form" in request.GET:
        return _download(command_from(AuditExport, {**chosen, "form": request.GET["form"]}))
    cursor = request.GET.get("cursor") or None
    read = list_packs_read(command=command_from(AuditRequest, {**chosen, "limit": _PAGE, "cursor": cursor}))
    shown = {
        "title": "Audit",
        "activity": list_activity(command=command_from(AuditPeriod, chosen)),
        "packs": read.results,
        "total": read.meta.total_count,
        "next_cursor": read.meta.next_cursor,
        "chosen": {name: chosen.get(name, "") for name in _FILTERS},
        "is_filtered": bool(chosen),
    }
    return TemplateResponse(request, "admin/audit.html", {**context, **shown})


def _download(command: AuditExport) -> StreamingHttpResponse:
    response = StreamingHttpResponse(export_audit(command=command), content_type="text/plain; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{current_store().name}-audit.{command.form}"'
    return response
