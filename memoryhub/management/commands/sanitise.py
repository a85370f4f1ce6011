from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from memoryhub.core.errors import Invalid
from memoryhub.core.text import counted, flat
from memoryhub.core.validation import command_from
from memoryhub.management.base import CommandGroup, CommandRefusal, ProjectCommand, read_input
from sessions_app.schemas import Sanitise
from sessions_app.services.profile import try_rules


class Command(ProjectCommand):
    help = (
        "Print a text as it would be stored, and on standard error which secrets would be masked and by which rule. "
        "Stores nothing."
    )
    group = CommandGroup.MAINTENANCE
    reads = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("file", nargs="?", type=Path, help="a text file; default: standard input")
        what = parser.add_mutually_exclusive_group()
        what.add_argument(
            "--check", action="store_true", help="print only the secrets found; exit code 1 if there are any"
        )
        what.add_argument("--list", action="store_true", help="print only the secrets found")

    def handle(self, *args: Any, **options: Any) -> None:
        file: Path | None = options["file"]
        try:
            text = file.read_text("utf-8", errors="replace") if file else read_input()
        except OSError as error:
            hint = "give a text file, or none for standard input"
            raise Invalid(f"can't read {file}: {error.strerror}; {hint}") from error
        with self.store_or_none(options):
            tried = try_rules(command=command_from(Sanitise, {"text": text}))
        lines = []
        for secret in tried.found:
            row = text.count("\n", 0, secret.start) + 1
            column = secret.start - text.rfind("\n", 0, secret.start)
            rule = f"[{secret.rule}; {', '.join(secret.origins)}]"
            lines.append(flat(f"{row}:{column} {secret.type}: {secret.description} {rule}"))
        if options["check"] or options["list"] or self.as_json:
            self.answer(tried, lines)
        else:
            for line in lines:
                self.stderr.write(line)
            self.stdout.write(tried.text, ending="")
        if options["check"] and lines:
            raise CommandRefusal(f"{counted(len(lines), 'secret')} would be masked", returncode=1)
