"""`manage.py mcp`: serve one project's memory over MCP."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from memoryhub.core.commands import HubCommand
from memoryhub.mcp import options


class Command(HubCommand):
    """Exists for its help; ``memoryhub.cli`` starts the server itself, before Django is imported."""

    help = options.DESCRIPTION

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare what the server takes."""
        options.add_arguments(parser)

    def handle(self, *_: Any, project: str | None, session: str, profile: str, **__: Any) -> None:
        """Serve, for those who call the command from Python."""
        from memoryhub.mcp.front import main

        given = ["--project", project] if project else []
        given += ["--session", session] if session else []
        raise SystemExit(main([*given, "--profile", profile]))
