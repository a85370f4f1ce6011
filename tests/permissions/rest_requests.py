"""A valid request for every route of REST, with the act that it needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

from memoryhub.core.permissions import Act
from memoryhub.rest.api import api
from tests.permissions.callers import Caller
from tests.permissions.rest_writes import MEMORIES, PROJECT, WRITES, Maker, Parts, erase, new_memory
from tests.permissions.world import GLOBAL, OTHER, OTHER_ORG, OWN, OWN_ORG, World

PREFIX = "/api/v1/"


@dataclass(frozen=True)
class Ask:
    """A request, and what it needs: ``act`` in ``place``, the name of a place, or empty for the hub."""

    label: str
    method: str
    path: str
    act: Act
    place: str
    body: Any = None
    query: dict[str, Any] = field(default_factory=dict)
    writes: bool = False
    # Only for those who see every place
    is_of_whole_hub: bool = False
    # Also for those who manage people, who need not see the place
    is_of_people: bool = False

    @property
    def address(self) -> str:
        return self.path + (f"?{urlencode(self.query)}" if self.query else "")

    def is_for(self, caller: Caller) -> bool:
        if self.is_of_people and Act.ADMINISTER in caller.hub:
            return True
        return self.act in caller.acts(self.place) and (caller.is_whole or not self.is_of_whole_hub)

    def to(self, name: str) -> Ask:
        """Return the same request for another place."""
        return replace(self, path=self.path.replace(self.place, name), place=name) if self.place else self


# Reads by POST, and what they need
ASKING: dict[str, tuple[Act, Maker]] = {
    f"post {PROJECT}/query": (Act.VIEW, lambda _: {"body": {"search": "text"}}),
    f"post {PROJECT}/sanitise": (Act.VIEW, lambda _: {"body": {"text": "t"}}),
    f"post {PROJECT}/rollbacks/preview": (
        Act.VIEW,
        lambda world: {"body": {"session_id": world.ids[OWN]["session_id"]}},
    ),
    f"post {PROJECT}/redactions/preview": (Act.GOVERN, lambda _: {"body": {"text": "text"}}),
}

# Of the hub, and of its organisations; the second is the place
OF_HUB: dict[str, tuple[Act, str, Maker]] = {
    "post hooks/{client}/{event}": (
        Act.ADMINISTER,
        "",
        lambda world: {
            "client": "claude-code",
            "event": "UserPromptSubmit",
            "query": {"project": OWN},
            "body": {"session_id": f"h{world.number()}", "cwd": "/tmp", "prompt": "what"},
        },
    ),
    "post orgs": (Act.GOVERN, "", lambda world: {"body": {"id": f"org{world.number()}"}}),
    "patch orgs/{org_id}": (
        Act.GOVERN,
        OWN_ORG,
        lambda world: {"org_id": OWN_ORG, "body": {"description": f"d{world.number()}"}},
    ),
    "post projects": (Act.GOVERN, "", lambda world: {"body": {"id": f"new{world.number()}"}}),
    "get orgs/{org_id}": (Act.VIEW, OWN_ORG, lambda _: {"org_id": OWN_ORG}),
}
# Members of a place: the place and the parts
OF_PEOPLE: dict[str, tuple[str, Maker]] = {
    f"{method} {before}/members{after}": (place, maker)
    for before, place in ((PROJECT, OWN), ("orgs/{org_id}", OWN_ORG))
    for method, after, maker in (
        ("get", "", lambda _: {}),
        ("put", "/{person}", lambda world: {"person": world.person(), "body": {"role": "viewer"}}),
        ("delete", "/{person}", lambda world: {"person": world.member(OWN)}),
    )
}
OF_PEOPLE["delete orgs/{org_id}/members/{person}"] = OWN_ORG, lambda world: {"person": world.member(OWN_ORG)}
# Lists of places: everybody gets their own part of them.
LISTS = ("get orgs", "get projects")
# Open to everybody: a word for a monitor, and what an error means.
OPEN = ("get health", "get problems/{code}")
# About all projects at once, with each one's name
WHOLE_HUB = ("get metrics",)

NEEDED: dict[str, dict[str, Any]] = {
    f"get {PROJECT}/blame": {"file": "x.py"},
    f"get {PROJECT}/decisions/behind": {"file_path": "x.py"},
    f"get {PROJECT}/search": {"query": "text"},
    f"get {PROJECT}/timeline": {"id": None},
}
SAMPLES = {"client": "claude-code", "event": "Stop", "code": "invalid"}


def routes() -> list[str]:
    """Return every route as ``get projects/{project_id}``."""
    paths = api.get_openapi_schema()["paths"]
    return [f"{method} {path.removeprefix(PREFIX)}" for path, methods in paths.items() for method in methods]


def uncovered() -> list[str]:
    known = {*WRITES, *ASKING, *OF_HUB, *OF_PEOPLE, *LISTS, *OPEN, *WHOLE_HUB}
    return [route for route in routes() if route not in known and not route.startswith(f"get {PROJECT}")]


def project_asks(world: World, project: str = OWN) -> Iterator[Ask]:
    """Yield the reads of a project's routes."""
    for route in routes():
        if route.startswith(f"get {PROJECT}") and route not in OF_PEOPLE:
            query = {name: value or world.ids[OWN]["memory_id"] for name, value in NEEDED.get(route, {}).items()}
            act = Act.GOVERN if route == f"get {PROJECT}/export" else Act.VIEW
            yield _ask(route, act, project, {**world.ids[OWN], "query": query})
    for route, (act, maker) in ASKING.items():
        yield _ask(route, act, project, maker(world))


def project_write(world: World, route: str, project: str = OWN) -> Ask:
    act, maker = WRITES[route]
    return _ask(route, act, project, maker(world), writes=True)


def hub_ask(world: World, route: str) -> Ask:
    act, place, maker = OF_HUB[route]
    ask = _ask(route, act, place, maker(world), writes=not route.startswith("get"))
    return replace(ask, is_of_whole_hub=route.startswith("post hooks"))


def people_ask(world: World, route: str) -> Ask:
    place, maker = OF_PEOPLE[route]
    parts = {"org_id": OWN_ORG, "project_id": OWN, **maker(world)}
    ask = _ask(route, Act.GOVERN, place, parts, writes=not route.startswith("get"))
    return replace(ask, is_of_people=True)


# Ways to write elsewhere, and acts that are in a parameter: label, act, place, route, maker
SPECIAL: list[tuple[str, Act, str, str, Maker]] = [
    ("write to the organisation", Act.WRITE, OWN_ORG, f"post {MEMORIES}", lambda world: new_memory(world, scope="org")),
    (
        "write to the global scope",
        Act.WRITE,
        GLOBAL,
        f"post {MEMORIES}",
        lambda world: new_memory(world, scope="global"),
    ),
    *(
        (
            f"delete for good in {place}",
            Act.GOVERN,
            place,
            f"delete {MEMORIES}/{{memory_id}}",
            lambda world, scope=scope: erase(world, scope),
        )
        for scope, place in (("project", OWN), ("org", OWN_ORG), ("global", GLOBAL))
    ),
]


def special_ask(world: World, number: int) -> Ask:
    label, act, place, route, maker = SPECIAL[number]
    return _ask(route, act, place, {"project_id": OWN, **maker(world)}, writes=True, label=label)


# Requests that name another place in a parameter; "{}" is its name.
NAMING: list[tuple[str, str, Parts]] = [
    (OTHER, f"post {PROJECT}/query", {"body": {"scope": {"type": "project", "id": "{}"}}}),
    (OTHER_ORG, f"post {PROJECT}/query", {"body": {"scope": {"type": "org", "id": "{}"}}}),
    (OTHER, f"post {PROJECT}/query", {"body": {"related_to": {"type": "project", "id": "{}"}}}),
    (OTHER, f"get {PROJECT}/relations", {"query": {"id": "{}", "entry_type": "project"}}),
    (OTHER, f"get {PROJECT}/tags", {"query": {"id": "{}", "entry_type": "project"}}),
    (OTHER, f"get {PROJECT}/events", {"query": {"stream": "project:{}"}}),
    (OTHER_ORG, f"patch {PROJECT}", {"body": {"org_id": "{}"}}),
    (OTHER_ORG, "get projects", {"query": {"org_id": "{}"}}),
    (OTHER_ORG, "get orgs/{org_id}", {"org_id": "{}"}),
    (OTHER_ORG, "patch orgs/{org_id}", {"org_id": "{}", "body": {"name": "n"}}),
    (OTHER_ORG, "post projects", {"body": {"id": "fresh", "org_id": "{}"}}),
    (OTHER, "post hooks/{client}/{event}", {"query": {"project": "{}"}, "body": {"session_id": "h", "cwd": "/tmp"}}),
]


def naming_ask(number: int, name: str) -> Ask:
    _, route, parts = NAMING[number]
    return _ask(route, Act.VIEW, OWN, {**SAMPLES, **_filled(parts, name)}, label=f"{route} naming {NAMING[number][0]}")


def _filled(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: _filled(part, name) for key, part in value.items()}
    return value.replace("{}", name) if isinstance(value, str) else value


def _ask(route: str, act: Act, place: str, parts: Parts, *, writes: bool = False, label: str = "") -> Ask:
    method, path = route.split()
    given = {"project_id": place, **parts}
    filled = re.sub(r"{(\w+)}", lambda name: str(given[name[1]]), path)
    return Ask(
        label or route,
        method.upper(),
        f"{PREFIX}{filled}",
        act,
        place,
        given.get("body"),
        given.get("query", {}),
        writes,
    )
