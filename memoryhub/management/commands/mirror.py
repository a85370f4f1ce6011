from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from memoryhub.core.text import flat
from memoryhub.management.base import CommandGroup, StoreCommand
from memoryhub.transfer.folder import FolderForm
from memoryhub.transfer.mirror.scan import Did, MirrorReport
from memoryhub.transfer.mirror.service import Mirror

_QUIET = (Did.WRITTEN, Did.REMOVED, Did.READ)


class Command(StoreCommand):
    help = (
        "Keep a folder of Markdown files in step with a project's memories: edits made in the folder come back as new "
        "versions. Decisions are written too, but not read."
    )
    group = CommandGroup.CONTENT
    reads = True
    interrupted = "stopped; the next run continues"

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("folder", metavar="DIR", type=Path, help="the folder; created if it does not exist")
        parser.add_argument(
            "--form", choices=list(FolderForm), type=FolderForm, default=FolderForm.MARKDOWN, help="default: markdown"
        )
        parser.add_argument("--watch", action="store_true", help="continue until Ctrl-C, once a second")
        parser.add_argument("--preview", action="store_true", help="show what would be done, and change nothing")
        parser.add_argument("--adopt", action="store_true", help="write the files of a folder as memories")
        parser.add_argument(
            "--allow-deletions", action="store_true", help="delete memories even if most of the files are gone"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        mirror = Mirror(
            options["folder"].expanduser().absolute(),
            options["form"],
            adopt=options["adopt"],
            allow_deletions=options["allow_deletions"],
        )
        with self.store(options):
            if options["watch"]:
                for report in mirror.watch():
                    self.report(report, is_preview=False)
                    self.stdout.flush()
            else:
                self.report(mirror.run(preview=options["preview"]), is_preview=options["preview"])

    def report(self, report: MirrorReport, *, is_preview: bool) -> None:
        steps = [{"did": step.did, "path": step.path, "why": step.why} for step in report.steps]
        data = {"folder": report.folder, "preview": is_preview, "counts": report.counts, "steps": steps}
        lines = []
        for step in report.steps:
            if step.why or is_preview or step.did not in _QUIET:
                lines.append(flat(f"{step.did}  {step.path}{f': {step.why}' if step.why else ''}"))
        counts = ", ".join(f"{count:,} {name}" for name, count in report.counts.items()) or "nothing has changed"
        self.answer(data, [*lines, f"{'preview of ' if is_preview else ''}{report.folder}: {counts}"])
