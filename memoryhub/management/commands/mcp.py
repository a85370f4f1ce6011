"""`manage.py mcp`: serve one project's memory over MCP."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from memoryhub.management.base import HubCommand
from memoryhub.mcp import options as mcp_options


class Command(HubCommand):
    """Exists for its help; ``memoryhub.cli`` starts the server itself, before Django is imported."""

    help = mcp_options.DESCRIPTION

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare what the server takes."""
        mcp_options.add_arguments(parser)

    def handle(self, *_: Any, **values: Any) -> None:
        """Serve, for those who call the command from Python."""
        from memoryhub.mcp.front import serve

        names = mcp_options.Options.__slots__
        raise SystemExit(serve(mcp_options.Options(**{name: values[name] for name in names})))
