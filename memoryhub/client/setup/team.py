"""Connect a folder of this machine with a project of a team's hub, for its hooks."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memoryhub import env
from memoryhub.client.setup.document import replace_file
from memoryhub.config.identity import check_project_id
from memoryhub.config.repository import resolved
from memoryhub.config.teams.connections import FILE, TOKEN, Connection, all_connections
from memoryhub.config.teams.sending import PROBLEM
from memoryhub.config.teams.transport import check_url
from memoryhub.core import spool
from memoryhub.core.errors import Invalid, Unavailable
from memoryhub.core.text import counted

_TOKEN = re.compile(r"[A-Za-z0-9_.~+/=-]{16,4096}")
_HEADING = "# Folders whose hooks work with a team's hub, written by `memory-hub setup --url`.\n"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a project of a team's hub is."""

    # Of the hub, without a slash at the end.
    url: str
    project: str
    mcp_url: str


def parse_address(url: str, project: str | None) -> Address:
    """Return the parts of ``https://HOST/p/PROJECT/mcp``, or of ``https://HOST`` and a project.

    Raises:
        Invalid: the URL is none, is not encrypted, or names no project or another one.
    """
    base = check_url(url.strip()).geturl().rstrip("/")
    named = re.fullmatch(r"(?P<base>.*)/p/(?P<project>[^/]+)/mcp", base)
    if named and project and project != named["project"]:
        raise Invalid(f"--url names the project {named['project']!r}, and --project {project!r}; omit one of them")
    chosen = named["project"] if named else project
    if not chosen:
        raise Invalid("name the project: --url https://HOST/p/PROJECT/mcp, or --project ID")
    check_project_id(chosen, "--url" if named else "--project")
    if named:
        return Address(named["base"], chosen, base)
    # A server of one project, `memory-hub mcp --http`, has no other path.
    alone = base.removesuffix("/mcp")
    return Address(alone, chosen, base if alone != base else f"{base}/p/{chosen}/mcp")


def check_token(text: str) -> str:
    """Return the token of a file or of standard input."""
    token = text.strip()
    if not _TOKEN.fullmatch(token):
        raise Invalid("this is no token: give one line with the token that the hub's Tokens page has shown you")
    return token


def connect(folder: Path, address: Address, *, token: str, ca_file: str = "") -> Connection:
    """Connect a folder, instead of what it was connected with; an empty token keeps the one that is there."""
    connection = Connection(
        folder=str(resolved(folder)), url=address.url, project=address.project, ca_file=_authority(ca_file)
    )
    env.prepare_home()
    place = Path(connection.place)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if token:
        replace_file(place / TOKEN, f"{token}\n", 0o600)
    (place / PROBLEM).unlink(missing_ok=True)  # it may be solved: what waits is tried at once
    others = [other for other in all_connections() if other.folder != connection.folder]
    _write([*others, connection])
    return connection


def disconnect(folder: Path) -> str:
    """Take a folder out, and its token if no other folder needs it; return what was done."""
    known = all_connections()
    mine = next((found for found in known if found.folder == str(resolved(folder))), None)
    if mine is None:
        return f"{folder}: not connected with a team's hub"
    others = [found for found in known if found is not mine]
    _write(others)
    if not any(found.place == mine.place for found in others):
        (Path(mine.place) / TOKEN).unlink(missing_ok=True)
    waiting = spool.count_waiting(at=mine.spool)
    left = f"; {counted(waiting, 'hook event')} that were not sent stay in {mine.spool}" if waiting else ""
    return f"{mine.folder}: no longer connected with {mine.url}{left}"


def _authority(ca_file: str) -> str:
    if ca_file and not Path(ca_file).is_file():
        raise Invalid(f"--ca-file {ca_file} is not a file")
    return str(resolved(Path(ca_file))) if ca_file else ""


def _write(connections: Sequence[Connection]) -> None:
    path = env.home() / FILE
    tables = [
        "\n[[connection]]\n"
        + "".join(f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in connection.fields().items())
        for connection in connections
    ]
    try:
        if tables:
            replace_file(path, _HEADING + "".join(tables), 0o600)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise Unavailable(f"{path} cannot be written: {error.strerror}") from error
