"""Context packs: what callers ask for."""

from __future__ import annotations

from pydantic import Field

from memoryhub.core.schemas import Command, EntityId, Identifier, unlisted

DEFAULT_TOKENS = 1_500


class ContextPackRequest(Command):
    """What to know before going on: guidelines, decisions, facts, turns, conflicts, the last session's summary."""

    query: str = Field("", max_length=2_000, description="what the work is about; else what changed last")
    max_tokens: int = Field(DEFAULT_TOKENS, ge=200, le=20_000, description="budget of the whole answer")
    since: EntityId | None = Field(None, description="number of a pack you have: only what changed since")
    session_id: Identifier | None = Field(None, description="default: the client's", json_schema_extra=unlisted)


class ContextReplay(Command):
    """Make a pack again, as it was sent."""

    id: EntityId = Field(description="of the pack")
