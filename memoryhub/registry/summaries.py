"""Projects and organisations with the last check of their hash chains, which is stored in hub.db."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from memoryhub.core.schemas import Meta, Paging
from memoryhub.core.stores.store import list_orgs, project_store, use_store
from memoryhub.core.stores.store import list_projects as project_ids
from memoryhub.models import StoreCheck
from memoryhub.registry import organizations, projects
from memoryhub.registry.organizations import OrgOverview
from memoryhub.registry.projects import ProjectCard, ProjectDetails, ProjectList
from memoryhub.registry.store_cards import (
    StoreOverview,
    org_line,
    overview_fields,
    page_of_cards,
    project_line,
    read_card,
)


class ChainFinding(BaseModel):
    """Result of the last check of the hash chain."""

    chain_ok: bool | None = Field(None, description="null: never checked")
    chain_finding: str = ""
    chain_checked_at: datetime | None = None


class ProjectSummary(ChainFinding, StoreOverview, ProjectCard):
    """A project with counts. If its store could not be read, ``problem`` has the reason and the counts are 0."""


class ProjectReport(ChainFinding, ProjectDetails):
    """A project with description, counts and the last check."""


class ProjectPage(BaseModel):
    """Projects by id."""

    results: list[ProjectSummary]
    meta: Meta


class OrgPage(BaseModel):
    """Organisations by id."""

    results: list[OrgOverview]
    meta: Meta


def summarize_projects() -> list[ProjectSummary]:
    return list(map(_summarizer(), project_ids()))


def list_projects(*, command: ProjectList) -> ProjectPage:
    ids = projects.projects_of(command.org_id)
    listing = page_of_cards(ids, command, _summarizer(), id_field="project_id", line=project_line)
    return ProjectPage.model_validate(listing.model_dump())


def report_project(*, project_id: str) -> ProjectReport:
    with use_store(project_store(project_id)):
        return reported(ProjectDetails(**projects.details_fields()))


def reported(details: ProjectDetails) -> ProjectReport:
    check = StoreCheck.objects.filter(store=project_store(details.project_id).alias).first()
    return ProjectReport(**details.model_dump(), **_finding(check))


def summarize_orgs() -> list[OrgOverview]:
    return list(map(organizations.overview_reader(), list_orgs()))


def list_org_overviews(*, command: Paging) -> OrgPage:
    listing = page_of_cards(list_orgs(), command, organizations.overview_reader(), id_field="org_id", line=org_line)
    return OrgPage.model_validate(listing.model_dump())


def _summarizer() -> Any:
    checks = {check.store: check for check in StoreCheck.objects.all()}

    def read_fields() -> dict[str, Any]:
        return {**projects.card_fields(), **overview_fields()}

    def summarize(project_id: str) -> ProjectSummary:
        store = project_store(project_id)
        finding = _finding(checks.get(store.alias))
        return read_card(store, ProjectSummary, read_fields, project_id=project_id, **finding)

    return summarize


def _finding(check: StoreCheck | None) -> dict[str, Any]:
    if check is None:
        return {}
    return {"chain_ok": check.ok, "chain_finding": check.finding, "chain_checked_at": check.checked_at}
