"""REST routes of memories, search, timeline and stats."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from ninja import Header, Query, Router, Status
from pydantic import BaseModel, Field

from memories import selectors, services, timeline
from memories.schemas import (
    MemoryDelete,
    MemoryGet,
    MemoryList,
    MemoryRestore,
    MemorySearch,
    MemoryUpdate,
    MemoryView,
    MemoryWrite,
    Stats,
    Timeline,
    VersionView,
    WriteResult,
    WriteStatus,
)
from memories.schemas.links import RelationView
from memories.uses.selectors import UseView
from memoryhub.core.errors import Invalid
from memoryhub.core.rest import EntityTag, command_of, entity_tag, problems, version_of_tag, without
from memoryhub.core.schemas import Command, EntityId, Listing

router = Router()

UpdateBody = without(MemoryUpdate, "id", "must_be_current")
DeleteBody = without(MemoryDelete, "id")
RestoreBody = without(MemoryRestore, "id")
NO_REASON = RestoreBody()
SearchFilters = without(MemorySearch, "query")
MemoryShow = without(MemoryGet, "ids", "name", "max_tokens")


class SearchQuestion(Command):
    """A question in plain words, as ``query`` or ``q``."""

    query: str = Field("", max_length=2_000, description="question in plain words")
    q: str = Field("", max_length=2_000, description="short for query")


class MemoryDetail(MemoryView):
    """A memory, with its history, relations and use if requested."""

    versions: list[VersionView] = Field(default_factory=list, description="newest first")
    relations: list[RelationView] = Field(default_factory=list, description="oldest first")
    use: UseView | None = Field(None, description="how often it was sent, found and cited")


class Versions(BaseModel):
    """The history of a memory, newest first."""

    results: list[VersionView]


class TimelineAnswer(BaseModel):
    """Events around a time, oldest first."""

    results: list[dict[str, Any]]


@router.get("memories", response=Listing, tags=["memories"], summary="List memories")
def list_memories(request: HttpRequest, command: Query[MemoryList]) -> Any:
    """Last changed first. For the next page pass ``meta.next_cursor`` as ``cursor``."""
    return selectors.list_memories(command=command)


@router.post(
    "memories",
    response={200: WriteResult, 201: WriteResult, **problems(409)},
    tags=["memories"],
    summary="Write a memory",
)
def write_memory(request: HttpRequest, command: MemoryWrite, response: HttpResponse) -> Any:
    """201 if a memory was created; 200 if one with the same topic, text or title exists, see ``status``."""
    result = services.write_memory(command=command)
    response["Location"] = f"{request.path}/{result.id}"
    response["ETag"] = entity_tag(result.version)
    return Status(201 if result.status is WriteStatus.CREATED else 200, result)


@router.get(
    "memories/{memory_id}",
    response={200: MemoryDetail, **problems(410)},
    exclude_unset=True,
    tags=["memories"],
    summary="Get a memory",
)
def get_memory(
    request: HttpRequest,
    memory_id: EntityId,
    show: Query[MemoryShow],  # type: ignore[valid-type]
    response: HttpResponse,
) -> Any:
    """The ``ETag`` is the version; send it as ``If-Match`` with a change."""
    command = command_of(MemoryGet, show, ids=[memory_id])
    memory = selectors.get_memories(command=command)[0]
    response["ETag"] = entity_tag(memory["version"])
    return memory


@router.patch(
    "memories/{memory_id}",
    response={200: WriteResult, **problems(409, 410, 412)},
    tags=["memories"],
    summary="Change parts of a memory",
)
def update_memory(
    request: HttpRequest,
    memory_id: EntityId,
    body: UpdateBody,  # type: ignore[valid-type]
    response: HttpResponse,
    if_match: Annotated[EntityTag | None, Header(None, alias="If-Match", description="the ETag that you read")] = None,
) -> Any:
    """Omitted fields stay unchanged. 412 if the memory has a newer version than ``If-Match``."""
    command = command_of(MemoryUpdate, body, id=memory_id)
    result = services.update_memory(command=_based_on(command, version_of_tag(if_match)))
    response["ETag"] = entity_tag(result.version)
    return result


def _based_on(command: MemoryUpdate, version: int | None) -> MemoryUpdate:
    if version is None:
        return command
    if command.base_version not in (None, version):
        raise Invalid("If-Match and base_version name different versions; send only one of them")
    return command.model_copy(update={"base_version": version, "must_be_current": True})


@router.delete(
    "memories/{memory_id}",
    response={200: WriteResult, **problems(409, 410, 412)},
    tags=["memories"],
    summary="Delete a memory, or erase it permanently",
)
def delete_memory(
    request: HttpRequest,
    memory_id: EntityId,
    body: Query[DeleteBody],  # type: ignore[valid-type]
) -> Any:
    """A deleted memory is left out of lists and searches, and can be restored.

    ``permanent`` erases a deleted memory: the first call answers 409 with a ``confirm_token``; repeat it with that
    token.
    """
    command = command_of(MemoryDelete, body, id=memory_id)
    return services.delete_memory(command=command)


@router.post(
    "memories/{memory_id}/restore",
    response={200: WriteResult, **problems(409, 410)},
    tags=["memories"],
    summary="Restore a deleted memory, or an earlier version",
)
def restore_memory(
    request: HttpRequest,
    memory_id: EntityId,
    body: RestoreBody = NO_REASON,  # type: ignore[valid-type]
) -> Any:
    """409 if it is not deleted, or if another memory now has its topic or title."""
    command = command_of(MemoryRestore, body, id=memory_id)
    return services.restore_memory(command=command)


@router.get(
    "memories/{memory_id}/versions",
    response={200: Versions, **problems(410)},
    tags=["memories"],
    summary="Get the history of a memory",
)
def list_versions(request: HttpRequest, memory_id: EntityId) -> Any:
    """Newest first, each with the event that wrote it. Works for deleted memories too."""
    command = MemoryGet(ids=[memory_id], versions=True, include_deleted=True)
    return {"results": selectors.get_memories(command=command)[0]["versions"]}


@router.get("search", response=Listing, tags=["search"], summary="Search with a question in plain words")
def search(
    request: HttpRequest,
    question: Query[SearchQuestion],
    filters: Query[SearchFilters],  # type: ignore[valid-type]
) -> Any:
    """Ranked decisions, memories, commits, sessions and messages, each with id, date, session and event."""
    command = command_of(MemorySearch, filters, query=question.query or question.q)
    return selectors.search(command=command)


@router.get("timeline", response=TimelineAnswer, tags=["search"], summary="List the events around an id or a time")
def show_timeline(request: HttpRequest, command: Query[Timeline]) -> Any:
    """Oldest first. Without ``id`` and ``at``: the newest events."""
    return {"results": timeline.timeline(command=command)}


@router.get("stats", response=dict[str, Any], tags=["projects"], summary="Get statistics of the project")
def show_stats(request: HttpRequest, command: Query[Stats]) -> Any:
    """Counts, sizes in bytes, search mode, and the head of the log."""
    return timeline.stats(command=command)
