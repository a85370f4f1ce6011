"""The service layer as an interface: the hub's own work, without another process."""

from __future__ import annotations

from typing import Any

from memories import selectors, services
from memories.schemas import MemorySearch, MemoryWrite
from memoryhub.core.stores.store import StoreId, use_store


class ServiceDoor:
    def __init__(self, store: StoreId) -> None:
        self._store = store

    def write(self, arguments: dict[str, Any]) -> None:
        with use_store(self._store):
            services.write_memory(command=MemoryWrite(**arguments))

    def search(self, question: str) -> None:
        with use_store(self._store):
            if not selectors.search(command=MemorySearch(query=question)).results:
                raise RuntimeError(f"the service found nothing for {question!r}")
