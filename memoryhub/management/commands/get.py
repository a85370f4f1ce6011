"""Show memories whole."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from memories import selectors
from memories.present import memory_text
from memories.schemas import MemoryGet
from memoryhub.core.validation import command_from
from memoryhub.management.base import ProjectCommand


class Command(ProjectCommand):
    """``memory-hub get``."""

    help = "Show whole memories by id, or the one of a title or topic."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the ids or the name."""
        super().add_arguments(parser)
        parser.add_argument("names", metavar="ID|NAME", nargs="+", help="ids such as 412 or '#412', or one name")
        parser.add_argument("--versions", action="store_true", help="with the history")
        parser.add_argument("--include-deleted", action="store_true", help="show deleted ones too")
        parser.add_argument("--as-of", metavar="POSITION|TIME", help="as the store stood then")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print them, an empty line between two."""
        command = command_from(MemoryGet, {**options, **_named(options["names"])})
        with self.store(options):
            found = selectors.get_memories(command=command)
        self.stdout.write("\n\n".join(map(memory_text, found)))


def _named(names: list[str]) -> dict[str, Any]:
    ids = [name.removeprefix("#") for name in names]
    return {"ids": ids} if all(each.isdigit() for each in ids) else {"name": " ".join(names)}
