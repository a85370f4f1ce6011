"""A valid request for every route of REST, with the act that it needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

from memoryhub.core.permissions import Act
from memoryhub.rest.api import api
from tests.permissions.callers import Caller
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


# A write: the act that it needs in the project, and its parameters, made anew for each request
Parts = dict[str, Any]
Maker = Callable[[World], Parts]


def _session(world: World) -> Parts:
    return {"session_id": world.session()}


def _title(world: World, **fields: Any) -> Parts:
    return {"body": {"title": f"{OWN} new {world.number()}", "content": "x", **fields}}


def _roll(world: World) -> Parts:
    chosen = {"session_id": world.written_in_session(), "include_people": True}
    return {"body": {**chosen, "confirm_token": world.rollback_token(chosen)}}


def _redact(world: World) -> Parts:
    chosen = {"text": f"out of place {world.number()}"}
    world.memory(content=f"a text that is {chosen['text']}")
    shown = world.post(f"projects/{OWN}/redactions/preview", chosen)
    return {"body": {**chosen, "confirm_token": shown["confirm_token"]}}


def _retain(world: World) -> Parts:
    return {"body": world.retention_plan()}


def _iteration(world: World) -> Parts:
    world.no_iteration()
    return {"body": {"command": "feature"}}


_P = "projects/{project_id}"
_M = f"{_P}/memories"
# By method and path; for a route with several ways in, a word after a blank
WRITES: dict[str, tuple[Act, Maker]] = {
    f"post {_M}": (Act.WRITE, _title),
    f"patch {_M}/{{memory_id}}": (
        Act.WRITE,
        lambda world: {"memory_id": world.memory(), "body": {"content": "new", "base_version": 1}},
    ),
    f"delete {_M}/{{memory_id}}": (Act.WRITE, lambda world: {"memory_id": world.memory()}),
    f"post {_M}/{{memory_id}}/restore": (Act.WRITE, lambda world: {"memory_id": world.deleted()}),
    f"post {_P}/hooks/{{client}}/{{event}}": (
        Act.WRITE,
        lambda world: {
            "client": "claude-code",
            "event": "UserPromptSubmit",
            "body": {"data": {"session_id": f"h{world.number()}", "cwd": "/tmp", "prompt": "what"}},
        },
    ),
    f"post {_P}/tags": (Act.WRITE, lambda world: {"body": {"name": f"t{world.number()}", "description": "d"}}),
    f"post {_M}/{{memory_id}}/tags": (Act.WRITE, lambda world: {"memory_id": world.memory(), "body": {"tags": ["n"]}}),
    f"delete {_M}/{{memory_id}}/tags": (
        Act.WRITE,
        lambda world: {"memory_id": world.tagged(), "query": {"tags": "spare"}},
    ),
    f"post {_P}/relations": (
        Act.WRITE,
        lambda world: {
            "body": {"source": str(world.memory()), "relation": "related_to", "target": str(world.memory())}
        },
    ),
    f"delete {_P}/relations/{{relation_id}}": (Act.WRITE, lambda world: {"relation_id": world.relation()}),
    f"post {_M}/{{memory_id}}/review": (
        Act.REVIEW,
        lambda world: {"memory_id": world.memory(), "body": {"verdict": "rejected"}},
    ),
    f"post {_P}/conflicts/{{conflict_id}}/resolve": (
        Act.WRITE,
        lambda world: {"conflict_id": world.conflict(), "body": {"resolution": "keep_b"}},
    ),
    f"post {_P}/decisions": (
        Act.WRITE,
        lambda world: {"body": {"title": f"{OWN} choice {world.number()}", "chosen": "c"}},
    ),
    f"post {_P}/decisions/{{decision_id}}/supersede": (
        Act.WRITE,
        lambda world: {"decision_id": world.decision(), "body": {"chosen": "d"}},
    ),
    f"post {_P}/decisions/{{decision_id}}/status": (
        Act.WRITE,
        lambda world: {"decision_id": world.decision(), "body": {"status": "deprecated"}},
    ),
    f"post {_P}/decisions/{{decision_id}}/edges": (
        Act.WRITE,
        lambda world: {
            "decision_id": world.decision(),
            "body": {"relation": "depends_on", "to": world.decision()},
        },
    ),
    f"post {_P}/decisions/{{decision_id}}/evidence": (
        Act.WRITE,
        lambda world: {"decision_id": world.decision(), "body": {"notes": [f"seen {world.number()}"]}},
    ),
    f"post {_P}/sessions": (Act.WRITE, lambda world: {"body": {"session_id": f"n{world.number()}", "purpose": "p"}}),
    f"post {_P}/sessions/{{session_id}}/end": (Act.WRITE, lambda world: {**_session(world), "body": {"summary": "s"}}),
    f"post {_P}/sessions/{{session_id}}/pause": (Act.WRITE, _session),
    f"post {_P}/sessions/{{session_id}}/resume": (
        Act.WRITE,
        lambda world: {"session_id": world.session(state="pause")},
    ),
    f"post {_P}/commits": (
        Act.WRITE,
        lambda world: {
            "body": [
                {
                    "sha": f"{world.number():040x}",
                    "message": "m",
                    "author": "Ada",
                    "committed_at": "2026-11-20T12:00:00Z",
                }
            ]
        },
    ),
    f"post {_P}/commits/read": (
        Act.WRITE,
        lambda world: {
            "body": {
                "sha": f"{world.number():040x}",
                "message": "m",
                "author": "Ada",
                "committed_at": "2026-11-20T12:00:00Z",
                "files": ["a.py"],
            }
        },
    ),
    f"post {_P}/turns/begin": (Act.WRITE, lambda world: {"body": _session(world)}),
    f"post {_P}/turns/append": (
        Act.WRITE,
        lambda world: {"body": {"type": "message.user", "payload": {"content": "c"}, **world.turn()}},
    ),
    f"post {_P}/turns/end": (Act.WRITE, lambda world: {"body": world.turn()}),
    f"post {_P}/iterations": (Act.WRITE, _iteration),
    f"post {_P}/iterations/{{iteration_id}}/advance": (
        Act.WRITE,
        lambda world: {"iteration_id": world.iteration(), "body": {"completed": "one", "phase": "build"}},
    ),
    f"post {_P}/iterations/{{iteration_id}}/complete": (
        Act.WRITE,
        lambda world: {"iteration_id": world.iteration(), "body": {"outcome": "done"}},
    ),
    f"post {_P}/stale/{{entity_id}}/affirm": (Act.WRITE, lambda world: {"entity_id": world.decision(), "body": {}}),
    f"patch {_P}": (Act.GOVERN, lambda world: {"body": {"description": f"d{world.number()}"}}),
    f"patch {_P}/settings": (
        Act.GOVERN,
        lambda world: {"body": {"settings": {"purge_deleted_after_days": 1000 + world.number()}}},
    ),
    f"post {_P}/redactions": (Act.GOVERN, _redact),
    f"post {_P}/retention/run": (Act.GOVERN, _retain),
    f"post {_P}/holds": (
        Act.GOVERN,
        lambda world: {"body": {"stream_id": f"memory:{world.memory()}", "reason": "r"}},
    ),
    f"delete {_P}/holds/{{hold_id}}": (
        Act.GOVERN,
        lambda world: {"hold_id": world.hold(), "query": {"reason": "done"}},
    ),
    f"post {_P}/rollbacks": (Act.GOVERN, _roll),
    f"post {_P}/rollbacks/{{rollback_id}}/undo": (
        Act.GOVERN,
        lambda world: {"rollback_id": world.rollback(), "body": {}},
    ),
}

# Reads by POST, and what they need
ASKING: dict[str, tuple[Act, Maker]] = {
    f"post {_P}/query": (Act.VIEW, lambda _: {"body": {"search": "text"}}),
    f"post {_P}/sanitise": (Act.VIEW, lambda _: {"body": {"text": "t"}}),
    f"post {_P}/rollbacks/preview": (Act.VIEW, lambda world: {"body": {"session_id": world.ids[OWN]["session_id"]}}),
    f"post {_P}/redactions/preview": (Act.GOVERN, lambda _: {"body": {"text": "text"}}),
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
    for before, place in ((_P, OWN), ("orgs/{org_id}", OWN_ORG))
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
    f"get {_P}/blame": {"file": "x.py"},
    f"get {_P}/decisions/behind": {"file_path": "x.py"},
    f"get {_P}/search": {"query": "text"},
    f"get {_P}/timeline": {"id": None},
}
SAMPLES = {"client": "claude-code", "event": "Stop", "code": "invalid"}


def routes() -> list[str]:
    """Return every route as ``get projects/{project_id}``."""
    paths = api.get_openapi_schema()["paths"]
    return [f"{method} {path.removeprefix(PREFIX)}" for path, methods in paths.items() for method in methods]


def uncovered() -> list[str]:
    known = {*WRITES, *ASKING, *OF_HUB, *OF_PEOPLE, *LISTS, *OPEN, *WHOLE_HUB}
    return [route for route in routes() if route not in known and not route.startswith(f"get {_P}")]


def project_asks(world: World, project: str = OWN) -> Iterator[Ask]:
    """Yield the reads of a project's routes."""
    for route in routes():
        if route.startswith(f"get {_P}") and route not in OF_PEOPLE:
            query = {name: value or world.ids[OWN]["memory_id"] for name, value in NEEDED.get(route, {}).items()}
            act = Act.GOVERN if route.endswith("/export") or "/audit" in route else Act.VIEW
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
    ("write to the organisation", Act.WRITE, OWN_ORG, f"post {_M}", lambda world: _title(world, scope="org")),
    ("write to the global scope", Act.WRITE, GLOBAL, f"post {_M}", lambda world: _title(world, scope="global")),
]


def special_ask(world: World, number: int) -> Ask:
    label, act, place, route, maker = SPECIAL[number]
    return _ask(route, act, place, {"project_id": OWN, **maker(world)}, writes=True, label=label)


# Requests that name another place in a parameter; "{}" is its name.
NAMING: list[tuple[str, str, Parts]] = [
    (OTHER, f"post {_P}/query", {"body": {"scope": {"type": "project", "id": "{}"}}}),
    (OTHER_ORG, f"post {_P}/query", {"body": {"scope": {"type": "org", "id": "{}"}}}),
    (OTHER, f"post {_P}/query", {"body": {"related_to": {"type": "project", "id": "{}"}}}),
    (OTHER, f"get {_P}/relations", {"query": {"id": "{}", "entry_type": "project"}}),
    (OTHER, f"get {_P}/tags", {"query": {"id": "{}", "entry_type": "project"}}),
    (OTHER, f"get {_P}/events", {"query": {"stream": "project:{}"}}),
    (OTHER_ORG, f"patch {_P}", {"body": {"org_id": "{}"}}),
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
