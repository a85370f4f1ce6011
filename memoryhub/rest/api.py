"""The REST API: the apps' routers under ``/api/v1``, and the routes of the hub, its places, exports and hooks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, Literal

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from ninja import Body, Query, Router, Status
from pydantic import BaseModel, Field

from decisions.api import router as decisions
from governance.api import router as governance
from governance.audit import AuditExport, export_audit
from memories.api import links_router as links
from memories.api import queries_router as queries
from memories.api import router as memories
from memoryhub import __version__
from memoryhub.config import enabled
from memoryhub.config.hook_table import PACK, STATUS
from memoryhub.core import ids
from memoryhub.core.errors import Invalid, NotFound, describe_problem
from memoryhub.core.permissions import Act, Grant, demand, demand_everywhere, use_grant
from memoryhub.core.rest import problems
from memoryhub.core.schemas import Command, Moment, Paging
from memoryhub.core.stores.store import current_store, org_store, project_store, use_store
from memoryhub.ops import health, metrics
from memoryhub.ops.serving.drain import drain_before_reading
from memoryhub.registry import members, organizations, projects, summaries
from memoryhub.rest.auth import BearerToken, SignedIn, is_known
from memoryhub.rest.framework import HubAPI, from_caller, granted, header_of, in_project
from memoryhub.transfer.bundles.archive import export_lines
from memoryhub.transfer.folder import ExportSelection, FolderForm, export_archive
from sessions_app.api import by_name as sessions_by_name
from sessions_app.api import router as sessions
from sessions_app.api import work_router as work
from sessions_app.events import Slug
from sessions_app.hook_parser import HookEvent, answer_for_client, owner_of, parse_hook, place_event
from sessions_app.schemas import HookContext, HookDelivery, OrgDescribe, ProjectDescribe
from sessions_app.services.capture import in_window, note_window, take_delivery, take_event

DESCRIPTION = """Read and write the memory of projects.

Send `Authorization: Bearer <token>` with a token from the Tokens page, or with the content of the file `token` in the
hub's home folder; or sign in to the admin. Errors are `application/problem+json`, with one sentence that names the next
step. Lists page by cursor."""

_PIECE = 64 * 1024
_TYPES = {"jsonl": "application/x-ndjson", "tar.gz": "application/gzip", "csv": "text/csv"}

api = HubAPI(title="Memory Hub", version=__version__, description=DESCRIPTION, auth=[BearerToken(), SignedIn()])

hub = Router()
scopes = Router()
exports = Router()
hooks = Router()
deliveries = Router()
memberships = Router()


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


class ExportRequest(ExportSelection):
    """The form of an export, and what it contains."""

    form: Literal["jsonl", "markdown", "obsidian"] = Field(
        "jsonl", description="jsonl: the whole store; markdown and obsidian: a tar.gz of files"
    )


@exports.get(
    "export",
    response={200: None, **problems(403)},
    tags=["export"],
    summary="Export a project",
    openapi_extra={
        "responses": {
            200: {"content": {kind: {"schema": {"type": "string", "format": "binary"}} for kind in _TYPES.values()}}
        }
    },
)
def export(request: HttpRequest, command: Query[ExportRequest]) -> Any:
    """``jsonl`` contains every event and needs the right to govern; the last line has their number.

    `memory-hub import jsonl` imports it. ``markdown`` and ``obsidian`` have one file for each memory and decision.
    """
    selected = command.model_dump(include=set(ExportSelection.model_fields), exclude_defaults=True)
    if command.form == "jsonl":
        demand(Act.GOVERN, to="export the whole store")
        if selected:
            raise Invalid(f"jsonl exports the whole store; leave out {', '.join(selected)}, or ask for markdown")
        return _streamed(request, lambda: map(str.encode, export_lines()), "jsonl")
    selection = ExportSelection.model_validate(selected)
    return _streamed(request, lambda: export_archive(FolderForm(command.form), selection), "tar.gz")


@exports.get(
    "audit/export",
    response={200: None, **problems(403)},
    tags=["governance"],
    summary="Export who was given which context pack",
    openapi_extra={
        "responses": {
            200: {"content": {kind: {"schema": {"type": "string"}} for kind in ("text/csv", "application/x-ndjson")}}
        }
    },
)
def export_packs_read(request: HttpRequest, command: Query[AuditExport]) -> Any:
    """Oldest first, each with its position in the log and the digest of the chain there."""
    return _streamed(request, lambda: map(str.encode, export_audit(command=command)), command.form, "audit")


# The answer is read after the view has returned, so the stream opens the store and takes the grant again.
def _streamed(
    request: HttpRequest, pieces: Callable[[], Iterator[bytes]], ending: str, suffix: str = ""
) -> StreamingHttpResponse:
    store = current_store()
    grant: Grant = request.grant  # type: ignore[attr-defined]

    def stream() -> Iterator[bytes]:
        waiting = bytearray()
        with use_grant(grant), use_store(store):
            for piece in pieces():
                waiting += piece
                if len(waiting) >= _PIECE:  # one message to the server for each line would cost more than the line
                    yield bytes(waiting)
                    waiting.clear()
            yield bytes(waiting)

    response = StreamingHttpResponse(stream(), content_type=_TYPES[ending])
    response["Content-Disposition"] = f'attachment; filename="{"-".join(filter(None, (store.name, suffix)))}.{ending}"'
    return response


class HookQuery(Command):
    """The project of a hook event."""

    project: Slug | None = Field(None, description="default: the project of the event's folder")


@hooks.post(
    "hooks/{client}/{event}",
    response={200: dict[str, Any], 204: None, **problems(404)},
    tags=["hooks"],
    summary="Capture a client's hook event",
)
def take_hook(
    request: HttpRequest, client: str, event: str, place: Query[HookQuery], data: Body[dict[str, Any]]
) -> Any:
    """The body is the client's own format; the answer is what the client expects on the hook's standard output.

    A repeated ``Idempotency-Key`` adds nothing.
    """
    demand_everywhere()
    hook_event = parse_hook(client=client, event=event, data=data)
    is_checked = "Memory-Hub-Enabled" in request.headers
    if not hook_event.effect.is_handled or (not is_checked and _is_switched_off(hook_event)):
        return Status(204, None)
    if hook_event.effect.answer == STATUS:
        return _status_line(hook_event, client, place.project or "")
    try:
        project, hook_event = place_event(hook_event, client=client, project=place.project)
    except NotFound:
        if hook_event.effect.answer == PACK:  # one sentence for a session is enough
            raise
        return Status(204, None)
    if not is_checked and _is_switched_off(hook_event):
        return Status(204, None)
    key = header_of(request, "Idempotency-Key") or f"hook-{ids.short_id()}"
    if hook_event.effect.is_recorded:
        drain_before_reading(project)
    window = request.headers.get("Memory-Hub-Window", "")
    hook_event = in_window(hook_event, window)
    text = take_event(event=hook_event, client=client, project=project, idempotency_key=key)
    note_window(event=hook_event, window=window)
    if not text:
        return Status(204, None)
    return answer_for_client(client, event, text)


# Nothing is noted: the line may be asked for before the session has begun
def _status_line(event: HookEvent, client: str, project: str) -> HttpResponse:
    project = owner_of(event, client=client, project=project)
    try:
        text = take_event(event=event, client=client, project=project, idempotency_key="") if project else ""
    except NotFound:
        text = ""
    return HttpResponse(text, content_type="text/plain; charset=utf-8")


# The hook has checked the folder that it runs in, which may be another, such as the client's own.
def _is_switched_off(event: HookEvent) -> bool:
    folders = {event.directory, event.working_directory}
    return any(enabled.switched_off_in(os.path.realpath(folder)) for folder in folders if folder.startswith("/"))


@deliveries.post(
    "hooks/{client}/{event}",
    response={200: HookContext, **problems(404)},
    tags=["hooks"],
    summary="Capture a hook event of another machine",
)
def deliver_hook(request: HttpRequest, client: str, event: str, command: HookDelivery) -> Any:
    """For a team's hub: the actor is that of the token, and no folder of the hub's machine is read.

    A repeated ``Idempotency-Key`` adds nothing.
    """
    drain_before_reading(current_store().name)
    return take_delivery(client=client, event=event, command=command)


class MemberFacts(BaseModel):
    """A person who may see a place."""

    name: str
    role: str
    through: str = Field(description="empty: the role was given here; else the organisation, or 'the hub'")
    is_active: bool
    given_at: Moment | None = None
    given_by: str = ""


class MemberList(BaseModel):
    """People by name, those that were given a role here first."""

    results: list[MemberFacts]


@memberships.get(
    "projects/{project_id}/members", response=MemberList, tags=["members"], summary="List a project's members"
)
def list_project_members(request: HttpRequest, project_id: str) -> Any:
    """Also those whose role in its organisation or in the hub counts here. For owners, and those who manage people."""
    return {"results": list(map(asdict, members.list_members(project_store(project_id))))}


@memberships.put(
    "projects/{project_id}/members/{person}",
    response={200: MemberFacts, **problems(404)},
    tags=["members"],
    summary="Give a person a role in a project",
)
def set_project_member(request: HttpRequest, project_id: str, person: str, command: members.MemberSet) -> Any:
    """Takes effect with their next request."""
    return asdict(members.set_member(store=project_store(project_id), name=person, command=command))


@memberships.delete(
    "projects/{project_id}/members/{person}",
    response={204: None, **problems(404)},
    tags=["members"],
    summary="Remove a member of a project",
)
def remove_project_member(request: HttpRequest, project_id: str, person: str) -> Any:
    """Takes effect with their next request."""
    members.remove_member(store=project_store(project_id), name=person)
    return Status(204, None)


@memberships.get(
    "orgs/{org_id}/members", response=MemberList, tags=["members"], summary="List an organisation's members"
)
def list_org_members(request: HttpRequest, org_id: str) -> Any:
    """Also those whose role in the hub counts here. For owners, and those who manage people."""
    return {"results": list(map(asdict, members.list_members(org_store(org_id))))}


@memberships.put(
    "orgs/{org_id}/members/{person}",
    response={200: MemberFacts, **problems(404)},
    tags=["members"],
    summary="Give a person a role in an organisation",
)
def set_org_member(request: HttpRequest, org_id: str, person: str, command: members.MemberSet) -> Any:
    """It holds in all projects of the organisation, and takes effect with their next request."""
    return asdict(members.set_member(store=org_store(org_id), name=person, command=command))


@memberships.delete(
    "orgs/{org_id}/members/{person}",
    response={204: None, **problems(404)},
    tags=["members"],
    summary="Remove a member of an organisation",
)
def remove_org_member(request: HttpRequest, org_id: str, person: str) -> Any:
    """Takes effect with their next request."""
    members.remove_member(store=org_store(org_id), name=person)
    return Status(204, None)


# Generated clients name their methods after the ids of operations, which ninja makes from the module of a route; these
# stay as they are wherever the routes are.
for router, prefix in (
    (hooks, "memoryhub_rest_hook_routes"),
    (deliveries, "memoryhub_rest_hook_routes"),
    (memberships, "memoryhub_rest_members_api"),
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
memberships.add_decorator(from_caller)
api.add_router("", memberships)
in_projects = (memories, links, queries, decisions, sessions, work, governance, sessions_by_name, exports, deliveries)
for router in in_projects:
    router.add_decorator(in_project)
    api.add_router("projects/{project_id}", router)
