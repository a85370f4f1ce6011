"""Put a backup back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from memoryhub.backups.restoring import restore
from memoryhub.core.commands import HubCommand, add_store_options, store_option
from memoryhub.core.identity import identify_project
from memoryhub.core.stores import project_store
from memoryhub.core.wording import counted


class Command(HubCommand):
    """``memory-hub restore``."""

    help = (
        "Verify a backup and put it in the place of a store, which is kept beside; others may have it open meanwhile."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the file, the store, and the say-so."""
        parser.add_argument("file", metavar="FILE", type=Path, help="what backup made")
        add_store_options(parser, "restore {}; default: the project of this folder")
        parser.add_argument("--replace", action="store_true", help="go on though the store has events that FILE lacks")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print what was done."""
        store = store_option(options) or project_store(identify_project(project=None, directory=Path.cwd()))
        done = restore(store=store, source=options["file"], replace=options["replace"])
        later = f"{counted(done.undone, 'later event')} {'is' if done.undone == 1 else 'are'} gone from it"
        undone = f"; {later}" if done.undone else ""
        kept = f"; as it was before: {done.kept}" if done.kept else ""
        events = counted(done.events, "event")
        self.stdout.write(f"{store.scope} {store.name}: {events} restored and verified{undone}{kept}")
