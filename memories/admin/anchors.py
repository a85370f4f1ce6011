"""The anchors of a memory or decision on its page, and the form that changes them."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest

from memories.admin.base import sentence
from memories.models import AnchorSource
from memories.schemas.validity import AnchorsChange
from memories.validity.anchoring import anchor_views, change_anchors
from memories.validity.freshness import State
from memories.validity.marks import MarkKind
from memories.validity.models import Provenance
from memoryhub.core.admin import cells
from memoryhub.core.errors import HubError
from memoryhub.core.text import counted
from memoryhub.core.validation import command_from
from sessions_app.models import Commit
from sessions_app.selectors import caller_tree

# Marks that the page shows as reasons for a recheck, or beside the anchors
RECHECKED = (MarkKind.CHANGED, MarkKind.GONE)
_SOURCES = {
    AnchorSource.TEXT: "from its text",
    AnchorSource.SESSION: "from the edits of its session",
    AnchorSource.COMMIT: "from its commits",
    AnchorSource.PERSON: "named",
}
_STATES = {
    State.FRESH: cells.badge("mark-fresh", "Unchanged"),
    State.MOVED: cells.badge("mark-moved", "Moved"),
    State.CHANGED: cells.badge("mark-changed", "Changed"),
    State.GONE: cells.badge("mark-gone", "Gone"),
}


def anchors_shown(entity_id: int) -> dict[str, Any]:
    """Return the anchors of an entry with their state now, and where it was learnt."""
    tree = caller_tree()
    provenance = Provenance.objects.filter(id=entity_id).first()
    anchors = anchor_views(entity_id, tree, provenance.commit if provenance else "")
    rows = []
    for anchor in anchors:
        state = _STATES[State(anchor.state)] if anchor.state else ""
        source = _SOURCES[AnchorSource(anchor.made_from)]
        rows.append({"name": anchor.name, "state": state, "now_at": anchor.now_at, "source": source})
    return {
        "anchors": rows,
        "anchor_lines": "\n".join(anchor.name for anchor in anchors),
        "anchor_rows": min(max(len(anchors) + 1, 2), 8),
        "has_tree": tree is not None,
        "learnt_at": provenance,
        "learnt_commit": Commit.objects.filter(sha=provenance.commit).first() if provenance else None,
    }


def save_anchors(request: HttpRequest, entity_id: int) -> None:
    """Replace the anchors of an entry by those of the form, one a line; messages have the outcome."""
    names = [line.strip() for line in request.POST.get("anchors", "").splitlines() if line.strip()]
    try:
        result = change_anchors(command=command_from(AnchorsChange, {"id": entity_id, "anchors": names}))
    except HubError as error:
        messages.error(request, sentence(error))
        return
    count = len(result.anchors)
    messages.success(request, f"Saved {counted(count, 'anchor')}." if count else "Removed the anchors.")
