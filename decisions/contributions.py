"""What decisions add to what is told of a project elsewhere: its statistics, its commits."""

from __future__ import annotations

from decisions.events import DECISION_RECORDED, DecisionRecorded
from decisions.selectors import count_by_status, decisions_of_commits
from memories.uses.citing import define_citing
from memoryhub.core import rows
from memoryhub.core.contributions import define_part, define_statistics
from memoryhub.core.quarantine import OUTSIDE


def count_commits() -> dict[str, int]:
    """Return how many commits are evidence of a decision, and how many are of none."""
    linked, known = rows.fetch(
        f"SELECT (SELECT count(DISTINCT commit_id) FROM decisions_commitlink WHERE event {OUTSIDE} "
        f"AND decision_id {OUTSIDE} AND commit_id {OUTSIDE}), "
        f"(SELECT count(*) FROM sessions_app_commit WHERE id {OUTSIDE})"
    )[0]
    return {"with_decision": linked, "without_decision": known - linked}


def _texts(payload: DecisionRecorded) -> tuple[str, ...]:
    options = (text for each in payload.alternatives for text in (each.option, each.why_not))
    return (payload.title, payload.context, payload.chosen, payload.rationale, *options)


define_citing(DECISION_RECORDED, _texts)
define_statistics("decisions", count_by_status)
define_statistics("commits", count_commits)
define_part("commit", "decisions", decisions_of_commits)
