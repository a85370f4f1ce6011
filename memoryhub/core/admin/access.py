"""What a page needs of who calls it, and what templates ask before they show a button."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from memoryhub.core.permissions import Act, may, require

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def needs(act: Act, view: Callable[..., Any]) -> Callable[..., Any]:
    """Return a view that only those may call who may do ``act``; others get the page of ``Forbidden``.

    For a view whose first argument is the request: a function, or a method taken from its object, as in
    ``self.admin_site.admin_view(needs(Act.WRITE, self.settle_view))``.
    """

    @wraps(view)
    def asked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        require(request.user, act)
        answer: HttpResponseBase = view(request, *args, **kwargs)
        return answer

    return asked


def needs_to_change(act: Act, view: Callable[..., Any]) -> Callable[..., Any]:
    """Return a view that everybody may see, and only those may send a form to who may do ``act``."""

    @wraps(view)
    def asked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method not in SAFE_METHODS:
            require(request.user, act)
        answer: HttpResponseBase = view(request, *args, **kwargs)
        return answer

    return asked


class Rights:
    """What a page's user may do, asked when it is asked for: ``{% if may.review %}``."""

    def __init__(self, user: Any) -> None:
        self._user = user

    def __getitem__(self, act: str) -> bool:
        return may(self._user, Act(act))

    def __iter__(self) -> Iterator[str]:
        return (act for act in Act if self[act])


def rights(request: HttpRequest) -> dict[str, Any]:
    """Return ``may`` for every template; nobody may do anything where no user is known, as on an early error page."""
    user = getattr(request, "user", None)
    return {"may": Rights(user) if user is not None else {}}
