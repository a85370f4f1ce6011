"""Sign-in by single-use links; there are no passwords."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable
from datetime import datetime, timedelta
from http import HTTPStatus

from django.conf import settings
from django.contrib.auth import login, logout
from django.contrib.auth.models import AnonymousUser, User
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from memoryhub.core import clock
from memoryhub.core.errors import Forbidden, Gone
from memoryhub.core.stores.store import SLUG
from memoryhub.models import SignInLink, Subject
from memoryhub.registry.access_history import note_change
from memoryhub.registry.people import OWNER, active_owners, find_person, require_manager_of
from memoryhub.web.pages import with_query

LINK_LIFETIME = timedelta(minutes=15)
_TOKEN_BYTES = 32
# Key of a session: whom the proxy named when the session began
_PROXY_PERSON = "proxy_person"
_EXEMPT = "/api/"
# Headers in which browsers say why they fetch a page
_PURPOSES = ("Sec-Purpose", "Purpose", "X-Moz")
# Pages without which nobody could sign out, or use a link, behind a proxy that signs in
_NEVER_BY_PROXY = re.compile(r"/(signin|static)/|/signout$|(/p/[^/]+|/o/[^/]+|/global)?/admin/login/")


def ensure_owner() -> User:
    """Return the first active owner; on first use, create one without a password."""
    if owner := active_owners().first():
        return owner
    with transaction.atomic():
        owner = User.objects.create_superuser(OWNER)
        note_change(Subject.PERSON, owner.username, "added as the first owner")
    return owner


def create_link_token(*, username: str = OWNER) -> str:
    """Return the secret part of a new sign-in link, valid for 15 minutes; only its hash is stored.

    Raises:
        NotFound: the person doesn't exist.
        Forbidden: the person is deactivated.
    """
    person = find_person(username)
    require_manager_of(person)
    if not person.is_active:
        raise Forbidden(f"{username} is deactivated; ask an owner to activate them on the People page")
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    with transaction.atomic():
        SignInLink.objects.exclude(expires_at__range=_valid(clock.now())).delete()
        SignInLink.objects.create(token_hash=_hash(token), username=username, expires_at=clock.now() + LINK_LIFETIME)
        note_change(Subject.PERSON, username, "sign-in link created")
    return token


def link(address: str, token: str, path: str = "") -> str:
    """Return the address of a sign-in link, which leads to a path of the hub; by default to the first page."""
    return with_query(f"{address}/signin/{token}", next=path)


def new_link(address: str, *, username: str = "", path: str = "") -> str:
    """Return a new sign-in link of a person, by default of the first owner.

    Raises:
        NotFound, Forbidden: as ``create_link_token``.
    """
    token = create_link_token(username=username or ensure_owner().username)
    return link(address, token, path)


def redeem_link_token(token: str) -> User:
    """Mark a link as used and return its user.

    Raises:
        Gone: the link was used, has expired, or doesn't exist.
    """
    now = clock.now()
    link = SignInLink.objects.filter(token_hash=_hash(token))
    # One UPDATE, so that only one of two simultaneous requests succeeds.
    if not link.filter(used_at__isnull=True, expires_at__range=_valid(now)).update(used_at=now):
        raise Gone("this sign-in link was already used or has expired; run `memory-hub signin` for a new one")
    return find_person(link.get().username)


# Twice, as clocks of several machines differ: a link that expires later was created when the clock was far ahead
def _valid(now: datetime) -> tuple[datetime, datetime]:
    return now + timedelta(milliseconds=1), now + 2 * LINK_LIFETIME


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


# Link previews send HEAD, and browsers fetch ahead: neither must use up the link. On another site's page somebody else
# may have put it, to sign a person in as themselves.
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def follow_link(request: HttpRequest, token: str) -> HttpResponse:
    if request.method == "HEAD":
        return HttpResponse()
    if any("prefetch" in request.headers.get(name, "").lower() for name in _PURPOSES):
        return HttpResponse(status=HTTPStatus.TOO_EARLY)  # the browser asks again when the person follows the link
    if request.method == "GET" and request.headers.get("Sec-Fetch-Site") == "cross-site":
        return render(request, "memoryhub/signin_confirm.html")
    _sign_in(request, redeem_link_token(token))
    path = request.GET.get("next", "")
    is_local = path.startswith("/") and url_has_allowed_host_and_scheme(path, allowed_hosts=None)
    return redirect(path if is_local else "/")


def _sign_in(request: HttpRequest, user: User) -> None:
    login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    request.session[_PROXY_PERSON] = _person_of_proxy(request)


@never_cache
def explain(request: HttpRequest, **_: object) -> HttpResponse:
    return render(request, "memoryhub/signin.html", {"proxy_person": _person_of_proxy(request)})


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    logout(request)
    return redirect("/admin/login/")


def address_of_hub(request: HttpRequest) -> str:
    """Return the address for links and clients, without a slash at its end."""
    return settings.PUBLIC_URL or request.build_absolute_uri("/").rstrip("/")


class ProxySignIn:
    """Signs in the person whom a named proxy names in its header; nobody is created by it.

    A session belongs to the name with which it began: it ends when the header is gone, or names another person.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if settings.REMOTE_USER_HEADER and (refusal := self._follow(request)):
            return refusal
        return self.get_response(request)

    def _follow(self, request: HttpRequest) -> HttpResponse | None:
        name = _person_of_proxy(request)
        if request.user.is_authenticated and request.session.get(_PROXY_PERSON, "") != name:
            if request.path_info.startswith(_EXEMPT) and not name:
                request.user = AnonymousUser()  # the proxy lets agents through there: the session goes on elsewhere
            else:
                logout(request)
        if not name or request.user.is_authenticated or "Authorization" in request.headers:
            return None
        if _NEVER_BY_PROXY.match(request.path_info):
            return None
        person = None
        if SLUG.fullmatch(name):
            person = User.objects.filter(username=name, is_active=True).first()
        if person:
            # A script's request has no cookie, and would leave a session behind each time
            if request.path_info.startswith(_EXEMPT) and settings.SESSION_COOKIE_NAME not in request.COOKIES:
                request.user = person
            else:
                _sign_in(request, person)
            return None
        if request.path_info.startswith(_EXEMPT):
            return None
        owners = list(active_owners().values_list("username", flat=True))
        context = {"proxy_person": name, "owners": owners}
        return render(request, "memoryhub/unknown_person.html", context, status=403)


# The server believes only named proxies.
def _person_of_proxy(request: HttpRequest) -> str:
    if not settings.REMOTE_USER_HEADER:
        return ""
    return str(request.META.get("REMOTE_USER", ""))
