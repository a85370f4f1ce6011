"""What every request goes through: the content security policy, problem+json, and the project in the address."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase, StreamingHttpResponse
from django.shortcuts import render
from django.urls import get_script_prefix, set_script_prefix

from memoryhub.core.errors import HubError, Unavailable
from memoryhub.core.origin import use_origin
from memoryhub.core.stores import SLUG, StoreId, list_projects, project_store, use_store
from memoryhub.problems import problem_for_status, problem_response, refuse_body

GetResponse = Callable[[HttpRequest], HttpResponseBase]

CONTENT_SECURITY_POLICY = (
    "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; object-src 'none'"
)
API_PREFIX = "/api/"
_ADDRESS = re.compile(rf"/p/({SLUG.pattern})(?=/|$)")


class ContentSecurityPolicy:
    """Puts the one policy on every answer: no inline script or style, nothing from elsewhere, no frame around us."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Answer with the policy."""
        response = self.get_response(request)
        response["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
        return response


class ApiProblems:
    """Under ``/api/``: refuses bodies that are not JSON, and makes problem+json of every error."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Answer, errors as problems."""
        if not request.path_info.startswith(API_PREFIX):
            return self.get_response(request)
        response = refuse_body(request) or self.get_response(request)
        if response.status_code < 400 or response.get("Content-Type", "").startswith("application/problem+json"):
            return response
        return problem_for_status(request, response)


class ProjectAddress:
    """Moves ``/p/<project>`` from the path into the script name, so that every reversed address carries it.

    Sets ``request.project`` to the project's id, and None elsewhere.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Answer as the project's pages or as the hub's."""
        address = _ADDRESS.match(request.path_info)
        request.project = address[1] if address else None  # type: ignore[attr-defined]
        if not address:
            return self.get_response(request)
        before = get_script_prefix()
        self._move(request, address)
        set_script_prefix(request.META["SCRIPT_NAME"] + "/")
        try:
            return self.get_response(request)
        finally:
            set_script_prefix(before)

    def _move(self, request: HttpRequest, address: re.Match[str]) -> None:
        request.META["SCRIPT_NAME"] = request.META.get("SCRIPT_NAME", "") + address[0]
        request.path_info = request.META["PATH_INFO"] = request.path_info[address.end() :] or "/"
        request.urlconf = settings.PROJECT_URLCONF


class ProjectStore:
    """Calls the view of a project's page inside the project's store, and renders it there.

    Only for who is signed in: others get the view without a store, which sends them to the sign-in page.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Answer; the work is in ``process_view``."""
        return self.get_response(request)

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        """Call the view here, where database errors still come out as the hub's own."""
        project: str | None = request.project  # type: ignore[attr-defined]
        if project is None or not (request.user.is_active and request.user.is_staff):
            return None
        store = project_store(project)
        try:
            with use_store(store), use_origin(source="admin", actor=request.user.get_username()):
                return _finished(view(request, *args, **kwargs), store)
        except HubError as error:
            return error_page(request, error)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Show an error of a page that is of no project."""
        return error_page(request, exception) if isinstance(exception, HubError) else None


def _finished(response: HttpResponseBase, store: StoreId) -> HttpResponseBase:
    """Render what is lazy while the store is current; what streams opens the store again."""
    if isinstance(response, StreamingHttpResponse):
        response.streaming_content = _streamed(response.streaming_content, store)
    elif hasattr(response, "render"):
        response = response.render()
    return response


def _streamed(content: Any, store: StoreId) -> Iterator[bytes]:
    with use_store(store):
        yield from content


def error_page(request: HttpRequest, error: HubError) -> HttpResponse:
    """Return the page that shows one of the hub's errors."""
    if request.path.startswith(API_PREFIX):
        return problem_response(error.as_problem())
    project: str | None = getattr(request, "project", None)
    way_back = project if project in list_projects() and error.code != Unavailable.code else None
    return render(request, "memoryhub/error.html", {"error": error, "way_back": way_back}, status=error.http_status)
