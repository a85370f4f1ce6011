"""The stages of a ranking, each added to the one before."""

from __future__ import annotations

from dataclasses import dataclass, replace

from memories.search.pipeline import USUAL, Pipeline


@dataclass(frozen=True, slots=True)
class Stage:
    """A ranking to measure."""

    key: str
    label: str
    pipeline: Pipeline
    others: bool = False
    """Whether the ranking by meaning is blended in."""


def stages(*, meaning: bool = False) -> list[Stage]:
    """Return the rankings from the plainest to the usual one; the last is with the meaning, where it is wanted."""
    words = replace(USUAL, near=0.0, date=0.0, neighbours=0.0, session=0.0, speaker=0.0, phrases=False)
    near = replace(words, near=USUAL.near)
    date = replace(near, date=USUAL.date)
    phrases = replace(date, phrases=USUAL.phrases)
    neighbours = replace(phrases, neighbours=USUAL.neighbours)
    session = replace(neighbours, session=USUAL.session)
    speaker = replace(session, speaker=USUAL.speaker)
    with_meaning = [Stage("meaning", "+ what means nearly the same", USUAL, others=True)] if meaning else []
    return [
        Stage("words", "title and body", words),
        Stage("near", "+ what was said before and after", near),
        Stage("date", "+ the date, written out", date),
        Stage("phrases", "+ names as a whole", phrases),
        Stage("neighbours", "+ the neighbours' scores", neighbours),
        Stage("session", "+ the session that hits most", session),
        Stage("speaker", "+ the speaker whom the question names", speaker),
        *with_meaning,
    ]
