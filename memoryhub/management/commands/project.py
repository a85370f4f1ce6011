from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from governance.findings.selectors import project_findings
from governance.present import findings_lines, size
from memoryhub.config.identity import SETTINGS_FILE, check_project_id, renamed_hint
from memoryhub.config.repository import working_folder
from memoryhub.core import clock
from memoryhub.core.backends.selected import stores
from memoryhub.core.stores.store import project_store, use_store
from memoryhub.core.text import flat
from memoryhub.management.base import CommandGroup, HubCommand, use_cli_origin
from memoryhub.registry import projects
from memoryhub.registry.projects import ProjectCreate, ProjectDetails, ProjectRow, create_project


class Command(HubCommand):
    help = "List, show or create projects; `memory-hub settings` changes their settings."
    group = CommandGroup.CONTENT
    reads = ("list", "show", "findings")

    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True, metavar="list|show|findings|create")
        acts.add_parser("list", help="list all projects: id, name, events, size, last write, folder")
        show = acts.add_parser("show", help="show a project; default: that of this folder, and why it is that one")
        show.add_argument("id", nargs="?", metavar="ID")
        findings = acts.add_parser("findings", help="the error met most, the command that fails first, and others")
        findings.add_argument("id", nargs="?", metavar="ID")
        create = acts.add_parser("create", help="create a project")
        create.add_argument("id", metavar="ID", help="1 to 64 of a-z, 0-9, '.', '_', '-'")
        create.add_argument("--title", default="", help="display name")
        create.add_argument("--description", default="", help="description")
        create.add_argument("--org", metavar="ID", help="its organisation")

    def values(self) -> dict[str, Iterable[str]]:
        return {"id": ["projects/*"]}

    def handle(self, *args: Any, **options: Any) -> None:
        with use_cli_origin():
            getattr(self, f"_{options['act']}")(options)

    def _list(self, _: dict[str, Any]) -> None:
        rows = projects.project_rows()
        table = [["ID", "NAME", "EVENTS", "SIZE", "LAST WRITE", "FOLDER"], *map(_cells, rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = []
        for row in table:
            lines.append("  ".join(map(str.ljust, row, widths)).rstrip())
        if not rows:
            lines = ["no projects yet; the first write in a folder creates one"]
        self.answer({"results": rows}, lines)

    def _show(self, options: dict[str, Any]) -> None:
        because = ""
        if options["id"]:
            project = check_project_id(options["id"], "ID")
            projects.require_project(project)
        else:
            project, because = projects.locate(working_folder())
        head = [project]
        if because:
            head.append(flat(f"  because   {because}"))
        row = projects.row_of(project)
        if row is None:
            hint = renamed_hint(working_folder(), project)
            data = {"project_id": project, "because": because, "exists": False, "hint": hint}
            head.append("  status    does not exist yet; the first write creates it")
            if hint:
                head.append(flat(f"  hint      {hint}"))
            self.answer(data, head)
            return
        with use_store(project_store(project)):
            details, decided = projects.project_in_full()
        settings = {name: {"value": value, "decided_by": by} for name, (value, by) in decided.items()}
        data = {**details.model_dump(), "because": because, "exists": True, "folder": row.folder, "settings": settings}
        self.answer(data, [*head, *_details(details, row, decided)])

    def _findings(self, options: dict[str, Any]) -> None:
        project = check_project_id(options["id"], "ID") if options["id"] else projects.locate(working_folder())[0]
        projects.require_project(project)
        with use_store(project_store(project)):
            report = project_findings()
        self.answer(report, findings_lines(report))

    def _create(self, options: dict[str, Any]) -> None:
        project = check_project_id(options["id"], "ID")
        fields = {"id": project, "name": options["title"], "description": options["description"]}
        fields["org_id"] = options["org"]
        command = ProjectCreate.model_validate({name: value for name, value in fields.items() if value})
        card = create_project(command=command)
        self.stdout.write(
            f'created {card.project_id}; to bind a folder to it, put project = "{project}" into {SETTINGS_FILE}'
        )


def _details(details: ProjectDetails, row: ProjectRow, decided: dict[str, tuple[Any, str]]) -> Iterator[str]:
    facts = {
        "name": details.name,
        "of": details.org_id or "",
        "for": details.description,
        "folder": row.folder,
        "store": stores.location(project_store(details.project_id)),
        "holds": f"memories {details.memories:,}, sessions {details.sessions:,}, commits {details.commits:,}",
        "log": f"events {details.events:,}, {size(row.bytes)}, last {_minute(row)}",
    }
    yield from (f"  {name:<9} {flat(value)}" for name, value in facts.items() if value)
    for name, (value, by) in decided.items():
        yield flat(f"  setting   {name} = {json.dumps(value, ensure_ascii=False)}, by {by}")


def _cells(row: ProjectRow) -> list[str]:
    if row.problem:
        return [row.project_id, "", "", size(row.bytes), "", flat(row.problem)]
    folder = row.folder.replace(str(Path.home()), "~", 1)
    return [row.project_id, flat(row.name), f"{row.events:,}", size(row.bytes), _minute(row), flat(folder)]


def _minute(row: ProjectRow) -> str:
    return clock.minute(row.last_activity).replace("T", " ") if row.last_activity else "never"
