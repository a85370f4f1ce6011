from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import CommandParser

from memoryhub.core import log
from memoryhub.core.errors import Invalid
from memoryhub.core.log.rebuilding import SMALL_LOG
from memoryhub.core.stores.store import StoreId
from memoryhub.core.text import counted, hanging
from memoryhub.management.base import HubCommand, add_store_options, store_option, use_cli_origin
from memoryhub.management.terminal import Line, Style, highlight
from memoryhub.ops.doctor.service import DoctorReport, examine, report_unusable

EXIT_FOUND = 15


class Command(HubCommand):
    help = f"Check every store and the hub, and print each problem with its repair (exit code {EXIT_FOUND} if any)."
    reads = True

    def add_arguments(self, parser: CommandParser) -> None:
        add_store_options(parser, "check only {}; default: all stores and the hub")
        parser.add_argument(
            "--deep",
            action="store_true",
            help=f"compare all read models with the log; default: a sample if the log has over {SMALL_LOG:,} events",
        )
        parser.add_argument(
            "--accept-loss",
            metavar="REASON",
            nargs="?",
            const="",
            help="make a store writable again whose log lost acknowledged events; the loss is recorded in the log",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        store = store_option(options)
        report = report_unusable(store)
        if report is None and options["accept_loss"] is not None:
            self._accept(store, options["accept_loss"])
        else:
            self._show(report or examine(store, deep=options["deep"]))

    def _show(self, report: DoctorReport) -> None:
        lines: list[Line] = []
        for item in report.findings:
            text = hanging(f"{item.where}: {item.what}.\nrepair: {item.repair}")
            lines.append(highlight(text, (text.partition("\n")[0], Style.RED)))
        lines += [f"{title}: {what}" for title, what in report.compared.items()]
        if report.server:
            lines.append(f"the database {report.server}: its server was checked")
        verdict = counted(len(report.findings), "finding") if report.findings else "all is well"
        lines.append(highlight(f"{counted(report.stores, 'store')} examined: {verdict}", (verdict, Style.BOLD)))
        self.answer(report.findings, lines)
        if report.findings:
            sys.exit(EXIT_FOUND)

    def _accept(self, store: StoreId | None, reason: str) -> None:
        if store is None:
            raise Invalid("--accept-loss needs a store: add --project ID, --org ID or --global")
        with use_cli_origin():
            event = log.accept_loss(store=store, reason=reason)
        lost = event.payload.anchored_position - event.payload.found_position
        what = f"{counted(lost, 'event')} lost" if lost > 0 else "the current log"
        self.stdout.write(f"accepted: {what}, recorded as #{event.position}; the store is writable again")
