"""The REST door: assembles the apps' routers under ``/api/v1``."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router, Status

from memories.api import router as memories
from memoryhub import __version__, health, metrics, projects
from memoryhub.auth import BearerToken, SignedIn, is_known
from memoryhub.core.rest import problems
from memoryhub.hooks import router as hooks
from memoryhub.rest import HubAPI, in_project
from sessions_app.api import router as sessions
from sessions_app.work_api import router as work

DESCRIPTION = """Everything a project's memory holds, over HTTP.

Send `Authorization: Bearer <token>` with the text of the file `token` in the hub's home folder, or sign in to the
admin. Errors are `application/problem+json`, with one sentence that says what to do. Lists page by cursor."""

api = HubAPI(
    title="Memory Hub",
    version=__version__,
    description=DESCRIPTION,
    auth=[BearerToken(), SignedIn()],
)

hub = Router()


@hub.get("health", auth=None, response={200: dict[str, Any], **problems(503)}, tags=["hub"], summary="Is the hub well?")
def show_health(request: HttpRequest) -> Any:
    """``ok``, or 503; with every part's finding for who is signed in or sends the token."""
    return health.check().described(details=is_known(request))


@hub.get("metrics", response={200: None}, tags=["hub"], summary="How the hub does, as Prometheus text")
def show_metrics(request: HttpRequest) -> Any:
    """Turns, refusals, lags, how long answers took, and what the stores hold; true across all processes."""
    return HttpResponse(metrics.render(), content_type=metrics.CONTENT_TYPE)


@hub.get("projects", response=projects.ProjectList, tags=["projects"], summary="List the projects")
def list_projects(request: HttpRequest) -> Any:
    """How every project stands; one whose store cannot be read says so in ``problem``."""
    return projects.ProjectList(results=projects.summarize_projects())


@hub.post(
    "projects", response={201: projects.ProjectSummary, **problems(409)}, tags=["projects"], summary="Make a project"
)
def create_project(request: HttpRequest, command: projects.ProjectCreate, response: HttpResponse) -> Any:
    """Make the store of a new project."""
    created = projects.create_project(command=command)
    response["Location"] = f"{request.path}/{created.project_id}"
    return Status(201, created)


@hub.get("projects/{project_id}", response=projects.ProjectSummary, tags=["projects"], summary="How one project stands")
def get_project(request: HttpRequest, project_id: str) -> Any:
    """Counts, the last activity, and the last check of its chain."""
    return projects.summarize_project(project_id=project_id)


api.add_router("", hub)
api.add_router("", hooks)
for router in (memories, sessions, work):
    router.add_decorator(in_project)
    api.add_router("projects/{project_id}", router)
