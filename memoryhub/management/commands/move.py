from __future__ import annotations

import shlex
from typing import Any

from django.core.management.base import CommandParser

from memoryhub import env
from memoryhub.core import home_database
from memoryhub.core.errors import ConflictError, Invalid, Moved
from memoryhub.core.home_database import masked
from memoryhub.core.stores.store import GLOBAL_STORE, StoreId
from memoryhub.core.text import counted
from memoryhub.management.base import HubCommand, store_option, use_cli_origin
from memoryhub.ops.hub_databases import copy_hub_tables
from memoryhub.transfer.moving.service import (
    Way,
    confirm,
    forget,
    last_way,
    move,
    own_place,
    place_named,
    stores_in,
    undo,
    way_to,
)
from memoryhub.transfer.moving.switching import DatabasePlace, Moving


class Command(HubCommand):
    help = (
        "Move a project between SQLite and PostgreSQL, or between servers: its log is copied and compared, and the old "
        "place is kept, read-only, until --confirm."
    )
    is_slim = True

    def add_arguments(self, parser: CommandParser) -> None:
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("project", nargs="?", metavar="PROJECT", help="the project")
        what.add_argument("--org", metavar="ID", help="an organisation's store instead of a project's")
        what.add_argument("--global", action="store_true", dest="over_global", help="the store of the global scope")
        what.add_argument(
            "--all", action="store_true", help="every store, and the hub's people, tokens, members and schedules"
        )
        parser.add_argument(
            "--to",
            metavar="PLACE",
            help="the new place: sqlite, postgresql, a name in [servers] of config.toml, or an address; the same with "
            "--confirm and --undo",
        )
        then = parser.add_mutually_exclusive_group()
        then.add_argument("--confirm", action="store_true", help="compare again, and remove the old place")
        then.add_argument(
            "--undo", action="store_true", help="return to the old place, with what was written in the new one"
        )
        then.add_argument(
            "--forget",
            action="store_true",
            help="forget, in the old place, a move that is confirmed: a store of that name may be created there again",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        target = place_named(options["to"]) if options["to"] else None
        if options["forget"]:
            self._forget(options)
            return
        ends = options["confirm"] or options["undo"]
        if target is None and not ends:
            raise Invalid("name the place to move to: --to sqlite, --to postgresql or --to SERVER")
        store = store_option(options)
        with use_cli_origin():
            if store is None:
                self._all(target, options)
            elif ends:
                self._end(store, last_way(store, target), options)
            elif target:
                self._move(store, way_to(store, target))
                self.stdout.write(_what_next(options, target))

    def _forget(self, options: dict[str, Any]) -> None:
        store = store_option(options)
        if store is None:
            raise Invalid("--forget is for one store: name the project, --org or --global")
        with use_cli_origin():
            departure = forget(store)
        self.stdout.write(
            f"forgotten that {store.scope} {store.name} has moved to {departure.address}; the store there is unchanged"
        )

    def _move(self, store: StoreId, way: Way) -> None:
        moving = move(store, way.source, way.target, lambda text: self.stderr.write(f"{store.name}: {text}"))
        self._report(store, moving, "had moved already to" if moving.already else "is moved to")

    def _end(self, store: StoreId, way: Way, options: dict[str, Any]) -> None:
        if options["confirm"]:
            moving = confirm(store, way.source, way.target)
            self._report(store, moving, "is confirmed in", "its old place is removed")
        else:
            self._report(store, undo(store, way.source, way.target), "is back in")

    def _all(self, target: DatabasePlace | None, options: dict[str, Any]) -> None:
        if target is None:
            raise Invalid("name the new place too: --to sqlite, --to postgresql or --to SERVER")
        source = own_place(GLOBAL_STORE)
        if source.url == target.url:
            source = place_named(env.FILES)
        if source.url == target.url:
            raise Invalid("all stores are in that place; run this where they are")
        if options["confirm"] or options["undo"]:
            self._end_in(Way(source, target), options)
            self._end_in(Way(target, source), options)
            return
        rows = copy_hub_tables(source.url, target.url)
        self.stdout.write(f"copied {counted(rows, 'row')} of the hub's own tables")
        for store in stores_in(source, departed=True):
            try:
                self._move(store, Way(source, target))  # finishes what was interrupted
            except (ConflictError, Moved) as error:  # it is in a third place
                self.stderr.write(error.message)
        for store in stores_in(source):
            self._move(store, Way(source, target))
        _record_report(target)
        self.stdout.write(_what_next(options, target))

    def _end_in(self, way: Way, options: dict[str, Any]) -> None:
        stores = stores_in(way.source, departed=True)
        for store in stores:
            self._end(store, way, options)
        if stores and options["undo"]:
            _record_report(way.source)

    def _report(self, store: StoreId, moving: Moving, what: str, then: str = "") -> None:
        parts = [f"{store.scope} {store.name} {what} {moving.address}, {counted(moving.events, 'event')}"]
        if moving.held:
            parts.append(f"writers waited {moving.held:.2f} s")
        if then:
            parts.append(then)
        self.stdout.write("; ".join(parts))


def _what_next(options: dict[str, Any], target: DatabasePlace) -> str:
    to = shlex.quote(target.name or masked(target.url))
    places = "the old place"
    them = "it"
    if options["org"]:
        what = f"--org {options['org']}"
    elif options["all"]:
        what = "--all"
        places = "the old places"
        them = "them"
    elif options["over_global"]:
        what = "--global"
    else:
        what = options["project"]
    command = f"memory-hub move {what}"
    lines = [f"`{command} --confirm --to {to}` removes {places}, `{command} --undo --to {to}` returns to {them}"]
    # Servers of the settings are found by name
    if target.url != env.database_url() and target.name not in env.servers():
        config = f"{env.DATABASE_SETTING} in {env.home()}/{env.CONFIG_FILE}"
        act = f"set {env.DATABASE_VARIABLE}={env.FILES}"
        if target.url:
            act = f"set {config} to its address"
        elif options["all"]:
            act = f"remove {config} if it is set, and unset {env.DATABASE_VARIABLE}"
        lines.append(f"to work there, {act}; then restart `memory-hub serve` and the clients")
    return "\n".join(lines)


# A home whose stores have all moved belongs to their new place (decision 80)
def _record_report(place: DatabasePlace) -> None:
    if place.name not in env.servers():
        home_database.record(place.url)
