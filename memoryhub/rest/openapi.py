"""Add headers and errors that all routes share to the OpenAPI schema."""

from __future__ import annotations

from typing import Any

from memoryhub.config.clients import hook_clients
from memoryhub.config.project_settings import ProjectSettings
from memoryhub.core.permissions import Act
from memoryhub.core.rest import Problem
from memoryhub.core.stores.store import SLUG
from memoryhub.rest.auth import act_of_route
from memoryhub.rest.problems import CONTENT_TYPE

# Characters of X-Session-Id, X-Ack-Token and Idempotency-Key
MAX_HEADER = 200

_PREFIX = "/api/v1"
_PROJECT = "/projects/{project_id}"
_REF = "#/components/schemas/"
_MEANING = {
    "401": "The request has no valid session or token",
    "403": "The token or the role does not allow it, or the session's CSRF token is missing",
    "404": "The project, the organisation or the item does not exist",
    "409": "It already exists, or its state does not allow this; the data contains the id",
    "410": "It was deleted; the message names the way to restore it",
    "412": "It has changed since it was read, or no open turn has this X-Ack-Token",
    "413": "The body is larger than 2 MB",
    "415": "The body is not application/json",
    "422": "The input is not valid; nothing was changed",
    "423": "Another process locked the store for longer than 5 s",
    "503": "The store cannot be opened, read or written now",
}
_WITHOUT_STORE = ("/health", "/metrics", "/problems/")
_PROJECT_ID = {
    "in": "path",
    "name": "project_id",
    "required": True,
    "schema": {"type": "string", "pattern": f"^{SLUG.pattern}$"},
    "description": "id of the project",
}

_ORG_ID = {**_PROJECT_ID, "name": "org_id", "description": "id of the organisation"}
# Descriptions of path parameters; default: "id of the …" from the name.
_NAMED = {
    "session_id": "id of the session",
    "entity_id": "id of the memory or decision",
    "pack_id": "id of the context pack",
    "rollback_id": "id of the roll-back",
    "run_id": "id of the retention run",
    "client": " or ".join(hook_clients()),
    "event": "the client's name of the event, such as SessionStart",
    "code": "error code",
}


def _header(name: str, description: str, **rules: Any) -> dict[str, Any]:
    schema = {"type": "string", "maxLength": MAX_HEADER, **rules}
    return {"in": "header", "name": name, "required": False, "schema": schema, "description": description}


_SESSION = _header("X-Session-Id", "session of the change")
_TOKEN = _header("X-Ack-Token", "token of the open turn; required if the project's turn policy is strict")
_KEY = _header("Idempotency-Key", "a repeated key returns the first answer", minLength=1)


def complete(schema: dict[str, Any]) -> dict[str, Any]:
    """Add to every operation its headers and errors."""
    schemas = schema.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = Problem.model_json_schema()
    _describe_settings(schemas)
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            _add_headers(path, method, operation, schemas)
            _add_errors(path, operation)
    return schema


def _describe_settings(schemas: dict[str, Any]) -> None:
    # Null resets a setting to its default.
    whole = ProjectSettings.model_json_schema(ref_template=f"{_REF}Setting{{model}}")
    for name, definition in whole["$defs"].items():
        schemas[f"Setting{name}"] = definition
    settings = schemas["SettingsChange"]["properties"]["settings"]
    settings["additionalProperties"] = False
    settings["properties"] = {}
    for name, field in whole["properties"].items():
        field.pop("default", None)
        settings["properties"][name] = {"anyOf": [field, {"type": "null"}]}


def _add_headers(path: str, method: str, operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    parameters = operation.setdefault("parameters", [])
    for place in (_PROJECT_ID, _ORG_ID):
        if f"{{{place['name']}}}" in path:
            parameters[:] = [place, *(parameter for parameter in parameters if parameter["name"] != place["name"])]
    route = path.removeprefix(f"{_PREFIX}/").replace("{", "<").replace("}", ">")
    if _PROJECT in path and act_of_route(method.upper(), route) is not Act.VIEW:
        parameters += [_SESSION, _TOKEN]
    parameters[:] = map(_with_description, parameters)
    if _takes_key(operation, schemas) or path.startswith(f"{_PREFIX}/hooks"):
        parameters.append(_KEY)


def _with_description(parameter: dict[str, Any]) -> dict[str, Any]:
    if parameter["in"] == "header":  # HTTP has no null
        parameter = {**parameter, "schema": _without_null(parameter["schema"])}
    if parameter["in"] != "path" or "description" in parameter:
        return parameter
    name: str = parameter["name"]
    return {**parameter, "description": _NAMED.get(name, f"id of the {name.removesuffix('_id')}")}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    choices = [choice for choice in schema.get("anyOf", []) if choice.get("type") != "null"]
    if len(choices) != 1:
        return schema
    plain = {**schema, **choices[0]}
    del plain["anyOf"]
    return plain


def _add_errors(path: str, operation: dict[str, Any]) -> None:
    responses = {}
    errors = _shared_errors(path, operation)
    for status, answer in operation["responses"].items():
        if str(status) < "400":
            responses[str(status)] = answer
        else:
            errors.add(str(status))
    content = {CONTENT_TYPE: {"schema": {"$ref": f"{_REF}Problem"}}}
    for status in sorted(errors):
        responses[status] = {"description": _MEANING[status], "content": content}
    operation["responses"] = responses


def _takes_key(operation: dict[str, Any], schemas: dict[str, Any]) -> bool:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    for part in (body, *body.get("allOf", []), *body.get("anyOf", [])):
        model = schemas.get(part.get("$ref", "").removeprefix(_REF), {})
        if "idempotency_key" in model.get("properties", {}):
            return True
    return any(parameter["name"] == "idempotency_key" for parameter in operation["parameters"])


def _shared_errors(path: str, operation: dict[str, Any]) -> set[str]:
    parameters = operation["parameters"]
    statuses = set()
    if operation.get("security"):
        statuses |= {"401", "403"}
    if not path.removeprefix(_PREFIX).startswith(_WITHOUT_STORE):
        statuses |= {"422", "423", "503"}
    if any(parameter["in"] == "path" for parameter in parameters):
        statuses |= {"404"}
    if "requestBody" in operation:
        statuses |= {"413", "415", "422"}
    if _KEY in parameters:  # the key may belong to another write
        statuses |= {"409"}
    if _TOKEN in parameters:
        statuses |= {"412"}
    return statuses
