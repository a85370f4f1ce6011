from __future__ import annotations

import getpass
import json
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from memoryhub.config.identity import SETTINGS_FILE, check_project_id
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import project_store, use_store
from memoryhub.core.text import flat
from memoryhub.management.base import HubCommand
from memoryhub.registry import project_lookup
from memoryhub.registry.project_lookup import ProjectRow
from memoryhub.registry.projects import ProjectCreate, create_project


class Command(HubCommand):
    help = "List, show or create projects; `memory-hub settings` changes their settings."

    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True, metavar="list|show|create")
        acts.add_parser("list", help="list all projects: id, name, events, size, last write, folder")
        show = acts.add_parser("show", help="show a project; default: that of this folder, and why it is that one")
        show.add_argument("id", nargs="?", metavar="ID")
        create = acts.add_parser("create", help="create a project")
        create.add_argument("id", metavar="ID", help="1 to 64 of a-z, 0-9, '.', '_', '-'")
        create.add_argument("--title", default="", help="display name")
        create.add_argument("--description", default="", help="description")
        create.add_argument("--org", metavar="ID", help="its organisation")

    def handle(self, *args: Any, **options: Any) -> None:
        with use_origin(source="cli", actor=getpass.getuser()):
            getattr(self, f"_{options['act']}")(options)

    def _list(self, _: dict[str, Any]) -> None:
        rows = [_cells(row) for row in project_lookup.project_rows()]
        if not rows:
            self.stdout.write("no projects yet; the first write in a folder creates one")
            return
        table = [["ID", "NAME", "EVENTS", "SIZE", "LAST WRITE", "FOLDER"], *rows]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for row in table:
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            self.stdout.write("  ".join(cells).rstrip())

    def _show(self, options: dict[str, Any]) -> None:
        if options["id"]:
            project, because = check_project_id(options["id"], "ID"), ""
            project_lookup.require_project(project)
        else:
            found = project_lookup.locate(Path.cwd())
            project, because = found.project, found.because
        self._print(project, because)

    def _print(self, project: str, because: str) -> None:
        self.stdout.write(project)
        if because:
            self.stdout.write(flat(f"  because   {because}"))
        row = project_lookup.row_of(project)
        if row is None:
            self.stdout.write("  status    does not exist yet; the first write creates it")
            return
        with use_store(project_store(project)):
            details, decided = project_lookup.project_in_full()
        facts = {
            "name": details.name,
            "of": details.org_id or "",
            "for": details.description,
            "folder": row.folder,
            "store": str(project_store(project).path),
            "holds": f"memories {details.memories:,}, sessions {details.sessions:,}, commits {details.commits:,}",
            "log": f"events {details.events:,}, {_size(row.bytes)}, last {_minute(row)}",
        }
        for name, value in facts.items():
            if value:
                self.stdout.write(f"  {name:<9} {flat(value)}")
        for name, (value, by) in decided.items():
            self.stdout.write(flat(f"  setting   {name} = {json.dumps(value, ensure_ascii=False)}, by {by}"))

    def _create(self, options: dict[str, Any]) -> None:
        given = {"name": options["title"], "description": options["description"], "org_id": options["org"]}
        fields = {name: value for name, value in given.items() if value}
        project = check_project_id(options["id"], "ID")
        made = create_project(command=ProjectCreate.model_validate({"id": project, **fields}))
        self.stdout.write(
            f'created {made.project_id}; to bind a folder to it, put project = "{project}" into {SETTINGS_FILE}'
        )


def _cells(row: ProjectRow) -> list[str]:
    if row.problem:
        return [row.project_id, "", "", _size(row.bytes), "", flat(row.problem)]
    folder = row.folder.replace(str(Path.home()), "~", 1)
    return [row.project_id, flat(row.name), f"{row.events:,}", _size(row.bytes), _minute(row), flat(folder)]


def _minute(row: ProjectRow) -> str:
    return f"{row.last_activity:%Y-%m-%d %H:%M}" if row.last_activity else "never"


def _size(count: int) -> str:
    from governance.present import size

    return size(count)
