"""Which folders and clients of this machine work with a project of a team's hub: ``teams.toml`` in the home folder.

Standard library only, and nothing slow at import: every hook of a machine with such a file reads it.
"""

from __future__ import annotations

import os

from memoryhub.env import home_text

TYPE_CHECKING = False  # type checkers know the name; importing typing takes time
if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FILE = "teams.toml"
FOLDER = "teams"
TOKEN = "token"  # noqa: S105 - a file's name
# The variable that clients' MCP entries name by default; the token itself is in no file of theirs.
VARIABLE = "MEMORY_HUB_TOKEN"


class TeamConnection:
    """A folder whose hook events go to a project of a team's hub, or a client there that uses its MCP server alone."""

    __slots__ = ("ca_file", "client", "folder", "project", "token_variable", "url")

    def __init__(
        self, *, folder: str, url: str, project: str, ca_file: str = "", client: str = "", token_variable: str = ""
    ) -> None:
        self.folder = folder
        # The client that needs the token, without hooks; "" for the folder's hooks.
        self.client = client
        # The variable that clients' entries name, "" if none names one.
        self.token_variable = token_variable
        # Without /p/<project>/mcp and without a slash at the end.
        self.url = url
        self.project = project
        # A certificate authority to trust instead of the system's, such as a team's own.
        self.ca_file = ca_file

    @property
    def place(self) -> str:
        """The folder of the connection's token, spool and cache; folders of one project share it."""
        address = self.url.partition("//")[2]
        hub = "".join(letter if letter in ".-" or letter.isalnum() else "_" for letter in address)
        return f"{home_text()}/{FOLDER}/{hub}/{self.project}"

    @property
    def spool(self) -> Path:
        from pathlib import Path

        return Path(self.place) / "spool"

    def serves(self, mcp_url: str) -> bool:
        """Return whether a URL is the MCP server of the project; only then may it get the token."""
        return mcp_url in (f"{self.url}/p/{self.project}/mcp", f"{self.url}/mcp")

    def token(self) -> str:
        """Return the token of the person, or "" if there is none."""
        try:
            with open(f"{self.place}/{TOKEN}", encoding="ascii") as file:  # noqa: PTH123
                return file.read().strip()
        except (OSError, ValueError):
            return ""

    def fields(self) -> dict[str, str]:
        names = ("folder", "url", "project", "ca_file", "client", "token_variable")
        return {name: getattr(self, name) for name in names if getattr(self, name)}


def all_connections() -> list[TeamConnection]:
    """Return the connections; a file that cannot be read has none."""
    import tomllib  # here, because most machines have no such file

    try:
        with open(f"{home_text()}/{FILE}", "rb") as file:  # noqa: PTH123
            rows = tomllib.load(file).get("connection")
        return [TeamConnection(**row) for row in rows] if isinstance(rows, list) else []
    except (OSError, ValueError, TypeError, RecursionError):
        return []


def connection_of(directory: str) -> TeamConnection | None:
    """Return where the hooks of a path send: the connection of the nearest folder above it.

    A linked worktree belongs to its repository.
    """
    if not directory.startswith("/"):
        return None
    of_folders = [connection for connection in all_connections() if not connection.client]
    path = os.path.realpath(directory)
    if not of_folders:
        return None
    return _nearest_connection(of_folders, path) or _nearest_connection(of_folders, _main_folder(path))


def _nearest_connection(connections: Iterable[TeamConnection], path: str) -> TeamConnection | None:
    above = [connection for connection in connections if f"{path}/".startswith(f"{connection.folder.rstrip('/')}/")]
    return max(above, key=lambda connection: len(connection.folder), default=None)


def _main_folder(path: str) -> str:
    from pathlib import Path

    from memoryhub.config.repository import find_repository

    repository = find_repository(Path(path))
    return str(repository.folder) if repository else path
