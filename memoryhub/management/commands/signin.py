from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from memoryhub.core.errors import Invalid, Unavailable
from memoryhub.core.permissions import ROLES
from memoryhub.management.base import CommandGroup, HubCommand, use_cli_origin


class Command(HubCommand):
    help = "Print a link that signs a person in to the running hub once, within 15 minutes."
    group = CommandGroup.RUN

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--user", metavar="NAME", help="the person; default: the first owner")
        parser.add_argument("--role", choices=ROLES, help="with --user: add this person, or change their role")

    def handle(self, *args: Any, **options: Any) -> None:
        from memoryhub.ops.serving import process
        from memoryhub.registry.people import ensure_person
        from memoryhub.web import signin

        running = process.find_running()
        if running is None:
            raise Unavailable("Memory Hub is not running; start it with `memory-hub serve`, which prints a link")
        if options["role"] and not options["user"]:
            raise Invalid("--role needs --user")
        with use_cli_origin():
            if options["user"]:
                ensure_person(name=options["user"], role=options["role"])
            link = signin.new_link(running.public_url or running.address, username=options["user"] or "")
        self.stdout.write(link)
