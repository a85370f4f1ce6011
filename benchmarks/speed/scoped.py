"""A hub to query in four scopes: session, project, organisation and global.

Entries are of every kind and reproducible; some entries of wider scopes have the same names as narrower ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.speed import corpus
from memories import services
from memories.events import RELATION_CREATED, RelationCreated
from memories.models import PROJECT, EndType, Memory, MemoryKind, MemoryScope, RelationType
from memories.schemas import MemoryWrite
from memoryhub.core import log
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import StoreId, org_store, use_store
from sessions_app.events import PROJECT_DESCRIBED, ProjectDescribed

SESSION = "bench-session"
SCOPES = tuple(MemoryScope)
_BATCH = 500
_KINDS = tuple(MemoryKind)
# Number of tagged entries, by tag
_TAGS = {"python": 0.1, "security": 0.05, "database": 0.2, "testing": 0.2, "deprecated": 0.02}
_AUTHENTICATION = 0.03
_SAME_NAME = 0.1


def examples(project: str) -> dict[str, dict[str, Any]]:
    scope = {"type": "project", "id": project, "inherit": True}
    return {
        "guidelines": {"types": ["guidelines"], "scope": scope, "tags": {"require": ["python"]}},
        "related": {"types": ["tools"], "related_to": {"type": "project", "id": project}},
        "text": {"search": "authentication", "scope": scope},
        "security": {"types": ["guidelines"], "tags": {"require": ["security"]}, "scope": {"type": "global"}},
    }


def entry(index: int, size: int) -> dict[str, Any]:
    """Return the command that writes entry ``index`` of ``size``; each scope has a quarter of them.

    The first entry of each kind in each scope has every tag and the word, so that small hubs answer too.
    """
    source = random.Random(f"scoped:{index}")  # noqa: S311 - text that must be the same on every run
    kind, scope = _KINDS[index % len(_KINDS)], _scope(index, size)
    text = corpus.arguments(index)
    is_sure = index % (size // len(SCOPES)) < len(_KINDS)
    subject = "authentication " if source.random() < _AUTHENTICATION or is_sure else ""
    return {
        "kind": kind,
        "scope": scope,
        "title": f"Rule {index}" if is_sure else _title(source, index, size, subject),
        "content": f"{subject}{text['content']}" if source.random() < 0.5 else text["content"],
        "tags": [tag for tag, share in _TAGS.items() if source.random() < share or is_sure],
        "attributes": {"priority": source.randint(0, 100)} if kind == "guideline" else {},
    }


def _scope(index: int, size: int) -> MemoryScope:
    return SCOPES[min(index * len(SCOPES) // size, len(SCOPES) - 1)]


def _title(source: random.Random, index: int, size: int, subject: str) -> str:
    quarter = size // len(SCOPES)
    is_shared = source.random() < _SAME_NAME and index >= quarter
    number = index % quarter if is_shared else index
    return f"Rule {number}" if is_shared or index < quarter else f"{subject}Rule {number}"


def fill(store: StoreId, org: StoreId, size: int, progress: Callable[[int], None]) -> None:
    with use_store(org_store(org.name), create=True):
        pass
    with use_store(store, create=True), use_origin(session_id=SESSION):
        with log.transaction():
            log.append(log.prepare(PROJECT_DESCRIBED, ProjectDescribed(org=org.name)), stream="project")
        for scope in SCOPES:
            for commands in _batches([index for index in range(size) if _scope(index, size) is scope], size):
                services.write_memories(commands=commands)
                progress(len(commands))
        _relate()


def _batches(indexes: list[int], size: int) -> Iterator[list[MemoryWrite]]:
    for start in range(0, len(indexes), _BATCH):
        yield [MemoryWrite(**entry(index, size)) for index in indexes[start : start + _BATCH]]


def _relate() -> None:
    tools = Memory.objects.filter(kind="tool").order_by("id").values_list("id", flat=True)[::10]
    with log.transaction():
        for memory_id in tools:
            relation = RelationCreated(
                relation=RelationType.APPLIES_TO,
                source_type=EndType.MEMORY,
                source_id=memory_id,
                target_type=EndType.PROJECT,
                target_id=PROJECT,
            )
            log.append(log.prepare(RELATION_CREATED, relation), entity="relation")
