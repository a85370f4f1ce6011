"""The part of a context pack that is made of decisions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from decisions.models import DecisionStatus
from memories.pack.sections import Item, Request, Section, define_section, one_line, without_repeats
from memories.schemas import SearchSourceName
from memories.search import engine
from memories.search.parsed_query import ParsedQuery
from memoryhub.core import rows
from memoryhub.core.dialect import IDS
from memoryhub.core.quarantine import OUTSIDE

STANDING = (DecisionStatus.ACCEPTED, DecisionStatus.PROPOSED)

_MOST = 40
_TITLE, _CHOSEN = 120, 300

_STANDING = (
    "SELECT id, status, title, chosen, decided_at || '' FROM decisions_decision "
    f"WHERE status IN {tuple(map(str, STANDING))} AND id {OUTSIDE}"
)


class _Decision(NamedTuple):
    id: int
    status: str
    title: str
    chosen: str
    decided_at: str


def _decisions(request: Request) -> list[Item]:
    """Return the decisions that stand: what answers the question best, and then the latest."""
    latest = _standing(f"ORDER BY decided_at DESC, id DESC LIMIT {_MOST}")
    answering = _answering(request.query) if request.query.text and latest else ()
    return without_repeats(map(_item, [*answering, *latest]))


def _standing(rest: str, parameters: Sequence[Any] = ()) -> list[_Decision]:
    return list(map(_Decision._make, rows.fetch(f"{_STANDING} {rest}", [*parameters])))


def _answering(query: ParsedQuery) -> list[_Decision]:
    ids = [each for each, _ in engine.rank(query.among(SearchSourceName.DECISION)).hits[:_MOST]]
    found = {each.id: each for each in _standing(f"AND id IN {IDS}", [json.dumps(ids)])}
    return [found[each] for each in ids if each in found]


def _item(decision: _Decision) -> Item:
    status = "" if decision.status == DecisionStatus.ACCEPTED else f" {decision.status}"
    title, chosen = one_line(decision.title, _TITLE), one_line(decision.chosen, _CHOSEN)
    return Item(f"#{decision.id}", f"- #{decision.id} decided{status} {decision.decided_at[:10]} {title}: {chosen}")


define_section(Section("decisions", "Decisions that stand", 30, 0.25, 500, _decisions, "memory_search"))
