from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from memoryhub.management.base import CommandGroup, HubCommand
from memoryhub.mcp import options as mcp_options


# Only for --help: ``memoryhub.cli`` starts the server before Django is imported
class Command(HubCommand):
    help = mcp_options.DESCRIPTION
    group = CommandGroup.RUN

    def add_arguments(self, parser: ArgumentParser) -> None:
        mcp_options.add_arguments(parser)

    def handle(self, *_: Any, **values: Any) -> None:
        from memoryhub.mcp.relay import serve

        names = mcp_options.Options.__slots__
        raise SystemExit(serve(mcp_options.Options(**{name: values[name] for name in names})))
