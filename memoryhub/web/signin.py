"""Sign-in by single-use links; there are no passwords."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from django.contrib.auth import login, logout
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from memoryhub.core import clock
from memoryhub.core.errors import Forbidden, Gone
from memoryhub.models import SignInLink, Subject
from memoryhub.registry.access_history import note_change
from memoryhub.registry.people import OWNER, active_owners, find_person, require_manager_of

LINK_LIFETIME = timedelta(minutes=15)
_TOKEN_BYTES = 32


def ensure_owner() -> User:
    """Return the first active owner; on first use, create one without a password."""
    return active_owners().first() or _first_owner()


def _first_owner() -> User:
    with transaction.atomic():
        owner = User.objects.create_superuser(OWNER)
        note_change(Subject.PERSON, owner.username, "made, as the first owner")
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
        SignInLink.objects.filter(expires_at__lt=clock.now()).delete()
        SignInLink.objects.create(token_hash=_hash(token), username=username, expires_at=clock.now() + LINK_LIFETIME)
        note_change(Subject.PERSON, username, "given a link to sign in")
    return token


def link(address: str, token: str) -> str:
    return f"{address}/signin/{token}"


def redeem_link_token(token: str) -> User:
    """Mark a link as used and return its user.

    Raises:
        Gone: the link was used, has expired, or doesn't exist.
    """
    now = clock.now()
    link = SignInLink.objects.filter(token_hash=_hash(token))
    # One UPDATE, so that only one of two simultaneous requests succeeds.
    if not link.filter(used_at__isnull=True, expires_at__gt=now).update(used_at=now):
        raise Gone("this sign-in link was already used or has expired; run `memory-hub signin` for a new one")
    return find_person(link.get().username)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


@never_cache
@require_safe
def follow_link(request: HttpRequest, token: str) -> HttpResponse:
    if request.method == "HEAD":  # link previews must not use up the link
        return HttpResponse()
    user = redeem_link_token(token)
    login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    return redirect("/")


@never_cache
def explain(request: HttpRequest, **_: object) -> HttpResponse:
    return render(request, "memoryhub/signin.html")


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    logout(request)
    return redirect("/admin/login/")
