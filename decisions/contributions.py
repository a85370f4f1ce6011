"""Decisions' parts in statistics, commits and context packs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db.models import Count

from decisions.events import DECISION_RECORDED, DecisionRecorded
from decisions.models import CommitLink, DecisionStatus
from decisions.selectors import count_by_status, decisions_of_commits
from memories.pack.sections import (
    GatherRequest,
    PackItem,
    SectionDefinition,
    define_recallable,
    define_section,
    reference,
    without_repeats,
)
from memories.schemas import SearchSourceName
from memories.scopes import Level
from memories.uses.counting import define_citing
from memoryhub.core import clock
from memoryhub.core.contributions import define_part, define_statistics
from memoryhub.core.log.quarantine import OUTSIDE, outside_quarantine
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS
from memoryhub.core.text import one_line
from sessions_app.models import Commit


def count_commits() -> dict[str, int]:
    links = CommitLink.objects.all()
    for field in ("event", "decision_id", "commit_id"):
        links = outside_quarantine(links, field)
    linked = links.aggregate(commits=Count("commit_id", distinct=True))["commits"]
    return {"with_decision": linked, "without_decision": outside_quarantine(Commit.objects.all()).count() - linked}


def _texts(payload: DecisionRecorded) -> tuple[str, ...]:
    texts = [payload.title, payload.context, payload.chosen, payload.rationale]
    for alternative in payload.alternatives:
        texts += [alternative.option, alternative.why_not]
    return tuple(texts)


define_citing(DECISION_RECORDED, _texts)
define_statistics("decisions", count_by_status)
define_statistics("commits", count_commits)
define_part("commit", "decisions", decisions_of_commits)


IN_FORCE = (DecisionStatus.ACCEPTED, DecisionStatus.PROPOSED)

_TITLE, _CHOSEN = 120, 300

_IN_FORCE = f"FROM decisions_decision WHERE status IN {tuple(map(str, IN_FORCE))} AND id {OUTSIDE}"
_SELECT = f"SELECT id, status, title, chosen, decided_at || '' {_IN_FORCE}"


class _Decision(NamedTuple):
    id: int
    status: str
    title: str
    chosen: str
    decided_at: str


# The decisions that best match the query, then the latest.
def _decisions(request: GatherRequest) -> list[PackItem]:
    latest = _fetch("ORDER BY decided_at DESC, id DESC LIMIT %s", [request.most])
    if not latest:
        return []
    return without_repeats(map(_item, [*_matching(request), *latest]))


def _count(_: GatherRequest) -> int:
    return int(rows.fetch(f"SELECT count(*) {_IN_FORCE}")[0][0])


def _fetch(clauses: str, parameters: Sequence[Any] = ()) -> list[_Decision]:
    return list(map(_Decision._make, rows.fetch(f"{_SELECT} {clauses}", [*parameters])))


def _matching(request: GatherRequest) -> list[_Decision]:
    ids = list(request.matching(request.chain[0], SearchSourceName.DECISION))
    return sorted(_fetch(f"AND id IN {IDS}", [json.dumps(ids)]), key=lambda decision: ids.index(decision.id))


def _item(decision: _Decision, name: str = "") -> PackItem:
    name = name or f"#{decision.id}"
    status = "" if decision.status == DecisionStatus.ACCEPTED else f" {decision.status}"
    title, chosen = one_line(decision.title, _TITLE), one_line(decision.chosen, _CHOSEN)
    subject = f"{title}: {chosen}" if chosen else title
    return PackItem(name, f"- {name} decided{status} {clock.day(decision.decided_at)} {subject}")


def _recallable(level: Level, ids: Sequence[int], *_: object) -> dict[int, PackItem]:
    decisions = _fetch(f"AND id IN {IDS}", [json.dumps(list(ids))])
    return {decision.id: _item(decision, reference(level, decision.id)) for decision in decisions}


define_recallable(SearchSourceName.DECISION, _recallable)
define_section(SectionDefinition("decisions", "Decisions in force", 30, 0.25, 500, _decisions, "memory_search", _count))
