"""Agents' tokens: made, listed and revoked."""

from __future__ import annotations

import getpass
from typing import Any

from django.core.management.base import CommandParser

from memoryhub.core import clock
from memoryhub.core.origin import use_origin
from memoryhub.core.permissions import VERBS
from memoryhub.core.validation import command_from
from memoryhub.management.base import HubCommand


class Command(HubCommand):
    """``memory-hub token create|list|revoke``."""

    help = "Make, list and revoke tokens that let agents in to REST and to MCP over HTTP."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add what to do."""
        acts = parser.add_subparsers(dest="act", required=True, metavar="create|list|revoke")
        create = acts.add_parser("create", help="make a token and print its text, which is shown this once")
        create.add_argument("--name", required=True, help="events say token:NAME")
        create.add_argument(
            "--project", action="append", dest="projects", metavar="ID", help="may be repeated; default: the whole hub"
        )
        create.add_argument(
            "--verbs",
            type=lambda text: text.split(","),
            metavar=",".join(VERBS),
            help="write comes with read, and admin with both (default: read)",
        )
        create.add_argument("--days", type=int, help="how long it counts (default: 90)")
        acts.add_parser("list", help="list all tokens, those that count first")
        acts.add_parser("revoke", help="let a token count no more").add_argument("name")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it."""
        from memoryhub.ops.serving.worker import prepare_databases

        prepare_databases()
        with use_origin(source="cli", actor=getpass.getuser()):
            getattr(self, f"_{options['act']}")(options)

    def _create(self, options: dict[str, Any]) -> None:
        from memoryhub.registry import tokens

        command = command_from(tokens.TokenCreate, options)
        token, text = tokens.create_token(command=command, by=getpass.getuser())
        self.stderr.write(f"{tokens.describe(token)}. Its text is kept nowhere; this is the only time it is shown:")
        self.stdout.write(text)

    def _list(self, _: dict[str, Any]) -> None:
        from memoryhub.registry import tokens

        for token in tokens.list_tokens():
            self.stdout.write(f"{token.prefix}…  {tokens.describe(token)}; {tokens.token_status(token, clock.now())}")

    def _revoke(self, options: dict[str, Any]) -> None:
        from memoryhub.registry import tokens

        token = tokens.revoke_token(name=options["name"], by=getpass.getuser())
        self.stdout.write(f"{token.name}: {tokens.token_status(token, clock.now())}")
