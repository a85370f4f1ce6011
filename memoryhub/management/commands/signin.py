from __future__ import annotations

import getpass
from typing import Any

from django.core.management.base import CommandParser

from memoryhub.core.errors import Invalid, Unavailable
from memoryhub.core.origin import use_origin
from memoryhub.core.permissions import ROLES
from memoryhub.core.validation import command_from
from memoryhub.management.base import Group, HubCommand


class Command(HubCommand):
    help = "Print a link that signs a person in to the running hub once, within 15 minutes."
    group = Group.RUN

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--user", metavar="NAME", help="the person; default: the first owner")
        parser.add_argument("--role", choices=ROLES, help="with --user: add this person, or change their role")

    def handle(self, *args: Any, **options: Any) -> None:
        from memoryhub.ops.serving import lock
        from memoryhub.web import signin

        running = lock.find_running()
        if running is None:
            raise Unavailable("Memory Hub is not running; start it with `memory-hub serve`, which prints a link")
        if options["role"] and not options["user"]:
            raise Invalid("--role needs --user")
        with use_origin(source="cli", actor=getpass.getuser()):
            name = self._person(options["user"], options["role"]) if options["user"] else signin.ensure_owner().username
            token = signin.create_link_token(username=name)
        self.stdout.write(signin.link(running.public_url or running.address, token))

    def _person(self, name: str, role: str | None) -> str:
        from memoryhub.registry import people

        known = {person.name: person for person in people.list_people()}
        if name in known and role not in (None, known[name].role):
            people.change_role(name=name, role=str(role))
        elif name not in known and role is None:
            raise Invalid(f"there is no person {name[:64]!r} yet; add --role to create them: {', '.join(ROLES)}")
        elif name not in known:
            people.add_person(command=command_from(people.PersonAdd, {"name": name, "role": role}))
        return name
