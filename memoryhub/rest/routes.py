"""REST routes of exports, of clients' hooks, and of members."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, Literal

from django.http import HttpRequest, StreamingHttpResponse
from ninja import Body, Query, Router, Status
from pydantic import BaseModel, Field

from governance.audit import AuditExport, export_audit
from memoryhub.config import enabled
from memoryhub.config.hook_table import PACK
from memoryhub.core import ids
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.permissions import Act, Grant, demand, demand_everywhere, use_grant
from memoryhub.core.rest import problems
from memoryhub.core.schemas import Command, Moment
from memoryhub.core.stores.store import current_store, org_store, project_store, use_store
from memoryhub.ops.serving.drain import drain_before_reading
from memoryhub.registry import members
from memoryhub.registry.members import MemberSet
from memoryhub.rest.framework import header_of
from memoryhub.transfer.folder import ExportSelection, FolderForm, export_archive
from memoryhub.transfer.jsonl import export_lines
from sessions_app.events.sessions import Slug
from sessions_app.hook_parser import HookEvent, answer_for_client, parse_hook, place_event
from sessions_app.schemas import HookContext, HookDelivery
from sessions_app.services.capture import note_window, take_delivery, take_event

export_routes = Router()

_PIECE = 64 * 1024
_TYPES = {"jsonl": "application/x-ndjson", "tar.gz": "application/gzip", "csv": "text/csv"}


class ExportRequest(ExportSelection):
    """The form of an export, and what it contains."""

    form: Literal["jsonl", "markdown", "obsidian"] = Field(
        "jsonl", description="jsonl: the whole store; markdown and obsidian: a tar.gz of files"
    )


@export_routes.get(
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


@export_routes.get(
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


# One message to the server for each line would cost more than the line.
def _gathered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        if len(waiting) >= _PIECE:
            yield bytes(waiting)
            waiting.clear()
    yield bytes(waiting)


# The answer is read after the view has returned, so the stream opens the store and takes the grant again.
def _streamed(
    request: HttpRequest, pieces: Callable[[], Iterator[bytes]], ending: str, suffix: str = ""
) -> StreamingHttpResponse:
    store = current_store()
    grant: Grant = request.grant  # type: ignore[attr-defined]

    def stream() -> Iterator[bytes]:
        with use_grant(grant), use_store(store):
            yield from _gathered(pieces())

    response = StreamingHttpResponse(stream(), content_type=_TYPES[ending])
    response["Content-Disposition"] = f'attachment; filename="{"-".join(filter(None, (store.name, suffix)))}.{ending}"'
    return response


hook_routes = Router()
delivery_routes = Router()


class HookQuery(Command):
    """The project of a hook event."""

    project: Slug | None = Field(None, description="default: the project of the event's folder")


@hook_routes.post(
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
    if not hook_event.effect.is_recorded:
        return Status(204, None)
    is_checked = "Memory-Hub-Enabled" in request.headers
    if not is_checked and _is_switched_off(hook_event):
        return Status(204, None)
    try:
        project, hook_event = place_event(hook_event, client=client, project=place.project)
    except NotFound:
        if hook_event.effect.answer == PACK:  # one sentence for a session is enough
            raise
        return Status(204, None)
    if not is_checked and _is_switched_off(hook_event):
        return Status(204, None)
    key = header_of(request, "Idempotency-Key") or f"hook-{ids.short_id()}"
    drain_before_reading(project)
    text = take_event(event=hook_event, client=client, project=project, idempotency_key=key)
    note_window(event=hook_event, window=request.headers.get("Memory-Hub-Window", ""))
    if not text:
        return Status(204, None)
    return answer_for_client(client, event, text)


# The hook has checked the folder that it runs in, which may be another, such as the client's own.
def _is_switched_off(event: HookEvent) -> bool:
    folders = {event.directory, event.working_directory}
    return any(enabled.switched_off_in(os.path.realpath(folder)) for folder in folders if folder.startswith("/"))


@delivery_routes.post(
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


member_routes = Router()


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


def _member_list(people: list[members.Member]) -> dict[str, Any]:
    return {"results": [asdict(member) for member in people]}


@member_routes.get(
    "projects/{project_id}/members", response=MemberList, tags=["members"], summary="List a project's members"
)
def list_project_members(request: HttpRequest, project_id: str) -> Any:
    """Also those whose role in its organisation or in the hub counts here. For owners, and those who manage people."""
    return _member_list(members.list_members(project_store(project_id)))


@member_routes.put(
    "projects/{project_id}/members/{person}",
    response={200: MemberFacts, **problems(404)},
    tags=["members"],
    summary="Give a person a role in a project",
)
def set_project_member(request: HttpRequest, project_id: str, person: str, command: MemberSet) -> Any:
    """Takes effect with their next request."""
    return asdict(members.set_member(store=project_store(project_id), name=person, command=command))


@member_routes.delete(
    "projects/{project_id}/members/{person}",
    response={204: None, **problems(404)},
    tags=["members"],
    summary="Remove a member of a project",
)
def remove_project_member(request: HttpRequest, project_id: str, person: str) -> Any:
    """Takes effect with their next request."""
    members.remove_member(store=project_store(project_id), name=person)
    return Status(204, None)


@member_routes.get(
    "orgs/{org_id}/members", response=MemberList, tags=["members"], summary="List an organisation's members"
)
def list_org_members(request: HttpRequest, org_id: str) -> Any:
    """Also those whose role in the hub counts here. For owners, and those who manage people."""
    return _member_list(members.list_members(org_store(org_id)))


@member_routes.put(
    "orgs/{org_id}/members/{person}",
    response={200: MemberFacts, **problems(404)},
    tags=["members"],
    summary="Give a person a role in an organisation",
)
def set_org_member(request: HttpRequest, org_id: str, person: str, command: MemberSet) -> Any:
    """It holds in all projects of the organisation, and takes effect with their next request."""
    return asdict(members.set_member(store=org_store(org_id), name=person, command=command))


@member_routes.delete(
    "orgs/{org_id}/members/{person}",
    response={204: None, **problems(404)},
    tags=["members"],
    summary="Remove a member of an organisation",
)
def remove_org_member(request: HttpRequest, org_id: str, person: str) -> Any:
    """Takes effect with their next request."""
    members.remove_member(store=org_store(org_id), name=person)
    return Status(204, None)
