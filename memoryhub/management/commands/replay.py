from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from memoryhub.core.validation import command_from
from memoryhub.management.base import StoreCommand, whole_number
from sessions_app.audit import EventWindow, replay_lines


class Command(StoreCommand):
    help = "Print events in order, as one line of canonical JSON each; every run prints the same bytes."
    reads = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--stream", help="only this stream, such as memory:412")
        parser.add_argument("--session", dest="session_id", metavar="NAME", help="only this session")
        parser.add_argument("--turn", dest="turn_id", metavar="NAME", help="only this turn")
        parser.add_argument("--type", action="append", help="only this type, such as memory.written; may be repeated")
        parser.add_argument("--since", metavar="TIME", help="at or after this time or day (ISO 8601)")
        parser.add_argument("--until", metavar="TIME", help="before this time or day (ISO 8601)")
        parser.add_argument("--after", metavar="N", help="only positions greater than this")
        parser.add_argument("--up-to", metavar="N", help="only positions up to this one")
        parser.add_argument("--limit", metavar="N", type=whole_number, help="maximum number of events")

    def handle(self, *args: Any, **options: Any) -> None:
        window = command_from(EventWindow, options)
        output = self.stdout.utf8
        with self.store(options):
            for line in replay_lines(command=window, limit=options["limit"]):
                output.write(line)
