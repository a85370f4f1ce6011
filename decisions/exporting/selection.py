"""Which decisions to give away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from decisions.models import Decision
from decisions.selectors.decisions import find_decisions, views
from decisions.selectors.edges import ancestors, descendants
from memoryhub.core.errors import NotFound
from memoryhub.core.quarantine import outside_quarantine

_BATCH = 500


def chosen_decisions(*, ids: Sequence[int] = (), lineage: bool = False) -> list[dict[str, Any]]:
    """Return decisions as every door shows them, the earliest first: those of ``ids``, or all.

    With ``lineage`` everything that led to each and everything that came of it is there too.

    Raises:
        NotFound: one of the ids is no decision, or there is no decision at all.
    """
    found = find_decisions(ids) if ids else list(outside_quarantine(Decision.objects.order_by("id")))
    if not found:
        raise NotFound("there is no decision here yet; record one, or name another project")
    if ids and lineage:
        wanted = {step.id for each in ids for step in (*ancestors(each), *descendants(each))}
        found = list(Decision.objects.filter(id__in=wanted.union(ids)))
    ordered = sorted(found, key=lambda decision: decision.id)
    batches = (ordered[start : start + _BATCH] for start in range(0, len(ordered), _BATCH))
    return [view for batch in batches for view in views(batch, with_heads=False)]
