from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from memories import selectors
from memories.present import memory_text
from memories.schemas import MemoryGet
from memoryhub.core.validation import command_from
from memoryhub.management.base import Group, ProjectCommand


class Command(ProjectCommand):
    help = "Show memories by id, or one by title or topic."
    group = Group.CONTENT
    is_slim = True
    reads = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("names", metavar="ID|NAME", nargs="+", help="ids such as 412 or '#412', or one name")
        parser.add_argument("--versions", action="store_true", help="include the version history")
        parser.add_argument("--include-deleted", action="store_true", help="include deleted memories")
        parser.add_argument("--as-of", metavar="POSITION|TIME", help="show the state at that position or time")

    def handle(self, *args: Any, **options: Any) -> None:
        command = command_from(MemoryGet, {**options, **_named(options["names"])})
        with self.store(options):
            found = selectors.get_memories(command=command)
        self.answer({"results": found}, ["\n\n".join(map(memory_text, found))])


def _named(names: list[str]) -> dict[str, Any]:
    ids = [name.removeprefix("#") for name in names]
    return {"ids": ids} if all(text.isdigit() for text in ids) else {"name": " ".join(names)}
