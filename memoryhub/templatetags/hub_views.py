from __future__ import annotations

from typing import Any

from django import template

from memoryhub.core.stores.store import current_store
from memoryhub.registry.saved_views import normal_query, saved_views

register = template.Library()


@register.inclusion_tag("admin/saved_views.html", takes_context=True)
def list_views(context: dict[str, Any], changelist: Any) -> dict[str, Any]:
    """Show the person's views of a list, and forms to save, rename and delete them."""
    request, opts = context["request"], changelist.opts
    page = f"{opts.app_label}/{opts.model_name}/"
    views = list(saved_views(user=request.user, stores=[current_store()], page=page))
    query = normal_query(request.GET.urlencode())
    current = next((view for view in views if view.query == query), None)
    return {
        "views": views,
        "current": current,
        "query": query,
        "page": page,
        "csrf_token": context.get("csrf_token"),
    }
