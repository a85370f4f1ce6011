from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from memoryhub.core import clock
from memoryhub.management.base import StoreCommand
from sessions_app.audit import verify_log

EXIT_BROKEN = 11


class Command(StoreCommand):
    help = "Verify the hash chain of a store's log; print the first position that was changed (exit code 11)."
    reads = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--checkpoint", metavar="FILE", type=Path, help="compare with the head in FILE; create FILE the first time"
        )
        parser.add_argument(
            "--write-checkpoint", metavar="FILE", type=Path, help="save the head to FILE; keep FILE away from the store"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        with self.store(options):
            audit = verify_log(checkpoint=options["checkpoint"], new_checkpoint=options["write_checkpoint"])
        notes = [audit.verification.describe()]
        data = {**asdict(audit.verification), "finding": notes[0]}
        if audit.compared:
            verb = "agrees with" if audit.verification.ok else "was compared with"
            notes.append(f"{verb} the checkpoint at #{audit.compared.position} of {clock.minute(audit.compared.time)}")
        if audit.written:
            notes.append(f"checkpoint written at #{audit.written.position}")
        self.answer(data, ["; ".join(notes)])
        if not audit.verification.ok:
            sys.exit(EXIT_BROKEN)
