"""Declarations for roll-back: the treatment of each event type, and the effects (decisions 35 and 40)."""

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
    # The event created an entity, whose id is the event's position: quarantine hides it.
    SET_ASIDE = "set_aside"
    # The event changed an entity that others may have created: undo reverses the change.
    REVERSED = "reversed"
    # The event stays in force, and every preview says why.
    STAYS = "stays"
    # The event governs the store, such as a redaction: it can't be selected.
    GOVERNS = "governs"


@dataclass(frozen=True, slots=True)
class Rollback:
    """How roll-back treats the events of one group, and how previews show them. Types may share one."""

    treatment: Treatment
    # Name of the group in previews; clients read it, so it never changes.
    group: str = ""
    # The heading of the group on pages.
    title: str = ""
    # The place of the group in previews, ascending.
    order: int = 0
    # The effect that undo uses; empty if undo quarantines too.
    by: str = ""
    # The entity type that the events change, as in stream names: ``memory``, ``decision``.
    thing: str = ""
    # Whether quarantine hides the whole entity.
    is_hidden: bool = False
    # Whether other entities can cite it, depend on it, or get it in a context pack.
    is_cited: bool = False
    # Whether a person can exclude single entities of the group.
    can_leave: bool = True
    # Whether the entity is excluded together with the one of its stream.
    follows_stream: bool = False
    # For ``STAYS``: the reason that previews show in parentheses.
    why: str = ""

    def __post_init__(self) -> None:
        if self.treatment in (Treatment.SET_ASIDE, Treatment.REVERSED) and not (self.group and self.title):
            raise ImproperlyConfigured(f"roll-back group {self.group!r} does not declare its title")
        if self.treatment is Treatment.REVERSED and not self.by:
            raise ImproperlyConfigured(f"roll-back group {self.group!r} does not declare the effect that reverses it")
        if self.treatment is Treatment.STAYS and not (self.why or self.group):
            raise ImproperlyConfigured("stays() needs a reason")


# Declares that roll-back quarantines the entity that the event created.
sets_aside = partial(Rollback, Treatment.SET_ASIDE, is_hidden=True)
# Declares that undo reverses the change.
reverses = partial(Rollback, Treatment.REVERSED)


def stays(why: str) -> Rollback:
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


# The argument of an effect's ``plan``: what an undo may take back.
@dataclass(frozen=True, slots=True)
class Reach:
    # Group to the ids that the selection touched, without excluded ones.
    things: Mapping[str, Collection[int]]
    # Positions of the events to take back.
    rolled_back: frozenset[int]
    # Positions of events that already cancelled each other.
    void: frozenset[int]
    # Ids that the plan puts into quarantine.
    going: Collection[int]
    # Ids that are already in quarantine.
    aside: Collection[int]
    # Stream of a memory or decision to its first rolled-back change.
    firsts: Mapping[str, int]
    # Streams that others changed since, with who and where.
    changed: Mapping[str, str]
    # Whether to take back changes of streams that others changed since.
    include_changed: bool


# The argument of an effect's ``undo``: the roll-back to undo.
@dataclass(frozen=True, slots=True)
class Own:
    # Positions of its events; the first follows the roll-back event itself.
    positions: range
    void: frozenset[int]


Apply = Callable[[Sequence[Step], str], None]
Plan = Callable[[Reach], Iterator[Step | Left]]
Undo = Callable[[Sequence[Step], Own], Iterator[Step | Left]]
Key = int | str


@dataclass(frozen=True, slots=True)
class Values:
    """How to read a value from events and write it back: a setting, a status, whether a memory is pinned."""

    # From an event's position and payload, the values that it set, by entity id or by name.
    read: Callable[[int, Mapping[str, Any]], Mapping[Any, Any]]
    # The payload that sets the value of a step, given the step and the reason.
    write: Callable[[Step, str], Payload] | None = None
    # The entity type; empty if values have names, as settings do.
    thing: str = ""
    # The value before any event, given the id or name.
    default: Callable[[Any], Any] = lambda _key: None
    # Other event types to read: those that create the entity with a value.
    also: tuple[str, ...] = ()
    # Why an event of the type that set no value is skipped.
    unset: str = "it set no value that can be restored"


@dataclass(frozen=True, slots=True)
class Effect:
    """One kind of step of a roll-back."""

    # Its name in ``Step.do`` and the log, so it never changes.
    step: str
    # Steps run in ascending order: names are freed before other entities take them.
    order: int
    # How pages describe it: "3 set aside".
    words: str
    # For an effect that restores a value; replaces the three functions below.
    values: Values | None = None
    # Execute steps of this kind in an open transaction, given a reason.
    apply: Apply | None = None
    # Yield the steps that reverse the events of the types that name this effect. Effects may share one.
    plan: Plan | None = None
    # Yield the steps that reverse steps of this kind. Effects may share one, which then gets the steps of all.
    undo: Undo | None = None
    # Whether all steps of a roll-back share one event; otherwise each appends one.
    in_one_event: bool = False

    def __post_init__(self) -> None:
        values = self.values
        parts = {"apply": self.apply or (values and values.write), "undo": self.undo or values, "words": self.words}
        missing = [name for name, part in parts.items() if not part]
        if missing:
            raise ImproperlyConfigured(f"effect {self.step!r} does not declare {', '.join(missing)}")


_effects: dict[str, Effect] = {}
# Imported on first use: most processes never roll back (decision 40).
_effect_modules: set[str] = set()


def define_effect(effect: Effect) -> Effect:
    _effects[effect.step] = effect
    return effect


def define_effects_in(module: str) -> None:
    """Name a module that defines effects on import; the first call of ``effects()`` imports it."""
    _effect_modules.add(module)


def effects() -> dict[str, Effect]:
    for module in _effect_modules:
        import_module(module)
    return {effect.step: effect for effect in sorted(_effects.values(), key=lambda effect: effect.order)}


def count_events(steps: Iterable[Step]) -> int:
    defined = effects()
    names = [step.do for step in steps]
    shared = {name for name in names if name in defined and defined[name].in_one_event}
    return sum(1 for name in names if name not in shared) + len(shared)
