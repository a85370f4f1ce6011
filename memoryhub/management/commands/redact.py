from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandParser

from governance.redaction.schemas import RedactionDone, RedactionPreview, RedactionRun, RedactionSelect
from governance.redaction.service import preview_redaction, redact
from memoryhub.core import clock
from memoryhub.core.errors import ConfirmationRequired
from memoryhub.core.text import counted, flat
from memoryhub.core.validation import command_from
from memoryhub.management.base import StoreCommand, entity_id, read_input

_SHOWN = 20


class Command(StoreCommand):
    help = (
        "Preview a redaction of a store's log, its copies and the spool; with --confirm TOKEN, redact permanently and "
        "search the files for what is left."
    )
    is_slim = False
    reads = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--text", help="this exact text; - reads it from standard input")
        parser.add_argument("--pattern", help="an RE2 regular expression")
        parser.add_argument(
            "--rules", action="store_true", default=None, help="all secrets that the current rules find"
        )
        parser.add_argument(
            "--whole", action="store_true", default=None, help="erase all items that --ids or --search selects"
        )
        parser.add_argument("--ignore-case", action="store_true", default=None, help="ignore case")
        parser.add_argument("--ids", type=entity_id, nargs="+", metavar="ID", help="only in these items")
        parser.add_argument("--search", metavar="QUERY", help="only in what this search finds")
        parser.add_argument("--event-types", nargs="+", metavar="TYPE", help="only in events of these types")
        parser.add_argument("--label", help="placeholder label: [REDACTED:label]")
        parser.add_argument("--reason", help="reason, kept in the log")
        parser.add_argument("--confirm", metavar="TOKEN", dest="confirm_token", help="the token that the preview shows")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["text"] == "-":
            options["text"] = read_input().rstrip("\n")
        with self.store(options):
            if options["confirm_token"]:
                command = command_from(RedactionRun, options)
                try:
                    result = redact(command=command)
                except ConfirmationRequired as error:
                    message = "the token does not match the current matches; preview again without --confirm"
                    raise ConfirmationRequired(message, **error.data) from error
                self.answer(result, _done_lines(result))
            else:
                preview = preview_redaction(command=command_from(RedactionSelect, options))
                self.answer(preview, _preview_lines(preview))


def _preview_lines(preview: RedactionPreview) -> Iterator[str]:
    for place in preview.places[:_SHOWN]:
        head = flat(f"#{place.position} {clock.day(place.occurred_at)} {place.event_type} {place.field}")
        yield f"{head}\n  - {_one_line(place.before)}\n  + {_one_line(place.after)}"
    if len(preview.places) > _SHOWN:
        yield f"… and {counted(len(preview.places) - _SHOWN, 'place')} more"
    copies = "; ".join(f"{count} {name}" for name, count in preview.copies.items())
    matches = f"{counted(preview.finds, 'match', 'matches')} in {counted(preview.events, 'event')}"
    yield f"{matches} of {counted(preview.entities, 'item')} ({copies})"
    for copy in preview.kept:
        yield flat(f"kept in {copy.where}: {copy.why}")
    yield f"nothing was changed; to redact, add --confirm {preview.confirm_token}"


def _done_lines(result: RedactionDone) -> Iterator[str]:
    spooled = f" and {counted(result.spooled, 'event')} in the spool" if result.spooled else ""
    yield (
        f"redacted {counted(result.finds, 'match', 'matches')} in {counted(result.events, 'event')}{spooled}; "
        f"searched {counted(result.searched_files, 'file')} ({result.searched_bytes:,} bytes): "
        f"{len(result.left)} still {'contains' if len(result.left) == 1 else 'contain'} it"
    )
    for copy in result.left:
        yield flat(f"still in {copy.where}: {copy.why}")
    for copy in result.unproven:
        yield flat(f"not searched: {copy.where}: {copy.why}")


def _one_line(text: str) -> str:
    return " ".join(text.split()) or "(nothing)"
