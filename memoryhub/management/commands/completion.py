from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from memoryhub.management.base import CommandGroup, HubCommand
from memoryhub.management.parsers import SHELLS, completion_script


# Only for --help and Python's callers: ``memoryhub.cli`` prints the script before Django is imported
class Command(HubCommand):
    help = "Print a script that completes commands, options, projects and settings in your shell."
    group = CommandGroup.RUN

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("shell", choices=SHELLS, help="the shell that runs the script")

    def handle(self, *_: Any, shell: str, **__: Any) -> None:
        self.stdout.write(completion_script(shell), ending="")
