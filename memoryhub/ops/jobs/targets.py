"""What jobs are run over: stores, and the hub itself."""

from __future__ import annotations

from dataclasses import dataclass

from memoryhub.core.jobs import Job, Over
from memoryhub.core.stores.store import GLOBAL_STORE, Scope, StoreId, list_orgs, list_projects, org_store, project_store

_TITLES = {Scope.PROJECT: "project {}", Scope.ORG: "organisation {}", Scope.GLOBAL: "the global scope"}


@dataclass(frozen=True, slots=True)
class Target:
    """One store, or the hub where there is no store."""

    store: StoreId | None = None

    @property
    def alias(self) -> str:
        """By which its runs are kept: the store's alias, "" for the hub."""
        return self.store.alias if self.store else ""

    @property
    def key(self) -> str:
        """A file's name: ``project-alpha``."""
        return f"{self.store.scope}-{self.store.name}" if self.store else "hub"

    @property
    def title(self) -> str:
        """How a sentence calls it."""
        return _TITLES[self.store.scope].format(self.store.name) if self.store else "the hub"


HUB = Target()


def targets_of(job: Job) -> list[Target]:
    """Return what a job is run over when nobody names a store."""
    if job.over is Over.HUB:
        return [HUB]
    stores = [*map(project_store, list_projects()), *([] if job.over is Over.PROJECTS else shared_stores())]
    return [*map(Target, stores), *([HUB] if job.over is Over.ALL else [])]


def all_stores() -> list[StoreId]:
    """Return every store of this hub."""
    return [*map(project_store, list_projects()), *shared_stores()]


def shared_stores() -> list[StoreId]:
    """Return the stores that are no project's."""
    return [*map(org_store, list_orgs()), *([GLOBAL_STORE] if GLOBAL_STORE.path.exists() else [])]
