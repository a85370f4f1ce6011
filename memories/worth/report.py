"""A project's worth: what became of its packs, and the memories that they include in vain: find, reject, restore."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import chain
from typing import Any

from django.db.models import Count, Q, QuerySet, Sum
from django.db.models.functions import TruncDate

from memories.events import Verdict
from memories.models import IGNORED_AFTER, ContextPack, Memory, MemoryUse, ReviewState
from memories.pack.outcomes import LineOutcome, judge_packs
from memories.pack.sections import recallable_sources
from memories.pack_sorts import RECALL, SESSION
from memories.review.schemas import ReviewTouch, ReviewVerdict
from memories.review.services import review_many, withdraw_verdict
from memories.schemas import SearchSourceName
from memories.scopes import levels
from memories.uses.events import Use
from memories.uses.notes import waiting_notes
from memories.worth.note_scores import score_notes
from memories.worth.schemas import (
    KindScore,
    Lines,
    PacksJudged,
    Period,
    Spent,
    TopEntry,
    UnusedPack,
    WorthReport,
    WorthRequest,
    Zombie,
    Zombies,
)
from memories.worth.sessions import compare_sessions
from memoryhub.core import clock
from memoryhub.core.entities import find_entities
from memoryhub.core.errors import HubError, Invalid
from memoryhub.core.kinds import KINDS
from memoryhub.core.log.quarantine import outside_quarantine
from memoryhub.core.paging import estimate_tokens
from memoryhub.core.stores.store import current_store
from memoryhub.core.text import one_line

# Latest packs of a period that are judged
MOST_PACKS = 2_000
_UNUSED_SHOWN, _TOP_SHOWN = 20, 10
# Weeks of the chart of all packs
_WEEKS = 26
_SINCE_EVER = datetime(1970, 1, 1, tzinfo=UTC)
_USED = (LineOutcome.CITED, LineOutcome.USED)
_ORDER = list(LineOutcome)
_MOST_ZOMBIES = 25
_TEXT_CHARS = 200
# Kinds with a section of packs, such as guidelines, are followed without being named
FOLLOWED = [kind.name for kind in KINDS.values() if kind.pack]

Judged = Mapping[int, Mapping[int, LineOutcome]]


def worth_report(*, command: WorthRequest) -> WorthReport:
    """Return what the current project's memory cost and what became of it, in the command's period."""
    period = command.period
    since = clock.now() - timedelta(days=period.days) if period.days else _SINCE_EVER
    packs = ContextPack.objects.filter(created_at__gte=since)
    latest = list(packs.order_by("-id").defer("positions", "digest")[:MOST_PACKS])
    judged = judge_packs(latest)
    sessions = Count("session_id", distinct=True, filter=~Q(session_id=""))
    totals = packs.aggregate(packs=Count("id"), tokens=Sum("tokens", default=0), sessions=sessions)
    memories = packable().count()
    given_ids = MemoryUse.objects.filter(given__gt=0).values("memory_id")
    return WorthReport(
        period=period,
        since=since if period.days else None,
        **totals,
        judged=_judged_packs(latest, judged),
        lines=_judged_lines(judged),
        kinds=_kinds(since, latest, judged),
        unused_packs=_unused_packs(latest, judged),
        top=_top(latest, judged),
        memories=memories,
        never_given=memories - packable().filter(id__in=given_ids).count(),
        zombies=find_zombies(),
        **_spent(packs, period),
        experiment=compare_sessions(since),
    )


def _verdict(outcomes: Mapping[int, LineOutcome]) -> LineOutcome:
    # The best that became of a pack's lines
    return min(outcomes.values(), key=_ORDER.index)


def _judged_packs(packs: Sequence[ContextPack], judged: Judged) -> PacksJudged:
    verdicts = {pack: _verdict(outcomes) for pack, outcomes in judged.items()}
    counted = Counter(verdicts.values())
    return PacksJudged(
        latest=len(packs),
        used=counted[LineOutcome.CITED] + counted[LineOutcome.USED],
        unused=counted[LineOutcome.IGNORED],
        pending=counted[LineOutcome.PENDING],
        unused_tokens=sum(pack.tokens for pack in packs if verdicts.get(pack.id) is LineOutcome.IGNORED),
    )


def _judged_lines(judged: Judged) -> Lines:
    by_entity: dict[int, Counter[LineOutcome]] = defaultdict(Counter)
    for outcomes in judged.values():
        for entity, outcome in outcomes.items():
            by_entity[entity][outcome] += 1
    counts: Counter[str] = Counter()
    for outcome_counts in by_entity.values():
        if outcome_counts[LineOutcome.CITED]:
            counts["cited"] += 1
        elif outcome_counts[LineOutcome.USED]:
            counts["used"] += 1
        elif outcome_counts[LineOutcome.IGNORED] >= IGNORED_AFTER:
            counts["ignored"] += 1
        else:
            counts["undecided"] += 1
    return Lines(**counts)


# Lines of notes by what sessions did after them; of other packs by whether they were cited or read again
def _kinds(since: datetime, packs: Sequence[ContextPack], judged: Judged) -> list[KindScore]:
    scores = score_notes(since)
    for sort, label in ((RECALL, "Recall"), (SESSION, "Packs")):
        sent = [pack for pack in packs if pack.sort is sort]
        counts = Counter(chain.from_iterable(judged.get(pack.id, {}).values() for pack in sent))
        followed = sum(counts[outcome] for outcome in _USED)
        lines = sum(len(pack.marks) for pack in sent)
        ignored = counts[LineOutcome.IGNORED]
        scores.append(KindScore(name=label.lower(), label=label, shown=lines, followed=followed, ignored=ignored))
    return [score for score in scores if score.shown]


def _unused_packs(packs: Sequence[ContextPack], judged: Judged) -> list[UnusedPack]:
    unused: list[UnusedPack] = []
    for pack in packs:
        if len(unused) == _UNUSED_SHOWN:
            break
        if pack.id in judged and _verdict(judged[pack.id]) is LineOutcome.IGNORED:
            named = {"id": pack.id, "session_id": pack.session_id, "topic": pack.topic, "tokens": pack.tokens}
            unused.append(UnusedPack(**named, lines=len(pack.marks), sent_at=pack.created_at))
    return unused


def _top(packs: Sequence[ContextPack], judged: Judged) -> list[TopEntry]:
    sessions = {pack.id: pack.session_id for pack in packs}
    users: dict[int, set[str]] = defaultdict(set)
    packs_with: Counter[int] = Counter()
    for pack, outcomes in judged.items():
        packs_with.update(list(outcomes))
        for entity, outcome in outcomes.items():
            if outcome in _USED:
                users[entity].add(sessions[pack])
    best = sorted(users, key=lambda entity: (-len(users[entity]), -entity))[:_TOP_SHOWN]
    entities = find_entities(best)
    top: list[TopEntry] = []
    for entity in best:
        named = {"id": entity, "type": entities[entity].type, "title": entities[entity].title}
        top.append(TopEntry(**named, used_by=len(users[entity]), given=packs_with[entity]))
    return top


def _spent(packs: QuerySet[ContextPack], period: Period) -> dict[str, Any]:
    """Return the tokens of each day, or of each week of a longer period; the last one ends today, in UTC."""
    step = 1 if period in (Period.WEEK, Period.MONTH) else 7
    steps = -(-period.days // step) if period.days else _WEEKS
    today = clock.now().astimezone(UTC).date()
    first = today - timedelta(days=steps * step - 1)
    start = datetime(first.year, first.month, first.day, tzinfo=UTC)
    # Without what was sent when the clock was ahead
    recent = packs.filter(created_at__gte=start, created_at__lt=start + timedelta(days=steps * step))
    per_day = recent.annotate(day=TruncDate("created_at", tzinfo=UTC)).values("day").annotate(sum=Sum("tokens"))
    spent: dict[date, int] = {first + timedelta(days=step * index): 0 for index in range(steps)}
    for row in per_day.order_by("day"):
        spent[first + timedelta(days=(row["day"] - first).days // step * step)] += row["sum"]
    return {"step_days": step, "spent": [Spent(day=day, tokens=tokens) for day, tokens in spent.items()]}


@dataclass(frozen=True, slots=True)
class Changed:
    ids: list[int] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def packable() -> QuerySet[Memory]:
    """Return the memories that packs may include, as far as their own state decides."""
    live: QuerySet[Memory] = Memory.objects.filter(deleted_at__isnull=True)
    return outside_quarantine(live.exclude(review=ReviewState.REJECTED))


def find_zombies() -> Zombies:
    """Return the memories that enough packs included and nobody ever used, those given most often first."""
    memories = packable().exclude(kind__in=FOLLOWED)
    ignored = _ignored().filter(memory_id__in=memories.values("id"))
    uses = {use.memory_id: use for use in ignored.order_by("-given", "memory_id")[:_MOST_ZOMBIES]}
    in_bulk = Memory.objects.in_bulk(uses)
    lines = recallable_sources()[SearchSourceName.MEMORY](levels()[0], list(uses), clock.now(), {})
    items: list[Zombie] = []
    for memory_id, use in uses.items():
        memory = in_bulk[memory_id]
        text = one_line(memory.content, _TEXT_CHARS)
        line = lines[memory_id].line if memory_id in lines else f"{memory.title}: {text}"
        zombie = Zombie(
            id=memory.id,
            title=memory.title,
            text=text,
            kind=memory.kind,
            type=memory.type,
            given=use.given,
            tokens=use.given * estimate_tokens(line),
            last_given_at=use.last_given_at,
            version=memory.version,
        )
        items.append(zombie)
    total = len(items) if len(items) < _MOST_ZOMBIES else ignored.count()
    return Zombies(total=total, least_packs=IGNORED_AFTER, tokens=sum(item.tokens for item in items), items=items)


# Reads of the last hour may not be counted yet
def _ignored() -> QuerySet[MemoryUse]:
    notes = waiting_notes(current_store())
    read = set(chain.from_iterable(note.ids for note in notes if note.use is not Use.GIVEN))
    ignored: QuerySet[MemoryUse] = MemoryUse.objects.ignored().exclude(memory_id__in=read)
    return ignored


def reject_zombies(versions: Mapping[int, int]) -> Changed:
    """Reject memories that nobody used; ``versions`` are the versions that the caller saw, by id.

    A memory that was used or changed meanwhile is refused; the others are rejected all the same.

    Raises:
        Invalid: none is chosen, or too many are.
    """
    if not 0 < len(versions) <= _MOST_ZOMBIES:
        raise Invalid(f"choose 1 to {_MOST_ZOMBIES} memories; nothing was changed")
    packs = dict(_ignored().filter(memory_id__in=versions).values_list("memory_id", "given"))
    commands: list[ReviewVerdict] = []
    for memory, count in packs.items():
        reason = f"in {count} packs and never used"
        commands.append(
            ReviewVerdict(id=memory, base_version=versions[memory], verdict=Verdict.REJECTED, reason=reason)
        )
    outcomes = review_many(commands=commands)
    used = [f"#{memory} was used meanwhile; it stays" for memory in versions if memory not in packs]
    return Changed(
        [outcome.id for outcome in outcomes if not outcome.refused],
        [outcome.refused for outcome in outcomes if outcome.refused] + used,
    )


def restore_zombies(ids: Sequence[int]) -> Changed:
    """Undo the rejections of memories that have not changed since."""
    changed = Changed()
    for memory in ids[:_MOST_ZOMBIES]:
        try:
            changed.ids.append(withdraw_verdict(command=ReviewTouch(id=memory)).id)
        except HubError as error:
            changed.refused.append(error.message)
    return changed
