from __future__ import annotations

import getpass
from typing import Any

from django.core.management.base import CommandParser

from memoryhub.core import clock
from memoryhub.core.permissions import VERBS
from memoryhub.core.validation import command_from
from memoryhub.management.base import CommandGroup, HubCommand, use_cli_origin, whole_number
from memoryhub.ops.hub_databases import prepare_databases
from memoryhub.registry import tokens


class Command(HubCommand):
    help = "Create, list and revoke tokens for REST and for MCP over HTTP."
    group = CommandGroup.RUN
    reads = ("list",)

    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True, metavar="create|list|revoke")
        create = acts.add_parser("create", help="create a token and print it; it is shown only once")
        create.add_argument("--name", required=True, help="shown as the actor in events: token:NAME, or PERSON/NAME")
        create.add_argument(
            "--project",
            action="append",
            dest="projects",
            metavar="ID",
            help="allow only this project; may be repeated; default: all",
        )
        create.add_argument(
            "--org",
            action="append",
            dest="orgs",
            metavar="ID",
            help="allow only this organisation and its projects; may be repeated",
        )
        create.add_argument("--person", metavar="NAME", help="it acts as this person, with at most their rights")
        create.add_argument(
            "--verbs",
            type=lambda text: text.split(","),
            metavar=",".join(VERBS),
            help="write includes read, admin includes both (default: read)",
        )
        create.add_argument("--days", type=whole_number, help="days until it expires (default: 90)")
        acts.add_parser("list", help="list tokens, valid ones first")
        acts.add_parser("revoke", help="revoke a token").add_argument("name")

    def handle(self, *args: Any, **options: Any) -> None:
        prepare_databases()
        with use_cli_origin():
            getattr(self, f"_{options['act']}")(options)

    def _create(self, options: dict[str, Any]) -> None:
        command = command_from(tokens.TokenCreate, options)
        token, text = tokens.create_token(command=command, by=getpass.getuser())
        self.stderr.write(f"{tokens.describe(token)}. It is not stored and is shown only now:")
        self.stdout.write(text)

    def _list(self, _: dict[str, Any]) -> None:
        listed = [*tokens.list_tokens()]
        now = clock.now()
        lines = [f"{token.prefix}…  {tokens.describe(token)}; {tokens.token_status(token, now)}" for token in listed]
        self.answer({"results": [tokens.token_facts(token, now) for token in listed]}, lines)

    def _revoke(self, options: dict[str, Any]) -> None:
        token = tokens.revoke_token(name=options["name"], by=getpass.getuser())
        self.stdout.write(f"{token.name}: {tokens.token_status(token, clock.now())}")
