"""The service as a door: what the hub's own work costs, without a process in between."""

from __future__ import annotations

from typing import Any

from memories import selectors, services
from memories.schemas import MemorySearch, MemoryWrite
from memoryhub.core.stores.store import StoreId, use_store


class ServiceDoor:
    """Calls the functions that every door calls."""

    def __init__(self, store: StoreId) -> None:
        self._store = store

    def write(self, arguments: dict[str, Any]) -> None:
        """Write a memory."""
        with use_store(self._store):
            services.write_memory(command=MemoryWrite(**arguments))

    def search(self, question: str) -> None:
        """Search.

        Raises:
            RuntimeError: nothing was found.
        """
        with use_store(self._store):
            if not selectors.search(command=MemorySearch(query=question)).results:
                raise RuntimeError(f"the service found nothing for {question!r}")
