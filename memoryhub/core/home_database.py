"""Which database a home belongs to, so that no process works in another one (decision 80).

Standard library only, because hooks and the MCP front ask before all else. The file ``database`` in the home names a
PostgreSQL database, without user and password, since the home's first write to it. After a move of all stores back to
files it says ``sqlite``. A home that has used files alone has no such file.
"""

from __future__ import annotations

import os

from memoryhub.core.file_locks import is_locked
from memoryhub.env import (
    CONFIG_FILE,
    DATABASE_FILE,
    DATABASE_SETTING,
    DATABASE_VARIABLE,
    FILES,
    SERVE_LOCK,
    DatabaseUrlError,
    configured_database_url,
    database_url,
    home_text,
)

_DEFAULT_PORT = ":5432"
_OWNER_MAY_WRITE = 0o200

# Homes and databases of which this process knows that they are recorded
_remembered: set[tuple[str, str]] = set()
# Empty, or one entry: this process works in another database on purpose, as the other side of a move
_guest: list[bool] = []


def display_url(url: str) -> str:
    """Return the address of a database without user, password and options, in one spelling."""
    address, _, options = url.partition("://")[2].partition("?")
    authority, _, name = address.partition("/")
    parameters = dict(item.partition("=")[::2] for item in options.split("&"))
    user, _, hosts = authority.rpartition("@")
    hosts = hosts or parameters.get("host", "")
    if "%" in hosts:
        from urllib.parse import unquote

        hosts = unquote(hosts)
    if parameters.get("port") and not hosts.endswith(f":{parameters['port']}"):
        hosts = f"{hosts}:{parameters['port']}"
    if not hosts.startswith("/"):
        hosts = hosts.lower()
    name = name or parameters.get("dbname", "") or user.partition(":")[0]
    return f"postgresql://{','.join(host.removesuffix(_DEFAULT_PORT) for host in hosts.split(','))}/{name}"


def masked(url: str) -> str:
    """Return an address as it was given, without its password."""
    start, _, options = url.partition("?")
    scheme, _, address = start.partition("://")
    user, at, place = address.rpartition("@")
    name, colon, _ = user.partition(":")
    harmless = [item for item in options.split("&") if item and not item.startswith("password=")]
    password = colon and ":PASSWORD"
    query = f"?{'&'.join(harmless)}" if harmless else ""
    return f"{scheme}://{name}{password}{at}{place}{query}"


def only_of_this_process() -> str:
    """Return the address that processes without this one's variable would not find, "" if they would."""
    variable = os.environ.get(DATABASE_VARIABLE, "")
    if variable == FILES or configured_database_url():
        return ""
    return variable


def recorded() -> str:
    """Return the database that the home belongs to, as ``display_url``, or ``sqlite``; "" if nothing is recorded."""
    try:
        with open(f"{home_text()}/{DATABASE_FILE}", encoding="utf-8") as file:  # noqa: PTH123 - importing pathlib takes too long
            return file.read().strip()
    except (OSError, ValueError):
        return ""


def require_own(*, by_client: bool, is_hub: bool = False) -> None:
    """Refuse to work in another database than the home's.

    ``sqlite`` as the address is a person's decision, and always allowed. A person's command may take a home that has
    used files alone to a database; what a client starts may do that only if ``config.toml`` says so.

    Args:
        by_client: whether a client started this process, rather than a person.
        is_hub: whether it is ``serve``, which replaces a hub that a client started.

    Raises:
        DatabaseUrlError: with what to set.
    """
    variable = os.environ.get(DATABASE_VARIABLE, "")
    configured = configured_database_url()
    if (variable or configured) == FILES:
        return
    url = database_url()
    stored = recorded()
    if stored == FILES:
        if url:
            source = f"remove {DATABASE_SETTING} from {CONFIG_FILE}"
            if variable:
                source = f"unset {DATABASE_VARIABLE}"
            raise DatabaseUrlError(
                f"all stores of the home {home_text()} were moved to its files, but this process was given "
                f"{display_url(url)}: {source}, or take the stores there with `memory-hub move --all`"
            )
        return
    expected = stored
    if configured and configured != FILES:
        expected = display_url(configured)
    if expected:
        if not url or display_url(url) != expected:
            raise DatabaseUrlError(_differs(expected, url))
    elif url and _has_stores():
        _require_decision(url, by_client=by_client, is_hub=is_hub)


def _differs(expected: str, url: str) -> str:
    if url:
        return (
            f"the home {home_text()} works with {expected}, but {DATABASE_VARIABLE} names {display_url(url)}: correct "
            f"it, or set {DATABASE_SETTING} in the home's {CONFIG_FILE} to use that database from now on"
        )
    return (
        f"the home {home_text()} works with {expected}, but this process was given no database: set {DATABASE_SETTING} "
        f"in the home's {CONFIG_FILE}, or {DATABASE_VARIABLE}; {FILES} means the home's files"
    )


def _require_decision(url: str, *, by_client: bool, is_hub: bool) -> None:
    if by_client and not configured_database_url():
        raise DatabaseUrlError(
            f"the stores of the home {home_text()} are in its files, but {DATABASE_VARIABLE} names {display_url(url)}: "
            f"set {DATABASE_SETTING} in the home's {CONFIG_FILE} to use that database from now on; `memory-hub move "
            "--all` takes the stores along"
        )
    if not is_hub and is_locked(f"{home_text()}/{SERVE_LOCK}"):
        raise DatabaseUrlError(
            f"the hub that runs in the home {home_text()} works with its files, but this process was given "
            f"{display_url(url)}: stop that hub, or start `memory-hub serve` with the database"
        )


# Those that have moved away are read-only
def _has_stores() -> bool:
    home = home_text()
    folders = [f"{home}/global"]
    for kind in ("projects", "orgs"):
        try:
            folders += [f"{home}/{kind}/{name}" for name in os.listdir(f"{home}/{kind}")]  # noqa: PTH208
        except OSError:
            continue
    for folder in folders:
        try:
            if os.stat(f"{folder}/events.db").st_mode & _OWNER_MAY_WRITE:  # noqa: PTH116
                return True
        except OSError:
            continue
    return False


def work_as_guest() -> None:
    """Let this process's writes record nothing: it works in another database than its home's."""
    _guest.append(True)


def remember(url: str) -> None:
    """Record that the home belongs to a PostgreSQL database, unless it belongs to another one; called by each write."""
    key = home_text(), url
    if _guest or key in _remembered:
        return
    name = display_url(url)
    stored = recorded()
    if not stored or (stored != name and display_url(configured_database_url()) == name):
        if not stored and _has_stores():
            import logging

            logging.getLogger(__name__).warning(
                "the home %s works with %s from now on; its stores in files stay there, and `memory-hub move --all` "
                "takes them along",
                home_text(),
                name,
            )
        record(url)
    _remembered.add(key)


def record(url: str) -> None:
    """Record to which database the home belongs; "" for its files."""
    from pathlib import Path

    from memoryhub.core.disk import replacing

    with replacing(Path(home_text(), DATABASE_FILE)) as file:
        file.write(f"{display_url(url) if url else FILES}\n".encode())
    _remembered.clear()
