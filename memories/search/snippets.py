from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from memories.search.pipeline import Pipeline
from memories.search.text import all_forms, folded, folded_with_places
from memories.search.words import places, spans
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS

# Characters of a snippet
LENGTH = 200

_READ = 20_000
_PLACES = 100
_STEM = 5

Spans = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Excerpt:
    text: str
    words: Sequence[str]

    @property
    def matches(self) -> Spans:
        """Start and end of each matching word in ``text``, in characters."""
        return spans(self.text, self.words)


def excerpt(text: str, words: Sequence[str]) -> Excerpt:
    return Excerpt(snippet(text, words), words)


def snippet(text: str, words: Sequence[str], length: int = LENGTH) -> str:
    """Return about ``length`` characters of ``text`` from where ``words`` are densest, on one line."""
    flat = " ".join(text[:_READ].split())
    if len(flat) <= length:
        return flat
    stems = {form.removesuffix("*")[:_STEM] for form in all_forms(words)}  # a text may hold another form of a word
    plain, places_of = folded_with_places(flat)
    start = _densest(places(plain.lower(), stems)[:_PLACES], length)
    if places_of:
        start = places_of[min(start, len(places_of) - 1)][0]
    start = min(start, len(flat) - length)  # words near the end are shown with what comes before them
    start = flat.find(" ", start - 1) + 1 if start else 0
    cut = flat[start : start + length]
    is_end = start + length >= len(flat)
    return f"{'… ' if start else ''}{cut if is_end else cut.rsplit(' ', 1)[0] + ' …'}"


def _densest(found: list[int], length: int) -> int:
    best, most, end = 0, 0, 0
    for index, place in enumerate(found):
        while end < len(found) and found[end] < place + length:
            end += 1
        if end - index > most:
            best, most = place, end - index
    return max(0, best - 20)


# Number of top hits that are refined
REFINED = 200
# Number of top messages that decide which session is meant
_TELLING_HITS = 20

Hits = list[tuple[int, float]]
Scores = dict[int, float]
Factors = dict[int, dict[str, float]]

# The messages among the hits, each with its session, its title and the message before it
_SURROUNDING_ROWS = f"""
SELECT d.id, d.session_id, d.title, (
    SELECT max(p.id) FROM memories_searchdocument p
    WHERE p.source = 'message' AND p.session_id = d.session_id AND p.id < d.id
) FROM memories_searchdocument d WHERE d.source = 'message' AND d.session_id <> ''
AND d.id IN {IDS}
"""
# How transcripts mark the speaker: ``Ada: …``, ``**Ada Lovelace**: …``
_SPEAKER = re.compile(r"\W{0,3}([^\W\d_][\w .'-]{0,40}?)\W{0,3}:\s")
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class _MessagePlace:
    session: str
    title: str
    previous: int | None


def refine(hits: Hits, words: Collection[str], pipeline: Pipeline) -> tuple[Hits, Factors]:
    """Re-rank messages by their surroundings (decision 20); return the hits, and what raised each message.

    The best message keeps the score of the best one before, so messages as a whole gain nothing over other documents.

    Args:
        hits: best first.
        words: search terms.
        pipeline: the weights.
    """
    places = _places(hits[:REFINED]) if pipeline.uses_surroundings else {}
    if len(places) < 2:
        return hits, {}
    plain = {message: score for message, score in hits[:REFINED] if message in places}
    if max(plain.values()) <= 0:
        return hits, {}
    near = _with_neighbours(plain, places, pipeline.neighbours)
    by_session = _with_sessions(near, places, pipeline.session)
    by_speaker = _with_speakers(by_session, places, words, pipeline.speaker)
    steps = {"neighbours": (plain, near), "session": (near, by_session), "speaker": (by_session, by_speaker)}
    return _in_order(hits, plain, by_speaker), {message: _grown(message, steps) for message in places}


# Hits after the refined ones stay behind them
def _in_order(hits: Hits, before: Scores, after: Scores) -> Hits:
    scale = max(before.values()) / max(after.values())
    head = [(hit, after[hit] * scale if hit in after else score) for hit, score in hits[:REFINED]]
    head.sort(key=lambda ranked: -ranked[1])
    lowest = head[-1][1]
    return head + [(hit, min(score, lowest)) for hit, score in hits[REFINED:]]


def _places(hits: Hits) -> dict[int, _MessagePlace]:
    found = rows.fetch(_SURROUNDING_ROWS, [json.dumps([message for message, _ in hits])])
    return {message: _MessagePlace(session, title, previous) for message, session, title, previous in found}


def _with_neighbours(scores: Scores, places: Mapping[int, _MessagePlace], weight: float) -> Scores:
    best: dict[int, float] = defaultdict(float)
    for message, place in places.items():
        if place.previous in scores:
            best[message] = max(best[message], scores[place.previous])
            best[place.previous] = max(best[place.previous], scores[message])
    return {message: score + weight * best[message] for message, score in scores.items()}


# The more of the best hits are in a session, the more its messages count
def _with_sessions(scores: Scores, places: Mapping[int, _MessagePlace], weight: float) -> Scores:
    shares: dict[str, float] = defaultdict(float)
    for message in sorted(scores, key=lambda message: -scores[message])[:_TELLING_HITS]:
        shares[places[message].session] += scores[message] ** 2
    most = max(shares.values())
    return {message: score * (1 + weight * shares[places[message].session] / most) for message, score in scores.items()}


def _with_speakers(
    scores: Scores, places: Mapping[int, _MessagePlace], words: Collection[str], weight: float
) -> Scores:
    wanted = set(words)
    return {
        message: score * (1 + weight) if wanted & _speaker(places[message].title) else score
        for message, score in scores.items()
    }


def _speaker(title: str) -> set[str]:
    label = _SPEAKER.match(folded(title))
    return set(_WORD.findall(label[1].lower())) if label else set()


def _grown(message: int, steps: Mapping[str, tuple[Scores, Scores]]) -> dict[str, float]:
    factors = {name: after[message] / before[message] for name, (before, after) in steps.items() if before[message]}
    return {name: factor for name, factor in factors.items() if factor > 1}
