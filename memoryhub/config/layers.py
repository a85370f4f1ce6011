"""The sources of settings, in order of priority: environment, ``config.toml``, project, folder file."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path
from typing import Any

from memoryhub import env
from memoryhub.config.folder import current_folder
from memoryhub.core.disk import replacing
from memoryhub.core.errors import Invalid, Unavailable
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import current_alias

PREFIX = "MEMORY_HUB_"
CONFIG_FILE = env.CONFIG_FILE
PROJECT = "the project"
# Keys of ``config.toml`` that are not project settings.
OF_THE_HUB = frozenset({"enabled", "autostart", env.DATABASE_SETTING, env.SERVERS_SETTING})

# Examples of structured settings, which the environment sets as JSON.
EXAMPLES = {
    "ranking": '{"text": 2}',
    "retention": '[{"what": "captured", "after_days": 30}]',
    "review_after": '{"decision": 365}',
    "secret_rules": '[{"id": "badge", "pattern": "ACME-[0-9]{6}"}]',
    "secret_allow": '["a text", "/a pattern/"]',
}

# Setting name to its source and value.
Layers = dict[str, tuple[str, Any]]


def decided(names: Collection[str]) -> Layers:
    """Return the settings that any source sets for the current store, if there is one, with their source."""
    folder = current_folder()
    layers: Layers = {name: (folder.path, value) for name, value in folder.values.items()}
    layers |= {name: (PROJECT, value) for name, value in of_the_project().items()}
    return layers | decided_outside(names)


def decided_outside(names: Collection[str]) -> Layers:
    """Return the settings that the environment or ``config.toml`` sets for all projects, with their source."""
    config = {name: value for name, value in read_config().items() if name in names}
    layers: Layers = {name: (f"{CONFIG_FILE} in the home folder", value) for name, value in config.items()}
    return layers | {name: (_variable(name), value) for name, value in _from_environment(names).items()}


def config_path() -> Path:
    """Return the path of the hub's own settings, which may not exist."""
    return env.home() / CONFIG_FILE


def set_of_the_hub(name: str, *, value: bool | str) -> None:
    """Write a key of ``OF_THE_HUB`` into ``config.toml``, and leave its other lines as they are."""
    if _is(read_config().get(name), value):
        return
    path = env.prepare_home() / CONFIG_FILE
    text = path.read_bytes().decode() if path.exists() else ""
    line = f"{name} = {json.dumps(value, ensure_ascii=False)}"
    if name in read_config():
        text = re.sub(rf"^{name}[ \t]*=[^#\r\n]*?(?=[ \t]*(?:#|\r?$))", line, text, count=1, flags=re.MULTILINE)
    else:
        newline = "\r\n" if "\r\n" in text else "\n"
        text = f"{line}{newline}{text}"  # before the first table
    if not _is(tomllib.loads(text).get(name), value):
        raise Invalid(f"{path} can't be changed safely; write {name} into it by hand")
    _write(path.resolve(), text)


def _is(found: object, value: bool | str) -> bool:  # noqa: FBT001
    return type(found) is type(value) and found == value


def _write(path: Path, text: str) -> None:
    try:
        with replacing(path) as file:
            file.write(text.encode())
            if path.exists():
                os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
    except OSError as error:
        raise Unavailable(f"{path} cannot be written: {error.strerror}") from error


def read_config() -> dict[str, Any]:
    """Return the content of ``config.toml``; empty if it does not exist. Raises Unavailable with file, line and fix."""
    path = config_path()
    try:
        return _parsed(path, path.stat().st_mtime_ns)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise Unavailable(f"{path}{_broken(error)}; fix it there, or remove the file") from error


@lru_cache(maxsize=8)
def _parsed(path: Path, _modified: int) -> dict[str, Any]:
    return tomllib.loads(path.read_text("utf-8"))


_LINE = re.compile(r"^(?P<what>.*?) \(at line (?P<line>\d+), column (?P<column>\d+)\)$")


def _broken(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return " is nested too deeply"
    found = _LINE.match(str(error))
    if found:
        what = f"{found['what'][:1].lower()}{found['what'][1:]}"
        return f", line {found['line']}, column {found['column']}: {what}"
    return f" cannot be read: {getattr(error, 'strerror', None) or error}"


def of_the_project() -> dict[str, Any]:
    """Return the values that the current store sets itself; none if there is no current store."""
    if current_alias.get() is None:
        return {}
    return {name: json.loads(value) for name, value in rows.fetch("SELECT name, value FROM sessions_app_setting")}


def _from_environment(names: Collection[str]) -> dict[str, Any]:
    # Iterating over the variables that are set is several times as fast as looking up each setting
    set_names = [variable[len(PREFIX) :].lower() for variable in os.environ if variable.startswith(PREFIX)]
    named = {name: os.environ.get(_key(name)) for name in set_names if name in names}
    return {name: _read(name, value) for name, value in named.items() if value is not None}


def _key(name: str) -> str:
    return PREFIX + name.upper()


def _variable(name: str) -> str:
    return f"the environment ({_key(name)})"


def _read(name: str, value: str) -> Any:
    if name not in EXAMPLES:
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError as error:
        raise Unavailable(
            f"setting {_key(name)} is not JSON: {error.msg}; write for example {EXAMPLES[name]}"
        ) from error
    except RecursionError as error:
        raise Unavailable(f"setting {_key(name)} is nested too deeply; write for example {EXAMPLES[name]}") from error
