"""REST routes of memories, search, timeline, tags, relations, reviews, queries, conflicts, context packs and stats."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from ninja import Header, Query, Router, Status
from pydantic import BaseModel, Field

from memories import selectors, services, timeline
from memories.pack import pack_context, pack_digest, replay_pack
from memories.query import query
from memories.review import selectors as review_selectors
from memories.review import services as review_services
from memories.review.schemas import ReviewList, ReviewResult, ReviewVerdict
from memories.schemas import (
    ConflictResult,
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
from memories.schemas.links import (
    LinkStatus,
    RelationCreate,
    RelationDelete,
    RelationList,
    RelationResult,
    RelationView,
    TagAttach,
    TagCreate,
    TagDetach,
    TagList,
    TagResult,
    TagsChanged,
)
from memories.schemas.query import (
    ConflictGet,
    ConflictList,
    ConflictSettle,
    ContextPackRequest,
    ContextReplay,
    MemoryQuery,
)
from memories.selectors import versions
from memories.selectors.memories import list_tags
from memories.selectors.relations import list_relations
from memories.services import links
from memories.uses.selectors import UseView
from memories.worth.report import worth_report
from memories.worth.schemas import WorthReport, WorthRequest
from memoryhub.core.errors import Invalid
from memoryhub.core.rest import EntityTag, command_of, entity_tag, problems, version_of_tag, without
from memoryhub.core.schemas import Command, EntityId, Listing

router = Router(tags=["memories"])
links_router = Router(tags=["tags"])
queries_router = Router(tags=["conflicts"])

UpdateBody = without(MemoryUpdate, "id", "must_be_current")
DeleteBody = without(MemoryDelete, "id")
RestoreBody = without(MemoryRestore, "id")
NO_REASON = RestoreBody()
SearchFilters = without(MemorySearch, "query")
MemoryShow = without(MemoryGet, "ids", "name", "max_tokens")
AttachBody = without(TagAttach, "id", "entry_type")
DetachBody = without(TagDetach, "id", "entry_type")
RelationDeleteBody = without(RelationDelete, "id", "source", "relation", "target", "source_type", "target_type")
VerdictBody = without(ReviewVerdict, "id")
ConflictShow = without(ConflictGet, "id")
SettleBody = without(ConflictSettle, "id")


class SearchQuestion(Command):
    """A question in plain words, as ``query`` or ``q``."""

    query: str = Field("", max_length=2_000, description="question in plain words")
    q: str = Field("", max_length=2_000, description="short for query")


class MemoryDetail(MemoryView):
    """A memory, with its history, relations and use if requested."""

    versions: list[VersionView] = Field(default_factory=list, description="newest first")
    relations: list[RelationView] = Field(default_factory=list, description="oldest first")
    use: UseView | None = Field(None, description="how often it was sent, found and cited")
    acceptance: str = Field("", description="who accepted this text, and where it comes from")


class Versions(BaseModel):
    """The history of a memory, newest first."""

    results: list[VersionView]


class TimelineAnswer(BaseModel):
    """Events around a time, oldest first."""

    results: list[dict[str, Any]]


@router.get("memories", response=Listing, summary="List memories")
def list_memories(request: HttpRequest, command: Query[MemoryList]) -> Any:
    """Last changed first. For the next page pass ``meta.next_cursor`` as ``cursor``."""
    return selectors.list_memories(command=command)


@router.post("memories", response={200: WriteResult, 201: WriteResult, **problems(409)}, summary="Write a memory")
def write_memory(request: HttpRequest, command: MemoryWrite, response: HttpResponse) -> Any:
    """201 if a memory was created; 200 if one with the same topic, text or title exists, see ``status``."""
    result = services.write_memory(command=command)
    response["Location"] = f"{request.path}/{result.id}"
    response["ETag"] = entity_tag(result.version)
    return Status(201 if result.status is WriteStatus.CREATED else 200, result)


@router.get(
    "memories/{memory_id}", response={200: MemoryDetail, **problems(410)}, exclude_unset=True, summary="Get a memory"
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
    "memories/{memory_id}", response={200: WriteResult, **problems(409, 410, 412)}, summary="Change parts of a memory"
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
    version = version_of_tag(if_match)
    if version is not None:
        if command.base_version not in (None, version):
            raise Invalid("If-Match and base_version name different versions; send only one of them")
        command = command.model_copy(update={"base_version": version, "must_be_current": True})
    result = services.update_memory(command=command)
    response["ETag"] = entity_tag(result.version)
    return result


@router.delete(
    "memories/{memory_id}",
    response={200: WriteResult, **problems(409, 410, 412)},
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
    "memories/{memory_id}/versions", response={200: Versions, **problems(410)}, summary="Get the history of a memory"
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
    """Ranked entries, commits, sessions, messages and failed commands, each with id, date, session and event."""
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


@links_router.get("tags", response=Listing, summary="List tags by name")
def show_tags(request: HttpRequest, command: Query[TagList]) -> Any:
    """Predefined, described and used tags, each with its number of memories."""
    return list_tags(command=command)


@links_router.post("tags", response={201: TagResult, **problems(409, 410)}, summary="Describe a tag")
def create_tag(request: HttpRequest, command: TagCreate) -> Any:
    """409 if it is predefined or already described."""
    return Status(201, links.create_tag(command=command))


@links_router.post(
    "memories/{memory_id}/tags", response={200: TagsChanged, **problems(409, 410)}, summary="Attach tags to a memory"
)
def attach_tags(
    request: HttpRequest,
    memory_id: EntityId,
    body: AttachBody,  # type: ignore[valid-type]
    response: HttpResponse,
) -> Any:
    """Creates a version, unless the memory already has all these tags."""
    result = links.attach_tags(command=command_of(TagAttach, body, id=memory_id))
    response["ETag"] = entity_tag(result.version or 0)
    return result


@links_router.delete(
    "memories/{memory_id}/tags", response={200: TagsChanged, **problems(409, 410)}, summary="Detach tags from a memory"
)
def detach_tags(
    request: HttpRequest,
    memory_id: EntityId,
    body: Query[DetachBody],  # type: ignore[valid-type]
    response: HttpResponse,
) -> Any:
    """Creates a version. Repeat the parameter ``tags`` for each tag."""
    result = links.detach_tags(command=command_of(TagDetach, body, id=memory_id))
    response["ETag"] = entity_tag(result.version or 0)
    return result


@links_router.get("relations", response={200: Listing, **problems(410)}, tags=["relations"], summary="List relations")
def show_relations(request: HttpRequest, command: Query[RelationList]) -> Any:
    """Newest first, of one item or all. Relations of deleted memories only with ``include_deleted``."""
    return list_relations(command=command)


@links_router.post(
    "relations",
    response={200: RelationResult, 201: RelationResult, **problems(409, 410)},
    tags=["relations"],
    summary="Create a relation",
)
def create_relation(request: HttpRequest, command: RelationCreate, response: HttpResponse) -> Any:
    """201 if the relation was created; 200 if it already exists."""
    result = links.create_relation(command=command)
    response["Location"] = f"{request.path}/{result.id}"
    return Status(201 if result.status is LinkStatus.CREATED else 200, result)


@links_router.delete(
    "relations/{relation_id}",
    response={200: RelationResult, **problems(409)},
    tags=["relations"],
    summary="Delete a relation",
)
def delete_relation(
    request: HttpRequest,
    relation_id: EntityId,
    body: Query[RelationDeleteBody],  # type: ignore[valid-type]
) -> Any:
    """Returns the deleted relation."""
    return links.delete_relation(command=command_of(RelationDelete, body, id=relation_id))


@links_router.get("reviews", response=Listing, tags=["review"], summary="List memories that need a review")
def list_reviews(request: HttpRequest, command: Query[ReviewList]) -> Any:
    """Longest waiting first, each with its author, the reason for the review, and the change."""
    return review_selectors.list_reviews(command=command)


@links_router.post(
    "memories/{memory_id}/review",
    response={200: ReviewResult, **problems(403, 409, 410, 412)},
    tags=["review"],
    summary="Accept or reject a memory",
)
def review_memory(
    request: HttpRequest,
    memory_id: EntityId,
    body: VerdictBody,  # type: ignore[valid-type]
    response: HttpResponse,
) -> Any:
    """409 if it already has this state, 412 if it has a newer version than ``base_version``, 403 for its author."""
    result = review_services.review_memory(command=command_of(ReviewVerdict, body, id=memory_id))
    response["ETag"] = entity_tag(result.version)
    return result


@queries_router.post(
    "query", response=Listing, tags=["search"], summary="Query by kinds, scope, tags, words and relations"
)
def ask(request: HttpRequest, command: MemoryQuery) -> Any:
    """Ranked; each result has its score and the parts of it. To page, send the same body with ``cursor``."""
    return query(command=command)


@queries_router.get("conflicts", response=Listing, summary="List conflicts")
def list_conflicts(request: HttpRequest, command: Query[ConflictList]) -> Any:
    """Unresolved or all: both versions with author, time, reason and word diff (``[-removed-]``, ``{+added+}``)."""
    return versions.list_conflicts(command=command)


@queries_router.get("conflicts/{conflict_id}", response=dict[str, Any], summary="Get a conflict")
def get_conflict(
    request: HttpRequest,
    conflict_id: EntityId,
    show: Query[ConflictShow],  # type: ignore[valid-type]
) -> Any:
    """As in the list; also if resolved."""
    return versions.get_conflict(command=command_of(ConflictGet, show, id=conflict_id))


@queries_router.post(
    "conflicts/{conflict_id}/resolve",
    response={200: ConflictResult, **problems(409, 410)},
    summary="Resolve a conflict",
)
def resolve_conflict(
    request: HttpRequest,
    conflict_id: EntityId,
    body: SettleBody,  # type: ignore[valid-type]
) -> Any:
    """Keep a (the earlier version), keep b, merge them, or keep both. 409 if it is already resolved."""
    return services.resolve_conflict(command=command_of(ConflictSettle, body, id=conflict_id))


@queries_router.get(
    "context",
    response={200: dict[str, Any], 304: None},
    tags=["search"],
    summary="Get a context pack within a budget of tokens",
)
def get_context(
    request: HttpRequest,
    command: Query[ContextPackRequest],
    response: HttpResponse,
    if_none_match: Annotated[str | None, Header(None, alias="If-None-Match", description="the ETag you have")] = None,
) -> Any:
    """The same bytes as long as nothing changes; 304 if they match ``If-None-Match``.

    Each new pack is an event and can be rebuilt with ``context/{id}``.
    """
    if if_none_match and if_none_match.strip().strip('"') == pack_digest(command=command):
        return Status(304, None)
    sent = pack_context(command=command)
    response["ETag"] = f'"{sent.digest}"'
    return sent.data()


@queries_router.get(
    "context/{pack_id}", response=dict[str, Any], tags=["search"], summary="Rebuild a context pack as it was sent"
)
def get_sent_context(request: HttpRequest, pack_id: EntityId) -> Any:
    """From the stores as of that time. ``meta.erased`` is how many of its lines were erased since."""
    return replay_pack(command=ContextReplay(id=pack_id)).data()


@queries_router.get("worth", response=WorthReport, tags=["projects"], summary="Get what the project's memory is worth")
def get_worth(request: HttpRequest, command: Query[WorthRequest]) -> Any:
    """Tokens of packs, what became of them, memories never used, and sessions with memory held out.

    ``period`` is ``7d``, ``30d``, ``90d`` or ``all``.
    """
    return worth_report(command=command)
