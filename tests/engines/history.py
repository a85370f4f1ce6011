"""Write a generated history: every step of the story, then calls of writing tools with inputs of their schemas."""

from __future__ import annotations

import hashlib
import secrets
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

from memories.uses import notes
from memoryhub.core import clock, ids
from memoryhub.core.errors import HubError
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import project_store, use_store
from memoryhub.core.tools import Tool, ToolGroup, all_tools
from tests.engines.governed_story import GovernedStory
from tests.engines.story import PROJECT, Story
from tests.engines.values import Values, arguments, entity_of, is_valid

CALLS = 80
# They begin and end turns and sessions, or make stores
_NOT_CALLED = (ToolGroup.TURNS, ToolGroup.SCOPES)
_TEXTS = frozenset({"content", "description", "chosen", "rationale", "context", "reason", "change_reason"})
_NAMES = frozenset({"title", "name"})
_NOT_GIVEN = ("idempotency_key", "scope_id", "confirm_token", "permanent", "entry_type", "source_type", "target_type")
_ATTEMPTS = 50
_BEGIN = datetime(2026, 1, 1, 23, 59, tzinfo=UTC)


def write_history(seed: int, repository: Path) -> list[str]:
    """Write the history into its project, and return what was refused."""
    story, moment = GovernedStory(seed, repository), _BEGIN
    with use_store(project_store(PROJECT), create=True), use_origin(source="mcp", actor="ada", session_id="s-main"):
        for step in story.steps():
            moment += timedelta(hours=story.chance.randint(1, 60), milliseconds=story.chance.randint(0, 999))
            with clock.frozen(moment), deterministic():
                step()
        moment += timedelta(days=80)
        return [refused for number in range(CALLS) if (refused := _call(story, moment + timedelta(hours=number)))]


def _call(story: Story, moment: datetime) -> str:
    """Call a writing tool with random arguments; return why it was refused, "" if it was not."""
    tool = story.chance.choice([tool for tool in all_tools() if tool.writes and tool.group not in _NOT_CALLED])
    with clock.frozen(moment), deterministic():
        given = _chosen(tool, story)
        try:
            story.call(tool.name, **given)
        except HubError as error:
            return f"{tool.name} {given}: {error.message}"
    return ""


def _chosen(tool: Tool, story: Story) -> dict[str, Any]:
    fields, chance = tool.input.model_fields, story.chance
    found = {name: given[:8] for name, given in arguments(tool.input, Values(), entity_of(tool.name)).items() if given}
    found |= {name: [story.text(30)] for name in fields if name in _TEXTS}
    found |= {name: [story.title()[-60:]] for name in fields if name in _NAMES and fields[name].is_required()}
    always = [name for name, field in fields.items() if field.is_required() or name == "id"]
    others = [name for name in found if name not in (*always, *_NOT_GIVEN)]
    for _ in range(_ATTEMPTS):
        names = [*always, *chance.sample(others, k=chance.randint(0, min(3, len(others))))]
        given = {name: chance.choice(found[name]) for name in names}
        if is_valid(tool.input, given):
            return given
    raise AssertionError(f"no valid arguments of {tool.name} in {found}")


_drawn: Counter[int] = Counter()


@contextmanager
def deterministic() -> Iterator[None]:
    """Derive identifiers, salts and tokens from counts and the frozen clock: both databases get the same log."""

    # A count for each size, because the wipe of a database draws numbers too
    def digest(size: int) -> bytes:
        _drawn[size] += 1
        return hashlib.sha256(f"{size} {_drawn[size]}".encode()).digest()[:size]

    with (
        mock.patch.object(ids, "random_bytes", digest),
        mock.patch.object(ids, "uuid7", lambda: str(uuid.UUID(bytes=digest(16)))),
        mock.patch.object(secrets, "token_urlsafe", lambda size: digest(size).hex()),
        mock.patch.object(time, "time_ns", lambda: int(clock.now().timestamp()) * 10**9),
        mock.patch.object(time, "time", lambda: clock.now().timestamp()),
        mock.patch.object(notes, "_SLOTS", 1),
    ):
        yield
