"""What each route of the REST door needs: reading is for those who see, changing for those who write, and so on."""

from __future__ import annotations

from memoryhub.core.permissions import TO_MAKE_PLACES, Act

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_PROJECT = "projects/<project_id>/"
_READS = frozenset({"query", "rollbacks/preview", "sanitise"})
"""What takes its question in a body: POST changes nothing there."""
_GOVERNED = frozenset({"settings", "retention", "holds", "redactions", "rollbacks"})
"""The first parts of a project's routes whose changes are an owner's."""
_ADMINISTERED = frozenset({"hooks"})
"""Those of the hub's: hooks speak in a client's name, and may in any project."""


def act_of_route(method: str, route: str) -> Act:
    """Return what a request needs.

    Args:
        method: of HTTP, in capitals.
        route: Django's pattern without what all routes begin with, such as ``projects/<project_id>/memories``.
    """
    if method in _SAFE:
        return Act.VIEW
    if not route.startswith(_PROJECT):
        return Act.ADMINISTER if route.partition("/")[0] in _ADMINISTERED else Act.GOVERN
    own = route.removeprefix(_PROJECT)
    if own in _READS:
        return Act.VIEW
    if own.partition("/")[0] in _GOVERNED:
        return Act.GOVERN
    return Act.REVIEW if route.endswith("/review") else Act.WRITE


def wish_of_route(route: str) -> str:
    """Return what a change by a route is, where its act allows more than that; "" where the act says it.

    Args:
        route: as ``act_of_route`` takes it.
    """
    first, _, rest = route.partition("/")
    return TO_MAKE_PLACES if first == "orgs" or (first == "projects" and "/" not in rest) else ""
