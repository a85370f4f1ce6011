"""Tags that were described, and relations."""

from __future__ import annotations

from memories.events import (
    RELATION_CREATED,
    RELATION_DELETED,
    TAG_CREATED,
    RelationCreated,
    RelationDeleted,
    TagCreated,
)
from memories.models import Relation, Tag
from memoryhub.core import rows
from memoryhub.core.projection import Event, projects


@projects(TAG_CREATED)
def describe_tag(event: Event[TagCreated]) -> None:
    """Add the tag's description, or replace it."""
    rows.execute("DELETE FROM memories_tag WHERE name = %s", [event.payload.name])
    rows.insert(Tag, id=event.position, created_at=event.occurred_at, **event.payload.model_dump())


@projects(RELATION_CREATED)
def relate(event: Event[RelationCreated]) -> None:
    """Add the relation."""
    rows.insert(
        Relation,
        id=event.position,
        actor=event.actor,
        session_id=event.session_id,
        created_at=event.occurred_at,
        **event.payload.model_dump(),
    )


@projects(RELATION_DELETED)
def unrelate(event: Event[RelationDeleted]) -> None:
    """Take the relation away."""
    rows.execute("DELETE FROM memories_relation WHERE id = %s", [event.payload.relation_id])
