"""Rules of retention, and what they take, in the words of a page."""

from __future__ import annotations

from governance.retention.policy import Policy, day_start
from governance.retention.present import thing_name
from governance.retention.schemas import Share
from memoryhub.core import clock
from memoryhub.core.event_types import Retention, event_type
from memoryhub.core.kinds import KINDS
from sessions_app.retaining import RetentionRule, What

_STATES = {What.DELETED: "deleted", What.MEMORY: "live"}
_SUBJECTS = {
    What.CAPTURED: "what was captured",
    What.PACK: "context packs",
    What.DELETED: "deleted memories",
    What.MEMORY: "live memories",
    What.SESSION: "sessions",
    What.DECISION: "decisions",
    What.ITERATION: "iterations",
    What.COMMIT: "commits",
}


def share_words(share: Share) -> str:
    """Return what a share counts: ``prompts``, ``deleted observation``."""
    many = share.things != 1
    nouns = _nouns(share.sub)
    if nouns:
        return nouns[many]
    state = _STATES.get(What(share.what))
    if state and share.sub in KINDS:
        return f"{state} {KINDS[share.sub].counted[many]}"
    return thing_name(share)


def event_words(type_name: str) -> str:
    """Return what many events of a type are called: ``prompts``; the type itself where it has no other name."""
    nouns = _nouns(type_name)
    return nouns[1] if nouns else type_name


def _nouns(name: str) -> tuple[str, str] | None:
    known = event_type(name)
    return known.nouns if known and known.retention is Retention.CAPTURED else None


def rule_words(rule: RetentionRule) -> str:
    """Return a rule as a sentence: ``Prompts go after 30 days``."""
    subject = _subject(rule)
    is_one = subject == _SUBJECTS[What.CAPTURED]
    if rule.after_days is None:
        said = "stays" if is_one else "stay"
    else:
        said = f"{'goes' if is_one else 'go'} after {rule.after_days:,} day{'s' * (rule.after_days != 1)}"
    return f"{subject[:1].upper()}{subject[1:]} {said}"


def _subject(rule: RetentionRule) -> str:
    if rule.event_type:
        return event_words(rule.event_type)
    kind = KINDS[rule.kind].counted[1] if rule.kind else ""
    subject = f"{_STATES[rule.what]} {kind}" if kind else _SUBJECTS[rule.what]
    of = f" of the type {rule.type}" if rule.type else ""
    return f"{subject}{of}{f' of the scope {rule.scope}' if rule.scope else ''}"


def rules_in_words() -> dict[str, str]:
    """Return today's rules in order, by what every door calls each: ``rule 1: deleted after 500 days``."""
    policy = Policy.current(day_start(clock.now()))
    return {f"{policy.name(index)}: {rule.sentence()}": rule_words(rule) for index, rule in enumerate(policy.rules)}
