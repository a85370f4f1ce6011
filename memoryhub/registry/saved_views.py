"""Saved views: a person's names for the filters, search and order of a list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl, urlencode

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from memoryhub.core.errors import ConflictError, Invalid, NotFound
from memoryhub.core.secrets.sanitize import sanitize_text
from memoryhub.core.stores.store import StoreId
from memoryhub.core.text import one_line
from memoryhub.models import SavedView

_MAX_NAME, _MAX_QUERY, _MAX_VIEWS = 60, 2_000, 50
# Not part of a view: the page number, Django's error flag, the expanded facet
_NOT_SAVED = ("p", "e", "more", "csrfmiddlewaretoken")


def normal_query(query: str) -> str:
    """Return a query with its parameters in order, without the page number; equal for equal lists."""
    return urlencode(sorted((name, value) for name, value in parse_qsl(query) if name not in _NOT_SAVED))


def saved_views(*, user: Any, stores: Iterable[StoreId] | None = None, page: str = "") -> QuerySet[SavedView]:
    """Return a person's views by name, of all stores and lists by default."""
    views = SavedView.objects.filter(username=user.get_username()).order_by("name")
    if stores is not None:
        views = views.filter(store__in=[store.alias for store in stores])
    if page:
        views = views.filter(page=page)
    return views


def save_view(*, user: Any, store: StoreId, page: str, name: str, query: str) -> SavedView:
    """Save a view.

    Raises:
        Invalid: there are no filters to save, or the name or the query is empty or too long, or there are too many.
        ConflictError: the person has a view with this name in the list.
    """
    pairs = [(key, sanitize_text(value)[0]) for key, value in parse_qsl(normal_query(query)[: _MAX_QUERY + 1])]
    sanitized = urlencode(pairs)
    if not sanitized:
        raise Invalid("there is nothing to save: choose a filter, a search or an order first")
    if len(sanitized) > _MAX_QUERY:
        raise Invalid(f"a view's address may have at most {_MAX_QUERY:,} characters")
    if saved_views(user=user, stores=[store], page=page).count() >= _MAX_VIEWS:
        raise Invalid(f"a list may have at most {_MAX_VIEWS} views; delete one first")
    return _stored(SavedView(username=user.get_username(), store=store.alias, page=page, query=sanitized), name)


def rename_view(*, user: Any, store: StoreId, view_id: int, name: str) -> SavedView:
    """Rename a person's own view.

    Raises:
        NotFound: the person has no such view.
        Invalid, ConflictError: as for ``save_view``.
    """
    return _stored(_view_of(user, store, view_id), name)


def delete_view(*, user: Any, store: StoreId, view_id: int) -> SavedView:
    """Delete a person's own view.

    Raises:
        NotFound: the person has no such view.
    """
    view = _view_of(user, store, view_id)
    saved_views(user=user).filter(pk=view.pk).delete()
    return view


def _view_of(user: Any, store: StoreId, view_id: int) -> SavedView:
    view = saved_views(user=user, stores=[store]).filter(pk=view_id).first()
    if view is None:
        raise NotFound("you have no such view; it may be deleted")
    return view


def _stored(view: SavedView, name: str) -> SavedView:
    view.name = sanitize_text(one_line(name, _MAX_NAME + 1))[0]
    if not 0 < len(view.name) <= _MAX_NAME:
        raise Invalid(f"a view's name must have 1 to {_MAX_NAME} characters")
    try:
        with transaction.atomic():
            view.save()
    except IntegrityError as error:
        raise ConflictError(f"you have a view {view.name!r} of this list already; choose another name") from error
    return view
