"""The home page: all projects by organisation."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from memoryhub.core.permissions import Act, may
from memoryhub.registry.organizations import OrgOverview
from memoryhub.registry.summaries import ProjectSummary, summarize_orgs, summarize_projects
from memoryhub.web.first_run import client_commands

Group = tuple[OrgOverview | None, list[ProjectSummary]]


@never_cache
@require_safe
def show_projects(request: HttpRequest) -> HttpResponse:
    if not may(request.user, Act.VIEW):
        return redirect(settings.LOGIN_URL)
    return render(
        request, "memoryhub/home.html", {"groups": _grouped(summarize_projects()), "clients": client_commands()}
    )


def _grouped(projects: list[ProjectSummary]) -> list[Group]:
    """Return each organisation with its projects, then those without an organisation."""
    groups: list[Group] = [
        (org, [project for project in projects if project.org_id == org.org_id]) for org in summarize_orgs()
    ]
    known = {org.org_id for org, _ in groups if org}
    others = [project for project in projects if project.org_id not in known]
    return [*groups, (None, others)] if others else groups
