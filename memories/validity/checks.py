"""Checks of entries: what entries carry, who allowed their commands, their results, and the marks that follow."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memories.models import Memory
from memories.validity.check_runs import Check, CheckedTree, CheckResult, parse_check, run_check
from memories.validity.events import CHECK_ALLOWED, CHECK_RAN, CheckAllowed, CheckRan
from memories.validity.marks import Mark, MarkKind
from memories.validity.models import CheckOutcome, CheckState
from memoryhub.core import clock, log
from memoryhub.core.errors import ConflictError, Forbidden, Invalid
from memoryhub.core.log.quarantine import OUTSIDE
from memoryhub.core.log.read import as_parameter
from memoryhub.core.origin import AGENT_PREFIX, PERSONS_DOORS, current_origin
from memoryhub.core.permissions import Act, demand
from memoryhub.core.secrets.context import current_tag_key
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, json_list, json_text

# ``memtest --allow`` asks at a terminal
_ALLOWING_DOORS = PERSONS_DOORS | {"cli"}
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


_LINE = json_text("m.attributes", "check")
_LINES = (
    f"SELECT m.id, m.title, {_LINE} FROM memories_memory m WHERE {_LINE} IS NOT NULL AND m.deleted_at IS NULL "
    f"AND m.review <> 'rejected' AND m.id {OUTSIDE} {{among}} ORDER BY m.id"
)


def memory_checks(ids: Collection[int] | None = None) -> list[EntryCheck]:
    """Return the checks that live memories carry, or those of some."""
    if ids is None:
        lines = rows.fetch(_LINES.format(among=""))
    else:
        lines = rows.fetch(_LINES.format(among=f"AND m.id IN {IDS}"), [json_list(ids)])
    return checks_in("memory", lines)


def checks_in(entity_type: str, lines: Iterable[tuple[Any, ...]]) -> list[EntryCheck]:
    """Return the checks of entries, given their ids, titles and lines.

    A line that is no check is left out: a redaction has changed it, or another hub has stored it.
    """
    checks = []
    for entity_id, title, line in lines:
        try:
            checks.append(EntryCheck(entity_type, entity_id, title, parse_check(str(line))))
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
    if origin.source not in _ALLOWING_DOORS or origin.actor.startswith(AGENT_PREFIX):
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


_FAILED = (
    f"SELECT s.entity_id, s.ran_at || '', s.digest, s.file, m.id, {_LINE} FROM memories_checkstate s "
    "LEFT JOIN memories_memory m ON m.id = s.entity_id "
    f"WHERE s.outcome = '{CheckOutcome.FAILED}' {{among}} ORDER BY s.ran_at"
)


@rows.InSteps
def failed_checks(ids: Collection[int] | None = None) -> rows.Steps[dict[int, str]]:
    """Map entries to the time at which a check of theirs failed last, unless they were given another one since.

    The times are in the store's format.
    """
    if ids is None:
        (failed,) = yield [(_FAILED.format(among=""), ())]
    else:
        (failed,) = yield [(_FAILED.format(among=f"AND s.entity_id IN {IDS}"), [json_list(ids)])]
    return {entity_id: ran_at for entity_id, ran_at, *check in failed if _is_present(*check)}


# A check of a decision, and one of a file of tests, is withdrawn when it is gone
def _is_present(digest: str, file: str, memory_id: int | None, line: Any) -> bool:
    return bool(file) or memory_id is None or _digest(line) == digest


def _digest(line: Any) -> str:
    try:
        return parse_check(str(line)).digest
    except Invalid:
        return ""


@rows.InSteps
def check_marks(ids: Collection[int]) -> rows.Steps[dict[int, Mark]]:
    """Map entries whose check failed to what is said of it."""
    marks = {}
    for entity_id, ran_at in (yield from failed_checks.steps(ids)).items():
        marks[entity_id] = Mark(MarkKind.FAILED, failure_text(ran_at), weight=_WEIGHT, withheld=True)
    return marks


def failure_text(ran_at: str) -> str:
    return f"its check failed on {clock.day(ran_at)}"


def checked_at(memories: Collection[Memory]) -> dict[int, datetime]:
    """Map memories to the time at which a check of their present text passed."""
    by_id = {memory.id: memory for memory in memories}
    passed = CheckState.objects.filter(outcome=CheckOutcome.PASSED, entity_id__in=as_parameter(IDS, by_id))
    times: dict[int, datetime] = {}
    for state in passed.order_by("ran_at"):
        memory = by_id[state.entity_id]
        is_current = state.file or state.digest == _digest(memory.attributes.get("check"))
        if is_current and state.ran_at >= memory.updated_at:
            times[memory.id] = state.ran_at
    return times
