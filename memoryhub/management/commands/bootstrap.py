from __future__ import annotations

from collections import Counter
from typing import Any

from django.core.management.base import CommandParser

from memories.bootstrap import GuidelineStatus, load_guidelines, remove_guidelines
from memoryhub.core.origin import use_origin
from memoryhub.core.text import flat
from memoryhub.management.base import CommandGroup, HubCommand


class Command(HubCommand):
    help = (
        "Load a small set of guidelines into the global scope, which every project inherits. Guidelines that you have "
        "edited or deleted are not changed."
    )
    group = CommandGroup.CONTENT
    is_slim = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--remove", action="store_true", help="remove those that nobody has edited")

    def handle(self, *args: Any, **options: Any) -> None:
        with use_origin(source="cli"):
            outcomes = remove_guidelines() if options["remove"] else load_guidelines()
        for outcome in outcomes:
            if outcome.status is not GuidelineStatus.UNCHANGED:
                self.stdout.write(flat(f"global#{outcome.id} {outcome.name}: {outcome.status}"))
        counts = "; ".join(f"{count} {what}" for what, count in Counter(item.status for item in outcomes).items())
        self.stdout.write(f"guidelines in the global scope: {counts}" if counts else "no bootstrap guidelines found")
