"""Sessions with memory held out, against those that got it: turns, corrections and repeated questions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import sqrt
from statistics import NormalDist, fmean, variance
from typing import NamedTuple

from django.db.models import Count

from memories.duplicates import ALIKE, LEAST_WORDS, rare_pairs, share_of, words_of
from memories.lessons.corrections import is_correction
from memories.worth.schemas import HeldOut, Measure, Reading
from memoryhub.config.current_settings import project_settings
from memoryhub.core import log
from memoryhub.core.events.event_types import Speech, names_of_speech
from memoryhub.core.log.quarantine import outside_quarantine
from sessions_app.models import Session, SessionStatus, Turn
from sessions_app.selectors import read_events

# Ended sessions that each group needs before their difference is judged
LEAST_SESSIONS = 20
# Latest prompts that are read, and characters of each
_MOST_PROMPTS, _PROMPT_CHARS = 3_000, 1_000
# Latest prompts with a word that are compared with another one
_COMPARED = 20


class SessionPrompt(NamedTuple):
    position: int
    session: str
    text: str


_MEASURES = {
    "turns": "Turns",
    "corrections": "Corrections by the user",
    "repeats": "Questions asked before",
}


def compare_sessions(since: datetime) -> HeldOut:
    """Compare the sessions that began since a time and were assigned to a group."""
    report = HeldOut(percent=project_settings().held_out_percent, least=LEAST_SESSIONS)
    sessions = outside_quarantine(Session.objects.filter(started_at__gte=since))
    starts = log.events().at(sessions.values_list("id", flat=True)).payloads()
    assigned = [session for session in sessions if starts.get(session.id, {}).get("held_out") is not None]
    if not assigned:
        return report
    prompts = _latest_prompts()
    first = prompts[0].position if len(prompts) == _MOST_PROMPTS else 0
    prompted = {prompt.session for prompt in prompts}
    ended = [session for session in assigned if session.status in (SessionStatus.COMPLETED, SessionStatus.DISCARDED)]
    compared = [session for session in ended if session.id >= first and session.session_id in prompted]
    turns = Turn.objects.filter(id__gte=min(session.id for session in assigned)).order_by().values("session_id")
    counts = {
        "turns": Counter(dict(turns.annotate(turns=Count("id")).values_list("session_id", "turns"))),
        "corrections": count_corrections(prompts),
        "repeats": count_repeats(prompts),
    }
    without = [session.session_id for session in compared if starts[session.id]["held_out"]]
    with_memory = [session.session_id for session in compared if not starts[session.id]["held_out"]]
    for name, label in _MEASURES.items():
        count_of = counts[name].__getitem__
        measure = _measure(name, label, list(map(count_of, without)), list(map(count_of, with_memory)))
        report.measures.append(measure)
    sizes = {"held_out": len(without), "given": len(with_memory), "active": len(assigned) - len(ended)}
    return report.model_copy(update=sizes)


def _latest_prompts() -> list[SessionPrompt]:
    newest = log.events().of_type(*names_of_speech(Speech.PROMPT)).order_by("-position")
    prompts: list[SessionPrompt] = []
    for event in read_events(newest, _MOST_PROMPTS):
        prompts.append(SessionPrompt(event.position, event.session_id, event.payload["content"][:_PROMPT_CHARS]))
    return prompts[::-1]


def count_corrections(prompts: Iterable[SessionPrompt]) -> Counter[str]:
    """Count the corrections of each session; its first prompt has nothing to correct."""
    counted: Counter[str] = Counter()
    begun: set[str] = set()
    for prompt in prompts:
        if prompt.session in begun and is_correction(prompt.text):
            counted[prompt.session] += 1
        begun.add(prompt.session)
    return counted


def count_repeats(prompts: Iterable[SessionPrompt]) -> Counter[str]:
    """Count the prompts of each session that are nearly the same as an earlier one of another session."""
    counted: Counter[str] = Counter()
    by_word: dict[str, list[tuple[str, frozenset[str]]]] = defaultdict(list)
    for prompt in prompts:
        words = words_of(prompt.text)
        if len(words) < LEAST_WORDS:
            continue
        counted[prompt.session] += _repeats_another(prompt.session, words, by_word)
        for word in words:
            by_word[word].append((prompt.session, words))
    return counted


def _repeats_another(
    session: str, words: frozenset[str], by_word: Mapping[str, Sequence[tuple[str, frozenset[str]]]]
) -> bool:
    for first, second in rare_pairs(words):
        for other_session, earlier_words in by_word.get(first, ())[-_COMPARED:]:
            if second not in earlier_words or other_session == session:
                continue
            # A share of the words of both can't exceed the shorter text's share of the longer one, which is faster
            shorter, longer = sorted((len(words), len(earlier_words)))
            if shorter >= ALIKE * longer and share_of(words, earlier_words) >= ALIKE:
                return True
    return False


def _measure(name: str, label: str, without: Sequence[int], with_memory: Sequence[int]) -> Measure:
    held_out = fmean(without or [0.0])
    given_mean = fmean(with_memory or [0.0])
    measure = Measure(
        name=name,
        label=label,
        held_out=held_out,
        given=given_mean,
        difference=held_out - given_mean,
        reading=Reading.TOO_FEW,
    )
    if min(len(without), len(with_memory)) < LEAST_SESSIONS:
        return measure
    interval = difference_interval(without, with_memory)
    if interval is None:
        measure.reading = Reading.NO_SPREAD
        return measure
    measure.low = interval.low
    measure.high = interval.high
    if interval.contains_zero:
        measure.reading = Reading.NO_DIFFERENCE
    else:
        measure.reading = Reading.HIGHER if interval.low > 0 else Reading.LOWER
    return measure


CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    low: float
    high: float

    @property
    def contains_zero(self) -> bool:
        return self.low <= 0 <= self.high


def difference_interval(first: Sequence[float], second: Sequence[float]) -> Interval | None:
    """Return the 95 % interval of mean(first) - mean(second); the groups may differ in size and variance.

    None if it can't be computed: a group has fewer than two values, or no group has two different ones.
    """
    if min(len(first), len(second)) < 2:
        return None
    # Squared standard errors of both means
    errors = [variance(values) / len(values) for values in (first, second)]
    if not sum(errors):
        return None
    freedom = sum(errors) ** 2 / sum(
        error**2 / (len(values) - 1) for error, values in zip(errors, (first, second), strict=True)
    )
    middle = fmean(first) - fmean(second)
    reach = t_quantile((1 + CONFIDENCE) / 2, freedom) * sqrt(sum(errors))
    return Interval(middle - reach, middle + reach)


def t_quantile(probability: float, freedom: float) -> float:
    """Return a quantile of Student's t, by its expansion around the normal one (Abramowitz and Stegun, 26.7.5).

    At 97.5 % it is 0.03 % too small at 4 degrees of freedom, and right to six digits from 19 on.
    """
    z = NormalDist().inv_cdf(probability)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92_160,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))
