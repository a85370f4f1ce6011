"""Search a project by a question in words."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from memories import selectors
from memories.present import hit_line
from memories.schemas import MemorySearch
from memoryhub.core.paging import as_lines
from memoryhub.core.validation import command_from
from memoryhub.management.base import ProjectCommand


class Command(ProjectCommand):
    """``memory-hub search``."""

    help = (
        "Search decisions, memories, commits, sessions and messages by a question in words; best first, a line a hit."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the question and its filters."""
        super().add_arguments(parser)
        parser.add_argument("query", metavar="QUESTION", nargs="+", help="the question, in your own words")
        parser.add_argument("--type", help="only this type, such as note")
        parser.add_argument("--tag", dest="tags", action="append", help="must have this tag; may be repeated")
        parser.add_argument("--limit", type=int, help="at most so many (default: 20)")
        parser.add_argument("--cursor", help="go on where the last page ended")
        parser.add_argument("--as-of", metavar="POSITION|TIME", help="as the store stood then")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the hits."""
        command = command_from(MemorySearch, {**options, "query": " ".join(options["query"])})
        with self.store(options):
            listing = selectors.search(command=command)
        self.stdout.write(as_lines(listing, hit_line, none="nothing found; try fewer or other words"))
