"""Names of stores, and the one that is current."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from memoryhub import env
from memoryhub.core.errors import Invalid
from memoryhub.core.permissions import place_of_alias
from memoryhub.core.stores.routing import STORE_PREFIX, require_current_alias

SLUG = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


# Each scope is a separate store, so a query cannot reach another project by mistake (decision 14).
class Scope(StrEnum):
    GLOBAL = "global"
    ORG = "org"
    PROJECT = "project"
    # A store at a past position: a read-only cache built from its log.
    VIEW = "view"


# ``name`` is a slug; ``global`` for the global scope.
@dataclass(frozen=True, slots=True)
class StoreId:
    scope: Scope
    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not SLUG.fullmatch(self.name):
            raise Invalid(
                f"{self.scope} id {str(self.name)[:80]!r} is not valid: use 1 to 64 of a-z, 0-9, '.', '_', '-', "
                "starting with a letter or digit"
            )

    @property
    def alias(self) -> str:
        return f"{STORE_PREFIX}{self.text}"

    @classmethod
    @lru_cache(maxsize=256)
    def parse(cls, text: str) -> StoreId:
        """Return the store of a ``text``.

        Raises:
            ValueError: it has no known scope.
            Invalid: its name is not valid.
        """
        scope, _, name = text.partition(":")
        return cls(Scope(scope), name)

    @property
    def text(self) -> str:
        """The store in words of a file or table, such as ``project:parser``."""
        return f"{self.scope}:{self.name}"

    @property
    def place(self) -> str:
        """Key of the store in grants."""
        return place_of_alias(self.alias)


GLOBAL_STORE = StoreId(Scope.GLOBAL, "global")


def project_store(project_id: str) -> StoreId:
    return StoreId(Scope.PROJECT, project_id)


def org_store(org_id: str) -> StoreId:
    return StoreId(Scope.ORG, org_id)


def current_store() -> StoreId:
    return StoreId.parse(require_current_alias().removeprefix(STORE_PREFIX))


FOLDERS = {Scope.GLOBAL: "", Scope.ORG: "orgs", Scope.PROJECT: "projects", Scope.VIEW: "cache/views"}


def key_of(store: StoreId) -> str:
    """Return a short name for what is derived from a store of this home, such as its views."""
    # Hubs on several machines share a server's views, wherever their homes are
    place = "" if env.database_url() else env.home()
    return hashlib.sha256(f"{place} {store.alias}".encode()).hexdigest()[:10]


def folder_of(store: StoreId) -> Path:
    """Return the folder of a store's own files on this machine, such as vector indexes; it may not exist."""
    return _folder_in_home(os.environ.get("MEMORY_HUB_HOME"), store.scope, store.name)


@lru_cache(maxsize=256)
def _folder_in_home(_home: str | None, scope: Scope, name: str) -> Path:
    return env.home() / FOLDERS[scope] / name
