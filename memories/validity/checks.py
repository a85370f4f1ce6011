"""Checks of entries: what entries carry, who allowed their commands, their results, and the marks that follow."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from memories.models import Memory
from memories.validity.check_runs import Check, CheckedTree, CheckResult, parse_check, run_check
from memories.validity.events import CHECK_ALLOWED, CHECK_RAN, CheckAllowed, CheckRan
from memories.validity.marks import Mark, MarkKind
from memories.validity.models import CheckOutcome, CheckState
from memoryhub.core import clock, log
from memoryhub.core.errors import ConflictError, Forbidden, Invalid
from memoryhub.core.log.read import as_parameter
from memoryhub.core.origin import AGENT_PREFIX, current_origin
from memoryhub.core.permissions import Act, demand
from memoryhub.core.secrets.context import current_tag_key
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS

# Interfaces that only persons use
_PERSONS_DOORS = ("admin", "cli")
# Factor on the score of an entry whose check failed
_WEIGHT = 0.5


@dataclass(frozen=True, slots=True)
class EntryCheck:
    """A check that proves a memory or a decision."""

    # ``memory`` or ``decision``
    entity_type: str
    entity_id: int
    title: str
    check: Check
    # The file of tests that has it; empty for a check of the entry's own
    file: str = ""

    @property
    def key(self) -> tuple[int, str]:
        return self.entity_id, self.check.digest


def memory_checks(ids: Collection[int] | None = None) -> list[EntryCheck]:
    """Return the checks that live memories carry, or those of some."""
    memories = Memory.objects.live().filter(attributes__has_key="check")
    if ids is not None:
        memories = memories.filter(id__in=as_parameter(IDS, ids))
    listed = memories.order_by("id").values_list("id", "title", "attributes")
    return checks_in("memory", ((entity_id, title, attributes["check"]) for entity_id, title, attributes in listed))


def checks_in(entity_type: str, lines: Iterable[tuple[int, str, str]]) -> list[EntryCheck]:
    """Return the checks of entries, given their ids, titles and lines; one that a redaction changed is left out."""
    checks = []
    for entity_id, title, line in lines:
        try:
            checks.append(EntryCheck(entity_type, entity_id, title, parse_check(line)))
        except Invalid:
            continue
    return checks


def states_of(checks: Collection[EntryCheck]) -> dict[tuple[int, str], CheckState]:
    """Return what is known of the checks, by entry and digest."""
    ids = {entry.entity_id for entry in checks}
    states = CheckState.objects.filter(entity_id__in=as_parameter(IDS, ids))
    return {(state.entity_id, state.digest): state for state in states}


def is_allowed(entry: EntryCheck, state: CheckState | None) -> bool:
    """Return whether a person allowed exactly this command, for this entry, in this hub."""
    return state is not None and hmac.compare_digest(state.seal, _seal(entry))


# The log can come from someone else, with their permissions: this key never leaves the home
def _seal(entry: EntryCheck) -> str:
    allowed = f"check {entry.entity_id} {entry.check.digest}"
    return hmac.new(current_tag_key(), allowed.encode(), hashlib.sha256).hexdigest()


def allow_check(entry: EntryCheck) -> None:
    """Record that a person allows the command of an entry's check to run.

    Raises:
        Forbidden: the caller is no person at a page or a terminal, or is no owner.
        Invalid: the check is a pattern.
        ConflictError: it is allowed already.
    """
    origin = current_origin()
    if origin.source not in _PERSONS_DOORS or origin.actor.startswith(AGENT_PREFIX):
        raise Forbidden("only a person allows a command to run, on the entry's page or with memtest --allow")
    demand(Act.GOVERN, to="allow a command to run")
    if not entry.check.command:
        raise Invalid(f"the check of #{entry.entity_id} is a pattern, which runs without permission")
    with log.transaction():
        if is_allowed(entry, states_of([entry]).get(entry.key)):
            raise ConflictError(f"the command of #{entry.entity_id} is allowed already", id=entry.entity_id)
        allowed = CheckAllowed(
            entity_id=entry.entity_id, digest=entry.check.digest, seal=_seal(entry), text=entry.check.text
        )
        log.append(log.prepare(CHECK_ALLOWED, allowed), stream=f"{entry.entity_type}:{entry.entity_id}")


def run_entry_check(entry: EntryCheck, tree: CheckedTree) -> CheckResult:
    """Run a check and record its result. Whether its command may run is the caller's matter."""
    result = run_check(entry.check, tree)
    lines = [result.fault, *result.lines] if result.fault else []
    ran = CheckRan(
        entity_id=entry.entity_id,
        digest=entry.check.digest,
        text=entry.check.text,
        outcome=CheckOutcome.FAILED if result.fault else CheckOutcome.PASSED,
        file=entry.file,
        exit_code=result.exit_code,
        seconds=result.seconds,
        commit=tree.commit,
        lines=lines,
    )
    with log.transaction():
        log.append(log.prepare(CHECK_RAN, ran), stream=f"{entry.entity_type}:{entry.entity_id}")
    return result


def withdraw_results(current: Collection[EntryCheck], file: str) -> None:
    """Record that failed checks count no more which neither the entries nor the file of tests have now."""
    keys = {entry.key for entry in current}
    failed = CheckState.objects.filter(outcome=CheckOutcome.FAILED, file__in=("", file))
    for state in failed.order_by("entity_id", "digest"):
        if (state.entity_id, state.digest) in keys:
            continue
        withdrawn = CheckRan(entity_id=state.entity_id, digest=state.digest, text=state.text, outcome="", file=file)
        with log.transaction():
            log.append(log.prepare(CHECK_RAN, withdrawn), stream=_stream(state.entity_id))


def _stream(entity_id: int) -> str:
    return str(log.events().at([entity_id]).values_list("stream_id", flat=True)[0])


# Every search asks, and most stores have none
_ANY_FAILED = f"SELECT 1 FROM memories_checkstate WHERE outcome = '{CheckOutcome.FAILED}' LIMIT 1"


def failed_checks(ids: Collection[int] | None = None) -> dict[int, CheckState]:
    """Return the last failed check of each entry, unless the entry was given another check since."""
    if not rows.fetch(_ANY_FAILED):
        return {}
    states = CheckState.objects.filter(outcome=CheckOutcome.FAILED)
    if ids is not None:
        states = states.filter(entity_id__in=as_parameter(IDS, ids))
    failed = list(states.order_by("ran_at"))
    entity_ids = [state.entity_id for state in failed]
    memories = set(Memory.objects.filter(id__in=as_parameter(IDS, entity_ids)).values_list("id", flat=True))
    current = {entry.key for entry in memory_checks(entity_ids)}
    last = {}
    for state in failed:
        is_current = state.file or state.entity_id not in memories or (state.entity_id, state.digest) in current
        if is_current:
            last[state.entity_id] = state
    return last


def check_marks(ids: Collection[int]) -> dict[int, Mark]:
    """Map entries whose check failed to what is said of it."""
    marks = {}
    for entity_id, state in failed_checks(ids).items():
        marks[entity_id] = Mark(MarkKind.FAILED, failure_text(state), weight=_WEIGHT, withheld=True)
    return marks


def failure_text(state: CheckState) -> str:
    day = clock.day(state.ran_at) if state.ran_at else "an unknown day"
    return f"its check failed on {day}"


def checked_at(memories: Collection[Memory]) -> dict[int, datetime]:
    """Map memories to the time at which a check of their present text passed."""
    by_id = {memory.id: memory for memory in memories}
    passed = CheckState.objects.filter(outcome=CheckOutcome.PASSED, entity_id__in=as_parameter(IDS, by_id))
    times: dict[int, datetime] = {}
    for state in passed.order_by("ran_at"):
        memory = by_id[state.entity_id]
        lines = checks_in("memory", [(memory.id, memory.title, memory.attributes.get("check", ""))])
        is_current = state.file or state.digest in {entry.check.digest for entry in lines}
        if is_current and state.ran_at >= memory.updated_at:
            times[memory.id] = state.ran_at
    return times
