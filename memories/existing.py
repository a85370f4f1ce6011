"""What is there already, when memories are about to be written: found in one query a batch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from memories.events import MemoryState
from memories.models import Memory
from memories.projectors import content_hash
from memoryhub.core import rows

_COLUMNS = "id, version, kind, type, title, content, tags, topic_key, author, source, resource_links, content_hash"


class Existing:
    """A live memory: its id, its current version and its state."""

    def __init__(self, memory_id: int, version: int, state: MemoryState) -> None:
        self.id = memory_id
        self.version = version
        self.state = state

    @classmethod
    def of(cls, memory: Memory) -> Existing:
        """Return a read model's row as its state."""
        fields = {name: getattr(memory, name) for name in MemoryState.model_fields}
        return cls(memory.id, memory.version, MemoryState(**fields))

    def differs(self, state: MemoryState) -> bool:
        """Whether anything that ``state`` sets is not so already."""
        mine = self.state.model_dump()
        given = state.model_dump(include=set(MemoryState.model_fields), exclude_unset=True)
        given["tags"] = sorted(set(state.tags)) if "tags" in given else mine["tags"]
        given.pop("author", None)
        return any(mine[name] != value for name, value in given.items())

    def revised(self, state: MemoryState) -> None:
        """Go on to the next version."""
        fields = {name: getattr(state, name) for name in MemoryState.model_fields}
        self.state = MemoryState(**fields)
        self.version += 1


class ExistingMemories:
    """The live memories that share a topic, a text or a title with what is about to be written."""

    def __init__(self, states: Sequence[MemoryState]) -> None:
        self._by_topic: dict[str, Existing] = {}
        self._by_hash: dict[str, Existing] = {}
        self._by_title: dict[str, Existing] = {}
        for row in _fetch(states):
            self._index(_existing(row), row[-1])

    def of_topic(self, topic_key: str | None) -> Existing | None:
        """Return the memory of that topic."""
        return self._by_topic.get(topic_key) if topic_key else None

    def of_content(self, content: str) -> Existing | None:
        """Return the memory with identical content."""
        return self._by_hash.get(content_hash(content))

    def of_title(self, title: str) -> Existing | None:
        """Return the memory of that title."""
        return self._by_title.get(title)

    def add(self, memory_id: int, state: MemoryState) -> None:
        """Take in what this batch has just written."""
        self._index(Existing(memory_id, 1, state), content_hash(state.content))

    def _index(self, existing: Existing, digest: str) -> None:
        if existing.state.topic_key:
            self._by_topic[existing.state.topic_key] = existing
        self._by_hash.setdefault(digest, existing)
        self._by_title.setdefault(existing.state.title, existing)


def _fetch(states: Sequence[MemoryState]) -> list[tuple[Any, ...]]:
    topics = [state.topic_key for state in states if state.topic_key]
    others = [state for state in states if not state.topic_key]
    wanted = {
        "topic_key": topics,
        "content_hash": [content_hash(state.content) for state in others],
        "title": [state.title for state in others],
    }
    conditions = [f"{column} IN ({', '.join(['%s'] * len(values))})" for column, values in wanted.items() if values]
    return rows.fetch(
        f"SELECT {_COLUMNS} FROM memories_memory WHERE deleted_at IS NULL AND ({' OR '.join(conditions)}) ORDER BY id",
        [value for values in wanted.values() for value in values],
    )


def _existing(row: tuple[Any, ...]) -> Existing:
    memory_id, version, kind, kind_type, title, content, tags, topic_key, author, source, links, _ = row
    state = MemoryState(
        kind=kind,
        type=kind_type,
        title=title,
        content=content,
        tags=json.loads(tags),
        topic_key=topic_key,
        author=author,
        source=source,
        resource_links=json.loads(links),
    )
    return Existing(memory_id, version, state)
