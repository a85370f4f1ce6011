"""Load guidelines to begin with into the global scope, or take them away again."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.core.management.base import CommandParser

from memories.bootstrap import Done, Outcome, load_guidelines, remove_guidelines
from memoryhub.core.origin import use_origin
from memoryhub.core.text import flat
from memoryhub.management.base import HubCommand


class Command(HubCommand):
    """``memory-hub bootstrap``."""

    help = (
        "Load a small set of guidelines into the global scope, which every project inherits. What you edited or "
        "deleted of them stays so."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Add ``--remove``."""
        parser.add_argument("--remove", action="store_true", help="take away those that nobody has edited")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print what was done with each guideline, and how many that were."""
        with use_origin(source="cli"):
            outcomes = remove_guidelines() if options["remove"] else load_guidelines()
        for each in outcomes:
            if each.done is not Done.UNCHANGED:
                self.stdout.write(flat(f"global#{each.id} {each.name}: {each.done}"))
        self.stdout.write(_sum(outcomes))


def _sum(outcomes: list[Outcome]) -> str:
    if not outcomes:
        return "no guideline of the bootstrap is there"
    counted = Counter(each.done for each in outcomes)
    said = "; ".join(f"{count} {done}" for done, count in counted.items())
    return f"guidelines in the global scope: {said}"
