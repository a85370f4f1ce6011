"""Print a project's log."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from memoryhub.core import log
from memoryhub.core.commands import ProjectCommand


class Command(ProjectCommand):
    """``memory-hub replay``."""

    help = "Print events as one line of canonical JSON each, in order; the same bytes on every run."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the window."""
        super().add_arguments(parser)
        parser.add_argument("--stream", default="", help="only this stream, such as memory:412")
        parser.add_argument("--session", default="", help="only this session")
        parser.add_argument("--type", default="", help="only this type, such as memory.written")
        parser.add_argument("--since", default="", help="at or after this time (ISO 8601, UTC)")
        parser.add_argument("--until", default="", help="before this time (ISO 8601, UTC)")
        parser.add_argument("--after", type=int, default=0, help="only positions greater than this")
        parser.add_argument("--limit", type=int, help="at most so many")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the window."""
        window = log.ReplayWindow(
            stream_id=options["stream"],
            session_id=options["session"],
            event_type=options["type"],
            since=options["since"],
            until=options["until"],
            after=options["after"],
            limit=options["limit"],
        )
        with self.store(options):
            for line in log.replay(window):
                self.stdout.write(line)
