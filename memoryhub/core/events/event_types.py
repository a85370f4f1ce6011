"""The registry of event types: one ``define_event`` call declares everything about a type (decision 40).

Labels, filters, timelines, retention, permissions, search, roll-back and
``docs/reference/events.md`` derive from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

from django.core.exceptions import ImproperlyConfigured

from memoryhub.core.events.rollback import GOVERNS, RollbackRule, effects
from memoryhub.core.permissions import Act
from memoryhub.core.schemas import Payload

P = TypeVar("P", bound=Payload)
Q = ParamSpec("Q")


class Retention(StrEnum):
    # Deleted one by one, by age; rules may name the type. No other event of the stream may depend on it.
    CAPTURED = "captured"
    # Like captured, but the whole stream is deleted, and rules may name context packs.
    PACK = "pack"
    # Deleted with the memory, decision, session, iteration or commit of its stream.
    WITH_STREAM = "with its thing"
    # Never deleted by retention.
    KEPT = "kept"


# Whether an event needs an open turn where the project's ``turn_policy`` is strict.
class TurnRule(StrEnum):
    REQUIRED = "required"
    OPTIONAL = "optional"
    # The event itself starts or ends sessions and turns.
    NONE = "none"


# The kind of a message, whose payload has ``content``. Messages can be found, and quoted in packs and summaries.
class Speech(StrEnum):
    PROMPT = "prompt"
    ANSWER = "answer"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class EventGroup:
    name: str
    label: str
    order: int
    icon: str = "dot"


@dataclass(frozen=True, slots=True)
class EventType(Generic[P]):
    """One type of event. Attributes without a default must be declared."""

    # ``thing.happened``; stored in the log, so it never changes.
    name: str
    schema: type[P]
    _: KW_ONLY
    # For people: "Memory revised".
    label: str
    group: EventGroup
    retention: Retention
    rollback: RollbackRule
    # Whether it changes the memory or decision of its stream, and so protects it from the roll-back of earlier
    # events.
    changes_stream: bool
    # The version of the schema.
    version: int = 1
    # Whether a single event can be erased; captured ones always can.
    alone: bool = False
    act: Act = Act.WRITE
    turn: TurnRule = TurnRule.REQUIRED
    # In timelines, instead of the group's.
    own_icon: str = ""
    # Singular and plural for counts: ``("prompt", "prompts")``.
    nouns: tuple[str, str] | None = None
    # Whether summaries of sessions and turns count it.
    is_tallied: bool = False
    # The line that lists show, from the payload; default: the title of the entity.
    about: Callable[[Mapping[str, Any]], str] | None = None
    is_failure: bool = False
    # Whether clients may append it (``event_append``, hooks).
    from_clients: bool = False
    speech: Speech | None = None
    # Whether it tells of its store as a whole, such as a setting; a store with events of its own does not import it.
    is_local: bool = False
    # Whether only the rule pack masks its secrets: custom rules must not mask the settings that hold them.
    by_pack_only: bool = False
    # Whether it records that text of other events was erased or redacted.
    removes_text: bool = False

    def __post_init__(self) -> None:
        if (self.is_tallied or self.retention is Retention.CAPTURED) and self.nouns is None:
            raise TypeError("tallied and captured types need 'nouns'")

    @property
    def stands_alone(self) -> bool:
        return self.alone or self.retention is Retention.CAPTURED

    @property
    def icon(self) -> str:
        return self.own_icon or self.group.icon


_types: dict[str, EventType[Any]] = {}


def _registering(make: Callable[Q, EventType[P]]) -> Callable[Q, EventType[P]]:
    def define(*args: Q.args, **options: Q.kwargs) -> EventType[P]:
        try:
            defined = make(*args, **options)
        except TypeError as error:
            raise ImproperlyConfigured(f"event type {args[0]!r} is not declared completely: {error}") from error
        group = defined.rollback.group
        for earlier in _types.values():
            if group and earlier.rollback.group == group and earlier.rollback != defined.rollback:
                raise ImproperlyConfigured(
                    f"event types {defined.name!r} and {earlier.name!r} declare the roll-back group {group!r} "
                    "differently"
                )
        _types[defined.name] = defined
        return defined

    return define


# Registers an event type and returns it. Takes the arguments of ``EventType``; an error names the type.
define_event = _registering(EventType)

GOVERNANCE = EventGroup("governance", "Governance", 90)
# For events that govern the store itself: erasure, quarantine, holds, retention, roll-back.
define_governance_event = partial(
    define_event, group=GOVERNANCE, retention=Retention.KEPT, rollback=GOVERNS, changes_stream=False, act=Act.GOVERN
)


def event_type(name: str) -> EventType[Any] | None:
    return _types.get(name)


def event_types() -> list[EventType[Any]]:
    return sorted(_types.values(), key=lambda event_type: event_type.group.order)


def names_where(condition: Callable[[EventType[Any]], Any]) -> list[str]:
    return [name for name, event_type in _types.items() if condition(event_type)]


def names_of_speech(*speeches: Speech) -> list[str]:
    """Return the names of the message types of these kinds; default: all."""
    return names_where(lambda event_type: event_type.speech and (not speeches or event_type.speech in speeches))


def quoted(names: list[str]) -> str:
    """Return names for an SQL ``IN (…)`` with literals, which lets SQLite use the index on types."""
    return ", ".join(f"'{name}'" for name in names) or "''"


def types_that_change_streams() -> list[str]:
    return sorted(names_where(lambda event_type: event_type.changes_stream))


def rollback_groups() -> dict[str, RollbackRule]:
    rollbacks = {event_type.rollback.group: event_type.rollback for event_type in _types.values()}
    rollbacks.pop("", None)
    return dict(sorted(rollbacks.items(), key=lambda pair: pair[1].order))


def types_in_group(group: str) -> list[str]:
    return sorted(names_where(lambda event_type: event_type.rollback.group == group))


def types_reversed_by(step: str) -> list[EventType[Any]]:
    return [event_type for event_type in _types.values() if event_type.rollback.by == step]


def require_effects() -> None:
    """Check that every effect that an event type names is defined."""
    defined = effects()
    for event_type in _types.values():
        step = event_type.rollback.by
        effect = defined.get(step)
        if step and not (effect and (effect.plan or effect.values)):
            raise ImproperlyConfigured(
                f"event type {event_type.name!r} names {step!r}, which is not an effect with a plan"
            )
