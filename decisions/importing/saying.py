"""What the short fields of a record say: its status and its date, in the words that people use."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from decisions.importing.links import links_in
from decisions.models import DecisionStatus
from memoryhub.core import clock
from memoryhub.core.errors import Invalid

_STATUSES = {
    DecisionStatus.SUPERSEDED: "superseded superceded replaced obsoleted",
    DecisionStatus.DEPRECATED: "deprecated obsolete retired",
    DecisionStatus.REJECTED: "rejected declined withdrawn abandoned",
    DecisionStatus.PROPOSED: "proposed proposal draft pending wip rfc open review",
    DecisionStatus.ACCEPTED: "accepted approved agreed decided done implemented active adopted final",
}
_LINKED = re.compile(r"(?<!!)\[[^\[\]]*\]\([^()]*\)")
_DATE_FORMS = ("%Y/%m/%d", "%d.%m.%Y", "%d %B %Y", "%d %b %Y", "%B %d, %Y", "%b %d, %Y", "%B %d %Y", "%b %d %Y")
_ISO_DAY = re.compile(r"\d{4}-\d{2}-\d{2}(?![\dT])")


def status_of(text: str) -> DecisionStatus:
    """Return the status that a text names; one that names other records alone, or none, is accepted.

    Raises:
        Invalid: it names none that is known.
    """
    said = _LINKED.sub(" ", text).lower()
    words = re.findall(r"[a-z]+", said)
    if DecisionStatus.SUPERSEDED in map(_status_of_word, words):
        return DecisionStatus.SUPERSEDED
    named = [status for word in words if (status := _status_of_word(word))]
    if named:
        return named[0]
    if not words or links_in(text):
        return DecisionStatus.ACCEPTED
    raise Invalid(f"status {text.strip()[:60]!r} is not known; write one of {', '.join(DecisionStatus)}")


def _status_of_word(word: str) -> DecisionStatus | None:
    return next((status for status, words in _STATUSES.items() if word in words.split()), None)


def moment_of(text: str) -> datetime | None:
    """Return the time that a text names; a day begins at midnight, UTC. Without a text there is none.

    Raises:
        Invalid: it is no date.
    """
    said = text.strip().strip("*_`")
    if not said:
        return None
    day = _ISO_DAY.match(said)
    for form in ("", *_DATE_FORMS):
        try:
            return _read(day[0] if day else said, form)
        except ValueError:
            continue
    raise Invalid(f"date {said[:60]!r} is no date; write one such as 2026-11-20")


def _read(text: str, form: str) -> datetime:
    """Read a time in that form, or in ISO 8601 where there is none."""
    return datetime.strptime(text, form).replace(tzinfo=UTC) if form else clock.from_text(text)
