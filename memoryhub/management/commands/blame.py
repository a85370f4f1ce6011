from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from governance.blame import BlameRequest, blame
from governance.present import blame_lines
from memoryhub.core.validation import command_from
from memoryhub.management.base import ProjectCommand
from sessions_app.git import top_of_worktree

_LINES = re.compile(r"(.+?):(\d{1,9})(?:-(\d{1,9}))?")


class Command(ProjectCommand):
    help = "Explain lines of a file: commit, decision, session, prompt, and the guidelines of that time."
    reads = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("place", metavar="FILE[:LINE[-LINE]]", help="the file, and its lines")

    def handle(self, *args: Any, **options: Any) -> None:
        place, lines = options["place"], {}
        match = _LINES.fullmatch(place)
        # A file whose name ends like lines is named by its whole name
        if match and not Path(place).exists():
            place = match[1]
            lines = {"first": int(match[2]), "last": int(match[3] or match[2])}
        path = Path(place).expanduser().absolute()
        top = top_of_worktree(path.parent)
        file = str(path.parent.resolve().relative_to(top) / path.name)
        command = command_from(BlameRequest, {"file": file, "limit": 10_000, **lines})
        with self.store(options, directory=path.parent):
            view = blame(command=command, folder=top).view
        self.answer(view, blame_lines(view))
