"""The pages of imports: a list, and what one has brought, with its undo."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse

from governance.imports.batches import Batch, counts_text, find_batch, gain_of, imported_memories, list_batches
from governance.imports.undo import Undo, preview_undo
from governance.imports.undo import undo_import as undo
from memories.admin.answers import sentence
from memoryhub.core import log
from memoryhub.core.background import is_long, start_task
from memoryhub.core.errors import HubError
from memoryhub.core.kinds.builtin import KINDS
from memoryhub.core.permissions import Act, require
from memoryhub.core.text import counted

_PAGE = 50
# Of the counts, what did not become something new
_NOT_TAKEN = ("unchanged", "duplicates", "conflicts", "deleted", "sessions_known", "left_out_count")


def show_imports(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    page = Paginator(list_batches(), _PAGE).get_page(request.GET.get("p"))
    rows = [(batch, counts_text(batch.counts)) for batch in page]
    return TemplateResponse(
        request, "admin/imports/list.html", {**context, "title": "Imports", "page": page, "rows": rows}
    )


def show_import(request: HttpRequest, batch_id: int, context: dict[str, Any]) -> HttpResponse:
    batch = find_batch(batch_id)
    if request.method == "POST":
        return _undo(request, batch)
    gain = None if batch.is_undone else gain_of(batch)
    memories = imported_memories(batch).defer("content", "resource_links").order_by("id")
    shown = {
        "title": f"Import #{batch.id}",
        "batch": batch,
        "left_over": counts_text({name: (batch.counts or {}).get(name, 0) for name in _NOT_TAKEN}),
        "gain": gain,
        "kinds": [(kind, KINDS[kind].plural, count) for kind, count in gain.kinds.items()] if gain else [],
        "page": None if batch.is_undone else Paginator(memories, _PAGE).get_page(request.GET.get("p")),
        "plan": None if batch.is_undone else preview_undo(batch_id),
    }
    return TemplateResponse(request, "admin/imports/detail.html", {**context, **shown})


def _undo(request: HttpRequest, batch: Batch) -> HttpResponse:
    require(request.user, Act.GOVERN)
    token = request.POST.get("token", "")
    page = reverse("admin:import", args=[batch.id])
    try:
        if is_long():
            events = log.head()[0]
            task = start_task(
                "Undo of an import",
                page=page,
                work=lambda report: undo(
                    batch_id=batch.id, token=token, progress=lambda done: report(min(done, events), events)
                ),
                describe=_described,
                failed=messages.ERROR,
            )
            return redirect("admin:task", task.id)
        done = undo(batch_id=batch.id, token=token)
    except HubError as error:
        messages.error(request, sentence(error))
        return redirect(page)
    for level, text in _described(done):
        messages.add_message(request, level, text)
    return redirect(page)


def _described(done: Undo) -> list[tuple[int, str]]:
    kept = f" {counted(len(done.kept), 'item')} kept, because others have built on them." if done.kept else ""
    return [(messages.SUCCESS, f"Import #{done.batch.id} is undone: {counted(done.events, 'event')} removed.{kept}")]
