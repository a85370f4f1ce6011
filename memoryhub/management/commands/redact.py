"""Take text out of everything that was kept."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import CommandParser

from governance.redaction.schemas import RedactionDone, RedactionPreview, RedactionRun, RedactionSelect
from governance.redaction.service import preview_redaction, redact
from memoryhub.core.errors import ConfirmationRequired
from memoryhub.core.text import counted, flat
from memoryhub.core.validation import command_from
from memoryhub.management.base import StoreCommand, entity_id

_SHOWN = 20


class Command(StoreCommand):
    """``memory-hub redact``."""

    help = (
        "Show what would be taken out of a store's log, of every copy and of events that wait in the spool; with "
        "--confirm TOKEN, take it out for good and prove it by reading the files. --rules looks for whatever the rules "
        "for secrets find today."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Add what to look for, and where."""
        super().add_arguments(parser)
        parser.add_argument("--text", help="this very text; - reads it from standard input")
        parser.add_argument("--pattern", help="an RE2 regular expression")
        parser.add_argument("--rules", action="store_true", default=None, help="whatever the rules for secrets find")
        parser.add_argument("--whole", action="store_true", default=None, help="erase what --ids or --search selects")
        parser.add_argument(
            "--ignore-case", action="store_true", default=None, help="whether letters are capital or small"
        )
        parser.add_argument("--ids", type=entity_id, nargs="+", metavar="ID", help="only in these things")
        parser.add_argument("--search", metavar="QUESTION", help="only in what this finds")
        parser.add_argument("--event-types", nargs="+", metavar="TYPE", help="only in events of these types")
        parser.add_argument("--label", help="what stands in its place: [REDACTED:label]")
        parser.add_argument("--reason", help="why; kept in the log")
        parser.add_argument("--confirm", metavar="TOKEN", dest="confirm_token", help="the token that the preview shows")

    def handle(self, *args: Any, **options: Any) -> None:
        """Show it, or do it."""
        if options["text"] == "-":
            options["text"] = sys.stdin.read().rstrip("\n")
        with self.store(options):
            if options["confirm_token"]:
                self._tell(_redacted(command_from(RedactionRun, options)))
            else:
                self._show(preview_redaction(command=command_from(RedactionSelect, options)))

    def _show(self, preview: RedactionPreview) -> None:
        for place in preview.places[:_SHOWN]:
            head = flat(f"#{place.position} {place.occurred_at.date()} {place.event_type} {place.field}")
            self.stdout.write(f"{head}\n  - {_one_line(place.before)}\n  + {_one_line(place.after)}")
        if len(preview.places) > _SHOWN:
            self.stdout.write(f"… and {counted(len(preview.places) - _SHOWN, 'place')} more")
        copies = "; ".join(f"{count} {name}" for name, count in preview.copies.items())
        found = f"{counted(preview.finds, 'find')} in {counted(preview.events, 'event')}"
        self.stdout.write(f"{found} of {counted(preview.entities, 'thing')} ({copies})")
        for kept in preview.kept:
            self.stdout.write(flat(f"stays in {kept.where}: {kept.why}"))
        self.stdout.write(f"nothing was changed; to do it, add: --confirm {preview.confirm_token}")

    def _tell(self, done: RedactionDone) -> None:
        self.stdout.write(
            f"{counted(done.finds, 'find')} taken out of {counted(done.events, 'event')}{_waiting(done)}; "
            f"{counted(done.searched_files, 'file')} ({done.searched_bytes:,} bytes) read for them, and "
            f"{len(done.left)} {'has' if len(done.left) == 1 else 'have'} any left"
        )
        for kept in done.left:
            self.stdout.write(flat(f"left in {kept.where}: {kept.why}"))


def _redacted(command: RedactionRun) -> RedactionDone:
    """Take it out, if the token is that of what would be taken out now."""
    try:
        return redact(command=command)
    except ConfirmationRequired as error:
        message = "this is not the token of what would be taken out now; look again without --confirm"
        raise ConfirmationRequired(message, **error.data) from error


def _waiting(done: RedactionDone) -> str:
    return f" and {counted(done.spooled, 'event')} in the spool" if done.spooled else ""


def _one_line(text: str) -> str:
    return " ".join(text.split()) or "(nothing)"
