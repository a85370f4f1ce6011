from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandParser

from memories.schemas import MemoryGet
from memoryhub.core.validation import command_from
from memoryhub.management.base import ProjectCommand
from memoryhub.management.sheets import sheet_lines
from memoryhub.management.terminal import Line
from memoryhub.registry.entity_texts import EntityText, read_entities


class Command(ProjectCommand):
    help = "Show anything by its id: a memory, a decision, a session, a commit, an import; or a memory by its title."
    reads = True
    is_asked_of_hub = True
    # For a person: what a memory is related to
    has_relations = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("names", metavar="ID|NAME", nargs="+", help="ids such as 412 or '#412', or one name")
        parser.add_argument("--versions", action="store_true", help="include the version history")
        parser.add_argument("--include-deleted", action="store_true", help="include deleted memories")
        parser.add_argument("--as-of", metavar="POSITION|TIME", help="show the state at that position or time")

    def handle(self, *args: Any, **options: Any) -> None:
        ids = [name.removeprefix("#") for name in options["names"]]
        selection = {"ids": ids} if all(map(str.isdigit, ids)) else {"name": " ".join(options["names"])}
        command = command_from(MemoryGet, {**options, **selection, "relations": self.has_relations})
        with self.store(options) as project:
            entities = read_entities(command=command)
        where = "" if options["project"] is None else f" --project {project}"
        self.answer({"results": [entity.data for entity in entities]}, self.lines(entities, where))

    def lines(self, entities: list[EntityText], where: str) -> Iterator[Line]:
        for number, entity in enumerate(entities):
            if number:
                yield ""
            yield from sheet_lines(entity, where)
