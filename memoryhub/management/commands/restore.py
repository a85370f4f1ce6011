from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from memoryhub.config.identity import identify_project
from memoryhub.config.repository import working_folder
from memoryhub.core.errors import ConflictError
from memoryhub.core.stores.store import project_store
from memoryhub.core.text import counted
from memoryhub.management.base import HubCommand, add_store_options, store_option
from memoryhub.ops.backups.restoring import restore, restore_hub
from memoryhub.ops.backups.service import require_restorable
from memoryhub.ops.serving import process


class Command(HubCommand):
    help = "Verify a backup and replace a store with it, also while the store is in use; the replaced file is kept."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", type=Path, help="a backup")
        where = add_store_options(parser, "restore {}; default: the project of this folder")
        where.add_argument("--hub", action="store_true", help="restore hub.db, while no hub runs")
        parser.add_argument(
            "--replace", action="store_true", help="restore even if the store has events that FILE lacks"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        require_restorable()
        if options["hub"]:
            self._restore_hub(options["file"])
            return
        store = store_option(options) or project_store(identify_project(project=None, directory=working_folder()))
        restored = restore(store=store, source=options["file"], replace=options["replace"])
        parts = [f"{counted(restored.events, 'event')} restored and verified"]
        if restored.undone:
            parts.append(f"{counted(restored.undone, 'later event')} removed")
        if restored.lost:
            parts.append(f"{counted(restored.lost, 'acknowledged event')} lost: in no readable file")
        if restored.previous_file:
            parts.append(f"previous file: {restored.previous_file}")
        self.stdout.write(f"{store.scope} {store.name}: {'; '.join(parts)}")

    def _restore_hub(self, source: Path) -> None:
        running = process.find_running()
        if running:
            where = f"{running.address} (process {running.pid})"
            raise ConflictError(f"the hub is running at {where}: `memory-hub stop` ends it")
        previous_file = restore_hub(source=source)
        previous = f"; previous file: {previous_file}" if previous_file else ""
        self.stdout.write(f"hub.db: restored{previous}")
