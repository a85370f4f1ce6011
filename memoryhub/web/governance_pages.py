"""The pages of the audit, of imports, of a file's blame, of the graph around an item, and of the log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import urlencode

from governance import imports
from governance.audit import AuditExport, AuditPeriod, AuditRequest, export_audit, list_activity, list_packs_read
from governance.blame import Blame, BlameRequest, blame
from governance.graph import Graph, GraphNode, NodeType, graph_around
from memories.admin.base import sentence
from memories.schemas import MemoryList, MemorySearch, SearchSourceName, Stats
from memories.selectors import list_memories, search
from memories.timeline import stats
from memoryhub.core import log
from memoryhub.core.admin import page_of_entity
from memoryhub.core.admin.svg import lay_out, wrapped
from memoryhub.core.background import is_long, start_task
from memoryhub.core.errors import HubError
from memoryhub.core.kinds import KINDS, word_for
from memoryhub.core.log.chain import check_links
from memoryhub.core.log.digests import GENESIS
from memoryhub.core.log.views import as_of
from memoryhub.core.paging import SEARCH_MODES
from memoryhub.core.permissions import Act, require
from memoryhub.core.stores.store import current_store
from memoryhub.core.text import counted
from memoryhub.core.validation import command_from
from memoryhub.transfer.start import StartResult, run_start
from memoryhub.transfer.start_plan import plan_of_project
from memoryhub.web.pages import number_from
from sessions_app.timeline import entries_of

_FILTERS = ("person", "since", "until")
_PACKS_PER_PAGE = 50


def show_audit(request: HttpRequest, context: dict[str, Any]) -> HttpResponseBase:
    typed = {name: request.GET.get(name, "").strip() for name in _FILTERS}
    chosen = {name: value for name, value in typed.items() if value}
    if "form" in request.GET:
        export = command_from(AuditExport, {**chosen, "form": request.GET["form"]})
        response = StreamingHttpResponse(export_audit(command=export), content_type="text/plain; charset=utf-8")
        response["Content-Disposition"] = f'attachment; filename="{current_store().name}-audit.{export.form}"'
        return response
    cursor = request.GET.get("cursor") or None
    read = list_packs_read(command=command_from(AuditRequest, {**chosen, "limit": _PACKS_PER_PAGE, "cursor": cursor}))
    page = {
        "title": "Audit",
        "activity": list_activity(command=command_from(AuditPeriod, chosen)),
        "packs": read.results,
        "total": read.meta.total_count,
        "next_cursor": read.meta.next_cursor,
        "chosen": typed,
        "is_filtered": bool(chosen),
    }
    return TemplateResponse(request, "admin/audit.html", {**context, **page})


_IMPORTS_PER_PAGE = 50
# Counts of what did not become something new
_NOT_IMPORTED = ("unchanged", "duplicates", "conflicts", "deleted", "sessions_known", "left_out_count")


def show_imports(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    page = Paginator(imports.list_batches(), _IMPORTS_PER_PAGE).get_page(request.GET.get("p"))
    rows = [(batch, imports.counts_text(batch.counts)) for batch in page]
    details = {"title": "Imports", "page": page, "rows": rows}
    return TemplateResponse(request, "admin/imports/list.html", {**context, **details})


def show_import(request: HttpRequest, batch_id: int, context: dict[str, Any]) -> HttpResponse:
    batch = imports.find_batch(batch_id)
    if request.method == "POST":
        return _undo_batch(request, batch)
    memories = imports.imported_memories(batch).defer("content", "resource_links").order_by("id")
    details = {
        "title": f"Import #{batch.id}",
        "batch": batch,
        "left_over": imports.counts_text({name: (batch.counts or {}).get(name, 0) for name in _NOT_IMPORTED}),
    }
    if not batch.is_undone:
        gain = imports.gain_of(batch)
        details |= {
            "gain": gain,
            "kinds": [(kind, KINDS[kind].plural, count) for kind, count in gain.kinds.items()],
            "page": Paginator(memories, _IMPORTS_PER_PAGE).get_page(request.GET.get("p")),
            "plan": imports.preview_undo(batch_id),
        }
    return TemplateResponse(request, "admin/imports/detail.html", {**context, **details})


def show_start(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    """Show what this machine knows of the project's repository, and import it."""
    require(request.user, Act.ADMINISTER)  # it reads the files of the hub's machine
    try:
        plan = plan_of_project(current_store().name)
    except HubError as error:
        messages.error(request, sentence(error))
        return redirect("admin:imports")
    if request.method == "POST":
        task = start_task(
            "Import",
            page=reverse("admin:imports"),
            work=lambda report: run_start(plan, progress=lambda count: report(min(count, plan.total), plan.total)),
            describe=_start_messages,
        )
        return redirect("admin:task", task.id)
    return TemplateResponse(request, "admin/imports/start.html", {**context, "title": "Import", "plan": plan})


def _start_messages(result: StartResult) -> list[tuple[int, str]]:
    if result.batch is None:
        return [(messages.INFO, "Nothing was new.")]
    return [(messages.SUCCESS, f"Imported {imports.counts_text(result.counts)} as #{result.batch}.")]


def _undo_batch(request: HttpRequest, batch: imports.Batch) -> HttpResponse:
    require(request.user, Act.GOVERN)
    token = request.POST.get("token", "")
    page = reverse("admin:import", args=[batch.id])
    try:
        undo = partial(imports.undo_import, batch_id=batch.id, token=token)
        if is_long():
            events = log.head()[0]
            task = start_task(
                "Undo of an import",
                page=page,
                work=lambda report: undo(progress=lambda count: report(min(count, events), events)),
                describe=_undo_messages,
            )
            return redirect("admin:task", task.id)
        result = undo()
    except HubError as error:
        messages.error(request, sentence(error))
        return redirect(page)
    for level, text in _undo_messages(result):
        messages.add_message(request, level, text)
    return redirect(page)


def _undo_messages(result: imports.ImportUndo) -> list[tuple[int, str]]:
    text = f"Import #{result.batch.id} is undone: {counted(result.events, 'event')} removed."
    if result.kept_items:
        text += f" {counted(len(result.kept_items), 'item')} kept, because others have built on them."
    return [(messages.SUCCESS, text)]


# Lines that a page shows
_BLAMED_LINES = 500


def show_blame(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    file = request.GET.get("file", "").strip()
    first = request.GET.get("first", "").strip()
    last = request.GET.get("last", "").strip()
    page: dict[str, Any] = {"title": f"Blame {file}".strip(), "file": file, "first": first, "last": last}
    if file:
        start = number_from(first, default=1)
        end = min(number_from(last, default=start + _BLAMED_LINES), start + _BLAMED_LINES - 1)
        lines = {"file": file, "first": start, "last": end, "limit": _BLAMED_LINES}
        try:
            page |= _blame_context(blame(command=command_from(BlameRequest, lines)))
        except HubError as error:
            page["problem"] = sentence(error)
    return TemplateResponse(request, "admin/blame.html", {**context, **page})


def _blame_context(blamed: Blame) -> dict[str, Any]:
    view = blamed.view
    parts = []
    seen: set[str] = set()
    for part in view.ranges:
        sha = part.commit.sha if part.commit else ""
        lines = blamed.lines[part.first - view.first : part.last - view.first + 1]
        # Repeated: the trail of its commit is above
        parts.append({"range": part, "lines": lines, "is_repeated": sha in seen})
        seen.add(sha)
    page = {"view": view, "parts": parts}
    if len(blamed.lines) == _BLAMED_LINES:
        page["next"] = view.last + 1
    return page


_PLURALS = {
    NodeType.MEMORY: "Memories",
    NodeType.DECISION: "Decisions",
    NodeType.COMMIT: "Commits",
    NodeType.SESSION: "Sessions",
    NodeType.FILE: "Files",
}


@dataclass(frozen=True, slots=True)
class Box:
    node: GraphNode
    x: float
    y: float
    lines: list[str]
    url: str
    # The address of the graph around it, "" for files
    graph_url: str
    # (label, is outgoing, the other node)
    relations: list[tuple[str, bool, GraphNode]]
    is_current: bool

    @property
    def name(self) -> str:
        label = word_for(self.node.kind) or self.node.type.value
        if self.node.id <= 0:
            return label
        return f"{label} #{self.node.id}"

    @property
    def description(self) -> str:
        parts = [f"{self.name} {self.node.title}"]
        if self.node.is_deleted:
            parts.append("deleted")
        for label, is_out, other in self.relations:
            parts.append(f"{label} {other.title}" if is_out else f"{other.title} {label} it")
        return ", ".join(parts)


def show_graph(request: HttpRequest, entity_id: int, context: dict[str, Any]) -> HttpResponse:
    types = [NodeType(name) for name in request.GET.getlist("type") if name in set(NodeType)] or list(NodeType)
    depth = 2 if request.GET.get("depth") == "2" else 1
    graph = graph_around(entity_id, depth=depth, types=types)
    first = min(graph.columns.values())
    columns = {number: column - first for number, column in graph.columns.items()}
    layout = lay_out(columns, [(edge.start, edge.label, edge.end) for edge in graph.edges])
    boxes = [_box(graph, number, place, entity_id) for number, place in layout.places.items()]
    centre = graph.nodes[entity_id]
    page = {
        "title": f"Graph of #{entity_id}",
        "centre": next(box for box in boxes if box.is_current),
        "layout": layout,
        "boxes": boxes,
        "groups": _groups(boxes, graph),
        "filters": _filters(types, depth),
        "depths": [(number, _graph_query(types, number), number == depth) for number in (1, 2)],
        "is_alone": len(boxes) == 1,
        "is_filtered": len(types) < len(NodeType),
        "summary": f"{centre.title}, with {counted(len(boxes) - 1, 'neighbour')}",
    }
    return TemplateResponse(request, "admin/graph.html", {**context, **page})


def _box(graph: Graph, number: int, place: tuple[float, float], centre: int) -> Box:
    node = graph.nodes[number]
    relations = []
    for edge in graph.edges:
        if edge.start == number:
            relations.append((edge.label, True, graph.nodes[edge.end]))
        elif edge.end == number:
            relations.append((edge.label, False, graph.nodes[edge.start]))
    # A file has no page; the search names what mentions it
    url = f"{reverse('admin:memories_searchdocument_changelist')}?{urlencode({'query': node.title})}"
    if node.type is not NodeType.FILE:
        url = page_of_entity(node.type, node.id)
    return Box(
        node,
        *place,
        wrapped(node.title) or ["(no title)"],
        url,
        reverse("admin:graph", args=[number]) if number > 0 else "",
        relations,
        number == centre,
    )


def _groups(boxes: list[Box], graph: Graph) -> list[tuple[str, list[Box], int]]:
    groups = []
    for name, label in _PLURALS.items():
        members = [box for box in boxes if box.node.type is name]
        if members or graph.hidden[name]:
            groups.append((label, members, graph.hidden[name]))
    return groups


def _filters(types: list[NodeType], depth: int) -> list[tuple[str, str, bool]]:
    filters = []
    for name, label in _PLURALS.items():
        selected = [other for other in NodeType if (other in types) != (other is name)]
        filters.append((label, _graph_query(selected or list(NodeType), depth), name in types))
    return filters


def _graph_query(types: list[NodeType], depth: int) -> str:
    query: dict[str, Any] = {}
    if set(types) != set(NodeType):
        query["type"] = [name.value for name in types]
    if depth > 1:
        query["depth"] = depth
    return f"?{urlencode(query, doseq=True)}"


# How many events to show before and after the current one
AROUND = 4
_MAX_PAYLOAD = 20_000
# Memories on a page of the past
_MEMORIES_PER_PAGE = 50
_MAX_QUESTION = 2_000
_COUNTED = ("session", "turn", "commit")


def show_replay(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    """Show the log at a position; with ``fragment``, only the part that ``hub.js`` replaces."""
    last, _ = log.head()
    replayed: dict[str, Any] = {"last": last}
    if last:
        position = min(max(number_from(request.GET.get("position", ""), default=1), 1), last)
        replayed |= _replay_at(position, last)
        if "fragment" in request.GET:
            return TemplateResponse(request, "admin/core/rawevent/replayed.html", replayed)
    return TemplateResponse(request, "admin/core/rawevent/replay.html", {**context, "title": "Replay", **replayed})


# If the log has no event at the position, ``event`` and ``link`` are None
def _replay_at(position: int, last: int) -> dict[str, Any]:
    window = list(log.events().window(after=position - AROUND - 1, up_to=position + AROUND))
    events = {event.position: event for event in window}
    flaws = {}
    if window:
        flaws = check_links(first=window[0].position, last=window[-1].position)
    # Each event of the window, with the flaw of its link to the previous event
    links = {}
    for entry in entries_of(window):
        flaw = flaws.get(entry.position, "")
        links[entry.position] = {"entry": entry, "flaw": flaw, "is_shown": entry.position == position}
    context = {
        "position": position,
        "event": events.get(position),
        "link": links.get(position),
        "links": list(links.values()),
        "flaws": sum(1 for link in links.values() if link["flaw"]),
        "previous": GENESIS,
        "before": position - 1 or None,
        "after": position + 1 if position < last else None,
    }
    if position - 1 in events:
        context["previous"] = events[position - 1].chain_digest
    if position in events:
        context["payload"] = _payload_text(events[position])
    return context


def _payload_text(event: log.StoredEvent) -> str | None:
    if event.payload_json is None:
        return None
    text = json.dumps(json.loads(event.payload_json), indent=2, ensure_ascii=False)
    if len(text) > _MAX_PAYLOAD:
        return f"{text[:_MAX_PAYLOAD]}\n…"
    return text


def show_past(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    """Show the store as of a position, and the memories that ``q`` finds, or all; without a position, the replay."""
    position = number_from(request.GET.get("position", ""), default=-1)
    if position < 0:
        return redirect("admin:replay")
    question = request.GET.get("q", "")
    cursor = request.GET.get("cursor", "")
    with as_of(position):
        counts = stats(command=Stats())
        page: dict[str, Any] = {"limit": _MEMORIES_PER_PAGE, "cursor": cursor or None}
        if query := question.strip()[:_MAX_QUESTION]:
            listing = search(command=MemorySearch(query=query, sources=[SearchSourceName.MEMORY], **page))
        else:
            listing = list_memories(command=MemoryList(**page))
    past = {
        "title": f"As of #{position}",
        "position": position,
        "head": log.head()[0],
        "event": log.events().at([position]).defer("payload_json").first(),
        "memory_count": sum(counts["memories"].values()),
        "counts": [(counts["rows"][noun], noun) for noun in _COUNTED],
        "digest": counts["head_digest"],
        "question": question,
        "memories": listing.results,
        "mode": SEARCH_MODES.get(listing.meta.mode or "", ""),
        "next_cursor": listing.meta.next_cursor,
    }
    return TemplateResponse(request, "admin/core/rawevent/past.html", {**context, **past})
