"""How a store is searched: as its project's ``search_mode`` says, where nobody asks for another way."""

from __future__ import annotations

from memories.search.index import has_full_text
from memoryhub.core.errors import Unavailable
from sessions_app.choices import SearchMode
from sessions_app.settings import project_settings


def wanted_mode() -> SearchMode:
    """Return how the current store's project wants to be searched."""
    return project_settings().search_mode


def by_index(mode: str) -> bool:
    """Whether the full-text index of the current store answers; LIKE does where not.

    Raises:
        Unavailable: words alone are wanted, and there is no index of them.
    """
    if mode == SearchMode.BASIC:
        return False
    if has_full_text():
        return True
    if mode == SearchMode.FTS5:
        raise Unavailable(
            "search_mode is 'fts5', and this store has no full-text index, or this SQLite no FTS5 to read it; set "
            "search_mode to 'auto' or 'basic', or run rebuild with a SQLite that has FTS5"
        )
    return False


def told_mode() -> str:
    """Return how the current store is searched by words: ``fts5`` or ``basic``."""
    wanted = wanted_mode()
    return "basic" if wanted is SearchMode.BASIC or not has_full_text() else "fts5"
