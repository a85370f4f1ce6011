"""The hub's home folder, and the folder of this process. Standard library only, because hooks import it."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # type checkers know the name; importing typing takes time
if TYPE_CHECKING:
    from pathlib import Path

PRIVATE_UMASK = 0o077
_VARIABLE = "MEMORY_HUB_HOME"
DATABASE_VARIABLE = "MEMORY_HUB_DATABASE_URL"
DATABASE_SETTING = "database_url"
SERVERS_SETTING = "servers"
CONFIG_FILE = "config.toml"
# Names the database that the home belongs to; see ``core.home_database``
DATABASE_FILE = "database"
# Locked by the hub that serves the home
SERVE_LOCK = "serve.lock"
# The value of the variable, and the place of ``move``, that mean files in the home, whatever config.toml says
FILES = "sqlite"
_FIX = f"set {_VARIABLE} to a folder that you can write to, or repair this one"


class HomeError(OSError):
    pass


class DatabaseUrlError(HomeError):
    pass


def home() -> Path:
    """Return the home folder, ``MEMORY_HUB_HOME`` or ``~/.memory-hub``; it may not exist yet.

    Raises:
        HomeError: the path is relative.
    """
    from pathlib import Path

    return Path(home_text())


# Text, because importing ``pathlib`` takes longer than all else in a hook
def home_text() -> str:
    named = os.path.expanduser(os.environ.get(_VARIABLE) or "~/.memory-hub")  # noqa: PTH111
    if not named.startswith("/"):
        # Hooks, servers and commands start in different folders, so each would find another hub (decision 30)
        raise HomeError(
            f"{_VARIABLE} is {named!r}, but must be an absolute path: a relative one is another folder in each process"
        )
    return named


def working_folder_text() -> str:
    """Return the folder that this process works in; if it was deleted, the path that it had, as the shell knows it."""
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:
        path = os.environ.get("PWD", "")
        return path if path.startswith("/") else "/"


def database_url() -> str:
    """Return the address of the PostgreSQL database that holds the stores; "" if they are SQLite files.

    It is ``MEMORY_HUB_DATABASE_URL``, or else ``database_url`` in ``config.toml`` in the home folder. The variable may
    be ``sqlite``.
    """
    named = os.environ.get(DATABASE_VARIABLE) or configured_database_url()
    return "" if named == FILES else named


def names_a_database() -> bool:
    """Return whether this process or its home names a database; ``core.home_database`` knows whether they agree."""
    is_recorded = os.path.exists(f"{home_text()}/{DATABASE_FILE}")  # noqa: PTH110
    return is_recorded or bool(os.environ.get(DATABASE_VARIABLE) or configured_database_url())


def servers() -> dict[str, str]:
    """Return the addresses of further PostgreSQL databases by name, from ``[servers]`` in ``config.toml``."""
    setting = _config().get(SERVERS_SETTING)
    if not isinstance(setting, dict):
        return {}
    return {name: url for name, url in setting.items() if isinstance(url, str)}


def configured_database_url() -> str:
    value = _config().get(DATABASE_SETTING)
    return value if isinstance(value, str) else ""


# By path and time of change: every use of a store asks
_configs: dict[tuple[str, int, int], dict[str, object]] = {}


def _config() -> dict[str, object]:
    path = f"{home_text()}/{CONFIG_FILE}"
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        return {}
    key = (path, status.st_mtime_ns, status.st_size)
    if key not in _configs:
        _configs.clear()
        _configs[key] = _read_config(path)
    return _configs[key]


def _read_config(path: str) -> dict[str, object]:
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            text = file.read()
    except (OSError, ValueError):
        return {}
    if DATABASE_SETTING not in text and SERVERS_SETTING not in text:
        return {}
    if SERVERS_SETTING not in text and (url := _plain_url(text)):
        return {DATABASE_SETTING: url}
    import tomllib  # here, because the import takes as long as a whole hook may

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):  # a ValueError for a number of many digits too
        return {}


def _plain_url(text: str) -> str:
    """Return ``database_url`` if it is one plain line before all tables; "" if it takes a parser to say."""
    if text.lstrip().startswith("[") or '"""' in text or "'''" in text:
        return ""
    lines = [line for line in text.partition("\n[")[0].splitlines() if line.lstrip().startswith(DATABASE_SETTING)]
    name, _, value = lines[0].partition("=") if len(lines) == 1 else ("", "", "")
    url = value.strip()[1:-1]
    is_plain = value.strip() in (f'"{url}"', f"'{url}'") and not {*"\"'\\"}.intersection(url)
    if is_plain and name.strip() == DATABASE_SETTING:
        return url
    return ""


def check_home() -> None:
    path = home_text()
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116
    except FileNotFoundError as error:
        if os.path.islink(path):  # noqa: PTH114
            raise HomeError(f"the home folder {path} is a broken link; {_FIX}") from error
        return
    except OSError as error:
        raise _unusable(path, error) from error
    if mode & 0o170000 != 0o040000:  # stat.S_ISDIR without importing stat
        raise HomeError(f"the home folder {path} is not a folder; {_FIX}")


# New files of this process are private from now on
def make_home() -> str:
    os.umask(PRIVATE_UMASK)
    check_home()
    path = home_text()
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)  # noqa: PTH103
        if os.stat(path).st_mode & 0o077:  # noqa: PTH116
            os.chmod(path, 0o700)  # noqa: PTH101
    except OSError as error:
        raise _unusable(path, error) from error
    return path


def prepare_home() -> Path:
    from pathlib import Path

    return Path(make_home())


def _unusable(path: str, error: OSError) -> HomeError:
    return HomeError(f"can't use the home folder {path}: {error.strerror}; {_FIX}")
