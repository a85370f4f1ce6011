"""The places of stores by name: files in the home, the hub's own database, and the servers in the settings."""

from __future__ import annotations

from dataclasses import dataclass

from memoryhub import env
from memoryhub.core.backends.base import Departure
from memoryhub.core.backends.selected import ENGINE, places, stores
from memoryhub.core.errors import ConflictError, Invalid, NotFound
from memoryhub.core.permissions import Act, demand
from memoryhub.core.stores.store import arrival, use_store
from memoryhub.core.stores.store_id import StoreId
from memoryhub.transfer.moving.steps import parsed
from memoryhub.transfer.moving.switching import DatabasePlace, Peer, is_back

_POSTGRESQL = "postgresql"
_SCHEMES = ("postgresql://", "postgres://")
FILES = DatabasePlace(env.FILES, "")


@dataclass(frozen=True, slots=True)
class Way:
    source: DatabasePlace
    target: DatabasePlace


def place_named(name: str) -> DatabasePlace:
    """Return a place as `memory-hub move` takes it.

    Args:
        name: ``sqlite``, ``postgresql``, a name in ``[servers]`` of ``config.toml``, or an address.

    Raises:
        Invalid: nothing has this name.
    """
    if name == env.FILES:
        return FILES
    if name.startswith(_SCHEMES):
        names = {url: server for server, url in (*env.servers().items(), (_POSTGRESQL, _main()))}
        return DatabasePlace(names.get(name, ""), name)
    url = env.servers().get(name) or (_main() if name == _POSTGRESQL else "")
    if url:
        return DatabasePlace(name, url)
    if name == _POSTGRESQL:
        raise Invalid(
            f"no PostgreSQL is set: give its address as {env.DATABASE_VARIABLE}, as {env.DATABASE_SETTING} in "
            "config.toml, or in place of the word postgresql"
        )
    raise Invalid(
        f"{name!r} is no place: name sqlite, postgresql or one of [servers] in config.toml", choices=_place_names()
    )


def _place_names() -> list[str]:
    return [env.FILES, _POSTGRESQL, *env.servers()]


def _main() -> str:
    return env.database_url() or env.configured_database_url()


def own_place(store: StoreId) -> DatabasePlace:
    """Return where this hub has a store, or would have it."""
    if ENGINE == env.FILES:
        return FILES
    return place_named(places.server(store) or _POSTGRESQL)


def stores_in(place: DatabasePlace, *, departed: bool = False) -> list[StoreId]:
    """Return the stores in a place; with ``left`` those that it keeps after they have moved."""
    with Peer(place) as peer:
        return [parsed(text) for text in peer.call("stores_here", departed=departed)]


def way_to(store: StoreId, target: DatabasePlace) -> Way:
    """Return from where a store can move to a place: from this hub, or to it from where this hub's store was.

    Raises:
        NotFound: nothing says that this hub's store is in another place.
    """
    here = own_place(store)
    if here.url != target.url:
        return Way(here, target)
    if departure := places.departure(store):
        return Way(_of(departure), target)
    if target.url:
        return Way(FILES, target)
    if stores.exists(store):
        raise NotFound(f"{store.scope} {store.name!r} is in that place already")
    raise NotFound(f"there is no {store.scope} {store.name!r} here; run this where it is")


def last_way(store: StoreId, named: DatabasePlace | None) -> Way:
    """Return the way of a store's last move, which is not confirmed yet.

    Args:
        store: in this hub, or gone from it.
        named: the place that it was moved to, or the one that it came from.
    """
    here = own_place(store)
    other = named
    if named and named.url == here.url:
        other = None
    if departure := places.departure(store):
        there = other or _of(departure)
        # An undo that was interrupted: the move was from there to here
        return Way(there, here) if is_back(departure) else Way(here, there)
    if stores.exists(store):
        with use_store(store):
            source = arrival()
        if source:
            return Way(other or _of(Departure(**source)), here)
    if other:
        return Way(here, other)
    raise NotFound(f"{store.scope} {store.name!r} has not moved, or the move is confirmed")


def forget(store: StoreId) -> Departure:
    """Forget where a store of this process's place has gone: one of its name may be created here again.

    Raises:
        NotFound: it has not moved from here.
        ConflictError: the move is not confirmed.
    """
    demand(Act.GOVERN, to="move a store", place=store.place)
    departure = places.departure(store)
    if departure is None:
        raise NotFound(f"{store.scope} {store.name!r} has not moved from {stores.location(store)}")
    if departure.kept:
        raise ConflictError(f"the old place of {store.name!r} is still kept; confirm or undo the move first")
    places.forget_departure(store)
    return departure


def _of(departure: Departure) -> DatabasePlace:
    if not departure.name:
        raise Invalid(f"the move was to {departure.address}; give its whole address with --to")
    return place_named(departure.name)
