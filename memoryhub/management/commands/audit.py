from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from governance.audit import AuditExport, AuditPeriod, AuditRequest, audit_line, export_audit, list_activity
from governance.audit import list_packs_read as list_packs
from memoryhub.core.text import counted
from memoryhub.core.validation import command_from
from memoryhub.management.base import StoreCommand, whole_number


class Command(StoreCommand):
    help = "Show who was given which context pack, and who changed how much."
    reads = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--person", metavar="NAME", help="only this person, with all their clients")
        parser.add_argument("--since", metavar="TIME", help="from this time or day on (ISO 8601)")
        parser.add_argument("--until", metavar="TIME", help="before this time or day (ISO 8601)")
        parser.add_argument("--limit", type=whole_number, help="how many packs to show (default: 20)")
        parser.add_argument("--export", choices=("csv", "jsonl"), help="print every pack, oldest first")

    def handle(self, *args: Any, **options: Any) -> None:
        period = {name: options[name] for name in AuditPeriod.model_fields}
        with self.store(options):
            if options["export"]:
                command = command_from(AuditExport, {**period, "form": options["export"]})
                self.stdout.utf8.unfiltered.writelines(export_audit(command=command))
                return
            packs = list_packs(command=command_from(AuditRequest, {**period, "limit": options["limit"]}))
            activity = list_activity(command=command_from(AuditPeriod, period))
        lines = []
        for one in activity:
            name = "/".join(filter(None, (one.person, one.client))) or "unknown"
            counts = f"{counted(one.packs, 'pack')}, {counted(one.writes, 'change')}, {counted(one.reviews, 'review')}"
            lines.append(f"{name} over {one.door}: {counts}, {one.governed} of governance")
        self.answer(packs, [*lines, *map(audit_line, packs.results)])
