"""A valid request for every route of REST, from its description, with the act that it needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any
from urllib.parse import urlencode

from memoryhub.core.permissions import Act
from memoryhub.rest.api import api
from tests.permissions.matrix import Request, Who
from tests.permissions.world import COMMIT, GLOBAL, OTHER, OTHER_ORG, OWN, OWN_ORG, Maker, Values, World, sample

PREFIX = "/api/v1/"
PROJECT = "projects/{project_id}"
MEMORIES = f"{PROJECT}/memories"

# Lists of places: everybody gets their own part of them.
LISTS = ("get orgs", "get projects")
# Open to everybody: a word for a monitor, and what an error means
OPEN = ("get health", "get problems/{code}")
# About all projects at once, with each one's name
WHOLE_HUB = ("get metrics", "post hooks/{client}/{event}")
# Reads by POST
ASKING = {f"post {PROJECT}/{what}" for what in ("query", "sanitise", "rollbacks/preview", "redactions/preview")}

# Acts other than to read and to write
_ACTS = {
    f"post {MEMORIES}/{{memory_id}}/review": Act.REVIEW,
    f"post {PROJECT}/amendments/review": Act.REVIEW,
    f"get {PROJECT}/export": Act.GOVERN,
    "post hooks/{client}/{event}": Act.ADMINISTER,
    **dict.fromkeys(("post orgs", "patch orgs/{org_id}", "post projects"), Act.GOVERN),
    **dict.fromkeys((f"patch {PROJECT}", f"patch {PROJECT}/settings"), Act.GOVERN),
    **dict.fromkeys((f"post {PROJECT}/redactions", f"post {PROJECT}/redactions/preview"), Act.GOVERN),
    **dict.fromkeys((f"post {PROJECT}/holds", f"delete {PROJECT}/holds/{{hold_id}}"), Act.GOVERN),
    f"post {PROJECT}/retention/run": Act.GOVERN,
    f"post {PROJECT}/rollbacks": Act.GOVERN,
    f"post {PROJECT}/rollbacks/{{rollback_id}}/undo": Act.GOVERN,
}


def _roll(world: World) -> Values:
    chosen = {"session_id": world.written_in_session(), "include_people": True}
    return {**chosen, "confirm_token": world.rollback_token(chosen)}


def _redact(world: World) -> Values:
    text, token = world.redactable()
    return {"text": text, "confirm_token": token}


def _hook(world: World) -> Values:
    prompt = {"session_id": f"h{world.number()}", "cwd": "/tmp", "prompt": "what"}
    return {"client": "claude-code", "event": "UserPromptSubmit", "project": OWN, **prompt, "data": prompt}


def erase(world: World, scope: str) -> Values:
    query = world.erasable(scope)
    return {"memory_id": query.pop("id"), **query, "permanent": "true"}


def _unlink(world: World) -> dict[str, Any]:
    edge = world.linked()
    return {"decision_id": edge.pop("id"), **edge}


# What a request needs besides the samples of what its description requires: a row in some state, or any change at all
_VALUES: dict[str, Maker] = {
    f"patch {MEMORIES}/{{memory_id}}": lambda _: {"content": "new", "base_version": 1},
    f"post {MEMORIES}/{{memory_id}}/restore": lambda world: {"memory_id": world.deleted()},
    f"post {MEMORIES}/{{memory_id}}/review": lambda world: {"memory_id": world.pending()},
    f"post {PROJECT}/amendments/review": lambda world: {**world.amended(), "verdict": "dismissed"},
    f"delete {MEMORIES}/{{memory_id}}/tags": lambda world: {"memory_id": world.tagged(), "tags": "spare"},
    f"post {PROJECT}/tags": lambda _: {"description": "d"},
    f"post {PROJECT}/decisions": lambda _: {"chosen": "c"},
    f"post {PROJECT}/decisions/{{decision_id}}/status": lambda _: {"status": "deprecated"},
    f"post {PROJECT}/decisions/{{decision_id}}/edges": lambda _: {"relation": "depends_on"},
    f"delete {PROJECT}/decisions/{{decision_id}}/edges/{{relation}}/{{to}}": _unlink,
    f"post {PROJECT}/decisions/{{decision_id}}/evidence": lambda world: {"notes": [f"seen {world.number()}"]},
    f"post {PROJECT}/sessions": lambda world: {"session_id": f"n{world.number()}", "purpose": "p"},
    f"post {PROJECT}/sessions/{{session_id}}/end": lambda _: {"summary": "s"},
    f"post {PROJECT}/sessions/{{session_id}}/resume": lambda world: {"session_id": world.session(state="pause")},
    f"post {PROJECT}/commits": lambda _: {**COMMIT},
    f"post {PROJECT}/commits/read": lambda _: {**COMMIT, "files": ["a.py"]},
    f"post {PROJECT}/turns/begin": lambda world: {"session_id": world.session()},
    f"post {PROJECT}/turns/append": lambda world: world.turn(),
    f"post {PROJECT}/turns/end": lambda world: world.turn(),
    f"post {PROJECT}/iterations/{{iteration_id}}/advance": lambda _: {"completed": "one", "phase": "build"},
    f"post {PROJECT}/iterations/{{iteration_id}}/complete": lambda _: {"outcome": "done"},
    f"post {PROJECT}/hooks/{{client}}/{{event}}": _hook,
    f"patch {PROJECT}": lambda world: {"description": f"d{world.number()}"},
    f"post {PROJECT}/redactions": _redact,
    f"post {PROJECT}/retention/run": lambda world: world.retention_plan(),
    f"delete {PROJECT}/holds/{{hold_id}}": lambda _: {"reason": "done"},
    f"post {PROJECT}/rollbacks": _roll,
    f"post {PROJECT}/rollbacks/preview": lambda world: {"session_id": world.ids[OWN]["session_id"]},
    f"post {PROJECT}/redactions/preview": lambda _: {"text": "text"},
    f"post {PROJECT}/query": lambda _: {"search": "text"},
    "post hooks/{client}/{event}": _hook,
    "patch orgs/{org_id}": lambda world: {"description": f"d{world.number()}"},
    f"delete {PROJECT}/members/{{person}}": lambda world: {"person": world.member(OWN)},
    "delete orgs/{org_id}/members/{person}": lambda world: {"person": world.member(OWN_ORG)},
    f"get {PROJECT}/blame": lambda _: {"file": "x.py"},
    f"get {PROJECT}/decisions/behind": lambda _: {"file_path": "x.py"},
    f"get {PROJECT}/search": lambda _: {"query": "text"},
    f"get {PROJECT}/timeline": lambda world: {"id": world.ids[OWN]["memory_id"]},
}
# Ways to write elsewhere, and acts that are in a parameter: label, act, place, route, values
SPECIAL: list[tuple[str, Act, str, str, Maker]] = [
    *(
        (f"write to {place}", Act.WRITE, place, f"post {MEMORIES}", lambda _, scope=scope: {"scope": scope})
        for scope, place in (("org", OWN_ORG), ("global", GLOBAL))
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
# Requests that name another place in a parameter; "{}" is its name.
NAMING: list[tuple[str, str, Values]] = [
    (OTHER, f"post {PROJECT}/query", {"scope": {"type": "project", "id": "{}"}}),
    (OTHER_ORG, f"post {PROJECT}/query", {"scope": {"type": "org", "id": "{}"}}),
    (OTHER, f"post {PROJECT}/query", {"related_to": {"type": "project", "id": "{}"}}),
    (OTHER, f"get {PROJECT}/relations", {"id": "{}", "entry_type": "project"}),
    (OTHER, f"get {PROJECT}/tags", {"id": "{}", "entry_type": "project"}),
    (OTHER, f"get {PROJECT}/events", {"stream": "project:{}"}),
    (OTHER_ORG, f"patch {PROJECT}", {"org_id": "{}"}),
    (OTHER_ORG, "get projects", {"org_id": "{}"}),
    (OTHER_ORG, "get orgs/{org_id}", {"org_id": "{}"}),
    (OTHER_ORG, "patch orgs/{org_id}", {"org_id": "{}", "name": "n"}),
    (OTHER_ORG, "post projects", {"id": "fresh", "org_id": "{}"}),
    (
        OTHER,
        "post hooks/{client}/{event}",
        {"client": "claude-code", "event": "Stop", "project": "{}", "session_id": "h", "cwd": "/tmp"},
    ),
]


@cache
def _description() -> dict[str, Any]:
    return dict(api.get_openapi_schema())


def routes() -> list[str]:
    """Return every route as ``get projects/{project_id}``."""
    paths = _description()["paths"]
    return [f"{method} {path.removeprefix(PREFIX)}" for path, methods in paths.items() for method in methods]


def writes(route: str) -> bool:
    return not route.startswith("get ") and route not in ASKING


def is_of_members(route: str) -> bool:
    return "/members" in route


def is_of_project(route: str) -> bool:
    return f" {PROJECT}" in route and not is_of_members(route)


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = _description()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def _operation(route: str) -> dict[str, Any]:
    method, path = route.split()
    return dict(_description()["paths"][f"{PREFIX}{path}"][method])


def _schema_of(route: str) -> dict[str, Any]:
    """Return the schema of a route's body; empty if it takes none."""
    body = _operation(route).get("requestBody")
    return _resolved(body["content"]["application/json"]["schema"]) if body else {}


@cache
def fields_of(route: str) -> frozenset[str]:
    """Return the fields of a route's body; none if it takes no body, or any object."""
    return _fields(_schema_of(route))


def _fields(schema: dict[str, Any]) -> frozenset[str]:
    schema = _resolved(schema)
    parts = [schema["items"]] if "items" in schema else schema.get("anyOf", [])
    return frozenset(schema.get("properties", {})).union(*map(_fields, parts))


def request(world: World, route: str) -> Request:
    """Return a valid request of a route: what is required gets a sample, by its name."""
    place = OWN if f" {PROJECT}" in route else OWN_ORG if "{org_id}" in route else ""
    act = _ACTS.get(route, Act.WRITE if writes(route) else Act.VIEW)
    who: Who = "known" if route in LISTS else "anyone" if route in OPEN else "whole" if route in WHOLE_HUB else ""
    if is_of_members(route):
        act, who = Act.GOVERN, "people"
    values = _VALUES.get(route, _nothing)(world)
    return _request(world, route, values, act=act, place=place, who=who, lists_places=is_of_members(route))


def special(world: World, number: int) -> Request:
    label, act, place, route, maker = SPECIAL[number]
    return _request(world, route, maker(world), label=label, act=act, place=place, address=OWN)


def naming(world: World, number: int, name: str) -> Request:
    place, route, values = NAMING[number]
    return _request(world, route, filled(values, name), label=f"{route} naming {place}: {values}", place=OWN)


def filled(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: filled(part, name) for key, part in value.items()}
    return value.replace("{}", name) if isinstance(value, str) else value


def _nothing(_: World) -> Values:
    return {}


def _request(world: World, route: str, values: Values, *, label: str = "", **details: Any) -> Request:
    method, path = route.split()
    schema, values = _schema_of(route), dict(values)
    parameters = {parameter["name"]: parameter for parameter in _operation(route).get("parameters", [])}
    required = [name for name, parameter in parameters.items() if parameter.get("required")]
    for name in [*required, *_resolved(schema.get("items", schema)).get("required", [])]:
        if name not in values:
            existing = {} if writes(route) else world.ids[OWN]
            values[name] = existing[name] if name in existing else sample(world, name)
    query = {name: values[name] for name, each in parameters.items() if each["in"] == "query" and name in values}
    address = PREFIX + re.sub(r"{(\w+)}", lambda name: str(values[name[1]]), path)
    return Request(
        label or route,
        method.upper(),
        address + (f"?{urlencode(query)}" if query else ""),
        body=_body(route, schema, {name: value for name, value in values.items() if name not in parameters}),
        writes=writes(route),
        **details,
    )


def _body(route: str, schema: dict[str, Any], values: Values) -> Any:
    if not schema:
        return None
    if schema.get("type") == "object" and "properties" not in schema:  # anything, as from a client's hook
        return {name: value for name, value in values.items() if name != "data"}
    body = {name: values[name] for name in fields_of(route) if name in values}
    return [body] if "items" in schema else body


def project_reads(world: World) -> Iterator[Request]:
    """Yield the reads of a project's routes."""
    return (request(world, route) for route in routes() if is_of_project(route) and not writes(route))
