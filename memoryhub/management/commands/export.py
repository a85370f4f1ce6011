from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from decisions.exporting import chosen_decisions, madr_files, mermaid_graph
from memories.models import MemoryScope
from memoryhub.core.errors import Invalid
from memoryhub.core.text import counted
from memoryhub.core.validation import command_from
from memoryhub.management.base import CommandGroup, StoreCommand, entity_id
from memoryhub.transfer.bundles.archive import create_bundle, export_lines
from memoryhub.transfer.folder import ExportSelection, FolderForm, Kind, write_files, write_folder

_GRAPH = "decisions.mmd"
_FORMS = {
    FolderForm.MARKDOWN: "memories and decisions as a folder of Markdown files",
    FolderForm.OBSIDIAN: "the same as an Obsidian vault, with wiki links",
}


class Command(StoreCommand):
    help = (
        "Export a whole store, or its memories and decisions as Markdown, or its decisions as architecture decision "
        "records (MADR) or a Mermaid graph."
    )
    group = CommandGroup.CONTENT

    def add_arguments(self, parser: CommandParser) -> None:
        kinds = parser.add_subparsers(dest="kind", required=True, metavar="adr|jsonl|markdown|obsidian")
        adr = kinds.add_parser("adr", help="decisions with context, options, outcome and links")
        adr.add_argument("ids", metavar="ID", nargs="*", type=entity_id, help="which decisions; default: all")
        adr.add_argument("--lineage", action="store_true", help="include their predecessors and successors")
        adr.add_argument("--format", choices=("madr", "mermaid"), default="madr", help="default: madr")
        adr.add_argument("--out", metavar="DIR", type=Path, help="folder for the files; default: standard output")
        adr.add_argument("--force", action="store_true", help="overwrite existing files that differ")
        jsonl = kinds.add_parser("jsonl", help="the whole store, for `memory-hub import jsonl`")
        jsonl.add_argument("--out", metavar="FILE", type=Path, help="default: standard output")
        jsonl.add_argument("--force", action="store_true", help="overwrite an existing file")
        for form, help_text in _FORMS.items():
            _add_selection(kinds.add_parser(form, help=help_text))
        for kind in kinds.choices.values():
            super().add_arguments(kind)

    def handle(self, *args: Any, **options: Any) -> None:
        {"adr": self._adr, "jsonl": self._jsonl}.get(options["kind"], self._folder)(options)

    def _folder(self, options: dict[str, Any]) -> None:
        selection = command_from(ExportSelection, {**options, "kind": options["kinds"]})
        folder: Path = options["out"].expanduser().absolute()
        with self.store(options):
            files = write_folder(folder, FolderForm(options["kind"]), selection, force=options["force"])
        self.stdout.write(f"wrote {counted(files, 'file')} to {folder}")

    def _jsonl(self, options: dict[str, Any]) -> None:
        with self.store(options):
            if options["out"] is None:
                self.stdout.utf8.unfiltered.writelines(export_lines())
                return
            path: Path = options["out"].expanduser().absolute()
            events = create_bundle(path, force=options["force"], is_compressed=False).events
        self.stdout.write(f"wrote {counted(events, 'event')} to {path}")

    def _adr(self, options: dict[str, Any]) -> None:
        if options["lineage"] and not options["ids"]:
            raise Invalid("--lineage needs ids of decisions; without ids, all decisions are exported")
        with self.store(options):
            decisions = chosen_decisions(ids=options["ids"], lineage=options["lineage"])
        is_graph = options["format"] == "mermaid"
        files = {_GRAPH: mermaid_graph(decisions)} if is_graph else madr_files(decisions)
        if options["out"] is None:
            self.stdout.utf8.write("\n".join(files.values()), ending="")
            return
        folder: Path = options["out"].expanduser().absolute()
        write_files(folder, files.items, force=options["force"])
        place = folder / _GRAPH if is_graph else folder
        self.stdout.write(f"wrote {counted(len(decisions), 'decision')} to {place}")


def _add_selection(parser: CommandParser) -> None:
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="the folder")
    parser.add_argument("--force", action="store_true", help="overwrite existing files that differ")
    parser.add_argument("--kind", action="append", dest="kinds", choices=list(Kind), help="only these; may be repeated")
    parser.add_argument("--tag", action="append", help="only memories with this tag; may be repeated")
    parser.add_argument("--scope", choices=list(MemoryScope), help="only memories of this scope")
    parser.add_argument("--since", metavar="TIME", help="only what was created since this time or day (ISO 8601)")
    parser.add_argument("--until", metavar="TIME", help="only what was created before this time or day (ISO 8601)")
