"""The settings that apply: to the current store's project and folder, and to the hub.

Their sources, in order of priority: the environment, ``config.toml``, the project, a folder's file.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from memoryhub import env
from memoryhub.config.identity import settings_of_folder
from memoryhub.config.project_settings import InFolder, ProjectSettings, check_settings, compiled_rules, setting_info
from memoryhub.core.disk import replacing
from memoryhub.core.errors import Invalid, Unavailable
from memoryhub.core.secrets.context import custom_rules_from
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import current_alias
from memoryhub.core.text import did_you_mean
from memoryhub.core.validation import explain

if TYPE_CHECKING:
    from memoryhub.core.secrets.catalogue import CustomRules


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
_LINE = re.compile(r"^(?P<what>.*?) \(at line (?P<line>\d+), column (?P<column>\d+)\)$")


# A folder's file comes with the repository, which may be a stranger's. So it has the lowest priority, and never sets
# what is stored, what is a secret, what needs review, or which model is loaded. An interface reads it when it knows
# the folder.


@dataclass(frozen=True, slots=True)
class FolderSettings:
    """The settings of a folder, and the file that has them."""

    path: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    # The folder itself; "" for a client that works elsewhere, such as on another machine
    directory: str = field(default="", compare=False)


NO_FOLDER = FolderSettings()
_folder: ContextVar[FolderSettings] = ContextVar("folder_settings", default=NO_FOLDER)


def read_folder(directory: Path, project: str) -> FolderSettings:
    """Return the settings of the nearest file; none if there is no file or it belongs to another project.

    Raises:
        Invalid: the file cannot be read or has a key that is not allowed; the message names file, key and fix.
    """
    path, keys = settings_of_folder(directory)
    if path is None or keys.get("project", project) != project:
        return FolderSettings(directory=str(directory))
    return FolderSettings(str(path), check_folder(str(path), keys), str(directory))


def current_folder() -> FolderSettings:
    """Return the settings of the folder that the current call comes from."""
    return _folder.get()


@contextmanager
def use_folder(settings: FolderSettings) -> Iterator[None]:
    """Apply a folder's settings inside the block."""
    token = _folder.set(settings)
    try:
        yield
    finally:
        _folder.reset(token)


# Keys of the file that are not settings: the project, and whether the hub is enabled.
NO_SETTINGS = ("project", "identity", "enabled")


def allowed_in_folders() -> list[str]:
    """Return the settings that a folder's file may set, to any value or to a stricter one."""
    return [name for name in ProjectSettings.model_fields if setting_info(name).in_folder is not InFolder.NOTHING]


def check_folder(path: str, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a file."""
    values = {name: value for name, value in keys.items() if name not in NO_SETTINGS}
    allowed = allowed_in_folders()
    for name in values:
        if name not in allowed:
            raise Invalid(f"{path}: {_refusal(name)}", path=path)
    try:
        checked = check_settings(values)
    except Invalid as error:
        raise Invalid(f"{path}: {error.message}; fix or remove it there", path=path) from error
    _refuse_what_loosens(path, values, checked)
    return values


def _refusal(name: str) -> str:
    if name in ProjectSettings.model_fields:
        return (
            f"setting {name!r} can't be set by a folder's file, because the file may be a stranger's; "
            "remove it there, and set it on the Settings page or in config.toml in the home folder"
        )
    allowed = allowed_in_folders()
    names = ", ".join((*NO_SETTINGS, *allowed))
    return f"there is no setting {name[:64]!r}{did_you_mean(name, allowed)}; known here are: {names}"


def _refuse_what_loosens(path: str, values: Mapping[str, Any], checked: ProjectSettings) -> None:
    for name in (name for name in values if setting_info(name).in_folder is InFolder.STRICTER):
        value, default = getattr(checked, name), ProjectSettings.model_fields[name].default
        if stricter := stricter_choices(name):
            if value not in stricter:
                choices = " or ".join(map(repr, stricter))
                raise Invalid(f"{path}: setting {name!r} may only be {choices} in a folder's file; remove it there")
        elif value > default:
            raise Invalid(
                f"{path}: setting {name!r} may be at most {default:g} in a folder's file, not {values[name]!r}; "
                "lower it there, or set it on the Settings page"
            )


def stricter_choices(name: str) -> list[str]:
    """Return the choices of a setting other than its default; none if it is a number."""
    default = ProjectSettings.model_fields[name].default
    if not isinstance(default, Enum):
        return []
    return [str(choice) for choice in type(default) if choice is not default]


@rows.InSteps
def project_settings() -> rows.Steps[ProjectSettings]:
    """Return the settings of the current store's project for the current folder."""
    layers = yield from decided.steps(ProjectSettings.model_fields)
    try:
        return ProjectSettings(**{name: value for name, (_, value) in layers.items()})
    except ValidationError as error:
        wrong = str(error.errors(include_url=False)[0]["loc"][0])
        raise Unavailable(f"setting {explain(error)}; fix it where it is set, in {layers[wrong][0]}") from error


def settings_decided_by() -> dict[str, str]:
    """Return the source of each setting that any source sets."""
    return {name: by for name, (by, _) in decided(ProjectSettings.model_fields).items()}


def settings_of_the_project() -> dict[str, Any]:
    """Return what the project itself sets, whether or not another source overrides it."""
    return {name: value for name, value in of_the_project().items() if name in ProjectSettings.model_fields}


def settings_decided_elsewhere() -> dict[str, str]:
    """Return the settings that the project itself cannot change, with their source."""
    return {name: by for name, (by, _) in decided_outside(ProjectSettings.model_fields).items()}


def config_problem() -> str:
    """Return what is wrong with ``config.toml`` or a variable, as one sentence; empty if nothing is."""
    try:
        check_settings({name: value for name, (_, value) in decided_outside(ProjectSettings.model_fields).items()})
    except Unavailable as error:
        return error.message
    except Invalid as error:
        return f"{error.message}; fix it where it is set, in the environment or {CONFIG_FILE} in the home folder"
    return ""


def unknown_in_config() -> list[str]:
    """Return the names in ``config.toml`` that are not settings and have no effect."""
    try:
        return sorted(set(read_config()) - set(ProjectSettings.model_fields) - OF_THE_HUB)
    except Unavailable:
        return []


@rows.InSteps
def decided(names: Collection[str]) -> rows.Steps[Layers]:
    """Return the settings that any source sets for the current store, if there is one, with their source."""
    folder = current_folder()
    layers: Layers = {name: (folder.path, value) for name, value in folder.values.items()}
    of_project = yield from of_the_project.steps()
    layers |= {name: (PROJECT, value) for name, value in of_project.items()}
    return layers | decided_outside(names)


def decided_outside(names: Collection[str]) -> Layers:
    """Return the settings that the environment or ``config.toml`` sets for all projects, with their source."""
    config = {name: value for name, value in read_config().items() if name in names}
    layers: Layers = {name: (f"{CONFIG_FILE} in the home folder", value) for name, value in config.items()}
    # Iterating over the variables that are set is several times as fast as looking up each setting
    for variable in [variable for variable in os.environ if variable.startswith(PREFIX)]:
        name = variable.removeprefix(PREFIX).lower()
        if name in names and variable == _key(name):
            layers[name] = (f"the environment ({variable})", _value_of_variable(name, os.environ[variable]))
    return layers


def variables_of_settings() -> list[str]:
    """Return the names of the environment variables that set a project setting."""
    return list(map(_key, ProjectSettings.model_fields))


def config_path() -> Path:
    """Return the path of the hub's own settings, which may not exist."""
    return env.home() / CONFIG_FILE


def set_of_the_hub(name: str, *, value: bool | str) -> None:
    """Write a key of ``OF_THE_HUB`` into ``config.toml``, and leave its other lines as they are."""
    if _is_same(read_config().get(name), value):
        return
    path = env.prepare_home() / CONFIG_FILE
    text = path.read_bytes().decode() if path.exists() else ""
    line = f"{name} = {json.dumps(value, ensure_ascii=False)}"
    if name in read_config():
        text = re.sub(rf"^{name}[ \t]*=[^#\r\n]*?(?=[ \t]*(?:#|\r?$))", line, text, count=1, flags=re.MULTILINE)
    else:
        newline = "\r\n" if "\r\n" in text else "\n"
        text = f"{line}{newline}{text}"  # before the first table
    if not _is_same(tomllib.loads(text).get(name), value):
        raise Invalid(f"{path} can't be changed safely; write {name} into it by hand")
    path = path.resolve()
    try:
        with replacing(path) as file:
            file.write(text.encode())
            if path.exists():
                os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
    except OSError as error:
        raise Unavailable(f"{path} cannot be written: {error.strerror}") from error


def _is_same(present: object, value: bool | str) -> bool:  # noqa: FBT001
    return type(present) is type(value) and present == value


def read_config() -> dict[str, Any]:
    """Return the content of ``config.toml``; empty if it does not exist. Raises Unavailable with file, line and fix."""
    path = config_path()
    try:
        return _parsed_config(path, path.stat().st_mtime_ns)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise Unavailable(f"{path}{_broken(error)}; fix it there, or remove the file") from error


@lru_cache(maxsize=8)
def _parsed_config(path: Path, _modified: int) -> dict[str, Any]:
    return tomllib.loads(path.read_text("utf-8"))


def _broken(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return " is nested too deeply"
    match = _LINE.match(str(error))
    if match:
        what = f"{match['what'][:1].lower()}{match['what'][1:]}"
        return f", line {match['line']}, column {match['column']}: {what}"
    return f" cannot be read: {getattr(error, 'strerror', None) or error}"


@rows.InSteps
def of_the_project() -> rows.Steps[dict[str, Any]]:
    """Return the values that the current store sets itself; none if there is no current store."""
    if current_alias() is None:
        return {}
    (values,) = yield [("SELECT name, value FROM sessions_app_setting", ())]
    return {name: json.loads(value) for name, value in values}


def _key(name: str) -> str:
    return PREFIX + name.upper()


def _value_of_variable(name: str, value: str) -> Any:
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


@custom_rules_from
def current_rules() -> CustomRules:
    """Read the rules and the allowlist of the current store."""
    settings = project_settings()
    return compiled_rules(tuple(settings.secret_rules), tuple(settings.secret_allow), tuple(settings.mask_personal))
