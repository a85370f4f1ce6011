from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from memoryhub.core.errors import Invalid
from memoryhub.core.text import counted, flat
from memoryhub.core.validation import command_from
from memoryhub.management.base import CommandRefusal, ProjectCommand, read_input
from sessions_app.schemas import FoundSecret, Sanitise
from sessions_app.services.profile import try_rules


class Command(ProjectCommand):
    help = (
        "Print a text as it would be stored, and on standard error which secrets would be masked and by which rule. "
        "Stores nothing."
    )
    is_slim = True
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
        text = _read_text(options["file"])
        with self.store_or_none(options):
            tried = try_rules(command=command_from(Sanitise, {"text": text}))
        lines = [_secret_line(secret, text) for secret in tried.found]
        if options["check"] or options["list"] or self.as_json:
            self.answer(tried, lines)
        else:
            for line in lines:
                self.stderr.write(line)
            self.stdout.write(tried.text, ending="")
        if options["check"] and tried.found:
            count = len(tried.found)
            raise CommandRefusal(f"{counted(count, 'secret')} would be masked", returncode=1)


def _read_text(file: Path | None) -> str:
    try:
        return file.read_text("utf-8", errors="replace") if file else read_input()
    except OSError as error:
        raise Invalid(f"can't read {file}: {error.strerror}; give a text file, or none for standard input") from error


def _secret_line(secret: FoundSecret, text: str) -> str:
    line = text.count("\n", 0, secret.start) + 1
    column = secret.start - text.rfind("\n", 0, secret.start)
    return flat(f"{line}:{column} {secret.type}: {secret.description} [{secret.rule}; {', '.join(secret.origins)}]")
