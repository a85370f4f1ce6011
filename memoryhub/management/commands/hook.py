"""`manage.py hook`: take one event of a client."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from memoryhub.management.base import HubCommand


class Command(HubCommand):
    """Exists for its help; ``memoryhub.cli`` takes the event itself, before Django is imported."""

    help = (
        "Take what a client tells at one of its hooks, as JSON on standard input. Never fails or delays the client: "
        "where no hub is running, the event waits in the spool."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare what the hook takes."""
        from memoryhub.config.clients import hook_clients

        parser.add_argument("client", help=" or ".join(hook_clients()))
        parser.add_argument("event", help="the client's own name of the event, such as SessionStart")
        parser.add_argument("--project", metavar="ID", help="the project; default: that of the folder in the event")

    def handle(self, *_: Any, client: str, event: str, project: str | None, **__: Any) -> None:
        """Take the event, for those who call the command from Python."""
        from memoryhub.client.hook.front import main

        main([client, event, *(["--project", project] if project else [])])
