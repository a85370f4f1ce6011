"""Prove that a project's log is what was written."""

from __future__ import annotations

import json
import sys
from typing import Any

from django.core.management.base import CommandParser

from memoryhub.core import log
from memoryhub.core.commands import ProjectCommand

EXIT_BROKEN = 11


class Command(ProjectCommand):
    """``memory-hub verify``."""

    help = "Walk the chain of a project's log; name the first position that is not what was written (exit code 11)."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add ``--json``."""
        super().add_arguments(parser)
        parser.add_argument("--json", action="store_true", help="print the finding as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the finding."""
        with self.store(options):
            found = log.verify()
        if options["json"]:
            fields = ("ok", "events", "head_digest", "broken_position", "reason")
            self.stdout.write(json.dumps({name: getattr(found, name) for name in fields}))
        else:
            self.stdout.write(found.describe())
        if not found.ok:
            sys.exit(EXIT_BROKEN)
