"""Finding: decisions in force that contradict each other, or the code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from decisions.models import CommitLink, Decision, DecisionEdge, DecisionStatus, EdgeRelation, LinkType
from governance.findings.reading import excerpt
from governance.findings.schemas import MOST_EVIDENCE, FindingEvidence, FindingKind, ProjectFinding
from governance.staleness.schemas import Why
from governance.staleness.working_tree import tree_reasons
from memories.models import Memory
from memories.selectors.amendments import open_amendments
from memories.validity.checks import failed_checks, failure_text
from memoryhub.core.log.quarantine import outside_quarantine
from sessions_app.models import Commit
from sessions_app.selectors import caller_tree

_TITLE = 100


class _Entry(NamedTuple):
    id: int
    title: str
    at: datetime
    type: str = "decision"

    @property
    def name(self) -> str:
        return f"#{self.id} “{excerpt(self.title, _TITLE)}”"

    @property
    def evidence(self) -> FindingEvidence:
        return FindingEvidence(id=self.id, type=self.type, text=excerpt(self.title), at=self.at)


@dataclass(frozen=True, slots=True)
class _Contradiction:
    sentence: str
    evidence: list[FindingEvidence]


def find_contradiction() -> ProjectFinding | None:
    """Return the strongest contradiction of a decision in force, and how many there are; None if there is none."""
    accepted = outside_quarantine(Decision.objects.filter(status=DecisionStatus.ACCEPTED))
    decisions = {row[0]: _Entry(*row) for row in accepted.values_list("id", "title", "decided_at")}
    # The strongest first: what somebody has stated, what was run, what a newer text says, what the code has no more
    contradictions = [
        *_conflicts(decisions),
        *_failed_checks(decisions),
        *_reverted(decisions),
        *_amended(decisions),
        *_gone(decisions),
    ]
    if not contradictions:
        return None
    first = contradictions[0]
    sentence = first.sentence
    if len(contradictions) > 1:
        sentence += f" There {'is' if len(contradictions) == 2 else 'are'} {len(contradictions) - 1:,} more."
    return ProjectFinding(
        kind=FindingKind.DECISIONS,
        sentence=sentence,
        count=len(contradictions),
        evidence=first.evidence[:MOST_EVIDENCE],
        advice="Supersede the one that no longer holds, so that agents are given the other alone.",
    )


def _conflicts(decisions: Mapping[int, _Entry]) -> Iterator[_Contradiction]:
    edges = DecisionEdge.objects.filter(relation=EdgeRelation.CONFLICTS_WITH)
    pairs = {(min(pair), max(pair)) for pair in outside_quarantine(edges, "event").values_list("from_id", "to_id")}
    for older, newer in sorted(pairs, reverse=True):
        if older in decisions and newer in decisions:
            one, other = decisions[older], decisions[newer]
            sentence = f"{one.name} and {other.name} are recorded as in conflict, and both are in force."
            yield _Contradiction(sentence, [other.evidence, one.evidence])


def _failed_checks(decisions: Mapping[int, _Entry]) -> Iterator[_Contradiction]:
    for decision_id, ran_at in failed_checks(list(decisions)).items():
        decision = decisions[decision_id]
        yield _Contradiction(
            f"{decision.name} is in force, but {failure_text(ran_at)}: the code does otherwise.", [decision.evidence]
        )


# Someone who has looked at it has cleared its note for review
def _reverted(decisions: Mapping[int, _Entry]) -> Iterator[_Contradiction]:
    noted = set(Decision.objects.exclude(review="").values_list("id", flat=True)) & set(decisions)
    links = CommitLink.objects.filter(link_type=LinkType.REVERTS).order_by("-commit_id")
    reverts = [link for link in links.values_list("decision_id", "commit_id") if link[0] in noted]
    reverting = outside_quarantine(Commit.objects.filter(id__in=[commit_id for _, commit_id in reverts]))
    commits = {commit.id: commit for commit in reverting.only("sha", "message", "committed_at")}
    for decision_id, commit_id in reverts:
        if commit_id in commits:
            commit, decision = commits[commit_id], decisions[decision_id]
            sentence = f"{decision.name} is in force, but commit {commit.sha[:10]} reverted what implemented it."
            evidence = FindingEvidence(
                id=commit_id, type="commit", text=excerpt(commit.message), at=commit.committed_at
            )
            yield _Contradiction(sentence, [decision.evidence, evidence])


# Pairs of decisions before others
def _amended(decisions: Mapping[int, _Entry]) -> Iterator[_Contradiction]:
    amendments = open_amendments()
    ids = {key for amendment in amendments for key in (amendment.newer_id, amendment.older_id)}
    memories = Memory.objects.live().filter(id__in=ids - set(decisions))
    entries = {row[0]: _Entry(*row, "memory") for row in memories.values_list("id", "title", "updated_at")}
    entries |= {key: decisions[key] for key in ids & set(decisions)}
    pairs = []
    for amendment in amendments:
        if amendment.newer_id in entries and amendment.older_id in entries:
            pairs.append((entries[amendment.newer_id], entries[amendment.older_id]))
    pairs.sort(key=lambda pair: (sum(entry.type == "decision" for entry in pair), pair[0].id), reverse=True)
    for newer, older in pairs:
        sentence = f"{newer.name} says otherwise than {older.name}, and both are in force."
        yield _Contradiction(sentence, [newer.evidence, older.evidence])


def _gone(decisions: Mapping[int, _Entry]) -> Iterator[_Contradiction]:
    if not decisions:
        return
    for decision_id, reasons in sorted(tree_reasons(caller_tree(), list(decisions)).items(), reverse=True):
        for reason in [reason for reason in reasons if reason.why is Why.GONE][:1]:
            decision = decisions[decision_id]
            sentence = f"{decision.name} is in force, but the code that it is about is not there: {reason.says}."
            yield _Contradiction(excerpt(sentence, 3 * _TITLE), [decision.evidence])
