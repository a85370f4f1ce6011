"""What all routes share in the API's description: headers, and the errors that any of them may answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memoryhub.config.clients import hook_clients
from memoryhub.config.project_settings import ProjectSettings
from memoryhub.core.permissions import Act
from memoryhub.core.rest import Problem
from memoryhub.core.stores.store import SLUG
from memoryhub.rest.auth import act_of_route
from memoryhub.rest.problems import CONTENT_TYPE

Operation = dict[str, Any]

# Characters of the headers that name a session, a turn's token or a key.
MAX_HEADER = 200

_PREFIX = "/api/v1"
_PROJECT = "/projects/{project_id}"
_ORG = "/orgs/{org_id}"
_REF = "#/components/schemas/"
_MEANING = {
    "401": "No session was sent, and no token that counts",
    "403": "The token or the role does not allow it, or the session's CSRF token is missing",
    "404": "There is no such project or organisation, or no such thing in it",
    "409": "It exists already, or its state does not allow this; the data names the id",
    "410": "It was deleted; the message says how to restore it",
    "412": "It is no longer at the version that was read, or no open turn has this X-Ack-Token",
    "413": "The body is larger than 2 MB",
    "415": "The body is not application/json",
    "422": "The input breaks a rule; nothing was changed",
    "423": "Another process held the store for longer than 5 s",
    "503": "The store cannot be opened, read or written now",
}
_HUBS_OWN = ("/health", "/metrics", "/problems/")
"""Routes that open no store."""
_PROJECT_ID = {
    "in": "path",
    "name": "project_id",
    "required": True,
    "schema": {"type": "string", "pattern": f"^{SLUG.pattern}$"},
    "description": "the project; nothing of another can be reached through it",
}

_ORG_ID = {**_PROJECT_ID, "name": "org_id", "description": "the organisation"}
_NAMED = {
    "session_id": "the session, by its name",
    "entity_id": "the memory or decision, by its id",
    "pack_id": "the context pack, by its id",
    "rollback_id": "the roll-back, by its id",
    "run_id": "the run of retention, by its id",
    "client": " or ".join(hook_clients()),
    "event": "the client's own name of the event, such as SessionStart",
    "code": "the problem, by its code",
}
"""What parameters of paths name, where that is not the word before ``_id``."""


def _header(name: str, description: str, **rules: Any) -> dict[str, Any]:
    schema = {"type": "string", "maxLength": MAX_HEADER, **rules}
    return {"in": "header", "name": name, "required": False, "schema": schema, "description": description}


_SESSION = _header("X-Session-Id", "the session that the change belongs to")
_TOKEN = _header("X-Ack-Token", "the open turn's token, where the project's turn policy is strict")
_KEY = _header("Idempotency-Key", "the same key again gives the first answer", minLength=1)


def complete(schema: dict[str, Any]) -> dict[str, Any]:
    """Add to every operation the headers it takes and the errors it may answer."""
    schemas = schema.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = Problem.model_json_schema()
    _describe_settings(schemas)
    for path, method, operation in _operations(schema):
        _add_headers(path, method, operation, schemas)
        statuses = {status for status in map(str, operation["responses"]) if status >= "400"}
        responses = {str(status): answer for status, answer in operation["responses"].items() if str(status) < "400"}
        errors = {status: _problem(status) for status in sorted(statuses | _shared(path, method, operation))}
        operation["responses"] = {**responses, **errors}
    return schema


def _describe_settings(schemas: dict[str, Any]) -> None:
    """Name the settings in the body that changes them; each may be null, which takes it back to its default."""
    whole = ProjectSettings.model_json_schema(ref_template=f"{_REF}Setting{{model}}")
    schemas.update({f"Setting{name}": each for name, each in whole.pop("$defs").items()})
    settings = schemas["SettingsChange"]["properties"]["settings"]
    settings["additionalProperties"] = False
    settings["properties"] = {
        name: {"anyOf": [{key: value for key, value in each.items() if key != "default"}, {"type": "null"}]}
        for name, each in whole["properties"].items()
    }


def _operations(schema: dict[str, Any]) -> Iterator[tuple[str, str, Operation]]:
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _add_headers(path: str, method: str, operation: Operation, schemas: dict[str, Any]) -> None:
    parameters = operation.setdefault("parameters", [])
    if _PROJECT in path:
        parameters[:] = [_PROJECT_ID, *(each for each in parameters if each["name"] != "project_id")]
        parameters += [_SESSION, _TOKEN] if _writes(path, method) else []
    if _ORG in path:
        parameters[:] = [_ORG_ID, *(each for each in parameters if each["name"] != "org_id")]
    parameters[:] = [_described(each) for each in parameters]
    if _takes_key(operation, schemas) or path.startswith(f"{_PREFIX}/hooks"):
        parameters.append(_KEY)


def _writes(path: str, method: str) -> bool:
    """Whether a request may append to the log as its caller; what only asks may be a POST too."""
    route = path.removeprefix(f"{_PREFIX}/").replace("{", "<").replace("}", ">")
    return act_of_route(method.upper(), route) is not Act.VIEW


def _described(parameter: dict[str, Any]) -> dict[str, Any]:
    """Return a parameter of the path with what it names, where the route leaves that to its name."""
    if parameter["in"] == "header":  # absent, or a text: HTTP has no null
        parameter = {**parameter, "schema": _without_null(parameter["schema"])}
    if parameter["in"] != "path" or "description" in parameter:
        return parameter
    name: str = parameter["name"]
    return {**parameter, "description": _NAMED.get(name, f"the {name.removesuffix('_id')}, by its id")}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    choices = [each for each in schema.get("anyOf", []) if each.get("type") != "null"]
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    return {**rest, **choices[0]} if len(choices) == 1 else schema


def _takes_key(operation: Operation, schemas: dict[str, Any]) -> bool:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    named = [part["$ref"] for part in [body, *body.get("allOf", []), *body.get("anyOf", [])] if "$ref" in part]
    fields = {name for ref in named for name in schemas.get(ref.removeprefix(_REF), {}).get("properties", {})}
    return "idempotency_key" in fields | {parameter["name"] for parameter in operation["parameters"]}


def _shared(path: str, method: str, operation: Operation) -> set[str]:
    parameters = operation["parameters"]
    statuses = set()
    if operation.get("security"):
        statuses |= {"401", "403"}
    if not path.removeprefix(_PREFIX).startswith(_HUBS_OWN):
        statuses |= {"422", "423", "503"}
    if any(parameter["in"] == "path" for parameter in parameters):
        statuses |= {"404"}
    if "requestBody" in operation:
        statuses |= {"413", "415", "422"}
    if _KEY in parameters:  # the key of another write
        statuses |= {"409"}
    if _TOKEN in parameters:
        statuses |= {"412"}
    return statuses


def _problem(status: str) -> dict[str, Any]:
    content = {CONTENT_TYPE: {"schema": {"$ref": f"{_REF}Problem"}}}
    return {"description": _MEANING[status], "content": content}
