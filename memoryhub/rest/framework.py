"""The hub's django-ninja API: the store comes from the path, errors are problems, bodies are strict JSON."""

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

from memoryhub.core import log
from memoryhub.core.errors import HubError, Invalid, Unauthorized
from memoryhub.core.origin import use_origin
from memoryhub.core.paging import answering
from memoryhub.core.permissions import EVERYTHING, use_grant
from memoryhub.core.rest import command_of
from memoryhub.core.schemas import Command
from memoryhub.core.stores.store import project_store, use_store
from memoryhub.core.validation import explain_faults
from memoryhub.rest.auth import HOW_TO_AUTHENTICATE
from memoryhub.rest.openapi import MAX_HEADER, complete
from memoryhub.rest.problems import problem, problem_response
from memoryhub.rest.reference import ReferencePage

View = Callable[..., Any]

# More than any field accepts; Python refuses integers of more than 4,300 digits.
_MAX_DIGITS = 400


def in_project(view: View) -> View:
    """Run a route in the store of its path, as the authenticated caller."""

    @wraps(view)
    def inside(request: HttpRequest, **arguments: Any) -> Any:
        with use_grant(request.grant), use_store(project_store(_project_of(request))):  # type: ignore[attr-defined]
            answer = from_caller(view)(request, **arguments)
            request.store_warning = log.anchor_warning()  # type: ignore[attr-defined]
            return answer

    return inside


def from_caller(view: View) -> View:
    """Run a route as the authenticated caller, with the ``Idempotency-Key`` header."""

    @wraps(view)
    def inside(request: HttpRequest, **arguments: Any) -> Any:
        _refuse_unknown_parameters(request, arguments)
        origin = use_origin(**_origin(request))
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


def _origin(request: HttpRequest) -> dict[str, str]:
    return {
        "source": "rest",
        "actor": request.auth,  # type: ignore[attr-defined]
        "session_id": header_of(request, "X-Session-Id") or "",
        "ack_token": header_of(request, "X-Ack-Token") or "",
    }


def header_of(request: HttpRequest, header: str) -> str | None:
    value: str | None = request.headers.get(header)
    if value is not None and len(value) > MAX_HEADER:
        raise Invalid(f"{header} must have at most {MAX_HEADER} characters")
    return value


def _project_of(request: HttpRequest) -> str:
    # Routes don't take project_id as an argument, because they need only the store.
    project: str = request.resolver_match.kwargs["project_id"]  # type: ignore[union-attr]
    return project


def _refuse_unknown_parameters(request: HttpRequest, arguments: dict[str, Any]) -> None:
    # A misspelt filter would otherwise widen the result unnoticed.
    parameters: set[str] = set()
    for value in arguments.values():
        if isinstance(value, BaseModel):
            parameters.update(type(value).model_fields)
    for name in request.GET:
        if name not in parameters:
            raise Invalid(f"there is no parameter {name[:80]!r} here; known: {', '.join(sorted(parameters)) or 'none'}")


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
    """A ninja API whose errors are problems, and whose OpenAPI schema lists them."""

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
