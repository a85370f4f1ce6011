"""What of this app has an id that others can name."""

from __future__ import annotations

from memoryhub.core.entities import define_entity

define_entity(
    "memory",
    "SELECT id, title, kind, deleted_at IS NOT NULL AS deleted FROM memories_memory",
    shown_by="memory_get",
)
