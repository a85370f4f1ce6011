"""The REST routes of what we know: memories, search, timeline and stats."""

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
    """The question, under either name."""

    query: str = Field("", max_length=2_000, description="the question, in your own words")
    q: str = Field("", max_length=2_000, description="short for query")


class MemoryDetail(MemoryView):
    """A memory, with its history, its relations and its use where they were asked for."""

    versions: list[VersionView] = Field(default_factory=list, description="newest first")
    relations: list[RelationView] = Field(default_factory=list, description="oldest first")
    use: UseView | None = Field(None, description="what became of it")


class Versions(BaseModel):
    """The history of a memory, newest first."""

    results: list[VersionView]


class TimelineAnswer(BaseModel):
    """Events around a moment, oldest first."""

    results: list[dict[str, Any]]


@router.get("memories", response=Listing, tags=["memories"], summary="List memories, last changed first")
def list_memories(request: HttpRequest, command: Query[MemoryList]) -> Any:
    """Page by ``cursor``: the ``meta.next_cursor`` of the answer before."""
    return selectors.list_memories(command=command)


@router.post(
    "memories",
    response={200: WriteResult, 201: WriteResult, **problems(409)},
    tags=["memories"],
    summary="Write a memory",
)
def write_memory(request: HttpRequest, command: MemoryWrite, response: HttpResponse) -> Any:
    """201 where a memory was created; 200 where one of the same topic, text or title was met, as ``status`` says."""
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
    """The ``ETag`` is the version; send it back as ``If-Match`` with a change."""
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
    """What is left out stays. 412 where the memory is no longer at the version of ``If-Match``."""
    command = command_of(MemoryUpdate, body, id=memory_id)
    result = services.update_memory(command=_based_on(command, version_of_tag(if_match)))
    response["ETag"] = entity_tag(result.version)
    return result


def _based_on(command: MemoryUpdate, version: int | None) -> MemoryUpdate:
    if version is None:
        return command
    if command.base_version not in (None, version):
        raise Invalid("If-Match and base_version name two versions; send one of them")
    return command.model_copy(update={"base_version": version, "must_be_current": True})


@router.delete(
    "memories/{memory_id}",
    response={200: WriteResult, **problems(409, 410, 412)},
    tags=["memories"],
    summary="Delete a memory softly, or for good",
)
def delete_memory(
    request: HttpRequest,
    memory_id: EntityId,
    body: Query[DeleteBody],  # type: ignore[valid-type]
) -> Any:
    """It leaves lists and searches, and can be restored.

    ``permanent`` erases one that is deleted already: the first call answers 409 with a ``confirm_token``, the same
    call with that token does it.
    """
    command = command_of(MemoryDelete, body, id=memory_id)
    return services.delete_memory(command=command)


@router.post(
    "memories/{memory_id}/restore",
    response={200: WriteResult, **problems(409, 410)},
    tags=["memories"],
    summary="Bring back a deleted memory, or an earlier version",
)
def restore_memory(
    request: HttpRequest,
    memory_id: EntityId,
    body: RestoreBody = NO_REASON,  # type: ignore[valid-type]
) -> Any:
    """A conflict where it is not deleted, or another memory has taken its topic or title."""
    command = command_of(MemoryRestore, body, id=memory_id)
    return services.restore_memory(command=command)


@router.get(
    "memories/{memory_id}/versions", response=Versions, tags=["memories"], summary="Get the history of a memory"
)
def list_versions(request: HttpRequest, memory_id: EntityId) -> Any:
    """Newest first, each with the event that is its evidence; of deleted memories too."""
    command = MemoryGet(ids=[memory_id], versions=True, include_deleted=True)
    return {"results": selectors.get_memories(command=command)[0]["versions"]}


@router.get("search", response=Listing, tags=["search"], summary="Search by a question in words")
def search(
    request: HttpRequest,
    question: Query[SearchQuestion],
    filters: Query[SearchFilters],  # type: ignore[valid-type]
) -> Any:
    """Decisions, memories, commits, sessions and messages, ranked; each with its evidence: id, date, session, event."""
    command = command_of(MemorySearch, filters, query=question.query or question.q)
    return selectors.search(command=command)


@router.get("timeline", response=TimelineAnswer, tags=["search"], summary="What happened around an id or a time")
def show_timeline(request: HttpRequest, command: Query[Timeline]) -> Any:
    """Oldest first; without ``id`` or ``at``, the end of the log."""
    return {"results": timeline.timeline(command=command)}


@router.get("stats", response=dict[str, Any], tags=["projects"], summary="What the project's store holds")
def show_stats(request: HttpRequest, command: Query[Stats]) -> Any:
    """Counts, sizes in bytes, how it searches, and the head of its log."""
    return timeline.stats(command=command)
