"""A sample project to look at."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from memoryhub.core.errors import Invalid
from memoryhub.demo.project import demo_store, make_demo, remove_demo, story
from memoryhub.management.base import HubCommand
from memoryhub.ops.serving import lock


class Command(HubCommand):
    """``memory-hub demo``."""

    help = (
        "Make a sample project, demo, with weeks of sessions, memories and decisions to look at; --remove deletes it."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Add ``--remove`` and ``--force``."""
        parser.add_argument("--remove", action="store_true", help="delete it, if nobody else has written to it")
        parser.add_argument("--force", action="store_true", help="with --remove: with what you have done in it")

    def handle(self, *args: Any, **options: Any) -> None:
        """Make it and say where to look, or delete it."""
        if options["force"] and not options["remove"]:
            raise Invalid("--force goes with --remove alone")
        name = demo_store().name
        if options["remove"]:
            self.stdout.write(
                f"the project {name} is gone, with its {remove_demo(also_others=options['force']):,} events"
            )
            return
        self.stdout.write(f"the project {name} is there, with {make_demo():,} events of eleven weeks. Look at:\n\n")
        running = lock.find_running()
        address = running.address.rstrip("/") if running else ""
        pages = {f"{address}/p/{name}/admin/{page.path}": page.see for page in story().pages}
        for page, see in pages.items():
            self.stdout.write(f"  {page:<{max(map(len, pages))}}  {see}")
        self.stdout.write("\n`memory-hub signin` prints a link." if running else "\n`memory-hub serve` shows them.")
