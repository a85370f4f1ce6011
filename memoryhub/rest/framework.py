"""The hub's django-ninja API: the store comes from the path, errors are problems, bodies are strict JSON.

Headers and errors that all routes share are added to the OpenAPI schema.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import wraps
from itertools import chain
from typing import Any, NoReturn

from django.http import Http404, HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationErrorContext
from ninja.parser import Parser
from ninja.renderers import JSONRenderer
from pydantic import BaseModel

from memoryhub.config.clients import hook_clients
from memoryhub.config.project_settings import ProjectSettings
from memoryhub.core import log
from memoryhub.core.errors import HubError, Invalid, Unauthorized
from memoryhub.core.origin import use_origin
from memoryhub.core.paging import answering
from memoryhub.core.permissions import EVERYTHING, Act, use_grant
from memoryhub.core.rest import Problem, command_of
from memoryhub.core.schemas import Command
from memoryhub.core.stores.store import SLUG, project_store, use_store
from memoryhub.core.validation import explain_faults
from memoryhub.rest.auth import HOW_TO_AUTHENTICATE, act_of_route
from memoryhub.rest.problems import CONTENT_TYPE, problem, problem_response
from memoryhub.rest.reference import ReferencePage

View = Callable[..., Any]

# More than any field accepts; Python refuses integers of more than 4,300 digits.
_MAX_DIGITS = 400


def in_project(view: View) -> View:
    """Run a route in the store of its path, as the authenticated caller."""

    @wraps(view)
    def inside(request: HttpRequest, **arguments: Any) -> Any:
        # Routes don't take project_id as an argument, because they need only the store.
        store = project_store(request.resolver_match.kwargs["project_id"])  # type: ignore[union-attr]
        with use_grant(request.grant), use_store(store):  # type: ignore[attr-defined]
            answer = from_caller(view)(request, **arguments)
            request.store_warning = log.anchor_warning()  # type: ignore[attr-defined]
            return answer

    return inside


def from_caller(view: View) -> View:
    """Run a route as the authenticated caller, with the ``Idempotency-Key`` header."""

    @wraps(view)
    def inside(request: HttpRequest, **arguments: Any) -> Any:
        # A misspelt filter would otherwise widen the result unnoticed.
        parameters: set[str] = set()
        for value in arguments.values():
            if isinstance(value, BaseModel):
                parameters.update(type(value).model_fields)
        for name in request.GET:
            if name not in parameters:
                accepted = ", ".join(sorted(parameters)) or "none"
                raise Invalid(f"there is no parameter {name[:80]!r} here; known: {accepted}")
        origin = use_origin(
            source="rest",
            actor=request.auth,  # type: ignore[attr-defined]
            session_id=header_of(request, "X-Session-Id") or "",
            ack_token=header_of(request, "X-Ack-Token") or "",
        )
        with use_grant(request.grant), origin, answering(as_json=True):  # type: ignore[attr-defined]
            return view(request, **_with_key(request, arguments))

    return inside


def granted(view: View) -> View:
    """Run a route with only the rights of the caller; a route without authentication has all rights."""

    @wraps(view)
    def inside(request: HttpRequest, **arguments: Any) -> Any:
        with use_grant(getattr(request, "grant", EVERYTHING)):
            return view(request, **arguments)

    return inside


def header_of(request: HttpRequest, header: str) -> str | None:
    value: str | None = request.headers.get(header)
    if value is not None and len(value) > MAX_HEADER:
        raise Invalid(f"{header} must have at most {MAX_HEADER} characters")
    return value


def _with_key(request: HttpRequest, arguments: dict[str, Any]) -> dict[str, Any]:
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return arguments
    keyed = dict(arguments)
    for name, value in arguments.items():
        if isinstance(value, Command) and "idempotency_key" in type(value).model_fields:
            keyed[name] = command_of(type(value), value, idempotency_key=key)
    return keyed


class JsonParser(Parser):
    """Strict JSON: no NaN, no duplicate names, no overlong numbers."""

    def parse_body(self, request: HttpRequest) -> Any:
        try:
            return json.loads(
                request.body,
                object_pairs_hook=_object,
                parse_constant=_refuse_constant,
                parse_float=_finite,
                parse_int=_integer,
            )
        except json.JSONDecodeError as error:
            raise Invalid(f"the body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from error
        except UnicodeDecodeError as error:
            raise Invalid("the body is not UTF-8") from error
        except RecursionError as error:
            raise Invalid("the body is nested too deeply") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Parsers differ in which value of a duplicate name wins.
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise Invalid(f"the body names {name[:80]!r} twice in one object; send it once")
        fields[name] = value
    return fields


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise Invalid(f"the body contains {text[:40]}, which exceeds a 64-bit number")
    return number


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise Invalid(f"the body contains an integer of {len(text)} digits; at most {_MAX_DIGITS} are accepted")
    return int(text)


def _refuse_constant(name: str) -> NoReturn:
    raise Invalid(f"the body is not JSON: {name} is not a JSON number; send null or omit the field")


class CompactRenderer(JSONRenderer):
    # As long as MCP's JSON, so that a token budget is the same there; unpaired surrogates become question marks.
    json_dumps_params = {"ensure_ascii": False, "separators": (",", ":")}

    def render(self, request: HttpRequest, data: Any, *, response_status: int) -> Any:
        return super().render(request, data, response_status=response_status).encode("utf-8", "replace")


class HubAPI(NinjaAPI):
    def __init__(self, **options: Any) -> None:
        super().__init__(
            parser=JsonParser(), renderer=CompactRenderer(), docs=ReferencePage(), urls_namespace="api-v1", **options
        )

    def set_default_exception_handlers(self) -> None:
        # Other exceptions go to Django, which answers 500.
        self.add_exception_handler(HubError, _hub_error)
        self.add_exception_handler(HttpError, _http_error)
        self.add_exception_handler(Http404, lambda _, error: problem_response(problem(404, str(error))))

    def validation_error_from_error_contexts(self, error_contexts: list[ValidationErrorContext[Any]]) -> Any:
        return Invalid(explain_faults(list(chain.from_iterable(map(_faults, error_contexts)))))

    def get_openapi_schema(self, **options: Any) -> Any:
        return complete(super().get_openapi_schema(**options))


_NO_BODY = {
    "type": "value_error",
    "loc": (),
    "ctx": {"error": "the request has no body; send a JSON object, {} if there is nothing to set"},
}


def _faults(context: ValidationErrorContext[Any]) -> list[Any]:
    # Paths without the name of the view's own argument.
    faults: list[Any] = []
    whole = getattr(context.model, "__read_from_single_attr__", None)
    for fault in context.pydantic_validation_error.errors(include_url=False):
        path = fault["loc"]
        if path == (whole,) and fault["type"] == "missing":
            return [_NO_BODY]
        if path == (whole,):
            path = ("body",)
        elif len(path) > 1 and path[0] in context.model.model_fields:
            path = path[1:]
        faults.append({**fault, "loc": path})
    return faults


def _hub_error(_: HttpRequest, error: Any) -> HttpResponse:
    return problem_response(error.as_problem())


def _http_error(_: HttpRequest, error: Any) -> HttpResponse:
    if isinstance(error.__cause__, HubError):
        return problem_response(error.__cause__.as_problem())
    if isinstance(error, AuthenticationError):
        return problem_response(Unauthorized(f"authentication required: {HOW_TO_AUTHENTICATE}").as_problem())
    detail = str(error)
    if error.status_code == 403:
        detail = "the session's CSRF token is missing or wrong; send it as X-CSRFToken"
    return problem_response(problem(error.status_code, detail))


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
    schemas = schema.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = Problem.model_json_schema()
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
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            _add_headers(path, method, operation, schemas)
            _add_errors(path, operation)
    return schema


def _add_headers(path: str, method: str, operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    parameters = operation.setdefault("parameters", [])
    for place in (_PROJECT_ID, _ORG_ID):
        if f"{{{place['name']}}}" in path:
            parameters[:] = [place, *(parameter for parameter in parameters if parameter["name"] != place["name"])]
    route = path.removeprefix(f"{_PREFIX}/").replace("{", "<").replace("}", ">")
    if _PROJECT in path and act_of_route(method.upper(), route) is not Act.VIEW:
        parameters += [_SESSION, _TOKEN]
    for number, parameter in enumerate(parameters):
        if parameter["in"] == "header":  # HTTP has no null
            parameters[number] = {**parameter, "schema": _without_null(parameter["schema"])}
        elif parameter["in"] == "path" and "description" not in parameter:
            name: str = parameter["name"]
            parameters[number] = {**parameter, "description": _NAMED.get(name, f"id of the {name.removesuffix('_id')}")}
    if _takes_key(operation, schemas) or path.startswith(f"{_PREFIX}/hooks"):
        parameters.append(_KEY)


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
