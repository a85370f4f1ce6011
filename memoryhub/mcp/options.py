"""Options of ``memory-hub mcp``.

``argparse`` is imported only for errors and help, and ``dataclasses`` not at all: each would take a fifth of the time
to the first answer.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers treat it as typing.TYPE_CHECKING, without the import
if TYPE_CHECKING:
    from argparse import ArgumentParser
    from typing import Any

DESCRIPTION = "Serve one project's memory over MCP on stdin and stdout, or over HTTP."
PROFILES = ("core", "work", "full")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_PLAIN = ("project", "directory", "session", "profile")


class Options:
    __slots__ = ("allow_host", "directory", "http", "profile", "project", "session", "token")

    def __init__(
        self,
        *,
        project: str | None = None,
        directory: str | None = None,
        session: str = "",
        profile: str = PROFILES[0],
        http: tuple[str, int] | None = None,
        allow_host: list[str] | None = None,
        token: bool = True,
    ) -> None:
        self.project = project
        self.directory = directory
        self.session = session
        self.profile = profile
        self.http = http
        self.allow_host = allow_host or []
        self.token = token


def parse(argv: list[str]) -> Options:
    """Parse the arguments after ``mcp``; exit with 2 if they are wrong, with 0 after ``--help``."""
    values = _plain_values(argv)
    if values is not None and values.get("profile", PROFILES[0]) in PROFILES:
        return Options(**values)
    from argparse import ArgumentParser

    parser = ArgumentParser(prog="memory-hub mcp", description=DESCRIPTION)
    add_arguments(parser)
    options = Options(**vars(parser.parse_args(argv)))
    if problem := find_problem(options):
        parser.error(problem)
    return options


def find_problem(options: Options) -> str:
    if options.http is None and (options.allow_host or not options.token):
        return "--no-token and --allow-host need --http"
    if options.http is not None and not options.token and options.http[0] not in LOOPBACK:
        return "--no-token needs 127.0.0.1, localhost or [::1]: at another address anyone could read everything"
    return ""


def _plain_values(argv: list[str]) -> dict[str, Any] | None:
    # None leaves the command line to argparse.
    values: dict[str, Any] = {}
    words = iter(argv)
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or name not in _PLAIN:
            return None
        if not equals:
            value = next(words, "-")
        if value.startswith("-"):
            return None
        values[name] = value
    return values


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--project", metavar="ID", help="project to serve; default: the folder's project")
    parser.add_argument(
        "--directory", metavar="DIR", help="working folder, for clients that start the server elsewhere"
    )
    parser.add_argument("--session", metavar="ID", default="", help="session of all writes")
    parser.add_argument("--profile", choices=PROFILES, default=PROFILES[0], help="which tools are listed")
    parser.add_argument(
        "--http",
        metavar="[HOST:]PORT",
        type=_http_address,
        help="serve over HTTP at /mcp instead of stdin and stdout; default host: 127.0.0.1; port 0 picks a free one",
    )
    parser.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        help="with --http: another host name of the server; may be repeated",
    )
    parser.add_argument(
        "--no-token",
        dest="token",
        action="store_false",
        help="with --http, on a loopback address: accept clients without a token",
    )


def _http_address(text: str) -> tuple[str, int]:
    from argparse import ArgumentTypeError

    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise ArgumentTypeError(f"{text!r} is not an address; use HOST:PORT, such as 127.0.0.1:8322 or [::1]:8322")
    return host.strip("[]") or LOOPBACK[0], int(port)
