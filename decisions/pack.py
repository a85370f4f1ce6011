"""The part of a context pack that is made of decisions."""

from __future__ import annotations

from django.db.models import QuerySet

from decisions.models import Decision, DecisionStatus
from memories.pack.sections import Item, Request, Section, define_section, one_line, without_repeats
from memories.schemas import MemorySearch, SearchSourceName
from memories.search import engine
from memoryhub.core.quarantine import outside_quarantine

STANDING = (DecisionStatus.ACCEPTED, DecisionStatus.PROPOSED)

_MOST = 40
_TITLE, _CHOSEN = 120, 300


def _decisions(request: Request) -> list[Item]:
    """Return the decisions that stand: what answers the question best, and then the latest."""
    standing = outside_quarantine(Decision.objects.filter(status__in=STANDING))
    latest = list(standing.order_by("-decided_at", "-id")[:_MOST])
    return without_repeats(map(_item, [*(_answering(request.query, standing) if request.query else ()), *latest]))


def _answering(query: str, standing: QuerySet[Decision]) -> list[Decision]:
    question = MemorySearch(query=query, sources=[SearchSourceName.DECISION])
    ids = [each for each, _ in engine.rank(question).hits[:_MOST]]
    found = {decision.id: decision for decision in standing.filter(id__in=ids)}
    return [found[each] for each in ids if each in found]


def _item(decision: Decision) -> Item:
    status = "" if decision.status == DecisionStatus.ACCEPTED else f" {decision.status}"
    title, chosen = one_line(decision.title, _TITLE), one_line(decision.chosen, _CHOSEN)
    return Item(f"#{decision.id}", f"- #{decision.id} decided{status} {decision.decided_at.date()} {title}: {chosen}")


define_section(Section("decisions", "Decisions that stand", 30, 0.25, 500, _decisions, "memory_search"))
