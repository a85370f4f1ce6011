"""The part of a text that shows why it was found, and where in it the words are."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from memories.search.folding import folded, folded_with_places
from memories.search.pipeline import Pipeline
from memories.search.words import places, spans
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS

LENGTH = 200
"""Characters of a snippet."""

_READ = 20_000
_PLACES = 100
_STEM = 5

Spans = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A snippet as data."""

    text: str
    words: Sequence[str]

    @property
    def matches(self) -> Spans:
        """Where in ``text`` the words stand, in whatever form: begin and end of each, in characters."""
        return spans(self.text, self.words)


def excerpt(text: str, words: Sequence[str]) -> Excerpt:
    """Return a snippet, which tells where in it the words are."""
    return Excerpt(snippet(text, words), words)


def snippet(text: str, words: Sequence[str]) -> str:
    """Return about 200 characters of ``text`` around where most of ``words`` stand together, on one line."""
    flat = " ".join(text[:_READ].split())
    if len(flat) <= LENGTH:
        return flat
    stems = {word[:_STEM] for word in words}  # a text may hold another form of a word
    plain, places_of = folded_with_places(flat)
    start = _densest(places(plain.lower(), stems)[:_PLACES])
    if places_of:
        start = places_of[min(start, len(places_of) - 1)][0]
    start = flat.find(" ", start - 1) + 1 if start else 0
    cut = flat[start : start + LENGTH].rsplit(" ", 1)[0]
    return f"{'… ' if start else ''}{cut} …"


def _densest(found: list[int]) -> int:
    best, most, end = 0, 0, 0
    for index, place in enumerate(found):
        while end < len(found) and found[end] < place + LENGTH:
            end += 1
        if end - index > most:
            best, most = place, end - index
    return max(0, best - 20)


REFINED = 200
"""So many of the best hits are looked at again."""
_TELLING_HITS = 20
"""So many of the best messages say which session is meant."""

Hits = list[tuple[int, float]]
Scores = dict[int, float]
Factors = dict[int, dict[str, float]]

_SURROUNDING_ROWS = f"""
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
    found = rows.fetch(_SURROUNDING_ROWS, [json.dumps([each for each, _ in hits])])
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
