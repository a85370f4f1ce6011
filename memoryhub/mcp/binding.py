"""The one project that this process serves."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from memoryhub.config.folder import FolderSettings, read_folder
from memoryhub.config.identity import bind_project, identify_project
from memoryhub.core.errors import Forbidden, HubError
from memoryhub.core.stores.store import StoreId, project_store

logger = logging.getLogger(__name__)


class Binding:
    """Finds the project when it is first needed; a failure is told on each call, and tried again on the next."""

    def __init__(self, project: str | None, directory: Path) -> None:
        self._project = project
        self._directory = directory
        self._store: StoreId | None = None
        self._folder: FolderSettings | None = None
        self._noted = project is not None
        self._lock = threading.Lock()

    def store(self) -> StoreId:
        """Return the bound project's store.

        Raises:
            Invalid: the project cannot be told; the data names the choices.
        """
        with self._lock:
            if self._store is None:
                self._store = project_store(identify_project(project=self._project, directory=self._directory))
            return self._store

    def folder(self) -> FolderSettings:
        """Return what the folder says of the project, read once.

        Raises:
            Invalid: its file is broken, or says what it may not.
        """
        store = self.store()
        with self._lock:
            if self._folder is None:
                self._folder = read_folder(self._directory, store.name)
            return self._folder

    def check(self, project_id: object) -> StoreId:
        """Return the bound project's store if ``project_id`` is None or names that project.

        Raises:
            Forbidden: it names another.
        """
        store = self.store()
        if project_id is not None and project_id != store.name:
            raise Forbidden(
                f"this server is bound to project {store.name!r} and serves no other; "
                f"start one with --project {str(project_id)[:64]} to reach that project",
                project_id=store.name,
            )
        return store

    def note_folder(self) -> None:
        """Note once, now that the project has a store, that the folder it was found by is its own."""
        if self._noted:
            return
        self._noted = True
        try:
            bind_project(self.store().name, self._directory)
        except (HubError, OSError):
            logger.warning("the folder of the project could not be noted", exc_info=True)
