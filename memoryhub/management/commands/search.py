from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from memories import selectors
from memories.present import hit_line, reference, warnings
from memories.schemas import MemorySearch
from memoryhub.core.paging import as_lines
from memoryhub.core.text import as_data, flat
from memoryhub.core.validation import command_from
from memoryhub.management.base import ProjectCommand, whole_number
from memoryhub.management.terminal import Line, Style, highlight


class Command(ProjectCommand):
    help = "Search decisions, memories, commits, sessions, messages and failed commands; one hit per line, best first."
    reads = True
    is_asked_of_hub = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("query", metavar="QUERY", nargs="+", help="words or a question")
        parser.add_argument("--type", help="only this type, such as task")
        parser.add_argument("--tag", dest="tags", action="append", help="must have this tag; may be repeated")
        parser.add_argument("--limit", type=whole_number, help="maximum number of hits (default: 20)")
        parser.add_argument("--cursor", help="continue after the last page")
        parser.add_argument("--as-of", metavar="POSITION|TIME", help="search the state at that position or time")

    def handle(self, *args: Any, **options: Any) -> None:
        command = command_from(MemorySearch, {**options, "query": " ".join(options["query"]).strip()})
        with self.store(options):
            listing = selectors.search(command=command)
        text = as_lines(listing, hit_line, none="nothing found; try fewer or other words")
        if listing.meta.note and listing.results:
            text += f"\n({listing.meta.note})"
        hits = {hit_line(hit): hit for hit in listing.results}
        self.answer(listing, [_styled(line, hits.get(line)) for line in text.split("\n")])


def _styled(line: str, hit: dict[str, Any] | None) -> Line:
    if hit is None:
        return line
    title = flat(as_data(hit["title"])).removesuffix("…")
    return highlight(line, (reference(hit), Style.DIM), (title, Style.BOLD), (warnings(hit), Style.YELLOW))
