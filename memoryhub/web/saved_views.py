"""Save, rename and delete views of the lists."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from memoryhub.core.stores.store import current_store
from memoryhub.registry.saved_views import delete_view, normal_query, rename_view, save_view
from memoryhub.web.hub_pages import apply_change


def list_of(page: str) -> str:
    """Return the address of a list.

    Raises:
        Http404: there is no such list.
    """
    for model in admin.site._registry:
        if page == f"{model._meta.app_label}/{model._meta.model_name}/":
            return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    raise Http404("there is no such list")


def change_views(request: HttpRequest) -> HttpResponse:
    """Save the view ``query`` of the list ``page``, or rename or delete the view ``view``."""
    posted, store = request.POST, current_store()
    address, query = list_of(posted.get("page", "")), normal_query(posted.get("query", ""))
    name, number = posted.get("name", ""), posted.get("view", "")
    own: dict[str, Any] = {"user": request.user, "store": store}
    if number:
        view_id = int(number) if number.isdecimal() and len(number) <= 15 else 0
        if "delete" in posted:
            apply_change(request, lambda: delete_view(**own, view_id=view_id), "Deleted the view.")
        else:
            apply_change(request, lambda: rename_view(**own, view_id=view_id, name=name), "Renamed the view.")
    else:
        saved = {**own, "page": posted["page"], "name": name, "query": query}
        apply_change(request, lambda: save_view(**saved), "Saved the view.")
    return redirect(f"{address}?{query}" if query else address)
