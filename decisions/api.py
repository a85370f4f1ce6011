"""REST routes of decisions, their lineage and their evidence."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Status
from pydantic import BaseModel, Field

from decisions import selectors, services
from decisions.amendments import judge_amendment
from decisions.models import EdgeRelation
from decisions.schemas import (
    DecisionEvidence,
    DecisionGet,
    DecisionLink,
    DecisionList,
    DecisionMark,
    DecisionRecord,
    DecisionResult,
    DecisionSupersede,
    DecisionUnlink,
    DecisionView,
)
from memories.schemas.links import AmendmentList, AmendmentResult, AmendmentVerdict
from memories.selectors.amendments import list_amendments
from memoryhub.core.rest import command_of, problems, without
from memoryhub.core.schemas import EntityId, Listing

router = Router(tags=["decisions"])

SupersedeBody = without(DecisionSupersede, "id")
MarkBody = without(DecisionMark, "id")
EdgeBody = without(DecisionLink, "id")
UnlinkQuery = without(DecisionUnlink, "id", "relation", "to")
EvidenceBody = without(DecisionEvidence, "id")
Show = without(DecisionGet, "ids", "topic", "file_path", "limit", "max_tokens")
Moment = without(DecisionGet, "ids", "topic", "file_path", "lineage", "limit", "max_tokens", called="DecisionMoment")
_Behind: Any = without(DecisionGet, "ids", "topic", "file_path", "lineage", "max_tokens")


class Behind(_Behind):  # type: ignore[misc]
    """A file or folder."""

    file_path: str = Field(min_length=1, max_length=1_000, description="path relative to the repository's root")


class Lineage(BaseModel):
    """Ancestors and descendants of a decision, nearest first, at most 50 each, and the current decisions."""

    ancestors: list[dict[str, Any]]
    ancestor_count: int
    descendants: list[dict[str, Any]]
    descendant_count: int
    heads: list[dict[str, Any]]


class DecisionDetail(DecisionView):
    """A decision, with its lineage if requested."""

    lineage: Lineage | None = None


class Decisions(BaseModel):
    """Decisions, best first."""

    results: list[DecisionView]


def _created(request: HttpRequest, response: HttpResponse, result: DecisionResult) -> Any:
    collection = request.path.partition("/decisions")[0]
    response["Location"] = f"{collection}/decisions/{result.id}"
    return Status(201 if result.is_new else 200, result)


@router.get("decisions", response=Listing, summary="List decisions")
def list_decisions(request: HttpRequest, command: Query[DecisionList]) -> Any:
    """Newest first. For the next page pass ``meta.next_cursor`` as ``cursor``."""
    return selectors.list_decisions(command=command)


@router.post(
    "decisions", response={200: DecisionResult, 201: DecisionResult, **problems(404, 409)}, summary="Record a decision"
)
def record_decision(request: HttpRequest, command: DecisionRecord, response: HttpResponse) -> Any:
    """409 if it supersedes a superseded decision; ``heads`` lists the current ones, ``branch`` supersedes anyway."""
    return _created(request, response, services.record_decision(command=command))


@router.get("decisions/behind", response=Decisions, summary="List the decisions that explain a file")
def list_behind(request: HttpRequest, query: Query[Behind]) -> Any:
    """For a file or folder, those with the most commits on it first; 404 if no decision explains it."""
    return {"results": selectors.get_decisions(command=command_of(DecisionGet, query))}


@router.get(
    "decisions/{decision_id}", response=DecisionDetail, exclude_unset=True, summary="Get a decision with its evidence"
)
def get_decision(request: HttpRequest, decision_id: EntityId, show: Query[Show]) -> Any:  # type: ignore[valid-type]
    """Includes alternatives, edges, commits and artifacts; ``lineage=true`` adds ancestors and descendants."""
    return selectors.get_decisions(command=command_of(DecisionGet, show, ids=[decision_id]))[0]


@router.get("decisions/{decision_id}/lineage", response=Lineage, summary="Get the lineage of a decision")
def get_lineage(request: HttpRequest, decision_id: EntityId, show: Query[Moment]) -> Any:  # type: ignore[valid-type]
    """To any depth. ``ancestor_count`` and ``descendant_count`` count all, shown or not."""
    command = command_of(DecisionGet, show, ids=[decision_id], lineage=True)
    return selectors.get_decisions(command=command)[0]["lineage"]


@router.post(
    "decisions/{decision_id}/supersede",
    response={200: DecisionResult, 201: DecisionResult, **problems(409)},
    summary="Record the decision that replaces this one",
)
def supersede_decision(
    request: HttpRequest,
    decision_id: EntityId,
    body: SupersedeBody,  # type: ignore[valid-type]
    response: HttpResponse,
) -> Any:
    """Omitted fields are copied. 409 if it is already superseded; ``heads`` lists the current decisions."""
    command = command_of(DecisionSupersede, body, id=decision_id)
    return _created(request, response, services.supersede_decision(command=command))


@router.post(
    "decisions/{decision_id}/status",
    response={200: DecisionResult, **problems(409)},
    summary="Accept, deprecate or reject a decision, or complete its review",
)
def mark_decision(request: HttpRequest, decision_id: EntityId, body: MarkBody) -> Any:  # type: ignore[valid-type]
    """The text never changes. To set ``superseded``, supersede the decision."""
    return services.mark_decision(command=command_of(DecisionMark, body, id=decision_id))


@router.post(
    "decisions/{decision_id}/edges",
    response={200: DecisionResult, **problems(409)},
    summary="Relate a decision to another",
)
def link_decisions(request: HttpRequest, decision_id: EntityId, body: EdgeBody) -> Any:  # type: ignore[valid-type]
    """409 if it would create a cycle; the message and ``path`` name it."""
    return services.link_decisions(command=command_of(DecisionLink, body, id=decision_id))


@router.delete(
    "decisions/{decision_id}/edges/{relation}/{to}",
    response=DecisionResult,
    summary="Remove a wrong edge between two decisions",
)
def unlink_decisions(
    request: HttpRequest,
    decision_id: EntityId,
    relation: EdgeRelation,
    to: EntityId,
    query: Query[UnlinkQuery],  # type: ignore[valid-type]
) -> Any:
    """A decision that the edge superseded is in force again. An import does not add the edge again."""
    command = command_of(DecisionUnlink, query, id=decision_id, relation=relation, to=to)
    return services.unlink_decisions(command=command)


@router.post(
    "decisions/{decision_id}/evidence",
    response={200: DecisionResult, **problems(409)},
    summary="Add commits, files, notes or checks to a decision, or replace its anchors",
)
def add_evidence(request: HttpRequest, decision_id: EntityId, body: EvidenceBody) -> Any:  # type: ignore[valid-type]
    """A commit that is not recorded yet is linked once it is. Anchors replace those that the decision has."""
    return services.add_evidence(command=command_of(DecisionEvidence, body, id=decision_id))


@router.get("amendments", response=Listing, tags=["review"], summary="List what newer entries seem to amend")
def show_amendments(request: HttpRequest, command: Query[AmendmentList]) -> Any:
    """Pairs that wait for a verdict, the last found first. Page by ``cursor``."""
    return list_amendments(command=command)


@router.post(
    "amendments/review",
    response={200: AmendmentResult, **problems(403, 404, 409, 410)},
    tags=["review"],
    summary="Accept or dismiss that an entry amends an earlier one",
)
def judge(request: HttpRequest, command: AmendmentVerdict) -> Any:
    """403 for the author of the newer entry, 409 if the older one is superseded already."""
    return judge_amendment(command=command)
