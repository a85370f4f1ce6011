"""The options of ``memory-hub mcp``. Imports argparse only to explain itself: it would cost a third of the start."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser

DESCRIPTION = "Serve one project's memory over MCP on stdin and stdout."
PROFILES = ("core", "work", "full")


@dataclass(frozen=True, slots=True)
class Options:
    """What the process is bound to for its whole life."""

    project: str | None = None
    session: str = ""
    profile: str = PROFILES[0]


_NAMES = frozenset(field.name for field in fields(Options))


def parse(argv: list[str]) -> Options:
    """Read the arguments after ``mcp``; explain and exit (code 2; 0 for ``--help``) where they are not understood."""
    values = _plain_values(argv)
    if values is None or values.get("profile", PROFILES[0]) not in PROFILES:
        values = vars(_parser().parse_args(argv))
    return Options(**values)


def _plain_values(argv: list[str]) -> dict[str, str] | None:
    """Return the options of a well-formed command line, or None where argparse should have the word."""
    values: dict[str, str] = {}
    words = iter(argv)
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or name not in _NAMES:
            return None
        found = value if equals else next(words, None)
        if found is None or found.startswith("-"):
            return None
        values[name] = found
    return values


def _parser() -> ArgumentParser:
    from argparse import ArgumentParser

    parser = ArgumentParser(prog="memory-hub mcp", description=DESCRIPTION)
    add_arguments(parser)
    return parser


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options on ``parser``."""
    parser.add_argument("--project", metavar="ID", help="the project to serve; by default found from the folder")
    parser.add_argument("--session", metavar="ID", default="", help="the session that all writes belong to")
    parser.add_argument("--profile", choices=PROFILES, default=PROFILES[0], help="which tools are listed")
