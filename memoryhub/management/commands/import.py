# ruff: noqa: N999  (the command is called import)
from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from governance.imports import ImportRun, ImportUndo, list_batches, preview_only, preview_undo, undo_import
from memories.importing import MAX_HEADINGS
from memoryhub.config.identity import bind_project, identify_project, renamed_hint
from memoryhub.config.repository import working_folder
from memoryhub.core.errors import Invalid
from memoryhub.core.stores.store import list_projects
from memoryhub.core.text import counted, flat
from memoryhub.management.base import ProjectCommand, entity_id, progress_bar, use_cli_origin, whole_number
from memoryhub.management.importing import import_plan, is_wanted, plan_lines
from memoryhub.transfer.file_imports import FILE_IMPORTS, FileImport
from memoryhub.transfer.importing import Importer
from memoryhub.transfer.records import ImportReport, ImportSource, batch_line, left_out_lines, report_line
from memoryhub.transfer.sources import SOURCES
from memoryhub.transfer.start_plan import plan_start


class Command(ProjectCommand):
    help = (
        "Import files, decision records, git history, an exported store, or the memory of another tool; without "
        "SOURCE, all that this machine knows of this repository. Importing again adds only changes."
    )
    creates_store = True
    reads = ("list",)
    is_asked_of_hub = ("list",)
    interrupted = "interrupted; what was imported is kept, and the same command imports the rest"

    def add_arguments(self, parser: CommandParser) -> None:
        kinds = parser.add_subparsers(dest="kind", metavar="SOURCE|list|undo")
        markdown = kinds.add_parser("markdown", help="import each section of Markdown and text files as a memory")
        markdown.add_argument("path", metavar="DIR", type=Path, help="the folder")
        markdown.add_argument("--tag", action="append", default=[], help="tag for all of them; may be repeated")
        markdown.add_argument(
            "--max-headings",
            metavar="N",
            type=whole_number,
            default=MAX_HEADINGS,
            help="skip files with more headings (default: %(default)s)",
        )
        markdown.add_argument(
            "--exclude",
            metavar="PATTERN",
            action="append",
            default=[],
            help="leave out files whose path below DIR matches, such as 'tests/*'; may be repeated",
        )
        adr = kinds.add_parser("adr", help="import architecture decision records as decisions, with their lineage")
        adr.add_argument("path", metavar="DIR", type=Path, help="the folder of the records")
        git = kinds.add_parser("git", help="import the commits of HEAD with message, author, date and files")
        git.add_argument("path", metavar="PATH", nargs="?", type=Path, default=Path(), help="the repository (.)")
        git.add_argument("--limit", metavar="N", type=whole_number, help="only the newest N commits")
        git.add_argument("--since", metavar="DATE", help="only since this date (ISO 8601)")
        jsonl = kinds.add_parser("jsonl", help="import a whole store from a file of `memory-hub export jsonl`")
        jsonl.add_argument("path", metavar="FILE", type=Path, help="the file")
        for kind in (markdown, adr, git):
            kind.add_argument("--preview", action="store_true", help="show what would be imported, and change nothing")
            kind.add_argument(
                "--yes", action="store_true", help="accepted as by the other imports; this one never asks"
            )
        tools = [kinds.add_parser(name, help=f"import {source.help}") for name, source in SOURCES.items()]
        for tool in tools:
            tool.add_argument("path", metavar="PATH", nargs="?", type=Path, help="default: where the tool keeps it")
            tool.add_argument("--preview", action="store_true", help="show what would be imported, and change nothing")
            tool.add_argument("--only", metavar="ID", help="import only what goes to this project")
            tool.add_argument("--yes", action="store_true", help="import without asking")
        batches = kinds.add_parser("list", help="list the imports that can be undone")
        undo = kinds.add_parser("undo", help="undo an import, as if it had never been")
        undo.add_argument("batch", metavar="N", type=entity_id, help="its number, as `import list` shows it")
        undo.add_argument("--confirm", metavar="TOKEN", default="", help="from the preview, which is shown without it")
        undo.add_argument("--yes", action="store_true", help="undo it without asking")
        for kind in (markdown, adr, git, jsonl, *tools, batches, undo):
            super().add_arguments(kind)
        # Under other names: the defaults of a source's options would replace what is given before it
        parser.add_argument("--project", metavar="ID", dest="all_project", help="the project; default: of this folder")
        act = parser.add_mutually_exclusive_group()
        act.add_argument("--preview", action="store_true", dest="all_preview", help="show it, and change nothing")
        act.add_argument("--yes", action="store_true", dest="all_yes", help="import without asking")

    def handle(self, *args: Any, **options: Any) -> None:
        for name in ("project", "preview", "yes"):
            if options[f"all_{name}"] not in (None, False):
                options[name] = options[f"all_{name}"]
            options.setdefault(name, None)
        if options["kind"] is None:
            self._import_all(options)
        elif options["kind"] in ("list", "undo"):
            self.creates_store = False
            with self.store(options):
                if options["kind"] == "list":
                    batches = list_batches()
                    self.answer(batches, map(batch_line, batches))
                else:
                    self._undo(options)
        elif options["kind"] in SOURCES:
            self._tool(SOURCES[options["kind"]], options)
        else:
            self._import(options)

    def _import_all(self, options: dict[str, Any]) -> None:
        plan = plan_start(working_folder(), options["project"])
        for line in plan_lines(plan):
            self.stdout.write(line)
        if plan.parts and not options["preview"] and is_wanted(self, "Import this?", is_yes=options["yes"]):
            import_plan(self, plan)

    def _import(self, options: dict[str, Any]) -> None:
        path: Path = options["path"].expanduser().absolute()
        start = time.perf_counter()
        importer = FILE_IMPORTS[options["kind"]](path, options)
        total = importer.count()  # unreadable input creates no store
        project = identify_project(project=options["project"], directory=working_folder())
        importer.choose_project(project)
        is_preview = bool(options.get("preview"))
        self.stdout.write(f"{'preview of' if is_preview else 'importing'} {flat(str(path))} into {project}")
        if is_preview and project not in list_projects():
            new = importer.describe_new(total)
            self._print_notes(importer)
            self.stdout.write(f"would import {new} into {project}, which does not exist yet")
            return
        self._hint(project, options)
        with self.store(options):
            if is_preview:
                with preview_only():
                    line, _ = self._run_import(importer, total)
                self.stdout.write(line.replace("imported", "would import", 1))
                return
            if options["project"] is None:
                bind_project(project, working_folder())
            run = ImportRun(options["kind"], str(path))
            if options["kind"] == "jsonl":  # with the batches of the store that was exported
                line, counts = self._run_import(importer, total)
            else:
                with run.recording():
                    line, counts = self._run_import(importer, total)
            batch = run.end(counts)
        self.stdout.write(f"{line} in {time.perf_counter() - start:.1f} s")
        if batch is not None:
            self.stdout.write(f"to undo it: memory-hub import undo {batch} --project {project}")

    def _run_import(self, importer: FileImport, total: int) -> tuple[str, dict[str, int]]:
        try:
            with progress_bar(importer.unit, total) as advance:
                return importer.run(advance)
        finally:
            self._print_notes(importer)

    def _print_notes(self, importer: FileImport) -> None:
        for warning in importer.warnings:
            self.stderr.write(warning)
        for line in importer.news:
            self.stdout.write(line)

    def _tool(self, source: ImportSource, options: dict[str, Any]) -> None:
        if options["path"]:
            paths = [options["path"].expanduser().absolute()]
        else:
            paths = source.find(working_folder())
        if not paths:
            raise Invalid(f"no data of {source.name} was found in its usual places; name the file or folder")
        project = identify_project(project=options["project"], directory=working_folder())
        self._hint(project, options)
        with use_cli_origin():
            for path in paths:
                self._import_path(source, path, project, options)

    def _import_path(self, source: ImportSource, path: Path, project: str, options: dict[str, Any]) -> None:
        def importer() -> Importer:
            is_only = options["project"] is not None
            return Importer(source.name, project, is_only=is_only, only=options["only"] or "")

        self.stdout.write(flat(str(path)))
        preview = importer().preview(source.records(path))  # invalid data changes nothing
        self._report(preview)
        if options["preview"] or not any(report.changes for report in preview):
            return
        is_asked = not options["yes"] and sys.stdin.isatty()  # scripts are not asked
        if is_asked and not self.confirm("Import this?"):
            return
        total = sum(sum(report.names.values()) for report in preview)
        with progress_bar("records", total) as advance:
            reports = importer().run(source.records(path), place=str(path), progress=advance)
        if options["project"] is None:
            bind_project(project, working_folder())
        for report in reports:
            if report.batch:
                self.stdout.write(
                    f"imported into {report.project} as #{report.batch}; to undo it: memory-hub import undo "
                    f"{report.batch} --project {report.project}"
                )

    def _hint(self, project: str, options: dict[str, Any]) -> None:
        if options["project"]:
            return
        hint = renamed_hint(working_folder(), project)
        if hint:
            self.stderr.write(flat(f"note: {hint}"))

    def _report(self, reports: list[ImportReport]) -> None:
        if not reports:
            self.stdout.write("  nothing to import")
        for report in reports:
            self.stdout.write(f"  {report_line(report)}")
            for line in left_out_lines(report):
                self.stderr.write(f"  {line}")

    def _undo(self, options: dict[str, Any]) -> None:
        batch, token = options["batch"], options["confirm"]
        if not token:
            plan = preview_undo(batch)
            self._report_undo(plan, "would be undone")
            if not options["yes"] and not sys.stdin.isatty():
                self.stdout.write(f"to undo it: memory-hub import undo {batch} --confirm {plan.token}")
                return
            if not is_wanted(self, "Undo it?", is_yes=options["yes"]):
                return
            token = plan.token
        self._report_undo(undo_import(batch_id=batch, token=token), "undone")

    def _report_undo(self, plan: ImportUndo, state: str) -> None:
        self.stdout.write(f"{state}: {plan.items_text or 'nothing'}, {counted(plan.events, 'event')}")
        for item in plan.kept_items:
            self.stdout.write(flat(f"kept #{item.id} {item.title}: {item.why}"))
