"""Permission checks of pages, and the ``may`` variable of templates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.http import url_has_allowed_host_and_scheme

from memoryhub.core.permissions import Act, may, require


def needs(act: Act, view: Callable[..., Any]) -> Callable[..., Any]:
    """Require a permission to call a view: ``self.admin_site.admin_view(needs(Act.WRITE, self.settle_view))``.

    The view's first argument is the request: pass a function or a bound method.
    """

    @wraps(view)
    def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        require(request.user, act)
        response: HttpResponseBase = view(request, *args, **kwargs)
        return response

    return checked


def next_page(request: HttpRequest) -> str:
    """Return the page of this hub that a form leads to with ``next``, or "" if it names none."""
    page: str = request.POST.get("next", "")
    is_of_this_hub = page.startswith("/") and url_has_allowed_host_and_scheme(page, allowed_hosts=None)
    return page if is_of_this_hub else ""


class Rights:
    # Evaluated lazily by templates: {% if may.review %}
    def __init__(self, user: Any) -> None:
        self._user = user

    def __getitem__(self, act: str) -> bool:
        return may(self._user, Act(act))

    def __iter__(self) -> Iterator[str]:
        return (act for act in Act if self[act])


def rights(request: HttpRequest) -> dict[str, Any]:
    # Early error pages have no user: no permissions then.
    user = getattr(request, "user", None)
    return {"may": Rights(user) if user is not None else {}}
