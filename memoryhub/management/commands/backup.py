from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from memoryhub.core.errors import Invalid
from memoryhub.core.stores.store import use_store
from memoryhub.management.base import HubCommand, add_store_options, store_option, use_cli_origin
from memoryhub.ops.backups.service import back_up, back_up_hub_tables, has_nothing_to_back_up
from memoryhub.ops.jobs.running import JobTarget, all_stores


class Command(HubCommand):
    help = "Back up every store and hub.db, or one store, while they are in use; each backup is verified."

    def add_arguments(self, parser: CommandParser) -> None:
        add_store_options(parser, "back up only {}; default: all stores and hub.db")
        parser.add_argument(
            "--to", metavar="FILE", type=Path, help="write to FILE instead of the backups folder; one store only"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        store = store_option(options)
        if options["to"] and store is None:
            raise Invalid("--to needs one store; choose it with --project, --org or --global")
        with use_cli_origin():
            for target in [store] if store else all_stores():
                with use_store(target):
                    is_left_out = store is None and has_nothing_to_back_up()
                    result = "no events yet" if is_left_out else back_up(options["to"]).describe()
                self.stdout.write(f"{JobTarget(target).title}: {result}")
            if store is None:
                self.stdout.write(back_up_hub_tables())
