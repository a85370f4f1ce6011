"""The report of a project's worth, as JSON."""

from __future__ import annotations

from datetime import date, datetime
from enum import StrEnum

from pydantic import BaseModel, Field

from memoryhub.core.schemas import Command, self_evident


class Period(StrEnum):
    """How far back a report looks."""

    WEEK = "7d"
    MONTH = "30d"
    QUARTER = "90d"
    ALL = "all"

    @property
    def days(self) -> int | None:
        return None if self is Period.ALL else int(self.value[:-1])

    @property
    def label(self) -> str:
        return f"{self.days} days" if self.days else "All"


class WorthRequest(Command):
    """What a project's memory is worth."""

    period: Period = Field(Period.MONTH, description="7d, 30d, 90d or all", json_schema_extra=self_evident)


class Lines(BaseModel):
    """Distinct memories and decisions that packs of the period included, by the best that became of each."""

    # Named by something that a session wrote
    cited: int = 0
    # Read again or changed by a session, but not cited
    used: int = 0
    # In enough packs of sessions that ended, and neither
    ignored: int = 0
    # Neither, in too few packs so far
    undecided: int = 0

    @property
    def total(self) -> int:
        return self.cited + self.used + self.ignored + self.undecided


class PacksJudged(BaseModel):
    """Packs of the period whose lines can be judged; the latest if they are many."""

    # Packs that were looked at
    latest: int = 0

    # At least one line was cited or used
    used: int = 0
    # No line was, and the session has ended
    unused: int = 0
    # No line was yet, and the session goes on
    pending: int = 0
    # The tokens of those with nothing used
    unused_tokens: int = 0

    @property
    def ended(self) -> int:
        return self.used + self.unused


class KindScore(BaseModel):
    """What became of one kind of what sessions are given unasked."""

    name: str
    label: str
    # Lines that sessions were given
    shown: int = 0
    # As far as events show it
    followed: int = 0
    ignored: int = 0
    contradicted: int = 0
    # Whether the project gives none of this kind, because too few were followed
    is_off: bool = False

    @property
    def judged(self) -> int:
        return self.followed + self.ignored + self.contradicted

    @property
    def precision(self) -> float:
        """The share of the judged that were followed; 0 if none is judged."""
        return self.followed / self.judged if self.judged else 0.0


class UnusedPack(BaseModel):
    """A pack of an ended session that used nothing of it."""

    id: int
    session_id: str
    topic: str
    tokens: int
    lines: int
    sent_at: datetime


class TopEntry(BaseModel):
    """A memory or decision that sessions used after a pack gave it to them."""

    id: int
    type: str
    title: str
    # Sessions that cited or used it, and packs that included it
    used_by: int
    given: int

    @property
    def stream(self) -> str:
        return f"{self.type}:{self.id}"


class Zombie(BaseModel):
    """A memory in at least five packs that nobody ever used."""

    id: int
    title: str
    text: str
    kind: str
    type: str
    given: int
    # Its line as a pack would show it now, times the packs
    tokens: int
    last_given_at: datetime | None
    version: int


class Zombies(BaseModel):
    """The memories that packs give in vain."""

    total: int = 0
    # Packs that must have included a memory
    least_packs: int
    tokens: int = 0
    # Those given most often
    items: list[Zombie] = Field(default_factory=list)


class Spent(BaseModel):
    """Tokens of packs on a day, or in the week that begins with it."""

    day: date
    tokens: int


class Reading(StrEnum):
    """What the difference of two groups of sessions shows."""

    TOO_FEW = "too_few"
    # All sessions have the same value, so that there is no interval
    NO_SPREAD = "no_spread"
    NO_DIFFERENCE = "no_difference"
    # With memory held out
    HIGHER = "higher"
    LOWER = "lower"

    @property
    def label(self) -> str:
        return _LABELS[self]


_LABELS = {
    Reading.TOO_FEW: "Too few sessions",
    Reading.NO_SPREAD: "All the same",
    Reading.NO_DIFFERENCE: "No difference shown",
    Reading.HIGHER: "More without memory",
    Reading.LOWER: "Fewer without memory",
}


class Measure(BaseModel):
    """One outcome, as means of a session."""

    name: str
    label: str
    held_out: float
    given: float
    # held_out - given, and its 95 % interval; None where it can't be computed
    difference: float
    low: float | None = None
    high: float | None = None
    reading: Reading


class HeldOut(BaseModel):
    """Sessions that got no memory unasked, against those that did."""

    # The setting now
    percent: int
    # Ended sessions with a prompt
    held_out: int = 0
    given: int = 0
    # Sessions that each group needs
    least: int
    # Sessions that go on, and are not compared yet
    active: int = 0
    measures: list[Measure] = Field(default_factory=list)

    @property
    def is_enough(self) -> bool:
        return min(self.held_out, self.given) >= self.least

    @property
    def too_few(self) -> str:
        """One sentence if a group is too small to compare; else empty."""
        groups = f"{self.held_out} held out, {self.given} given"
        return "" if self.is_enough else f"Too few sessions: {groups}; at least {self.least} each are needed."


class WorthReport(BaseModel):
    """What packs cost, what became of them, and sessions with memory held out."""

    period: Period
    since: datetime | None
    packs: int
    tokens: int
    # Sessions that got a pack
    sessions: int
    judged: PacksJudged
    lines: Lines
    # Notes by their kinds, recall and packs
    kinds: list[KindScore]
    unused_packs: list[UnusedPack]
    top: list[TopEntry]
    # Live memories that no pack ever included, of all
    never_given: int
    memories: int
    zombies: Zombies
    # Days in each of ``spent``
    step_days: int
    spent: list[Spent]
    experiment: HeldOut
