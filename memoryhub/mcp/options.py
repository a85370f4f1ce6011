"""The options of ``memory-hub mcp``.

Imports argparse only to explain itself. Like the front's other modules this one does without ``dataclasses`` too: each
of the two would cost a fifth of the time in which a client gets its first answer.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what checkers take for typing's, without importing it
if TYPE_CHECKING:
    from argparse import ArgumentParser

DESCRIPTION = "Serve one project's memory over MCP on stdin and stdout."
PROFILES = ("core", "work", "full")


class Options:
    """What the process is bound to for its whole life."""

    __slots__ = ("profile", "project", "session")

    def __init__(self, *, project: str | None = None, session: str = "", profile: str = PROFILES[0]) -> None:
        self.project = project
        self.session = session
        self.profile = profile


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
        if not word.startswith("--") or name not in Options.__slots__:
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
