"""What tests of memories share: a store of their own, and short names for what services and selectors do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from memories import selectors, services
from memories.query import query
from memories.schemas import (
    MemoryDelete,
    MemoryGet,
    MemoryRestore,
    MemorySearch,
    MemoryUpdate,
    MemoryWrite,
    WriteResult,
)
from memories.schemas.query import MemoryQuery
from memoryhub.core import log
from memoryhub.core.errors import ConfirmationRequired, HubError
from memoryhub.core.schemas import Listing
from memoryhub.core.stores.store import org_store, use_store
from sessions_app.events import PROJECT_DESCRIBED, ProjectDescribed
from tests.support import HubTestCase


class MemoriesTestCase(HubTestCase):
    """A test whose current store is the project ``alpha``."""

    origin: ClassVar[dict[str, Any]] = {"actor": "ada"}

    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", **self.origin))

    def written(self, title: str, content: str = "", **fields: Any) -> WriteResult:
        given = {"title": title, "content": content or f"All about {title}.", **fields}
        return services.write_memory(command=MemoryWrite.model_validate(given))

    def write(self, title: str, content: str = "", **fields: Any) -> int:
        return self.written(title, content, **fields).id

    def write_all(self, texts: Mapping[str, str], **fields: Any) -> list[int]:
        """Write memories, by title, in one transaction."""
        commands = [MemoryWrite(title=title, content=content, **fields) for title, content in texts.items()]
        return [result.id for result in services.write_memories(commands=commands)]

    def update(self, memory_id: int, **fields: Any) -> WriteResult:
        return services.update_memory(command=MemoryUpdate.model_validate({"id": memory_id, **fields}))

    def delete(self, memory_id: int, **fields: Any) -> WriteResult:
        return services.delete_memory(command=MemoryDelete.model_validate({"id": memory_id, **fields}))

    def restore(self, memory_id: int, **fields: Any) -> WriteResult:
        return services.restore_memory(command=MemoryRestore.model_validate({"id": memory_id, **fields}))

    def erase(self, memory_id: int, **fields: Any) -> None:
        """Delete a memory for good, as somebody who confirms it."""
        self.delete(memory_id, **fields)
        erase_deleted(memory_id, **fields)

    def get(self, memory_id: int, **fields: Any) -> dict[str, Any]:
        (memory,) = selectors.get_memories(command=MemoryGet(ids=[memory_id], **fields))
        return memory

    def search(self, question: str, **fields: Any) -> Listing:
        return selectors.search(command=MemorySearch.model_validate({"query": question, **fields}))

    def hits(self, question: str, **fields: Any) -> list[int]:
        return [hit["id"] for hit in self.search(question, **fields).results]

    def titles(self, question: str, **fields: Any) -> list[str]:
        return [hit["title"] for hit in self.search(question, **fields).results]

    @contextmanager
    def refuses(self, error: type[HubError], pattern: str) -> Iterator[Any]:
        """Check that the block is refused with a sentence, and that nothing is written."""
        before = log.head()
        with self.assertRaisesRegex(error, pattern) as refused:
            yield refused
        self.assertEqual(log.head(), before)

    def assert_rebuilds(self) -> None:
        """Check that a rebuild gives the same rows."""
        self.assertTrue(log.rebuild().identical)


def erase_deleted(memory_id: int, **fields: Any) -> None:
    command = MemoryDelete.model_validate({"id": memory_id, "permanent": True, **fields})
    try:
        services.delete_memory(command=command)
    except ConfirmationRequired as asked:
        services.delete_memory(command=command.model_copy(update={"confirm_token": asked.data["confirm_token"]}))


def pages(ask: Callable[..., Listing], limit: int) -> list[Listing]:
    """Return all pages of a list."""
    listings = [ask(limit=limit)]
    while cursor := listings[-1].meta.next_cursor:
        listings.append(ask(limit=limit, cursor=cursor))
    return listings


class AcmeTestCase(MemoriesTestCase):
    """The projects ``alpha`` and ``beta`` belong to the organisation ``acme``."""

    origin: ClassVar[dict[str, Any]] = {"actor": "ada", "session_id": "s-1"}

    def setUp(self) -> None:
        super().setUp()
        with use_store(org_store("acme"), create=True):
            pass
        for project in ("alpha", "beta"):
            with self.store(project), log.transaction():
                log.append(log.prepare(PROJECT_DESCRIBED, ProjectDescribed(org="acme")), stream="project")


class QueryTestCase(AcmeTestCase):
    def write(self, title: str, scope: str = "project", kind: str = "guideline", **fields: Any) -> int:  # type: ignore[override]
        return super().write(title, **{"scope": scope, "kind": kind, "content": f"{title} in {scope}.", **fields})

    def ask(self, mode: str = "auto", **question: Any) -> Listing:
        return query(command=MemoryQuery.model_validate(question), mode=mode)

    def found(self, mode: str = "auto", **question: Any) -> list[tuple[str, str]]:
        return [(item["scope"], item["title"]) for item in self.ask(mode, **question).results]
