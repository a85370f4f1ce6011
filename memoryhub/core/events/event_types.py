"""The registry of event types: one ``define_event`` call declares all that the hub knows of a type.

Labels and filters of pages, timelines, retention, permissions, search, roll-back and
``docs/reference/events.md`` derive from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

from django.core.exceptions import ImproperlyConfigured

from memoryhub.core.events.rollback import GOVERNS, Rollback, effects
from memoryhub.core.permissions import Act
from memoryhub.core.schemas import Payload

P = TypeVar("P", bound=Payload)
Q = ParamSpec("Q")


class Retention(StrEnum):
    """How long retention keeps the events of a type."""

    # Deleted one by one, by age; rules may name the type. Nothing else of the stream may follow from such an event.
    CAPTURED = "captured"
    # Like captured, but rules may name context packs, and the whole stream goes.
    PACK = "pack"
    # Deleted with the memory, decision, session, iteration or commit in whose stream it is.
    WITH_STREAM = "with its thing"
    # Never deleted by retention.
    KEPT = "kept"


class TurnRule(StrEnum):
    """Whether an event needs an open turn where the project's ``turn_policy`` is strict."""

    REQUIRED = "required"
    OPTIONAL = "optional"
    # It begins or ends sessions and turns itself.
    NONE = "none"


class Speech(StrEnum):
    """What a message is; its payload has ``content``. Messages can be found, and quoted in packs and summaries."""

    PROMPT = "prompt"
    ANSWER = "answer"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class EventGroup:
    """Types that lists and filters show together; ``order`` is ascending."""

    name: str
    label: str
    order: int
    icon: str = "dot"


@dataclass(frozen=True, slots=True)
class EventType(Generic[P]):
    """One type of event. What has no default must be declared.

    Attributes:
        name: ``thing.happened``; models read it and the log stores it, so it never changes.
        schema: of the payload.
        label: what people read: "Memory revised".
        group: where lists and filters show it.
        retention: how long it is kept.
        rollback: how roll-back treats it.
        changes_stream: whether it changes the memory or decision in whose stream it is, which protects that from the
            roll-back of earlier events.
        version: of the schema.
        alone: whether one such event can be erased by itself; captured ones always can.
        act: what its caller must be allowed to do.
        turn: whether it needs an open turn in a strict project.
        own_icon: in timelines, instead of the group's.
        nouns: what one and many of them are counted as: ``("prompt", "prompts")``.
        is_tallied: whether summaries of sessions and turns count it, by its nouns.
        about: the one line that lists show, from the payload; default: the title of the thing it happened to.
        is_failure: whether timelines show it as a failure.
        from_clients: whether clients may append it (``event_append``, hooks).
        speech: what kind of message it is, if it is one.
        removes_text: whether it records that text of other events was erased or redacted.
    """

    name: str
    schema: type[P]
    _: KW_ONLY
    label: str
    group: EventGroup
    retention: Retention
    rollback: Rollback
    changes_stream: bool
    version: int = 1
    alone: bool = False
    act: Act = Act.WRITE
    turn: TurnRule = TurnRule.REQUIRED
    own_icon: str = ""
    nouns: tuple[str, str] | None = None
    is_tallied: bool = False
    about: Callable[[Mapping[str, Any]], str] | None = None
    is_failure: bool = False
    from_clients: bool = False
    speech: Speech | None = None
    removes_text: bool = False

    def __post_init__(self) -> None:
        if (self.is_tallied or self.retention is Retention.CAPTURED) and self.nouns is None:
            raise TypeError("what is tallied or captured needs 'nouns'")

    @property
    def stands_alone(self) -> bool:
        """Whether one such event can be erased by itself."""
        return self.alone or self.retention is Retention.CAPTURED

    @property
    def icon(self) -> str:
        """The name of its icon."""
        return self.own_icon or self.group.icon


_types: dict[str, EventType[Any]] = {}


def _registering(make: Callable[Q, EventType[P]]) -> Callable[Q, EventType[P]]:
    def define(*args: Q.args, **declared: Q.kwargs) -> EventType[P]:
        try:
            defined = make(*args, **declared)
        except TypeError as error:
            raise ImproperlyConfigured(f"event type {args[0]!r} is not declared completely: {error}") from error
        _require_one_group(defined)
        _types[defined.name] = defined
        return defined

    return define


# Registers a type of event and returns it. Takes what ``EventType`` takes; what is missing is named with the type.
define_event = _registering(EventType)

GOVERNANCE = EventGroup("governance", "Governance", 90)
# For events that govern the store itself: erasure, quarantine, holds, retention, roll-back.
define_governance_event = partial(
    define_event,
    group=GOVERNANCE,
    retention=Retention.KEPT,
    rollback=GOVERNS,
    changes_stream=False,
    act=Act.GOVERN,
)


def _require_one_group(defined: EventType[Any]) -> None:
    group = defined.rollback.group
    for other in _types.values():
        if group and other.rollback.group == group and other.rollback != defined.rollback:
            raise ImproperlyConfigured(
                f"event types {defined.name!r} and {other.name!r} declare the roll-back group {group!r} differently"
            )


def event_type(name: str) -> EventType[Any] | None:
    """Return a registered type by its name."""
    return _types.get(name)


def event_types() -> list[EventType[Any]]:
    """Return all registered types, group by group."""
    return sorted(_types.values(), key=lambda each: each.group.order)


def names_where(condition: Callable[[EventType[Any]], Any]) -> list[str]:
    """Return the names of the types that fulfil a condition, in order of definition."""
    return [name for name, known in _types.items() if condition(known)]


def names_of_speech(*speeches: Speech) -> list[str]:
    """Return the names of the types that are such messages; of all messages, if none is given."""
    return names_where(lambda known: known.speech and (not speeches or known.speech in speeches))


def quoted(names: list[str]) -> str:
    """Return names for ``IN (…)`` of SQL, where the index on types must be used."""
    return ", ".join(f"'{name}'" for name in names) or "''"


def types_that_change_streams() -> list[str]:
    """Return the names of the types that change the memory or decision whose stream they are in."""
    return sorted(names_where(lambda known: known.changes_stream))


def rollback_groups() -> dict[str, Rollback]:
    """Return what was declared of each group of roll-back, by name, in the order of previews."""
    found = {known.rollback.group: known.rollback for known in _types.values() if known.rollback.group}
    return dict(sorted(found.items(), key=lambda pair: pair[1].order))


def types_in_group(group: str) -> list[str]:
    """Return the names of the types of a group of roll-back."""
    return sorted(names_where(lambda known: known.rollback.group == group))


def types_reversed_by(step: str) -> list[EventType[Any]]:
    """Return the types that name an effect."""
    return [known for known in _types.values() if known.rollback.by == step]


def require_effects() -> None:
    """Check that every effect which an event type names is defined.

    Raises:
        ImproperlyConfigured: one is not, or has no ``plan``; the message names the type.
    """
    known = effects()
    for each in _types.values():
        effect = known.get(each.rollback.by)
        if each.rollback.by and not (effect and (effect.plan or effect.values)):
            raise ImproperlyConfigured(
                f"event type {each.name!r} is reversed by {each.rollback.by!r}, which is no effect that can plan"
            )
