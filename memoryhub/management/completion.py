"""Completion of the command line, by argcomplete; imports neither Django nor the commands."""

from __future__ import annotations

import os
from argparse import Action, ArgumentParser, _SubParsersAction
from collections.abc import Callable, Iterable, Iterator

import argcomplete
from argcomplete.completers import DirectoriesCompleter, FilesCompleter, SuppressCompleter
from argcomplete.shell_integration import shellcode

from memoryhub import env
from memoryhub.management.parsers import Parser, add_arguments, read_commands

SHELLS = ("bash", "zsh", "fish")


def script(shell: str) -> str:
    return shellcode(["memory-hub"], shell=shell)


def complete() -> None:
    """Print the completions of ``COMP_LINE`` as argcomplete's shell functions expect them, and exit."""
    parser = Parser(prog="memory-hub")
    commands = parser.add_subparsers()
    typed = os.environ.get("COMP_LINE", "").split()[1:2]
    for name, described in read_commands()["commands"].items():
        command = commands.add_parser(name, help=described["summary"])
        if name in typed:
            add_arguments(command, described)
    for action in _actions(parser):
        completer = _completer(action)
        if completer:
            action.completer = completer  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser, always_complete_options=False, default_completer=SuppressCompleter())


def _completer(action: Action) -> Callable[..., Iterable[str]] | None:
    if values := getattr(action, "values", None):
        return lambda **_: [*_expanded(values)]
    named = str(action.metavar or action.dest).upper()
    if named == "DIR":
        return DirectoriesCompleter()
    return FilesCompleter() if named in ("FILE", "PATH") else None


def _actions(parser: ArgumentParser) -> Iterator[Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, _SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)


# A value with a ``*`` stands for the names of files in the home folder
def _expanded(values: list[str]) -> Iterator[str]:
    for value in values:
        yield from (path.name for path in env.home().glob(value)) if "*" in value else (value,)
