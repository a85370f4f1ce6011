"""What decisions add to what is told of a project elsewhere: its statistics, its commits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db.models import Count

from decisions.events import DECISION_RECORDED, DecisionRecorded
from decisions.models import CommitLink, DecisionStatus
from decisions.selectors import count_by_status, decisions_of_commits
from memories.pack.sections import Item, Request, Section, define_section, without_repeats
from memories.schemas import SearchSourceName
from memories.search import engine
from memories.search.parsed_query import ParsedQuery
from memories.uses.counting import define_citing
from memoryhub.core.contributions import define_part, define_statistics
from memoryhub.core.log.quarantine import OUTSIDE, outside_quarantine
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS
from memoryhub.core.text import one_line
from sessions_app.models import Commit


def count_commits() -> dict[str, int]:
    """Return how many commits are evidence of a decision, and how many are of none."""
    links = CommitLink.objects.all()
    for field in ("event", "decision_id", "commit_id"):
        links = outside_quarantine(links, field)
    linked = links.aggregate(commits=Count("commit_id", distinct=True))["commits"]
    return {"with_decision": linked, "without_decision": outside_quarantine(Commit.objects.all()).count() - linked}


def _texts(payload: DecisionRecorded) -> tuple[str, ...]:
    options = (text for each in payload.alternatives for text in (each.option, each.why_not))
    return (payload.title, payload.context, payload.chosen, payload.rationale, *options)


define_citing(DECISION_RECORDED, _texts)
define_statistics("decisions", count_by_status)
define_statistics("commits", count_commits)
define_part("commit", "decisions", decisions_of_commits)


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
    latest = _in_force(f"ORDER BY decided_at DESC, id DESC LIMIT {_MOST}")
    answering = _answering(request.query) if request.query.text and latest else ()
    return without_repeats(map(_item, [*answering, *latest]))


def _in_force(rest: str, parameters: Sequence[Any] = ()) -> list[_Decision]:
    return list(map(_Decision._make, rows.fetch(f"{_STANDING} {rest}", [*parameters])))


def _answering(query: ParsedQuery) -> list[_Decision]:
    ids = [each for each, _ in engine.rank(query.among(SearchSourceName.DECISION)).hits[:_MOST]]
    found = {each.id: each for each in _in_force(f"AND id IN {IDS}", [json.dumps(ids)])}
    return [found[each] for each in ids if each in found]


def _item(decision: _Decision) -> Item:
    status = "" if decision.status == DecisionStatus.ACCEPTED else f" {decision.status}"
    title, chosen = one_line(decision.title, _TITLE), one_line(decision.chosen, _CHOSEN)
    return Item(f"#{decision.id}", f"- #{decision.id} decided{status} {decision.decided_at[:10]} {title}: {chosen}")


define_section(Section("decisions", "Decisions that stand", 30, 0.25, 500, _decisions, "memory_search"))
