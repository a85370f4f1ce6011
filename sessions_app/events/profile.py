"""What a store says of itself: a project's or an organisation's name, purpose and belonging."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import AfterValidator, Field, JsonValue, StringConstraints

from memoryhub.core.event_types import Retention, TurnRule, define_event
from memoryhub.core.permissions import Act
from memoryhub.core.rollback import Effect, Values, define_effect, reverses
from memoryhub.core.schemas import Payload, StoredTag
from memoryhub.core.stores import SLUG
from sessions_app.events.sessions import SETTINGS

MAX_METADATA_CHARACTERS = 16_000
MAX_METADATA_DEPTH = 10


def _bounded(metadata: dict[str, JsonValue]) -> dict[str, JsonValue]:
    _check_depth(metadata, MAX_METADATA_DEPTH)
    size = len(json.dumps(metadata, ensure_ascii=False, allow_nan=False))
    if size > MAX_METADATA_CHARACTERS:
        raise ValueError(
            f"it has {size:,} characters as JSON and may have at most {MAX_METADATA_CHARACTERS:,}; "
            "keep what is longer as a memory and name its id here"
        )
    return metadata


def _check_depth(value: JsonValue, levels: int) -> None:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if inner and not levels:
        raise ValueError(f"it may be nested at most {MAX_METADATA_DEPTH} levels deep")
    for each in inner:
        _check_depth(each, levels - 1)


Slug = Annotated[str, StringConstraints(pattern=f"^{SLUG.pattern}$")]
"""The id of a project or an organisation."""
Name = Annotated[str, StringConstraints(strip_whitespace=True, max_length=200)]
Description = Annotated[str, StringConstraints(strip_whitespace=True, max_length=4_000)]
RootPath = Annotated[str, StringConstraints(strip_whitespace=True, max_length=1_000)]
Metadata = Annotated[dict[str, JsonValue], AfterValidator(_bounded)]
"""A JSON object of at most 16,000 characters: goals, constraints, the current state."""
Tags = Annotated[list[StoredTag], Field(max_length=50)]


class ProjectDescribed(Payload):
    """The store was described; what is not set stays as it was."""

    name: Name = ""
    description: Description = ""
    root_path: RootPath = ""
    org: Slug | None = None
    """The organisation that the project belongs to; None for none."""
    metadata: Metadata = Field(default_factory=dict)
    tags: Tags = Field(default_factory=list)


PROJECT_DESCRIBED = define_event(
    "project.described",
    ProjectDescribed,
    label="Project described",
    group=SETTINGS,
    retention=Retention.KEPT,
    rollback=reverses("profile", "The project described", order=160, by="describe", can_leave=False),
    changes_stream=False,
    act=Act.GOVERN,
    turn=TurnRule.OPTIONAL,
)


def _default(name: str) -> JsonValue:
    default: JsonValue = ProjectDescribed.model_fields[name].get_default(call_default_factory=True)
    return default


define_effect(
    Effect(
        "describe",
        100,
        "field put back",
        Values(
            read=lambda _position, payload: payload,
            write=lambda step, _reason: ProjectDescribed(**{step.name: step.after}),
            default=_default,
        ),
    )
)
