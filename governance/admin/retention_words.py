"""Rules of retention, and what they take, in the words of a page."""

from __future__ import annotations

from governance.retention.policy import Policy, day_start
from governance.retention.present import thing_name
from governance.retention.schemas import Share
from memoryhub.core import clock
from memoryhub.core.kinds import KINDS
from sessions_app.retaining import RetentionRule, What

_EVENTS = {
    "message.user": ("prompt", "prompts"),
    "message.assistant": ("answer", "answers"),
    "message.tool": ("call of a tool", "calls of tools"),
    "command.run": ("command", "commands"),
    "file.edited": ("changed file", "changed files"),
    "note.added": ("note", "notes"),
    "context.compacted": ("compacted context", "compacted contexts"),
    "context.packed": ("context pack", "context packs"),
    "phase.started": ("started phase", "started phases"),
    "phase.completed": ("completed phase", "completed phases"),
    "gate.passed": ("passed gate", "passed gates"),
    "gate.failed": ("failed gate", "failed gates"),
    "user.approved": ("approval", "approvals"),
    "user.rejected": ("rejection", "rejections"),
}
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
    if share.sub in _EVENTS:
        return _EVENTS[share.sub][many]
    state = _STATES.get(What(share.what))
    if state and share.sub in KINDS:
        return f"{state} {KINDS[share.sub].counted[many]}"
    return thing_name(share)


def event_words(event_type: str) -> str:
    """Return what many events of a type are called: ``prompts``; the type itself where it has no other name."""
    return _EVENTS[event_type][1] if event_type in _EVENTS else event_type


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
    if rule.event_type in _EVENTS:
        return _EVENTS[rule.event_type][1]
    kind = KINDS[rule.kind].counted[1] if rule.kind else ""
    subject = f"{_STATES[rule.what]} {kind}" if kind else _SUBJECTS[rule.what]
    of = f" of the type {rule.type}" if rule.type else ""
    return f"{subject}{of}{f' of the scope {rule.scope}' if rule.scope else ''}"


def rules_in_words() -> dict[str, str]:
    """Return today's rules in order, by what every door calls each: ``rule 1: deleted after 500 days``."""
    policy = Policy.current(day_start(clock.now()))
    return {f"{policy.name(index)}: {rule.sentence()}": rule_words(rule) for index, rule in enumerate(policy.rules)}
