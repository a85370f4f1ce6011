"""REST route of exports: a project's whole store, or its memories and decisions as files; both are streamed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from django.http import HttpRequest, StreamingHttpResponse
from ninja import Query, Router
from pydantic import Field

from governance.audit import AuditExport, export_audit
from memoryhub.core.errors import Invalid
from memoryhub.core.permissions import Act, Grant, demand, use_grant
from memoryhub.core.rest import problems
from memoryhub.core.stores.store import current_store, use_store
from memoryhub.transfer.folder import Form, Selection, export_archive
from memoryhub.transfer.jsonl import export_lines

router = Router()

_PIECE = 64 * 1024
_TYPES = {"jsonl": "application/x-ndjson", "tar.gz": "application/gzip", "csv": "text/csv"}


class ExportRequest(Selection):
    """The form of an export, and what it contains."""

    form: Literal["jsonl", "markdown", "obsidian"] = Field(
        "jsonl", description="jsonl: the whole store; markdown and obsidian: a tar.gz of files"
    )


@router.get(
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
    selected = command.model_dump(include=set(Selection.model_fields), exclude_defaults=True)
    if command.form == "jsonl":
        demand(Act.GOVERN, to="export the whole store")
        if selected:
            raise Invalid(f"jsonl exports the whole store; leave out {', '.join(selected)}, or ask for markdown")
        return _streamed(request, _encoded, "jsonl")
    selection = Selection.model_validate(selected)
    return _streamed(request, lambda: export_archive(Form(command.form), selection), "tar.gz")


@router.get(
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
    return _streamed(request, lambda: (line.encode() for line in export_audit(command=command)), command.form, "audit")


def _encoded() -> Iterator[bytes]:
    return (line.encode() for line in export_lines())


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
    store, grant = current_store(), request.grant  # type: ignore[attr-defined]

    def stream(grant: Grant) -> Iterator[bytes]:
        with use_grant(grant), use_store(store):
            yield from _gathered(pieces())

    response = StreamingHttpResponse(stream(grant), content_type=_TYPES[ending])
    response["Content-Disposition"] = f'attachment; filename="{"-".join(filter(None, (store.name, suffix)))}.{ending}"'
    return response
