"""What can be asked of roll-backs."""

from __future__ import annotations

from collections import Counter
from typing import Any

from governance.models.taint import Rollback
from governance.taint.schemas import SHOWN, RollbackList, RollbackView
from memoryhub.core.errors import NotFound
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.rollback import Left
from memoryhub.core.schemas import Listing


def find_rollback(rollback_id: int) -> Rollback:
    """Return a roll-back.

    Raises:
        NotFound: there is none of that id.
    """
    found: Rollback | None = Rollback.objects.filter(id=rollback_id).first()
    if found is None:
        raise NotFound(f"there is no roll-back #{rollback_id} here; the list of roll-backs has their ids")
    return found


def list_rollbacks(*, command: RollbackList) -> Listing:
    """Return a page of roll-backs, the latest first."""
    reached = decode_cursor(command.cursor, (int,))
    found = Rollback.objects.filter(id__lt=reached[0]) if reached else Rollback.objects.all()
    listed = list(found.order_by("-id")[: command.limit + 1])
    shown = [view(each).model_dump(mode="json") for each in listed[: command.limit]]
    return page(
        [{"id": each["id"], "action": each["action"]} for each in shown] if command.compact else shown,
        total=Rollback.objects.count(),
        more=len(listed) > command.limit,
        cursor_of=lambda item: encode_cursor(item["id"]),
        line=rollback_line,
        max_tokens=command.max_tokens,
    )


def view(rollback: Rollback) -> RollbackView:
    """Return a roll-back as every door shows it."""
    names = set(RollbackView.model_fields) - {"counts", "left", "left_count", "undone_left"}
    return RollbackView(
        **{name: getattr(rollback, name) for name in names},
        counts=dict(Counter(step["do"] for step in rollback.steps)),
        left=[Left.model_validate(each) for each in rollback.left[:SHOWN]],
        left_count=len(rollback.left),
        undone_left=[Left.model_validate(each) for each in rollback.undone_left[:SHOWN]],
    )


def rollback_line(rollback: dict[str, Any]) -> str:
    """Return a roll-back as one line."""
    if "selection" not in rollback:
        return f"#{rollback['id']} {rollback['action']}"
    chosen = ", ".join(f"{name}={value}" for name, value in rollback["selection"].items())
    done = ", ".join(f"{count} × {do}" for do, count in rollback["counts"].items())
    undone = f" (undone by {rollback['undone_by']})" if rollback["undone_at"] else ""
    why = f": {rollback['reason']}" if rollback["reason"] else ""
    return f"#{rollback['id']} {rollback['made_at'][:16]} {rollback['action']} of {chosen}: {done}{undone}{why}"
