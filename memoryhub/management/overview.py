"""The screens of ``memory-hub --help``, and the answer to a name that is no command. Imports no Django."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from memoryhub.core.text import did_you_mean
from memoryhub.management.terminal import Line, Span, Style, has_colour, rendered

# What the first screen shows; a command that does not exist is left out
FIRST_COMMANDS = ("start", "setup", "status", "search", "remember", "show", "context", "open", "doctor")
# What people type for a command
SYNONYMS = {
    "remember": ("add", "note", "save", "store", "write"),
    "search": ("find", "grep", "list", "ls"),
    "show": ("cat", "view"),
    "open": ("browse", "login", "web"),
    "setup": ("init", "install"),
}
ALL = "--all"
_USAGE = "memory-hub COMMAND …; memory-hub COMMAND --help shows its options."
_DJANGO = "memory-hub help --commands also lists Django's commands, such as migrate and shell."


def write_lines(stream: TextIO, lines: Iterable[Line]) -> None:
    colour = has_colour(stream)
    stream.writelines(f"{rendered(line, colour=colour)}\n" for line in lines)


def first_screen(commands: dict[str, Any]) -> Iterator[Line]:
    """Yield the commands that people need at first, by their descriptions in ``parsers.json``."""
    first = {name: commands[name] for name in FIRST_COMMANDS if name in commands}
    yield _USAGE
    yield ""
    yield from _command_lines(first, max(map(len, first)))
    yield ""
    yield f"memory-hub --help {ALL} lists the other {len(commands) - len(first)} commands."


def all_commands(commands: dict[str, Any]) -> Iterator[Line]:
    """Yield all of the hub's commands by group."""
    groups: dict[str, dict[str, Any]] = {}
    for name, command in commands.items():
        groups.setdefault(command["group"], {})[name] = command
    yield _USAGE
    for group, members in groups.items():
        yield ""
        yield [Span(f"{group}:", Style.BOLD)]
        yield from _command_lines(members, max(map(len, commands)))
    yield ""
    yield _DJANGO


def _command_lines(commands: dict[str, Any], width: int) -> Iterator[Line]:
    for name, command in commands.items():
        yield [Span("  "), Span(f"{name:<{width}}", Style.BOLD), Span(f"  {command['summary']}")]


def unknown_command(name: str, commands: dict[str, Any]) -> Line:
    """Return the sentence on a name that is no command, with the one that was meant."""
    synonym = next((command for command, words in SYNONYMS.items() if name in words and command in commands), "")
    meant = f" (did you mean {synonym!r}?)" if synonym else did_you_mean(name, commands)
    sentence = f"memory-hub: there is no command {name[:64]!r}{meant}; `memory-hub help {ALL}` lists all commands"
    return [Span(sentence, Style.RED)]
