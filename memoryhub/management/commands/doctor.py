from __future__ import annotations

import getpass
import sys
from typing import Any

from django.core.management.base import CommandParser

from memoryhub import env
from memoryhub.core import log
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.log.comparing import SMALL_LOG
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import StoreId, folder_of
from memoryhub.core.text import counted, hanging
from memoryhub.management.base import HubCommand, add_store_options, store_option
from memoryhub.ops.jobs.targets import Target, all_stores

EXIT_FOUND = 15


class Command(HubCommand):
    help = f"Check every store and the hub, and print each problem with its repair (exit code {EXIT_FOUND} if any)."
    reads = True

    def add_arguments(self, parser: CommandParser) -> None:
        add_store_options(parser, "check only {}; default: all stores and the hub")
        parser.add_argument(
            "--deep",
            action="store_true",
            help=f"compare all read models with the log; default: a sample if the log has over {SMALL_LOG:,} events",
        )
        parser.add_argument(
            "--accept-loss",
            metavar="REASON",
            nargs="?",
            const="",
            help="make a store writable again whose log lost acknowledged events; the loss is recorded in the log",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        from memoryhub.ops.doctor import examine_hub, examine_store

        if not env.home().is_dir():
            raise NotFound(f"the home folder {env.home()} does not exist yet")
        store = store_option(options)
        if store and not folder_of(store).is_dir():
            raise NotFound(f"there is no {store.scope} {store.name!r} in this hub")
        if options["accept_loss"] is not None:
            self._accept(store, options["accept_loss"])
            return
        stores = [store] if store else all_stores()
        # First, because opening a store makes the home folder private and replaces a damaged template
        in_hub = [] if store else examine_hub(deep=options["deep"])
        examined = [examine_store(store_id, deep=options["deep"]) for store_id in stores]
        found = [finding for examination in examined for finding in examination.findings] + in_hub
        lines = [hanging(f"{finding.where}: {finding.what}.\nrepair: {finding.mend}") for finding in found]
        for target, examination in zip(map(Target, stores), examined, strict=True):
            if examination.compared:
                lines.append(f"{target.title}: {examination.compared}")
        self.answer(found, [*lines, _sum(len(stores), len(found))])
        if found:
            sys.exit(EXIT_FOUND)

    def _accept(self, store: StoreId | None, reason: str) -> None:
        if store is None:
            raise Invalid("--accept-loss needs a store: add --project ID, --org ID or --global")
        with use_origin(source="cli", actor=getpass.getuser()):
            event = log.accept_loss(store=store, reason=reason)
        lost = event.payload.anchored_position - event.payload.found_position
        what = f"{counted(lost, 'event')} lost" if lost > 0 else "the current log"
        self.stdout.write(f"accepted: {what}, recorded as #{event.position}; the store is writable again")


def _sum(stores: int, findings: int) -> str:
    return f"{counted(stores, 'store')} examined: {counted(findings, 'finding') if findings else 'all is well'}"
