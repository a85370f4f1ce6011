"""Say what is wrong with this hub, and how to mend it."""

from __future__ import annotations

import getpass
import json
import sys
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from memoryhub import env
from memoryhub.core import log
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.log.comparing import SMALL_LOG
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import StoreId
from memoryhub.core.text import counted, hanging
from memoryhub.management.base import HubCommand, add_store_options, store_option
from memoryhub.ops.jobs.targets import Target, all_stores

EXIT_FOUND = 15


class Command(HubCommand):
    """``memory-hub doctor``."""

    help = f"Examine every store and the hub itself; each finding says how to mend it (exit code {EXIT_FOUND} if any)."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the store and ``--json``."""
        add_store_options(parser, "examine {} alone; default: all, and the hub")
        parser.add_argument("--json", action="store_true", help="print the findings as JSON")
        parser.add_argument(
            "--deep",
            action="store_true",
            help=f"compare all read models with the log; default: a sample where it has over {SMALL_LOG:,} events",
        )
        parser.add_argument(
            "--accept-loss",
            metavar="REASON",
            nargs="?",
            const="",
            help="write again to a store whose log lost acknowledged events; the log records what was lost",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the findings."""
        from memoryhub.ops.doctor import examine_hub, examine_store

        if not env.home().is_dir():
            raise NotFound(f"there is no home folder {env.home()} yet")
        store = store_option(options)
        if store and not store.path.parent.is_dir():
            raise NotFound(f"there is no {store.scope} {store.name!r} in this hub")
        if options["accept_loss"] is not None:
            self._accept(store, options["accept_loss"])
            return
        stores = [store] if store else all_stores()
        # First: opening a store makes the home folder private, and replaces a damaged template.
        in_hub = [] if store else examine_hub(deep=options["deep"])
        examined = [examine_store(each, deep=options["deep"]) for each in stores]
        found = [finding for each in examined for finding in each.findings] + in_hub
        if options["json"]:
            self.stdout.write(json.dumps([asdict(each) for each in found], ensure_ascii=False))
        else:
            for each in found:
                self.stdout.write(hanging(f"{each.where}: {each.what}.\nmend: {each.mend}"))
            for target, examination in zip(map(Target, stores), examined, strict=True):
                if examination.compared:
                    self.stdout.write(f"{target.title}: {examination.compared}")
            self._sum_up(len(stores), len(found))
        if found:
            sys.exit(EXIT_FOUND)

    def _accept(self, store: StoreId | None, reason: str) -> None:
        if store is None:
            raise Invalid("--accept-loss needs the store: say --project ID, --org ID or --global")
        with use_origin(source="cli", actor=getpass.getuser()):
            event = log.accept_loss(store=store, reason=reason)
        lost = event.payload.anchored_position - event.payload.found_position
        what = f"{counted(lost, 'event')} lost" if lost > 0 else "the log as it is"
        self.stdout.write(f"accepted: {what}; #{event.position} records it, and the store can be written to again")

    def _sum_up(self, stores: int, findings: int) -> None:
        examined = f"{stores} store{'' if stores == 1 else 's'} examined"
        self.stdout.write(
            f"{examined}: {findings} finding{'' if findings == 1 else 's'}" if findings else f"{examined}: all is well"
        )
