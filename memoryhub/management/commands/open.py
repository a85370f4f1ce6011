from __future__ import annotations

import os
import sys
import time
import webbrowser
from typing import Any

from django.core.management.base import CommandParser

from memories.schemas import MemoryGet
from memoryhub.config.identity import identify_project
from memoryhub.config.repository import working_folder
from memoryhub.core import autostart
from memoryhub.core.errors import Invalid, Unavailable
from memoryhub.core.stores.store import list_projects, project_store
from memoryhub.management.base import CommandGroup, ProjectCommand, entity_id, use_cli_origin
from memoryhub.ops.hub_databases import prepare_databases
from memoryhub.ops.serving.process import Running, find_running
from memoryhub.registry.entity_texts import read_entities
from memoryhub.registry.projects import require_project

# How long a hub may take to start
_PATIENCE_SECONDS = 30.0
_LOOK_SECONDS = 0.1


class Command(ProjectCommand):
    help = "Open a page in the browser, signed in: that of this project, of another one, or of an id."
    group = CommandGroup.RUN
    # Sign-in and pages are the web's
    is_slim = False

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "what", metavar="ID|PROJECT", nargs="?", default="", help="an id such as 412 or '#412', or a project"
        )
        parser.add_argument("--print", action="store_true", help="print the link, and open nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        from memoryhub.web import signin

        path = self._path(options)  # a wrong name starts no hub
        running = find_running() or self._start()
        prepare_databases()  # a hub that has just started has an address before it has its tables
        with use_cli_origin():
            link = signin.new_link(running.public_url or running.address, path=path)
        if not options["print"] and has_display() and webbrowser.open(link):
            self.stdout.write(f"opened {running.address}{path} in the browser")
        else:
            self.stdout.write(link)

    def _path(self, options: dict[str, Any]) -> str:
        from memoryhub.web.pages import StorePlace, entity_path

        what = options["what"]
        if what.removeprefix("#").isdigit():
            command = MemoryGet(ids=[entity_id(what)], include_deleted=True)
            with self.store(options) as project:
                (entity,) = read_entities(command=command)
                return entity_path(project_store(project), entity.type, command.ids[0])
        project = what or options["project"] or _project_here()
        if not project:
            return "/"
        require_project(project)
        return StorePlace.of(project_store(project)).url

    def _start(self) -> Running:
        if not autostart.is_allowed():
            raise Unavailable("Memory Hub is not running, and autostart is off; start it with `memory-hub serve`")
        self.stderr.write("starting Memory Hub", style_func=str)
        autostart.start_hub()
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            running = find_running()
            if running and running.address:
                return running
            time.sleep(_LOOK_SECONDS)
        raise Unavailable("Memory Hub did not start; `memory-hub serve` shows why")


# Without one, all projects are shown
def _project_here() -> str:
    try:
        project = identify_project(project=None, directory=working_folder())
    except Invalid:
        return ""
    return project if project in list_projects() else ""


def has_display() -> bool:
    """Return whether a browser that is opened here would be seen by the person who types."""
    if any(name in os.environ for name in ("SSH_CONNECTION", "SSH_TTY")):
        return False
    return sys.platform != "linux" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
