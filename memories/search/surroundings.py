"""What stands around a message says something of it: its neighbours, its session as a whole, and who said it."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from memories.search.folding import folded
from memories.search.pipeline import Pipeline
from memoryhub.core import rows
from memoryhub.core.dialect import IDS

REFINED = 200
"""So many of the best hits are looked at again."""
_TELLING_HITS = 20
"""So many of the best messages say which session is meant."""

Hits = list[tuple[int, float]]
Scores = dict[int, float]
Factors = dict[int, dict[str, float]]

_PLACES = f"""
SELECT d.id, d.session_id, d.title, (
    SELECT max(p.id) FROM memories_searchdocument p
    WHERE p.source = 'message' AND p.session_id = d.session_id AND p.id < d.id
) FROM memories_searchdocument d WHERE d.source = 'message' AND d.session_id <> ''
AND d.id IN {IDS}
"""
_SPEAKER = re.compile(r"\W{0,3}([^\W\d_][\w .'-]{0,40}?)\W{0,3}:\s")
"""A transcript's way to say who speaks: ``Ada: …``, ``**Ada Lovelace**: …``."""
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class _Place:
    session: str
    title: str
    previous: int | None


def refine(hits: Hits, words: Collection[str], pipeline: Pipeline) -> tuple[Hits, Factors]:
    """Rank messages anew by what stands around them; return the hits, and by what factors a message's score grew.

    The best message keeps the score that the best one had, so messages as a whole neither gain on what is no message
    nor lose.

    Args:
        hits: best first.
        words: what the question looks for.
        pipeline: what counts how much.
    """
    places = _places(hits[:REFINED]) if pipeline.uses_surroundings else {}
    if len(places) < 2:
        return hits, {}
    plain = {each: score for each, score in hits[:REFINED] if each in places}
    if max(plain.values()) <= 0:
        return hits, {}
    near = _with_neighbours(plain, places, pipeline.neighbours)
    told = _with_sessions(near, places, pipeline.session)
    said = _with_speakers(told, places, words, pipeline.speaker)
    steps = {"neighbours": (plain, near), "session": (near, told), "speaker": (told, said)}
    return _in_order(hits, plain, said), {each: _grown(each, steps) for each in places}


def _in_order(hits: Hits, before: Scores, after: Scores) -> Hits:
    """Put the new scores of messages among those of the other hits; what was not looked at stays behind."""
    scale = max(before.values()) / max(after.values())
    head = [(each, after[each] * scale if each in after else score) for each, score in hits[:REFINED]]
    head.sort(key=lambda hit: -hit[1])
    lowest = head[-1][1]
    return head + [(each, min(score, lowest)) for each, score in hits[REFINED:]]


def _places(hits: Hits) -> dict[int, _Place]:
    found = rows.fetch(_PLACES, [json.dumps([each for each, _ in hits])])
    return {each: _Place(session, title, previous) for each, session, title, previous in found}


def _with_neighbours(scores: Scores, places: Mapping[int, _Place], weight: float) -> Scores:
    best: dict[int, float] = defaultdict(float)
    for each, place in places.items():
        if place.previous in scores:
            best[each] = max(best[each], scores[place.previous])
            best[place.previous] = max(best[place.previous], scores[each])
    return {each: score + weight * best[each] for each, score in scores.items()}


def _with_sessions(scores: Scores, places: Mapping[int, _Place], weight: float) -> Scores:
    """Let a session's messages count more the more of the best hits are in it."""
    shares: dict[str, float] = defaultdict(float)
    for each in sorted(scores, key=lambda each: -scores[each])[:_TELLING_HITS]:
        shares[places[each].session] += scores[each] ** 2
    most = max(shares.values())
    return {each: score * (1 + weight * shares[places[each].session] / most) for each, score in scores.items()}


def _with_speakers(scores: Scores, places: Mapping[int, _Place], words: Collection[str], weight: float) -> Scores:
    """Let what somebody said count more where the question names them."""
    wanted = set(words)
    return {
        each: score * (1 + weight) if wanted & _speaker(places[each].title) else score for each, score in scores.items()
    }


def _speaker(title: str) -> set[str]:
    label = _SPEAKER.match(folded(title))
    return set(_WORD.findall(label[1].lower())) if label else set()


def _grown(each: int, steps: Mapping[str, tuple[Scores, Scores]]) -> dict[str, float]:
    """Return what raised a score, by its name."""
    factors = {name: after[each] / before[each] for name, (before, after) in steps.items() if before[each]}
    return {name: factor for name, factor in factors.items() if factor > 1}
