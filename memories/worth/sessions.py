"""Sessions with memory held out, against those that got it: turns, corrections and repeated questions."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import sqrt
from statistics import NormalDist, fmean, variance
from typing import NamedTuple

from memories.duplicates import ALIKE, LEAST_WORDS, rare_pairs, share_of, words_of
from memories.worth.schemas import HeldOut, Measure, Reading
from memoryhub.config.current_settings import project_settings
from memoryhub.core.events.event_types import Speech, names_of_speech, quoted
from memoryhub.core.log.quarantine import OUTSIDE
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import json_text
from sessions_app.models import SessionStatus

# Ended sessions that each group needs before their difference is judged
LEAST_SESSIONS = 20
# Latest prompts that are read, and characters of each
_MOST_PROMPTS, _PROMPT_CHARS = 3_000, 1_000
# Latest prompts with a word that are compared with another one
_COMPARED = 20

# Sessions that were assigned to a group
_ASSIGNED = (
    f"SELECT s.id, s.session_id, s.status, {json_text('e.payload_json', 'held_out')} AS held_out "
    "FROM sessions_app_session s JOIN raw_events e ON e.position = s.id "
    f"WHERE s.started_at >= %s AND s.id {OUTSIDE} AND {json_text('e.payload_json', 'held_out')} IS NOT NULL"
)
_PROMPTS = (
    f"SELECT position, session_id, substr({json_text('payload_json', 'content')}, 1, {_PROMPT_CHARS}) FROM raw_events "
    "WHERE event_type IN ({types}) AND payload_json IS NOT NULL "
    f"AND position {OUTSIDE} ORDER BY position DESC LIMIT {_MOST_PROMPTS}"
)
_TURNS = "SELECT session_id, count(*) FROM sessions_app_turn WHERE id >= %s GROUP BY session_id"

# SQLite reads a boolean in JSON as a number, PostgreSQL as text
_HELD = {1: True, 0: False, "true": True, "false": False}

# How a prompt begins that corrects the agent: English, German, French, Spanish. Conservative: a correction in other
# words is missed, in both groups alike.
_CORRECTION = re.compile(
    r"""\W*(?:
      (?:no|nope|nein|non|pas\ ça)\s*[,.;:!–—-]
    | (?:that|this|it)(?:['’]s|\ is|\ was)\ (?:wrong|incorrect|not\ (?:right|correct|what))\b
    | not\ what\ i\b | wrong\b | undo\ (?:that|this|it)\b
    | i\ (?:said|meant|told\ you|asked\ (?:you|for)|already\ (?:said|told))\b
    | you\ (?:misunderstood|forgot|ignored|were\ supposed)\b
    | das\ (?:ist|war|stimmt)\ (?:falsch|nicht|so\ nicht)\b | falsch\b | nicht\ (?:so|das|richtig)\b
    | ich\ (?:sagte|meinte|hatte\ gesagt|habe\ (?:doch\ |schon\ )?gesagt)\b
    | c['’]est\ (?:faux|pas)\b | ce\ n['’]est\ pas\b | faux\b | j['’]ai\ dit\b
    | (?:eso|esto)\ (?:no\ es|está\ mal)\b | está\ mal\b | te\ dije\b | quise\ decir\b
    )""",
    re.IGNORECASE | re.VERBOSE,
)


class SessionPrompt(NamedTuple):
    position: int
    session: str
    text: str


@dataclass(frozen=True, slots=True)
class _Group:
    turns: list[int]
    corrections: list[int]
    repeats: list[int]


_MEASURES = {
    "turns": "Turns",
    "corrections": "Corrections by the user",
    "repeats": "Questions asked before",
}


def is_correction(prompt: str) -> bool:
    """Return whether a prompt begins as one that corrects the agent."""
    return bool(_CORRECTION.match(prompt))


def compare_sessions(since: datetime) -> HeldOut:
    """Compare the sessions that began since a time and were assigned to a group."""
    report = HeldOut(percent=project_settings().held_out_percent, least=LEAST_SESSIONS)
    assigned = rows.fetch(_ASSIGNED, [rows.time_value(since)])
    if not assigned:
        return report
    prompts = _prompts()
    first = prompts[0].position if len(prompts) == _MOST_PROMPTS else 0
    ended = (SessionStatus.COMPLETED, SessionStatus.DISCARDED)
    prompted = {prompt.session for prompt in prompts}
    compared = {
        name: _HELD[held] for at, name, status, held in assigned if status in ended and at >= first and name in prompted
    }
    groups = _groups(compared, prompts, dict(rows.fetch(_TURNS, [min(at for at, *_ in assigned)])))
    out, given = groups[True], groups[False]
    return report.model_copy(
        update={
            "held_out": len(out.turns),
            "given": len(given.turns),
            "active": sum(status not in ended for _, _, status, _ in assigned),
            "measures": [_measure(name, getattr(out, name), getattr(given, name)) for name in _MEASURES],
        }
    )


def _prompts() -> list[SessionPrompt]:
    found = rows.fetch(_PROMPTS.format(types=quoted(names_of_speech(Speech.PROMPT))))
    return [SessionPrompt(position, session, text or "") for position, session, text in reversed(found)]


def _groups(
    compared: Mapping[str, bool], prompts: Sequence[SessionPrompt], turns: Mapping[str, int]
) -> dict[bool, _Group]:
    corrections, repeats = count_corrections(prompts), count_repeats(prompts)
    names = {side: [name for name, held in compared.items() if held is side] for side in (True, False)}
    return {
        side: _Group(
            [turns.get(name, 0) for name in of_side],
            [corrections[name] for name in of_side],
            [repeats[name] for name in of_side],
        )
        for side, of_side in names.items()
    }


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
        counted[prompt.session] += any(
            second in others and session != prompt.session and _are_alike(words, others)
            for first, second in rare_pairs(words)
            for session, others in by_word[first][-_COMPARED:]
        )
        for word in words:
            by_word[word].append((prompt.session, words))
    return counted


# A share of the words of both can't exceed the shorter text's share of the longer one, which is faster to tell
def _are_alike(first: frozenset[str], second: frozenset[str]) -> bool:
    shorter, longer = sorted((len(first), len(second)))
    return shorter >= ALIKE * longer and share_of(first, second) >= ALIKE


def _measure(name: str, out: Sequence[int], given: Sequence[int]) -> Measure:
    means = [fmean(group) if group else 0.0 for group in (out, given)]
    is_enough = min(len(out), len(given)) >= LEAST_SESSIONS
    interval = difference_interval(out, given) if is_enough else None
    if not is_enough:
        reading = Reading.TOO_FEW
    elif interval is None:
        reading = Reading.NO_SPREAD
    elif interval.contains_zero:
        reading = Reading.NO_DIFFERENCE
    else:
        reading = Reading.HIGHER if interval.low > 0 else Reading.LOWER
    return Measure(
        name=name,
        label=_MEASURES[name],
        held_out=means[0],
        given=means[1],
        difference=means[0] - means[1],
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        reading=reading,
    )


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
