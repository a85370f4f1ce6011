"""What an event type declares of roll-back, and the effects: the kinds of steps that a roll-back takes.

Apps declare both beside their events; ``governance`` plans, applies and undoes them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from importlib import import_module
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from pydantic import BaseModel, Field

from memoryhub.core.schemas import Payload


class Treatment(StrEnum):
    """What a roll-back does with an event of the sessions or clients that it rolls back."""

    # The event created a thing, which has the event's position as its id: quarantine hides it.
    SET_ASIDE = "set_aside"
    # The event changed a thing that others may have created: undo reverses the change.
    REVERSED = "reversed"
    # The event stays in force, and every preview says why.
    STAYS = "stays"
    # The event governs the store, as a redaction does: it can't be selected.
    GOVERNS = "governs"


@dataclass(frozen=True, slots=True)
class Rollback:
    """How roll-back treats the events of one group, and how a preview shows them. Types may share one.

    Attributes:
        treatment: what happens to the events.
        group: name of the group in previews; clients read it, so it never changes.
        title: what pages call the group.
        order: where the group stands in a preview; ascending.
        by: the effect with which undo takes the events back; empty where undo sets aside too.
        thing: the kind of thing that the events change, as streams name it: ``memory``, ``decision``.
        is_hidden: whether quarantine sets the whole thing aside.
        is_cited: whether other things can cite it, build on it, or get it in a context pack.
        can_leave: whether a person can leave single things of the group as they are.
        follows_stream: whether the thing is left together with the one in whose stream it is.
        why: for ``STAYS``: completes "left: 3 × memory.seen (…)".
    """

    treatment: Treatment
    group: str = ""
    title: str = ""
    order: int = 0
    by: str = ""
    thing: str = ""
    is_hidden: bool = False
    is_cited: bool = False
    can_leave: bool = True
    follows_stream: bool = False
    why: str = ""

    def __post_init__(self) -> None:
        if self.treatment in (Treatment.SET_ASIDE, Treatment.REVERSED) and not (self.group and self.title):
            raise ImproperlyConfigured(f"roll-back group {self.group!r} does not declare its title")
        if self.treatment is Treatment.REVERSED and not self.by:
            raise ImproperlyConfigured(
                f"roll-back group {self.group!r} does not declare by which effect it is reversed"
            )
        if self.treatment is Treatment.STAYS and not (self.why or self.group):
            raise ImproperlyConfigured("stays() needs the reason why the event stays in force")


# Declares that roll-back sets aside what the event created.
sets_aside = partial(Rollback, Treatment.SET_ASIDE, is_hidden=True)
# Declares that undo takes back what the event changed.
reverses = partial(Rollback, Treatment.REVERSED)


def stays(why: str) -> Rollback:
    """Declare that the event stays in force; ``why`` completes "left: 3 × memory.seen (…)"."""
    return Rollback(Treatment.STAYS, why=why)


GOVERNS = Rollback(Treatment.GOVERNS)
NOTHING_DEPENDS = stays("nothing depends on this event")


class Step(BaseModel):
    """What is done to one thing."""

    do: str = Field(json_schema_extra=lambda schema: schema.update(description=" or ".join(effects())))
    id: int = Field(0, description="of the thing; 0 where it is the project")
    from_version: int | None = None
    to_version: int | None = None
    name: str = Field("", description="of the setting or the field")
    before: Any = Field(None, description="what it was when the roll-back began")
    after: Any = Field(None, description="what it is made")


class Left(BaseModel):
    """What is left as it is."""

    id: int = 0
    title: str = ""
    why: str


@dataclass(frozen=True, slots=True)
class Reach:
    """What an undo may take back, as an effect's ``plan`` gets it."""

    things: Mapping[str, Collection[int]]
    """Ids that the selection touched, by group; without those left by choice."""
    rolled_back: frozenset[int]
    """Positions of the events to take back."""
    void: frozenset[int]
    """Positions of events that took each other back already."""
    going: Collection[int]
    """Ids that the plan sets aside."""
    aside: Collection[int]
    """Ids that are in quarantine already."""
    firsts: Mapping[str, int]
    """The first rolled-back change of each memory's and decision's stream."""
    changed: Mapping[str, str]
    """The streams that others changed since, with who and where."""
    include_changed: bool
    """Whether to take back what others changed since, too."""


@dataclass(frozen=True, slots=True)
class Own:
    """The roll-back to undo, as an effect's ``undo`` gets it."""

    positions: range
    """Of its events; the first is the roll-back itself, plus one."""
    void: frozenset[int]


Apply = Callable[[Sequence[Step], str], None]
Plan = Callable[[Reach], Iterator[Step | Left]]
Undo = Callable[[Sequence[Step], Own], Iterator[Step | Left]]
Key = int | str


@dataclass(frozen=True, slots=True)
class Values:
    """How to read a value from events and to write it back: a setting, a status, whether a memory is pinned.

    Attributes:
        read: from an event's position and payload, the values that it set, by id of the thing or by name.
        write: the payload that sets the value of a step, given the step and the reason.
        thing: the kind of thing that has the value; empty where values have names, as settings do.
        default: the value before any event, given the name or id.
        also: other event types to read: those that create the thing with a value.
        unset: why an event of the type that set no value is left.
    """

    read: Callable[[int, Mapping[str, Any]], Mapping[Any, Any]]
    write: Callable[[Step, str], Payload] | None = None
    thing: str = ""
    default: Callable[[Any], Any] = lambda _key: None
    also: tuple[str, ...] = ()
    unset: str = "it set nothing that can be put back"


@dataclass(frozen=True, slots=True)
class Effect:
    """One kind of step that a roll-back takes.

    Attributes:
        step: its name, as ``Step.do`` and the log have it, so it never changes.
        order: steps are done in ascending order: names are made free before others take them.
        words: what pages say was done: "3 set aside".
        values: for an effect that puts a value back: all that planning, applying and undoing need.
        apply: do steps of this kind, for a reason, in an open transaction. Needed where ``values.write`` is not enough.
        plan: yield what takes back the events of the types that name this effect. Effects may share one.
        undo: yield what undoes steps of this kind now. Effects may share one, which then gets the steps of all.
        in_one_event: whether all steps of a roll-back share one event; otherwise each appends one.
    """

    step: str
    order: int
    words: str
    values: Values | None = None
    apply: Apply | None = None
    plan: Plan | None = None
    undo: Undo | None = None
    in_one_event: bool = False

    def __post_init__(self) -> None:
        values = self.values
        parts = {"apply": self.apply or (values and values.write), "undo": self.undo or values, "words": self.words}
        missing = [name for name, part in parts.items() if not part]
        if missing:
            raise ImproperlyConfigured(f"effect {self.step!r} does not declare {', '.join(missing)}")


_effects: dict[str, Effect] = {}
# Most processes never roll back, so the effects of governance are not imported at start.
_effect_modules: set[str] = set()


def define_effect(effect: Effect) -> Effect:
    """Register an effect and return it."""
    _effects[effect.step] = effect
    return effect


def define_effects_in(module: str) -> None:
    """Name a module that defines effects when it is imported; the first use of ``effects()`` imports it."""
    _effect_modules.add(module)


def effects() -> dict[str, Effect]:
    """Return the defined effects by step, in the order in which they are done."""
    for module in _effect_modules:
        import_module(module)
    return {effect.step: effect for effect in sorted(_effects.values(), key=lambda effect: effect.order)}


def count_events(steps: Iterable[Step]) -> int:
    """Return how many events these steps append."""
    known = effects()
    names = [step.do for step in steps]
    shared = {name for name in names if name in known and known[name].in_one_event}
    return sum(1 for name in names if name not in shared) + len(shared)
