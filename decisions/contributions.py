"""What decisions add to what is told of a project elsewhere: its statistics, its commits, a session's beginning."""

from __future__ import annotations

from decisions.models import Decision, DecisionStatus
from decisions.pack import STANDING
from decisions.selectors import count_by_status, decisions_of_commits
from memories.context import item_line
from memoryhub.core import rows
from memoryhub.core.contributions import define_lines, define_part, define_statistics

_TOLD = 8


def count_commits() -> dict[str, int]:
    """Return how many commits are evidence of a decision, and how many are of none."""
    linked, known = rows.fetch(
        "SELECT (SELECT count(DISTINCT commit_id) FROM decisions_commitlink), "
        "(SELECT count(*) FROM sessions_app_commit)"
    )[0]
    return {"with_decision": linked, "without_decision": known - linked}


def standing_lines() -> list[str]:
    """Return the decisions that stand, the latest first, as the lines of a summary."""
    found = Decision.objects.filter(status__in=STANDING).order_by("-decided_at", "-id")[:_TOLD]
    return [_line(decision) for decision in found]


def _line(decision: Decision) -> str:
    proposed = " (proposed)" if decision.status == DecisionStatus.PROPOSED else ""
    return item_line(decision.id, decision.decided_at.date(), f"{decision.title}{proposed}", decision.chosen)


define_statistics("decisions", count_by_status)
define_statistics("commits", count_commits)
define_lines("Decisions", standing_lines)
define_part("commit", "decisions", decisions_of_commits)
