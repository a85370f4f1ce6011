"""The first page: every project of this hub, with how it stands."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from memoryhub.summaries import summarize_projects


@never_cache
@require_safe
def show_projects(request: HttpRequest) -> HttpResponse:
    """Show the projects; who is not signed in is told how to."""
    if not (request.user.is_active and request.user.is_staff):
        return redirect(settings.LOGIN_URL)
    return render(request, "memoryhub/home.html", {"projects": summarize_projects()})
