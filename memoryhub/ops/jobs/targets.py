from __future__ import annotations

from dataclasses import dataclass

from memoryhub.core.jobs import Job, Over
from memoryhub.core.stores.store import Scope, StoreId, list_projects, list_shared, project_store

_TITLES = {Scope.PROJECT: "project {}", Scope.ORG: "organisation {}", Scope.GLOBAL: "the global scope"}


# One store, or the hub if None
@dataclass(frozen=True, slots=True)
class Target:
    store: StoreId | None = None

    # The key of its runs; "" for the hub
    @property
    def alias(self) -> str:
        return self.store.alias if self.store else ""

    # For file names, such as project-alpha
    @property
    def key(self) -> str:
        return f"{self.store.scope}-{self.store.name}" if self.store else "hub"

    @property
    def title(self) -> str:
        return _TITLES[self.store.scope].format(self.store.name) if self.store else "the hub"


HUB = Target()


def targets_of(job: Job) -> list[Target]:
    if job.over is Over.HUB:
        return [HUB]
    stores = [*map(project_store, list_projects()), *([] if job.over is Over.PROJECTS else list_shared())]
    return [*map(Target, stores), *([HUB] if job.over is Over.ALL else [])]


def all_stores() -> list[StoreId]:
    return [*map(project_store, list_projects()), *list_shared()]
