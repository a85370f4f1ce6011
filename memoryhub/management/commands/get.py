from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from memories.schemas import MemoryGet
from memoryhub.core.validation import command_from
from memoryhub.management.base import ProjectCommand
from memoryhub.registry.entity_texts import read_entities


class Command(ProjectCommand):
    help = "Show memories, decisions, sessions, commits and whatever else has an id, or a memory by title or topic."
    reads = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("names", metavar="ID|NAME", nargs="+", help="ids such as 412 or '#412', or one name")
        parser.add_argument("--versions", action="store_true", help="include the version history")
        parser.add_argument("--include-deleted", action="store_true", help="include deleted memories")
        parser.add_argument("--as-of", metavar="POSITION|TIME", help="show the state at that position or time")

    def handle(self, *args: Any, **options: Any) -> None:
        ids = [name.removeprefix("#") for name in options["names"]]
        selection = {"ids": ids} if all(map(str.isdigit, ids)) else {"name": " ".join(options["names"])}
        command = command_from(MemoryGet, {**options, **selection})
        with self.store(options):
            entities = read_entities(command=command)
        data = {"results": [entity.data for entity in entities]}
        self.answer(data, ["\n\n".join(entity.text for entity in entities)])
