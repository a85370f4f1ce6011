"""Labels and addresses of stores."""

from __future__ import annotations

from dataclasses import dataclass

from memoryhub.core.permissions import reaches
from memoryhub.core.stores.store import GLOBAL_STORE, Scope, StoreId, list_orgs, list_projects, org_store, project_store

_KINDS = {Scope.PROJECT: "project", Scope.ORG: "organisation", Scope.GLOBAL: "global scope"}
_ADDRESSES = {Scope.PROJECT: "/p/{}/admin/", Scope.ORG: "/o/{}/admin/", Scope.GLOBAL: "/global/admin/"}


@dataclass(frozen=True, slots=True)
class Place:
    id: str
    label: str
    # "project", "organisation" or "global scope"
    kind: str
    # Of the overview
    url: str
    # In grants
    key: str = ""

    @property
    def this(self) -> str:
        return f"{'the' if self.kind == 'global scope' else 'this'} {self.kind}"

    @property
    def is_project(self) -> bool:
        return self.kind == "project"

    @classmethod
    def of(cls, store: StoreId) -> Place:
        label = "Global" if store == GLOBAL_STORE else store.name
        return cls(store.name, label, _KINDS[store.scope], _ADDRESSES[store.scope].format(store.name), store.place)


def other_places(store: StoreId | None) -> list[tuple[str, list[Place]]]:
    """Return the stores except ``store`` in groups with a title; empty groups are left out."""
    groups = (
        ("Projects", map(project_store, list_projects())),
        ("Organisations", map(org_store, list_orgs())),
        ("For all projects", [GLOBAL_STORE] if reaches(GLOBAL_STORE.place) else []),
    )
    places = [(title, [Place.of(other) for other in stores if other != store]) for title, stores in groups]
    return [(title, found) for title, found in places if found]
