"""The story of the sample project, as it stands in ``story.toml``."""

from __future__ import annotations

import tomllib
from datetime import datetime, time, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

_FILE = Path(__file__).with_name("story.toml")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Page(_Part):
    """A page worth looking at: its address below the project's admin, and what is there to see."""

    path: str
    see: str


class Scene(_Part):
    """A session of an agent, or with ``person`` something that a person does at the admin."""

    session: str = ""
    person: str = ""
    client: str = "claude-code"
    purpose: str = ""
    days_ago: int = Field(ge=1)
    at: time
    steps: tuple[dict[str, Any], ...]

    def begins(self, now: datetime) -> datetime:
        """Return when it begins, seen from ``now``."""
        return datetime.combine(now.date() - timedelta(days=self.days_ago), self.at, tzinfo=now.tzinfo)


class Story(_Part):
    """The project, what happened in it, and where to look."""

    project: dict[str, Any]
    scene: tuple[Scene, ...]
    pages: tuple[Page, ...]


@cache
def story() -> Story:
    """Return the story."""
    return Story.model_validate(tomllib.loads(_FILE.read_text("utf-8")))
