"""The project that a process, or an address of the hub, serves."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from memoryhub.config.folder import NO_FOLDER, FolderSettings, read_folder
from memoryhub.config.identity import bind_project, identify_project
from memoryhub.core.errors import Forbidden, HubError
from memoryhub.core.stores.store import StoreId, project_store

logger = logging.getLogger(__name__)


class Binding:
    """Finds the project on first use. After a failure, each call tries again and reports it.

    Without a directory, as in the hub, clients work elsewhere: settings come from the hub, and no project is created.
    """

    def __init__(self, project: str | None, directory: Path | None) -> None:
        self.project = project
        self.creates = directory is not None
        self._directory = directory
        self._store: StoreId | None = None
        self._folder: FolderSettings | None = None
        self._recorded = project is not None
        self._lock = threading.Lock()

    def store(self) -> StoreId:
        with self._lock:
            if self._store is None:
                directory = self._directory or Path()
                self._store = project_store(identify_project(project=self.project, directory=directory))
            return self._store

    def folder(self) -> FolderSettings:
        if self._directory is None:
            return NO_FOLDER
        store = self.store()
        with self._lock:
            if self._folder is None:
                self._folder = read_folder(self._directory, store.name)
            return self._folder

    def check(self, project_id: object) -> StoreId:
        # Tools accept project_id, but only the id of this project.
        store = self.store()
        if project_id is not None and project_id != store.name:
            raise Forbidden(
                f"this server is bound to project {store.name!r}; {self._way_to(str(project_id)[:64])}",
                project_id=store.name,
            )
        return store

    def _way_to(self, project: str) -> str:
        if self._directory is None:
            return f"use the address /p/{project}/mcp to reach that project"
        return f"start another one with --project {project} to reach that project"

    def note_folder(self) -> None:
        # Records the folder as the project's own, once the project has a store.
        if self._recorded or self._directory is None:
            return
        self._recorded = True
        try:
            bind_project(self.store().name, self._directory)
        except (HubError, OSError):
            logger.warning("could not record the project's folder", exc_info=True)
