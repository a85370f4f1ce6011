"""Middleware: content security policy, time zone, problem+json, and the store in the address."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase, StreamingHttpResponse
from django.shortcuts import render
from django.urls import get_script_prefix, set_script_prefix
from django.utils import timezone
from django.utils.cache import add_never_cache_headers
from django.utils.text import capfirst

from memoryhub.core.backends.selected import stores
from memoryhub.core.errors import HubError, Unavailable
from memoryhub.core.origin import use_origin
from memoryhub.core.permissions import HUB, NOTHING, Act, grant_of, may, reaches, use_grant
from memoryhub.core.stores.store import GLOBAL_STORE, SLUG, StoreId, org_store, project_store, use_store
from memoryhub.ops.serving.live import store_version
from memoryhub.rest.problems import problem_for_status, problem_response, refuse_body, refuse_large_body
from memoryhub.web import live
from memoryhub.web.pages import StorePlace

GetResponse = Callable[[HttpRequest], HttpResponseBase]

CONTENT_SECURITY_POLICY = (
    "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; object-src 'none'"
)
API_PREFIX = "/api/"
ZONE_COOKIE = "hub_time_zone"
_ADDRESS = re.compile(rf"/(?:p/(?P<project>{SLUG.pattern})|o/(?P<org>{SLUG.pattern})|global)(?=/|$)")


class _Middleware:
    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)


class ContentSecurityPolicy(_Middleware):
    """Sets one policy on every response: no inline scripts or styles, no other origins, no frames."""

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        response["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
        return response


class PrivateResponses(_Middleware):
    """Keeps responses out of caches, and cookies that were set over HTTPS on HTTPS."""

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if not response.has_header("Cache-Control"):
            add_never_cache_headers(response)
        if request.is_secure():  # not a setting: over loopback the same hub is reached without TLS
            for cookie in response.cookies.values():
                cookie["secure"] = True
        return response


class ViewerTimeZone(_Middleware):
    """Shows times in the browser's zone, which ``hub.js`` puts in a cookie; UTC without it."""

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.path_info.startswith(API_PREFIX):
            return self.get_response(request)
        with timezone.override(_zone(request.COOKIES.get(ZONE_COOKIE, ""))):
            return self.get_response(request)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name or "UTC")
    except (KeyError, ValueError, OSError):  # ZoneInfo reads the name as a path
        return ZoneInfo("UTC")


class KnownHost(_Middleware):
    """Rejects requests for other host names, also for static files, with ``DisallowedHost``."""

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        request.get_host()  # DNS rebinding lets a foreign page send requests here under its own name
        return self.get_response(request)


class ApiProblems(_Middleware):
    """Rejects bodies that are too large. Under ``/api/``, JSON alone is accepted, and errors are problem+json."""

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not request.path_info.startswith(API_PREFIX):
            return refuse_large_body(request) or self.get_response(request)
        response = refuse_body(request) or self.get_response(request)
        warning = getattr(request, "store_warning", "")
        if warning:
            response["Memory-Hub-Warning"] = warning
        if response.status_code < 400 or response.get("Content-Type", "").startswith("application/problem+json"):
            return response
        return problem_for_status(request, response)


class StoreAddress(_Middleware):
    """Moves ``/p/<project>``, ``/o/<organisation>`` or ``/global`` from the path into the script name.

    Every reversed address then includes it. Sets ``request.store`` to the store, or None.
    """

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        address = _ADDRESS.match(request.path_info)
        request.store = _store_of(address) if address else None  # type: ignore[attr-defined]
        if not address:
            return self.get_response(request)
        before = get_script_prefix()
        request.META["SCRIPT_NAME"] = request.META.get("SCRIPT_NAME", "") + address[0]
        request.path_info = request.META["PATH_INFO"] = request.path_info[address.end() :] or "/"
        request.urlconf = settings.STORE_URLCONF
        set_script_prefix(request.META["SCRIPT_NAME"] + "/")
        try:
            return self.get_response(request)
        finally:
            set_script_prefix(before)


def _store_of(address: re.Match[str]) -> StoreId:
    if address["project"]:
        return project_store(address["project"])
    if address["org"]:
        return org_store(address["org"])
    return GLOBAL_STORE


class CallersGrant(_Middleware):
    """Limits the whole request to the rights of the signed-in person; REST takes its own from each request's token."""

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        grant = NOTHING
        if not request.path_info.startswith(API_PREFIX):
            grant = grant_of(request.user)
        with use_grant(grant):
            return self.get_response(request)


class CurrentStore(_Middleware):
    """Calls the view of a store's page inside that store, and renders the response there.

    If nobody is signed in, the view is called without a store and redirects to the sign-in page.
    """

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        if live.HEADER in request.headers:
            request._messages = live.NoMessages(request)  # type: ignore[attr-defined]
        # The view is called here because ``use_store`` translates database errors to HubError.
        store: StoreId | None = request.store  # type: ignore[attr-defined]
        if store is None or not may(request.user, Act.VIEW, place=HUB):
            return None
        try:
            with (
                use_store(store, create=store == GLOBAL_STORE),  # the global scope is created on first use
                use_origin(source="admin", actor=request.user.get_username()),
            ):
                request.live_version = store_version()  # type: ignore[attr-defined]
                response: HttpResponseBase = view(request, *args, **kwargs)
                if isinstance(response, StreamingHttpResponse):
                    response.streaming_content = _streamed(response.streaming_content, store)  # opens the store again
                elif hasattr(response, "render"):
                    response = response.render()
                return response
        except HubError as error:
            return error_page(request, error)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if isinstance(exception, HubError):
            return error_page(request, exception)
        return None


def _streamed(content: Any, store: StoreId) -> Iterator[bytes]:
    with use_store(store):
        yield from content


def error_page(request: HttpRequest, error: HubError) -> HttpResponse:
    if request.path.startswith(API_PREFIX):
        return problem_response(error.as_problem())
    store: StoreId | None = getattr(request, "store", None)
    way_back = None
    if store is not None and reaches(store.place) and stores.exists(store) and error.code != Unavailable.code:
        way_back = StorePlace.of(store)
    context = {"code": error.code, "heading": capfirst(error.message), "way_back": way_back}
    return render(request, "memoryhub/error.html", context, status=error.http_status)
