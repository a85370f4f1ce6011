"""REST errors as ``application/problem+json`` (RFC 9457)."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from memoryhub.core.errors import HTTP_PROBLEMS, PROBLEMS_PATH

CONTENT_TYPE = "application/problem+json"

# The phrases of HTTPStatus differ between Python versions.
_CODES = {status: code for code, (status, _) in HTTP_PROBLEMS.items()}
_DETAILS = {
    400: "the request is malformed; send HTTP/1.1 to this hub's own address",
    403: "the session's CSRF token is missing or wrong; send it as X-CSRFToken, or use a bearer token",
    404: "there is no such address; see /api/v1/docs",
    500: "internal error; see the hub's log on standard error",
}


def problem(status: int, detail: str, **data: Any) -> dict[str, Any]:
    code = _CODES.get(status) or HTTPStatus(status).phrase.lower().replace(" ", "_")
    title = code.replace("_", " ").title()
    return {"type": f"{PROBLEMS_PATH}{code}", "title": title, "status": status, "detail": detail, "code": code, **data}


def problem_response(content: dict[str, Any]) -> HttpResponse:
    """Return a problem as a response; lone surrogates are replaced."""
    body = json.dumps(content, ensure_ascii=False, default=str).encode("utf-8", "replace")
    response = HttpResponse(body, content_type=CONTENT_TYPE, status=content["status"])
    if content["status"] == HTTPStatus.UNAUTHORIZED:
        response["WWW-Authenticate"] = 'Bearer realm="memory-hub"'
    return response


def problem_for_status(request: HttpRequest, response: HttpResponseBase) -> HttpResponse:
    status = response.status_code
    allowed = response.get("Allow")
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        detail = f"{request.method} is not allowed here; use {allowed or 'another method'}"
    else:
        detail = _DETAILS.get(status, HTTPStatus(status).description or HTTPStatus(status).phrase)
    answer = problem_response(problem(status, detail))
    if allowed:
        answer["Allow"] = allowed
    answer._has_been_logged = getattr(response, "_has_been_logged", False)  # type: ignore[attr-defined]
    return answer


def refuse_body(request: HttpRequest) -> HttpResponse | None:
    """Return a problem if the body is too large or not JSON.

    A cross-site page can send forms and plain text with the user's cookies, but not JSON, so nothing else is accepted.
    """
    size = _body_size(request)
    if size == 0:
        return None
    if size > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        return problem_response(problem(413, f"the body has {size} bytes; at most {limit} are accepted", limit=limit))
    if request.content_type != "application/json":
        content_type = (request.content_type or "none")[:80]
        return problem_response(problem(415, f"Content-Type must be application/json, not {content_type}"))
    return None


def refuse_large_body(request: HttpRequest) -> HttpResponse | None:
    """Return a plain response, for pages, if the body is too large."""
    if _body_size(request) <= settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
        return None
    return HttpResponse("The body is too large\n", content_type="text/plain", status=413)


def _body_size(request: HttpRequest) -> int:
    try:
        return max(int(request.META.get("CONTENT_LENGTH") or 0), 0)
    except ValueError:
        return 0


def not_found_in_a_line(_: HttpRequest, **__: str) -> HttpResponse:
    # In plain text: clients that look for an OAuth server would take an HTML page for an answer.
    return HttpResponse("Not found\n", content_type="text/plain", status=HTTPStatus.NOT_FOUND)
