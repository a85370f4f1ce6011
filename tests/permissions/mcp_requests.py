"""A valid call of every tool, resource, prompt and completion of MCP, from its schema, with the act that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from memoryhub.core.permissions import Act
from memoryhub.core.tools import Tool, all_prompts, all_resources, all_tools
from tests.permissions.matrix import Request
from tests.permissions.rest_requests import filled
from tests.permissions.world import COMMIT, GLOBAL, OTHER, OTHER_ORG, OWN, OWN_ORG, Maker, Values, World, sample

ADDRESS = f"/p/{OWN}/mcp"
LISTINGS = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")
_ENTRY_KINDS = ("guideline", "knowledge", "tool")
# Tools of the hub, which need another act than to write
_OF_HUB = {"org_create": Act.GOVERN, "project_create": Act.GOVERN}


def _session(world: World) -> Values:
    return {"session_id": world.session()}


def _entry(kind: str) -> Maker:
    return lambda world: {"id": world.memory(kind=kind)}


def _revision(kind: str) -> Maker:
    text = "description" if kind == "tool" else "content"
    return lambda world: {"id": world.memory(kind=kind), text: sample(world, text)}


def _existing(name: str) -> Maker:
    return lambda world: {"id": world.ids[OWN][name]}


# What a call needs besides the samples of what its schema requires: a row in some state, or any change at all
_VALUES: dict[str, Maker] = {
    "commit_record": lambda _: COMMIT,
    "decision_record": lambda _: {"chosen": "c"},
    "decision_supersede": lambda world: {"id": world.decision()},
    "decision_unlink": lambda world: world.linked(),
    "event_append": lambda world: world.turn(),
    **{f"{kind}_update": _revision(kind) for kind in _ENTRY_KINDS},
    **{f"{kind}_deactivate": _entry(kind) for kind in _ENTRY_KINDS},
    **{f"{kind}_{verb}": _existing(kind) for kind in _ENTRY_KINDS for verb in ("get", "history")},
    "iteration_advance": lambda world: {"id": world.iteration(), "completed": "one", "phase": "build"},
    "iteration_complete": lambda world: {"id": world.iteration(), "outcome": "done"},
    "iteration_get": _existing("iteration_id"),
    "memory_affirm": lambda world: {"id": world.decision()},
    "memory_blame": lambda _: {"file": "x.py"},
    "memory_conflict_resolve": lambda world: {"id": world.conflict()},
    "memory_delete": lambda world: {"id": world.memory()},
    "memory_get": lambda world: {"ids": [world.ids[OWN]["memory_id"]]},
    "memory_restore": lambda world: {"id": world.deleted()},
    "memory_search": lambda _: {"query": "text"},
    "memory_timeline": _existing("memory_id"),
    "memory_update": lambda world: {"id": world.memory(), "content": "new", "base_version": 1},
    "decision_get": lambda world: {"ids": [world.ids[OWN]["decision_id"]]},
    "project_get": lambda _: {"project_id": OWN},
    "relation_delete": lambda world: {"id": world.relation()},
    "session_end": lambda world: {**_session(world), "summary": "s"},
    "session_pause": _session,
    "session_resume": lambda world: {"session_id": world.session(state="pause")},
    "session_start": lambda world: {"session_id": f"n{world.number()}", "purpose": "p"},
    "tag_attach": lambda world: {"id": world.memory()},
    "tag_create": lambda _: {"description": "d"},
    "tag_detach": lambda world: {"id": world.tagged(), "tags": ["spare"]},
    "turn_begin": _session,
    "turn_end": lambda world: world.turn(),
}
# Ways to change what others inherit, to describe, or to erase: label, act, place, tool, arguments
SPECIAL: list[tuple[str, Act, str, str, Maker]] = [
    *(
        (f"{tool} of {place}", Act.WRITE, place, tool, lambda _, scope=scope: {"scope": scope})
        for scope, place in (("org", OWN_ORG), ("global", GLOBAL))
        for tool in ("memory_write", "guideline_add", "knowledge_add", "tool_add", "tag_create")
    ),
    (
        "project_create that describes",
        Act.GOVERN,
        OWN,
        "project_create",
        lambda world: {"id": OWN, "if_exists": "update", "description": f"d{world.number()}"},
    ),
    *(
        (
            f"memory_delete for good in {place}",
            Act.GOVERN,
            place,
            "memory_delete",
            lambda world, scope=scope: world.erasable(scope),
        )
        for scope, place in (("project", OWN), ("org", OWN_ORG), ("global", GLOBAL))
    ),
]
_URIS: dict[str, Callable[[World], str]] = {
    "memories://get/{id}": lambda world: f"memories://get/{world.ids[OWN]['memory_id']}",
    "memories://list{?memory_type,tags,limit,offset,include_deleted}": lambda _: _FOLLOWED,
    "memories://search/{query}{?limit,offset,memory_type,tags,threshold}": lambda _: "memories://search/text",
    "context://pack{?max_tokens}": lambda _: "context://pack",
    "decisions://get/{id}": lambda world: f"decisions://get/{world.ids[OWN]['decision_id']}",
    "ui://memory-hub/lineage": lambda _: "ui://memory-hub/lineage",
}
# What can be followed is read without a record; followers get notifications of changes.
_FOLLOWED = "memories://list?limit=50"

# Requests that name another place: its name, tool, and arguments with "{}" for the name
NAMING: list[tuple[str, str, Values]] = [
    (OTHER, "project_get", {"id": "{}"}),
    (OTHER, "project_create", {"id": "{}", "if_exists": "update", "name": "n"}),
    (OTHER_ORG, "project_create", {"id": OWN, "if_exists": "update", "org_id": "{}"}),
    (OTHER_ORG, "project_create", {"id": "fresh", "org_id": "{}"}),
    (OTHER_ORG, "org_create", {"id": "{}", "if_exists": "update", "name": "n"}),
    (OTHER_ORG, "project_list", {"org_id": "{}"}),
    (OTHER, "memory_search", {"query": "text", "project_id": "{}"}),
    (OTHER, "memory_write", {"title": "t", "content": "c", "project_id": "{}"}),
    (OTHER, "memory_query", {"scope": {"type": "project", "id": "{}"}}),
    (OTHER_ORG, "memory_query", {"scope": {"type": "org", "id": "{}"}}),
    (OTHER, "memory_query", {"related_to": {"type": "project", "id": "{}"}}),
    (OTHER, "guideline_list", {"scope": "project", "scope_id": "{}"}),
    (OTHER_ORG, "guideline_list", {"scope": "org", "scope_id": "{}"}),
    (OTHER_ORG, "guideline_add", {"name": "g", "content": "c", "scope": "org", "scope_id": "{}"}),
    (OTHER, "relation_list", {"id": "{}", "entry_type": "project"}),
    (OTHER, "tag_list", {"id": "{}", "entry_type": "project"}),
    (OTHER, "tag_attach", {"id": "{}", "entry_type": "project", "tags": ["n"]}),
    (OTHER, "audit_replay", {"stream": "project:{}"}),
]
# The same, of resources
URIS_NAMING = ("memories://list?project_id={}", "memories://get/1?project_id={}", "decisions://get/1?project_id={}")


def tools() -> list[Tool]:
    # Other tests register tools of their own in this process.
    return [tool for tool in all_tools() if not tool.handler.__module__.startswith("tests.")]


def uncovered() -> list[str]:
    return [resource.uri_template for resource in all_resources() if resource.uri_template not in _URIS]


def reads(world: World) -> Iterator[Request]:
    """Yield every read: tools, resources, prompts and completions."""
    for tool in tools():
        if not tool.writes:
            values = _VALUES.get(tool.name, _nothing)(world)
            yield call(tool.name, {**values, "format": "json"}, label=f"{tool.name} in JSON")
            yield call(tool.name, values)
    for resource in all_resources():
        yield method("resources/read", {"uri": _URIS[resource.uri_template](world)}, resource.uri_template)
        for argument in resource.suggest:
            yield _completion({"type": "ref/resource", "uri": resource.uri_template}, argument)
    for prompt in all_prompts():
        values = dict.fromkeys(prompt.input.model_fields, "x")
        yield method("prompts/get", {"name": prompt.name, "arguments": values}, f"prompt {prompt.name}")
        for argument in prompt.suggest:
            yield _completion({"type": "ref/prompt", "name": prompt.name}, argument)
    for listing in LISTINGS:
        yield method(listing, {})


def subscriptions(world: World) -> Iterator[Request]:
    """Yield what a session asks to follow a resource, and not to."""
    for name in ("resources/subscribe", "resources/unsubscribe"):
        for uri in (_FOLLOWED, f"memories://get/{world.ids[OWN]['memory_id']}"):
            yield method(name, {"uri": uri}, f"{name} {uri}")


def listening(*uris: str) -> Request:
    """Return what opens a stream of the newest revision."""
    followed = list(uris) or [_FOLLOWED]
    return method("subscriptions/listen", {"notifications": {"resourceSubscriptions": followed}})


def write(world: World, tool: Tool) -> Request:
    act, place = _OF_HUB.get(tool.name, Act.WRITE), "" if tool.name in _OF_HUB else OWN
    return call(tool.name, _values(world, tool, _VALUES.get(tool.name, _nothing)), act=act, place=place, writes=True)


def special(world: World, number: int) -> Request:
    label, act, place, name, maker = SPECIAL[number]
    (tool,) = (tool for tool in tools() if tool.name == name)
    return call(name, _values(world, tool, maker), label=label, act=act, place=place, writes=True)


def naming(number: int, name: str) -> Request:
    place, tool, values = NAMING[number]
    return call(tool, filled(values, name), label=f"{tool} naming {place}: {values}")


def naming_resource(name: str, uri: str, place: str) -> Request:
    named = uri.format(place)
    return listening(named) if name == "subscriptions/listen" else method(name, {"uri": named}, f"{name} {uri}")


def call(name: str, arguments: Values, *, label: str = "", place: str = OWN, **details: object) -> Request:
    params = {"name": name, "arguments": arguments}
    return Request(label or name, "tools/call", ADDRESS, place=place, address=OWN, body=params, **details)  # type: ignore[arg-type]


def method(name: str, params: Values, label: str = "") -> Request:
    return Request(label or name, name, ADDRESS, place=OWN, body=params)


def _nothing(_: World) -> Values:
    return {}


def _values(world: World, tool: Tool, maker: Maker) -> Values:
    """Return arguments: those of the maker, and a sample of each that the schema requires besides."""
    values = maker(world)
    required = tool.input.model_json_schema().get("required", [])
    return {**{name: sample(world, name) for name in required if name not in values}, **values}


def _completion(ref: Values, argument: str) -> Request:
    params = {"ref": ref, "argument": {"name": argument, "value": ""}}
    return method("completion/complete", params, f"completion of {argument} in {ref.get('uri', ref.get('name'))}")
