"""What pages share: stores as places with an address, permissions, forms and messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import get_script_prefix, get_urlconf, reverse, set_script_prefix, set_urlconf
from django.utils.http import urlencode
from django.views.decorators.cache import never_cache

from memoryhub.core.errors import HubError
from memoryhub.core.origin import use_origin
from memoryhub.core.permissions import Act, reaches, require
from memoryhub.core.stores.store import GLOBAL_STORE, Scope, StoreId, list_orgs, list_projects, org_store, project_store
from memoryhub.core.text import as_sentence

_KINDS = {Scope.PROJECT: "project", Scope.ORG: "organisation", Scope.GLOBAL: "global scope"}
_GROUPS = {Scope.PROJECT: "Projects", Scope.ORG: "Organisations", Scope.GLOBAL: "For all projects"}
_ADDRESSES = {Scope.PROJECT: "/p/{}/admin/", Scope.ORG: "/o/{}/admin/", Scope.GLOBAL: "/global/admin/"}

# Those that are not found by the kind of their streams
_PAGES = {"conflict": "admin:memories_conflict_change", "import": "admin:import"}


@dataclass(frozen=True, slots=True)
class StorePlace:
    id: str
    label: str
    # "project", "organisation" or "global scope"
    kind: str
    # The address of its overview
    url: str
    # Its name in grants
    key: str = ""

    @property
    def this(self) -> str:
        return f"{'the' if self.kind == 'global scope' else 'this'} {self.kind}"

    @property
    def is_project(self) -> bool:
        return self.kind == "project"

    @classmethod
    def of(cls, store: StoreId) -> StorePlace:
        label = "Global" if store == GLOBAL_STORE else store.name
        return cls(store.name, label, _KINDS[store.scope], _ADDRESSES[store.scope].format(store.name), store.place)


def entity_path(store: StoreId, entity_type: str, entity_id: int) -> str:
    """Return the path of the page of an entity; outside a request, which has the store in its address."""
    from memoryhub.core.admin import page_of_entity  # the app of the admin imports this module before there are models

    prefix, urlconf = get_script_prefix(), get_urlconf()
    set_script_prefix(StorePlace.of(store).url.removesuffix("admin/"))
    set_urlconf(settings.STORE_URLCONF)
    try:
        if page := _PAGES.get(entity_type):
            return reverse(page, args=[entity_id])
        return page_of_entity(entity_type, entity_id)
    finally:
        set_script_prefix(prefix)
        set_urlconf(urlconf)


def visible_stores() -> list[StoreId]:
    stores = [*map(project_store, list_projects()), *map(org_store, list_orgs())]
    if reaches(GLOBAL_STORE.place):
        stores.append(GLOBAL_STORE)
    return stores


def other_places(store: StoreId | None) -> list[tuple[str, list[StorePlace]]]:
    """Return the stores except ``store`` in groups with a title; empty groups are left out."""
    groups: dict[str, list[StorePlace]] = {}
    for other in visible_stores():
        if other != store:
            groups.setdefault(_GROUPS[other.scope], []).append(StorePlace.of(other))
    return list(groups.items())


def with_query(url: str, **query: object) -> str:
    """Return the URL with the parts of the query that are not empty."""
    parts = {name: str(value) for name, value in query.items() if value}
    return f"{url}?{urlencode(parts)}" if parts else url


def number_from(text: str, *, default: int = 0) -> int:
    """Return a number of at most 18 digits, as pages send it, or the default."""
    if text.isascii() and text.isdecimal() and len(text) <= 18:
        return int(text)
    return default


View = Callable[..., HttpResponse]


def hub_page(act: Act, *, to: str = "") -> Callable[[View], View]:
    """Return a decorator for a page that requires a permission; signed-out users go to the sign-in page.

    ``to`` is the page's purpose, for the error message; by default all that ``act`` allows.
    """

    def decorate(view: View) -> View:
        @wraps(view)
        def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            if not request.user.is_authenticated:
                return redirect(settings.LOGIN_URL)
            require(request.user, act, to=to)
            with use_origin(source="admin", actor=request.user.get_username()):
                return view(request, *args, **kwargs)

        return never_cache(wrapper)

    return decorate


def apply_change(request: HttpRequest, change: Callable[[], object], success: str) -> None:
    """Call ``change`` and queue its error, or ``success``, as a message for the next page."""
    try:
        change()
    except HubError as error:
        messages.error(request, as_sentence(error.message))
    else:
        messages.success(request, success)
