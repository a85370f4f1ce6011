"""The first page: every project of this hub, with how it stands."""

from __future__ import annotations

from django.contrib.admin.views.decorators import staff_member_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from memoryhub.projects import summarize_projects


@never_cache
@require_safe
@staff_member_required(login_url="/admin/login/")
def show_projects(request: HttpRequest) -> HttpResponse:
    """Show the projects; who is not signed in is told how to."""
    return render(request, "memoryhub/home.html", {"projects": summarize_projects()})
