from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from memoryhub.core.errors import Invalid
from memoryhub.demo.project import demo_store, make_demo, remove_demo, story
from memoryhub.management.base import CommandGroup, HubCommand
from memoryhub.ops.serving import process


class Command(HubCommand):
    help = "Create a sample project, demo, with weeks of sessions, memories and decisions; --remove deletes it."
    group = CommandGroup.CONTENT

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--remove", action="store_true", help="delete it, unless it has been changed")
        parser.add_argument("--force", action="store_true", help="with --remove: delete it even if it has been changed")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["force"] and not options["remove"]:
            raise Invalid("--force needs --remove")
        name = demo_store().name
        if options["remove"]:
            self.stdout.write(f"deleted project {name} with {remove_demo(also_others=options['force']):,} events")
            return
        self.stdout.write(f"created project {name} with {make_demo():,} events of eleven weeks. Pages to see:\n\n")
        address = ""
        sign_in = "`memory-hub serve` starts the server for them."
        if running := process.find_running():
            address = running.address.rstrip("/")
            sign_in = "`memory-hub signin` prints a sign-in link."
        pages = {f"{address}/p/{name}/admin/{page.path}": page.see for page in story().pages}
        for page, see in pages.items():
            self.stdout.write(f"  {page:<{max(map(len, pages))}}  {see}")
        self.stdout.write(f"\n{sign_in}")
