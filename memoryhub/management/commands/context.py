from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from memories.pack import pack_context, replay_pack
from memories.schemas.query import DEFAULT_TOKENS, ContextPackRequest, ContextReplay
from memoryhub.config.repository import working_folder
from memoryhub.core.validation import command_from
from memoryhub.management.base import ProjectCommand, entity_id, whole_number
from memoryhub.management.terminal import outlined


class Command(ProjectCommand):
    help = (
        "Print a context pack within a token budget: guidelines, decisions, facts, turns, conflicts, the last session."
    )
    reads = True
    is_asked_of_hub = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("query", metavar="SUBJECT", nargs="*", help="the subject of the work")
        parser.add_argument(
            "--max-tokens", type=whole_number, default=DEFAULT_TOKENS, help="budget (default: %(default)s)"
        )
        parser.add_argument("--since", type=entity_id, metavar="PACK", help="only what changed since that pack")
        parser.add_argument("--replay", type=entity_id, metavar="PACK", help="print an earlier pack again")

    def handle(self, *args: Any, **options: Any) -> None:
        with self.store(options):
            if options["replay"] is not None:
                sent = replay_pack(command=command_from(ContextReplay, {"id": options["replay"]}))
            else:
                command = command_from(ContextPackRequest, {**options, "query": " ".join(options["query"])})
                sent = pack_context(command=command, folder=None if options["project"] else working_folder())
        self.answer(sent.data(), outlined(sent.text))
