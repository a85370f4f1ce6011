"""Prove that a project's log is what was written."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from memoryhub.management.base import StoreCommand
from sessions_app.audit import Audit, verify_log

EXIT_BROKEN = 11


class Command(StoreCommand):
    """``memory-hub verify``."""

    help = "Walk the chain of a store's log; name the first position that is not what was written (exit code 11)."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the checkpoints and ``--json``."""
        super().add_arguments(parser)
        parser.add_argument("--json", action="store_true", help="print the finding as JSON")
        parser.add_argument(
            "--checkpoint",
            metavar="FILE",
            type=Path,
            help="compare with the head in FILE; write it there the first time",
        )
        parser.add_argument(
            "--write-checkpoint", metavar="FILE", type=Path, help="write the head to FILE; keep it away from the store"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the finding."""
        with self.store(options):
            audit = verify_log(checkpoint=options["checkpoint"], new_checkpoint=options["write_checkpoint"])
        if options["json"]:
            fields = ("ok", "events", "head_digest", "broken_position", "reason")
            self.stdout.write(json.dumps({name: getattr(audit.found, name) for name in fields}))
        else:
            self.stdout.write("; ".join([audit.found.describe(), *_about_checkpoints(audit)]))
        if not audit.found.ok:
            sys.exit(EXIT_BROKEN)


def _about_checkpoints(audit: Audit) -> list[str]:
    about = []
    if audit.compared:
        verb = "agrees with" if audit.found.ok else "was compared with"
        about.append(f"{verb} the checkpoint at #{audit.compared.position} of {audit.compared.time[:16]}")
    if audit.written:
        about.append(f"checkpoint written at #{audit.written.position}")
    return about
