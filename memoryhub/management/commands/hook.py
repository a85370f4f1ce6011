from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterable
from typing import Any

from memoryhub.config.clients import hook_clients
from memoryhub.management.base import CommandGroup, HubCommand


# Only for --help: ``memoryhub.cli`` takes the event before Django is imported
class Command(HubCommand):
    help = (
        "Capture an event of a client's hook, as JSON on standard input. Never fails or delays the client: without a "
        "running hub, the event is spooled."
    )
    group = CommandGroup.RUN

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("client", help=" or ".join(hook_clients()))
        parser.add_argument("event", help="the client's name of the event, such as SessionStart")
        parser.add_argument("--project", metavar="ID", help="the project; default: that of the event's folder")

    def values(self) -> dict[str, Iterable[str]]:
        return {"client": hook_clients()}

    def handle(self, *_: Any, client: str, event: str, project: str | None, **__: Any) -> None:
        from memoryhub.client.hook.front import main

        main([client, event, *(["--project", project] if project else [])])
