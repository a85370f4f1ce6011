"""Connect a folder of this machine with a project of a team's hub, for its hooks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memoryhub import env
from memoryhub.client.setup.document import replace_file
from memoryhub.client.setup.json_text import toml_line
from memoryhub.config.identity import check_project_id
from memoryhub.config.repository import resolved
from memoryhub.core import spool
from memoryhub.core.errors import ConflictError, Invalid, Unavailable
from memoryhub.core.text import counted
from memoryhub.teams.connections import FILE, TOKEN, VARIABLE, TeamConnection, all_connections
from memoryhub.teams.sending import PACK, PROBLEM
from memoryhub.teams.transport import check_url

_TOKEN = re.compile(r"[A-Za-z0-9_.~+/=-]{16,4096}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_HEADING = "# Folders and clients that work with a team's hub, written by `memory-hub setup --url`.\n"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a project of a team's hub is."""

    # The address of the hub, without a slash at the end.
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
    if base.endswith("/mcp"):
        return Address(base.removesuffix("/mcp"), chosen, base)
    return Address(base, chosen, f"{base}/p/{chosen}/mcp")


def check_token(text: str) -> str:
    """Return the token of a file or of standard input."""
    token = text.strip()
    if not _TOKEN.fullmatch(token):
        raise Invalid("this is no token: give one line with the token that the hub's Tokens page has shown you")
    return token


def check_variable(name: str) -> str:
    """Return the name of an environment variable."""
    if not _VARIABLE.fullmatch(name):
        raise Invalid(f"--token-variable is {name!r}; write a name such as {VARIABLE}_2, of letters, digits and _")
    return name


def require_own_variable(variable: str, address: Address, token: str) -> None:
    """Raise Conflict if the variable holds another token already, that of another project or hub."""
    own_token = token or stored_token(address)
    for other in all_connections():
        is_other = (other.url, other.project) != (address.url, address.project)
        if own_token and is_other and other.token_variable == variable and other.token() not in ("", own_token):
            raise ConflictError(
                f"{variable} holds your token of project {other.project} at {other.url}; choose another variable for "
                "this one with --token-variable NAME"
            )


def token_variable_of(address: Address) -> str:
    """Return the variable that clients' entries for a project name, "" if none was chosen yet."""
    return _field_of_address(address, "token_variable")


def _field_of_address(address: Address, name: str) -> str:
    for connection in all_connections():
        value = connection.fields().get(name)
        if value and (connection.url, connection.project) == (address.url, address.project):
            return value
    return ""


def stored_token(address: Address) -> str:
    """Return the token of a project that this machine keeps, "" if it has none."""
    return TeamConnection(folder="", url=address.url, project=address.project).token()


def connect(
    folder: Path,
    address: Address,
    *,
    token: str,
    ca_file: str = "",
    client: str = "",
    hooks: bool = True,
    variable: str = "",
) -> TeamConnection:
    """Connect a folder, instead of what it was connected with.

    Args:
        folder: of the project.
        address: of the project.
        token: "" keeps the one that is there.
        ca_file: a certificate authority to trust instead of the system's, "" for the one that is known.
        client: the id of the client that is set up, "" if none is.
        hooks: whether the folder's hooks send to the project; otherwise only the client needs the token.
        variable: from which the client takes the token, "" if it does not.
    """
    connection = TeamConnection(
        folder=str(resolved(folder)),
        url=address.url,
        project=address.project,
        ca_file=_authority(ca_file) or _field_of_address(address, "ca_file"),
        client="" if hooks else client,
        token_variable=variable or token_variable_of(address),
    )
    env.prepare_home()
    place = Path(connection.place)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if token:
        replace_file(place / TOKEN, f"{token}\n", 0o600)
    (place / PROBLEM).unlink(missing_ok=True)  # it may be solved: what waits is tried at once
    before = all_connections()
    after = [*(other for other in before if not _concerns(other, folder, client, hooks=hooks)), connection]
    _write_connections(after)
    _delete_unused(before, after)
    return connection


def disconnect(folder: Path, *, client: str = "", hooks: bool = True) -> str:
    """Take a folder out, and what only it needs: the token and what the hub sent; return what was done."""
    before = all_connections()
    mine = [connection for connection in before if _concerns(connection, folder, client, hooks=hooks)]
    if not mine:
        return f"{folder}: not connected with a team's hub"
    after = [connection for connection in before if connection not in mine]
    _write_connections(after)
    _delete_unused(before, after)
    last = mine[-1]
    waiting = spool.count_waiting(at=last.spool)
    outcome = f"{last.folder}: no longer connected with {last.url}"
    if waiting:
        outcome += f"; {counted(waiting, 'hook event')} not sent, kept in {last.spool}"
    return outcome


def _concerns(connection: TeamConnection, folder: Path, client: str, *, hooks: bool) -> bool:
    clients = {client, ""} if hooks else {client}
    return connection.folder == str(resolved(folder)) and connection.client in clients


# Events that were not sent stay.
def _delete_unused(before: Sequence[TeamConnection], after: Sequence[TeamConnection]) -> None:
    for place in {connection.place for connection in before} - {connection.place for connection in after}:
        for name in (TOKEN, PACK, PROBLEM):
            (Path(place) / name).unlink(missing_ok=True)


def _authority(ca_file: str) -> str:
    if not ca_file:
        return ""
    if not Path(ca_file).is_file():
        raise Invalid(f"--ca-file {ca_file} is not a file")
    return str(resolved(Path(ca_file)))


def _write_connections(connections: Sequence[TeamConnection]) -> None:
    path = env.home() / FILE
    text = _HEADING
    for connection in connections:
        text += "\n[[connection]]\n"
        for name, value in connection.fields().items():
            text += f"{toml_line(name, value)}\n"
    try:
        if connections:
            replace_file(path, text, 0o600)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise Unavailable(f"{path} cannot be written: {error.strerror}") from error
