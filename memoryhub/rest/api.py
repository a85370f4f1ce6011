"""The REST API: the apps' routers under ``/api/v1``, and the routes of the hub, organisations and projects."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Status
from pydantic import BaseModel, Field

from decisions.api import router as decisions
from governance.api import router as governance
from memories.api import links_router as links
from memories.api import queries_router as queries
from memories.api import router as memories
from memoryhub import __version__
from memoryhub.core.errors import NotFound, describe_problem
from memoryhub.core.permissions import demand_everywhere
from memoryhub.core.rest import problems
from memoryhub.core.schemas import Paging
from memoryhub.ops import health, metrics
from memoryhub.registry import organizations, projects, summaries
from memoryhub.rest.auth import BearerToken, SignedIn, is_known
from memoryhub.rest.framework import HubAPI, from_caller, granted, in_project
from memoryhub.rest.routes import delivery_routes
from memoryhub.rest.routes import export_routes as exports
from memoryhub.rest.routes import hook_routes as hooks
from memoryhub.rest.routes import member_routes as members
from sessions_app.api import by_name as sessions_by_name
from sessions_app.api import router as sessions
from sessions_app.api import work_router as work
from sessions_app.schemas import OrgDescribe, ProjectDescribe

DESCRIPTION = """Read and write the memory of projects.

Send `Authorization: Bearer <token>` with a token from the Tokens page, or with the content of the file `token` in the
hub's home folder; or sign in to the admin. Errors are `application/problem+json`, with one sentence that names the next
step. Lists page by cursor."""

api = HubAPI(
    title="Memory Hub",
    version=__version__,
    description=DESCRIPTION,
    auth=[BearerToken(), SignedIn()],
)

hub = Router()
scopes = Router()


@hub.get(
    "health", auth=None, response={200: dict[str, Any], **problems(503)}, tags=["hub"], summary="Check the hub's health"
)
def show_health(request: HttpRequest) -> Any:
    """``ok``, or 503. Callers who may see all projects get a new check with all its results."""
    if is_known(request):
        return health.check().described(details=True)
    return health.recent_check().described(details=False)


@hub.get("metrics", response={200: None}, tags=["hub"], summary="Get metrics in the Prometheus format")
def show_metrics(request: HttpRequest) -> Any:
    """Turns, refusals, lags, response times and store sizes, across all processes of this machine."""
    demand_everywhere()
    return HttpResponse(metrics.render(), content_type=metrics.CONTENT_TYPE)


class ProblemType(BaseModel):
    """The meaning of an error code."""

    code: str
    status: int = Field(description="HTTP status")
    meaning: str


@hub.get(
    "problems/{code}",
    auth=None,
    response={200: ProblemType, **problems(404)},
    tags=["hub"],
    summary="Get an error code",
)
def show_problem(request: HttpRequest, code: str) -> Any:
    """The ``type`` of a problem links here."""
    description = describe_problem(code)
    if description is None:
        raise NotFound(f"there is no error code {code[:80]!r}")
    return description


@scopes.get("orgs", response=summaries.OrgPage, tags=["orgs"], summary="List organisations")
def list_orgs(request: HttpRequest, command: Query[Paging]) -> Any:
    """In order of their ids, with counts and projects."""
    return summaries.list_org_overviews(command=command)


@scopes.post(
    "orgs",
    response={201: organizations.OrgDetails, **problems(409)},
    tags=["orgs"],
    summary="Create an organisation",
)
def create_org(request: HttpRequest, command: organizations.OrgCreate, response: HttpResponse) -> Any:
    """Creates its store; its projects inherit the memories in it."""
    created = organizations.create_org(command=command)
    response["Location"] = f"{request.path}/{created.org_id}"
    return Status(201, created)


@scopes.get("orgs/{org_id}", response=organizations.OrgDetails, tags=["orgs"], summary="Get an organisation")
def get_org(request: HttpRequest, org_id: str) -> Any:
    """Returns description, metadata, counts and projects."""
    return organizations.get_org(org_id=org_id)


@scopes.patch("orgs/{org_id}", response=organizations.OrgDetails, tags=["orgs"], summary="Describe an organisation")
def describe_org(request: HttpRequest, org_id: str, command: OrgDescribe) -> Any:
    """Omitted fields stay unchanged."""
    return organizations.describe_org(org_id=org_id, command=command)


@scopes.get("projects", response=summaries.ProjectPage, tags=["projects"], summary="List projects")
def list_projects(request: HttpRequest, command: Query[projects.ProjectList]) -> Any:
    """In order of their ids, with counts. If a store cannot be read, ``problem`` has the reason."""
    return summaries.list_projects(command=command)


@scopes.post(
    "projects",
    response={201: summaries.ProjectReport, **problems(404, 409)},
    tags=["projects"],
    summary="Create a project",
)
def create_project(request: HttpRequest, command: projects.ProjectCreate, response: HttpResponse) -> Any:
    """Creates its store, and describes it."""
    created = projects.create_project(command=command)
    response["Location"] = f"{request.path}/{created.project_id}"
    return Status(201, summaries.report_project(project_id=created.project_id))


@scopes.get("projects/{project_id}", response=summaries.ProjectReport, tags=["projects"], summary="Get a project")
def get_project(request: HttpRequest, project_id: str) -> Any:
    """Returns description, metadata, counts, last activity, and the last check of its hash chain."""
    return summaries.report_project(project_id=project_id)


@scopes.patch(
    "projects/{project_id}",
    response=summaries.ProjectReport,
    tags=["projects"],
    summary="Describe a project",
)
def describe_project(request: HttpRequest, project_id: str, command: ProjectDescribe) -> Any:
    """Omitted fields stay unchanged."""
    return summaries.reported(projects.describe_project(project_id=project_id, command=command))


# Generated clients name their methods after the ids of operations, which ninja makes from the module of a route; these
# stay as they are wherever the routes are.
for router, prefix in (
    (hooks, "memoryhub_rest_hook_routes"),
    (delivery_routes, "memoryhub_rest_hook_routes"),
    (members, "memoryhub_rest_members_api"),
    (exports, "memoryhub_rest_export_routes"),
    (work, "sessions_app_work_api"),
    (links, "memories_links_api"),
    (queries, "memories_query_api"),
):
    for path_view in router.path_operations.values():
        for operation in path_view.operations:
            operation.operation_id = f"{prefix}_{operation.view_func.__name__}"

hub.add_decorator(granted)
hooks.add_decorator(granted)
api.add_router("", hub)
api.add_router("", hooks)
scopes.add_decorator(from_caller)
api.add_router("", scopes)
members.add_decorator(from_caller)
api.add_router("", members)
for router in (
    memories,
    links,
    queries,
    decisions,
    sessions,
    work,
    governance,
    sessions_by_name,
    exports,
    delivery_routes,
):
    router.add_decorator(in_project)
    api.add_router("projects/{project_id}", router)
