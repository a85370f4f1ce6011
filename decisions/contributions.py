"""What decisions add to what is told of a project elsewhere: its statistics, its commits."""

from __future__ import annotations

from django.db.models import Count

from decisions.events import DECISION_RECORDED, DecisionRecorded
from decisions.models import CommitLink
from decisions.selectors import count_by_status, decisions_of_commits
from memories.uses.citing import define_citing
from memoryhub.core.contributions import define_part, define_statistics
from memoryhub.core.quarantine import outside_quarantine
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
