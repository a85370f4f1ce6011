"""A valid call of every tool, resource, prompt and completion of MCP, with the act that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from memoryhub.core.permissions import Act
from memoryhub.core.tools import Tool, all_prompts, all_resources, all_tools
from tests.permissions.world import GLOBAL, OTHER, OTHER_ORG, OWN, OWN_ORG, World

Arguments = dict[str, Any]
Maker = Callable[[World], Arguments]
_COMMIT = {"message": "m", "author": "Ada", "committed_at": "2026-11-20T12:00:00Z"}


@dataclass(frozen=True)
class Call:
    label: str
    method: str
    params: Arguments
    act: Act = Act.VIEW
    # A name of world.py
    place: str = OWN
    writes: bool = False


def _session(world: World) -> Arguments:
    return {"session_id": world.session()}


def _iteration(world: World) -> Arguments:
    world.no_iteration()
    return {"command": "feature"}


def _kind(world: World, kind: str) -> Arguments:
    return {"id": world.memory(kind=kind)}


# The act and the arguments of each tool that writes
WRITES: dict[str, tuple[Act, Maker]] = {
    "commit_record": (Act.WRITE, lambda world: {"sha": f"{world.number():040x}", **_COMMIT}),
    "decision_record": (Act.WRITE, lambda world: {"title": f"{OWN} pick {world.number()}", "chosen": "c"}),
    "decision_supersede": (Act.WRITE, lambda world: {"id": world.decision(), "chosen": "d"}),
    "event_append": (
        Act.WRITE,
        lambda world: {"type": "message.user", "payload": {"content": "c"}, **world.turn()},
    ),
    **{
        f"{kind}_{verb}": (Act.WRITE, maker)
        for kind in ("guideline", "knowledge", "tool")
        for verb, maker in {
            "add": lambda world, kind=kind: {
                ("title" if kind == "knowledge" else "name"): f"{kind}{world.number()}",
                ("description" if kind == "tool" else "content"): f"{OWN} text {world.number()}",
            },
            "update": lambda world, kind=kind: {
                **_kind(world, kind),
                ("description" if kind == "tool" else "content"): f"{OWN} text {world.number()}",
            },
            "deactivate": lambda world, kind=kind: _kind(world, kind),
        }.items()
    },
    "iteration_advance": (Act.WRITE, lambda world: {"id": world.iteration(), "completed": "one", "phase": "build"}),
    "iteration_complete": (Act.WRITE, lambda world: {"id": world.iteration(), "outcome": "done"}),
    "iteration_start": (Act.WRITE, _iteration),
    "memory_affirm": (Act.WRITE, lambda world: {"id": world.decision()}),
    "memory_conflict_resolve": (Act.WRITE, lambda world: {"id": world.conflict(), "resolution": "keep_b"}),
    "memory_delete": (Act.WRITE, lambda world: {"id": world.memory()}),
    "memory_restore": (Act.WRITE, lambda world: {"id": world.deleted()}),
    "memory_update": (Act.WRITE, lambda world: {"id": world.memory(), "content": "new", "base_version": 1}),
    "memory_write": (Act.WRITE, lambda world: {"title": f"{OWN} new {world.number()}", "content": "x"}),
    "org_create": (Act.GOVERN, lambda world: {"org_id": f"org{world.number()}"}),
    "project_create": (Act.GOVERN, lambda world: {"id": f"new{world.number()}"}),
    "relation_create": (
        Act.WRITE,
        lambda world: {"source": str(world.memory()), "relation": "related_to", "target": str(world.memory())},
    ),
    "relation_delete": (Act.WRITE, lambda world: {"id": world.relation()}),
    "session_end": (Act.WRITE, lambda world: {**_session(world), "summary": "s"}),
    "session_pause": (Act.WRITE, _session),
    "session_resume": (Act.WRITE, lambda world: {"session_id": world.session(state="pause")}),
    "session_start": (Act.WRITE, lambda world: {"session_id": f"n{world.number()}", "purpose": "p"}),
    "tag_attach": (Act.WRITE, lambda world: {"id": world.memory(), "tags": ["n"]}),
    "tag_create": (Act.WRITE, lambda world: {"name": f"t{world.number()}", "description": "d"}),
    "tag_detach": (Act.WRITE, lambda world: {"id": world.tagged(), "tags": ["spare"]}),
    "turn_begin": (Act.WRITE, _session),
    "turn_end": (Act.WRITE, lambda world: world.turn()),
}
OF_HUB = {"org_create": "", "project_create": ""}
# Ways to change what others inherit, to describe, or to erase: label, tool, act, place, arguments
SPECIAL: list[tuple[str, Act, str, str, Maker]] = [
    *(
        (
            f"{tool} of {scope}",
            Act.WRITE,
            place,
            tool,
            lambda world, tool=tool, scope=scope: _scoped(world, tool, scope),
        )
        for scope, place in (("org", OWN_ORG), ("global", GLOBAL))
        for tool in ("memory_write", "guideline_add", "knowledge_add", "tool_add", "tag_create")
    ),
    (
        "project_create that describes",
        Act.GOVERN,
        OWN,
        "project_create",
        lambda world: {"project_id": OWN, "if_exists": "update", "description": f"d{world.number()}"},
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


def _scoped(world: World, tool: str, scope: str) -> Arguments:
    if tool == "memory_write":
        return {"title": f"new {world.number()}", "content": f"text {world.number()}", "scope": scope}
    return {**WRITES[tool][1](world), "scope": scope}


def _found(kind: str) -> Maker:
    return lambda world: {"id": world.ids[OWN][kind]}


# What reads need
_READS: dict[str, Maker] = {
    "memory_search": lambda _: {"query": "text"},
    "memory_blame": lambda _: {"file": "x.py"},
    "memory_get": lambda world: {"ids": [world.ids[OWN]["memory_id"]]},
    "memory_timeline": lambda world: {"id": world.ids[OWN]["memory_id"]},
    "iteration_get": lambda world: {"id": world.ids[OWN]["iteration_id"]},
    "project_get": lambda _: {"project_id": OWN},
    "decision_get": lambda world: {"ids": [world.ids[OWN]["decision_id"]]},
    **{f"{kind}_{verb}": _found(kind) for kind in ("guideline", "knowledge", "tool") for verb in ("get", "history")},
}
_URIS: dict[str, Callable[[World], str]] = {
    "memories://get/{id}": lambda world: f"memories://get/{world.ids[OWN]['memory_id']}",
    "memories://list{?memory_type,tags,limit,offset,include_deleted}": lambda _: "memories://list?limit=50",
    "memories://search/{query}{?limit,offset,memory_type,tags,threshold}": lambda _: "memories://search/text",
    "context://pack{?max_tokens}": lambda _: "context://pack",
    "decisions://get/{id}": lambda world: f"decisions://get/{world.ids[OWN]['decision_id']}",
    "ui://memory-hub/lineage": lambda _: "ui://memory-hub/lineage",
}
# What can be followed is read without a record; followers get notifications of changes.
_FOLLOWED = "memories://list?limit=50"
LISTINGS = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")

# Requests that name another place: its name, tool, and arguments with "{}" for the name
NAMING: list[tuple[str, str, Arguments]] = [
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


def _tools() -> list[Tool]:
    # Other tests register tools of their own in this process.
    return [tool for tool in all_tools() if not tool.handler.__module__.startswith("tests.")]


def uncovered() -> list[str]:
    tools = [tool.name for tool in _tools() if tool.writes and tool.name not in WRITES]
    return tools + [resource.uri_template for resource in all_resources() if resource.uri_template not in _URIS]


def reads(world: World) -> Iterator[Call]:
    """Yield every read: tools, resources, prompts and completions."""
    for tool in _tools():
        if not tool.writes:
            given = _READS.get(tool.name, lambda _: {})(world)
            yield _call(tool.name, {**given, "format": "json"}, Act.VIEW, OWN)
            yield _call(tool.name, given, Act.VIEW, OWN)
    for resource in all_resources():
        yield Call(resource.uri_template, "resources/read", {"uri": _URIS[resource.uri_template](world)})
        for argument in resource.suggest:
            yield _completion({"type": "ref/resource", "uri": resource.uri_template}, argument)
    for prompt in all_prompts():
        given = dict.fromkeys(prompt.input.model_fields, "x")
        yield Call(f"prompt {prompt.name}", "prompts/get", {"name": prompt.name, "arguments": given})
        for argument in prompt.suggest:
            yield _completion({"type": "ref/prompt", "name": prompt.name}, argument)
    for method in LISTINGS:
        yield Call(method, method, {})


def subscriptions(world: World) -> Iterator[Call]:
    """Yield what a session asks to follow a resource, and not to."""
    for method in ("resources/subscribe", "resources/unsubscribe"):
        for uri in (_FOLLOWED, f"memories://get/{world.ids[OWN]['memory_id']}"):
            yield Call(f"{method} {uri}", method, {"uri": uri})


def listening(*uris: str) -> Call:
    """Return what opens a stream of the newest revision."""
    followed = list(uris) or [_FOLLOWED]
    params = {"notifications": {"resourceSubscriptions": followed}}
    return Call(f"listen to {followed}", "subscriptions/listen", params)


def write(world: World, name: str) -> Call:
    act, maker = WRITES[name]
    return _call(name, maker(world), act, OF_HUB.get(name, OWN), writes=True)


def special(world: World, number: int) -> Call:
    label, act, place, tool, maker = SPECIAL[number]
    return _call(tool, maker(world), act, place, writes=True, label=label)


def naming(number: int, name: str) -> Call:
    place, tool, arguments = NAMING[number]
    return _call(tool, _filled(arguments, name), Act.VIEW, OWN, label=f"{tool} naming {place}: {arguments}")


def naming_resource(method: str, uri: str, name: str) -> Call:
    named = uri.format(name)
    return listening(named) if method == "subscriptions/listen" else Call(f"{method} {uri}", method, {"uri": named})


def _filled(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: _filled(part, name) for key, part in value.items()}
    return value.replace("{}", name) if isinstance(value, str) else value


def _call(name: str, arguments: Arguments, act: Act, place: str, *, writes: bool = False, label: str = "") -> Call:
    return Call(label or name, "tools/call", {"name": name, "arguments": arguments}, act, place, writes)


def _completion(ref: Arguments, argument: str) -> Call:
    params = {"ref": ref, "argument": {"name": argument, "value": ""}}
    return Call(f"completion of {argument} in {ref.get('uri')}", "completion/complete", params)
