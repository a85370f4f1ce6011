from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from memories.schemas import MemoryGet
from memoryhub.core.validation import command_from
from memoryhub.management.base import CommandGroup, ProjectCommand
from memoryhub.registry.entity_texts import read_entities


class Command(ProjectCommand):
    help = "Show memories, decisions, sessions, commits and whatever else has an id, or a memory by title or topic."
    group = CommandGroup.CONTENT
    is_slim = True
    reads = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("names", metavar="ID|NAME", nargs="+", help="ids such as 412 or '#412', or one name")
        parser.add_argument("--versions", action="store_true", help="include the version history")
        parser.add_argument("--include-deleted", action="store_true", help="include deleted memories")
        parser.add_argument("--as-of", metavar="POSITION|TIME", help="show the state at that position or time")

    def handle(self, *args: Any, **options: Any) -> None:
        command = command_from(MemoryGet, {**options, **_ids_or_name(options["names"])})
        with self.store(options):
            entities = read_entities(command=command)
        self.answer(
            {"results": [entity.data for entity in entities]}, ["\n\n".join(entity.text for entity in entities)]
        )


def _ids_or_name(names: list[str]) -> dict[str, Any]:
    ids = [name.removeprefix("#") for name in names]
    return {"ids": ids} if all(text.isdigit() for text in ids) else {"name": " ".join(names)}
