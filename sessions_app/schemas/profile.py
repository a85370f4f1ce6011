"""A store's description and settings: what callers send and get."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field, JsonValue, StringConstraints

from memoryhub.core.schemas import Command, IdempotencyKey, Line, Tag, unlisted
from sessions_app.events.profile import Description, Metadata, Slug

Name = Annotated[Line, StringConstraints(max_length=200)]
RootPath = Annotated[Line, StringConstraints(max_length=1_000)]
Tags = Annotated[list[Tag], Field(max_length=50)]


class SettingsChange(Command):
    """Change settings of the project; null takes one back to its default."""

    settings: dict[str, JsonValue] = Field(min_length=1, max_length=50)


class OrgDescribe(Command):
    """Describe an organisation; what is left out stays as it is."""

    name: Name = Field("", description="for people")
    description: Description = Field("", description="what it is")
    metadata: Metadata = Field(default_factory=dict, description="a JSON object; replaces the one before")
    tags: Tags = Field(default_factory=list, description="replace those before", json_schema_extra=unlisted)
    idempotency_key: IdempotencyKey = None


class ProjectDescribe(OrgDescribe):
    """Describe a project; what is left out stays as it is."""

    description: Description = Field("", description="what it is for")
    metadata: Metadata = Field(default_factory=dict, description="goals, constraints, state; replaces the one before")
    org_id: Slug | None = Field(None, description="the organisation it belongs to; null for none")
    root_path: RootPath = Field("", description="its folder")


class ProfileView(BaseModel):
    """What a store says of itself; of one that was never described, all is empty."""

    name: str = ""
    description: str = ""
    root_path: str = ""
    org: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    tags: list[str] = Field(default_factory=list)
    updated_at: datetime | None = None
