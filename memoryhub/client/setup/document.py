"""A client's configuration file: read it, change single values, verify each change, and replace the file atomically."""

from __future__ import annotations

import copy
import json
import os
import tomllib
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from memoryhub.client.setup import json_text
from memoryhub.core.disk import replacing
from memoryhub.core.errors import ConflictError, Invalid, Unavailable
from memoryhub.core.foreign_files import check_toml, read_foreign
from memoryhub.core.plain_yaml import load_yaml

Place = tuple[str | int, ...]

BACKUP_SUFFIX = ".before-memory-hub"
_MARK = "\ufeff"
_YAML = ".yaml"
# A client's JSON has its history too and can be large
_MAX_BYTES, _MAX_TOML = 32 * 2**20, 256 * 1024


@dataclass(frozen=True, slots=True)
class ConfigDocument:
    """A file's text and parsed data; ``text`` is "" if the file does not exist."""

    path: Path
    text: str
    is_there: bool
    data: dict[str, Any]
    # The byte order mark that the file begins with, if any; not a part of ``text``.
    mark: str = ""

    @property
    def is_toml(self) -> bool:
        return self.path.suffix == ".toml"

    def with_code(self, text: str) -> ConfigDocument:
        """Return the document with a text that is the hub's as a whole."""
        return replace(self, text=text, data={"code": text}, is_there=True)

    def require_written(self) -> None:
        """Raise Invalid if the file has a format that is read but not changed."""
        if self.path.suffix == _YAML:
            raise Invalid(f"{self.path} is YAML, which this command does not change; change it by hand")

    def at(self, place: Place, default: Any) -> Any:
        """Return the value at a place, or ``default``."""
        value: Any = self.data
        for depth, name in enumerate(place):
            if isinstance(name, str) != isinstance(value, dict):
                raise Invalid(f"{self.path}: {_place_name(place[:depth])} has the wrong type; fix it first")
            if isinstance(name, str) and name not in value:
                return default
            value = value[name]
        if not isinstance(value, type(default)):
            raise Invalid(f"{self.path}: {_place_name(place)} must be {_kind(default)}; fix it first")
        return value

    def put(self, place: Place, value: Any) -> ConfigDocument:
        """Return the document with a value set.

        Raises:
            Invalid: the text cannot be changed without side effects.
        """
        self.require_written()
        data: Any = copy.deepcopy(self.data)
        parent = data
        for name, following in pairwise(place):
            empty: list[Any] | dict[str, Any] = [] if isinstance(following, int) else {}
            parent = _child(parent, name, empty)
        _child(parent, place[-1], value)
        parent[place[-1]] = value
        if self.is_toml:
            return self._checked(json_text.put_table(self.text, tuple(map(str, place)), value), place, data)
        text = self.text
        if not json_text.plain(text).strip():
            text += "{}"
        return self._checked(json_text.put(text, place, value), place, data)

    def take(self, place: Place, *, stay: int = 0) -> ConfigDocument:
        """Return the document without the value at a place, and without parents that become empty.

        The first ``stay`` parents stay.

        Raises:
            Invalid: the text cannot be changed without side effects.
        """
        self.require_written()
        data: Any = copy.deepcopy(self.data)
        parent = data
        for name in place[:-1]:
            parent = parent[name]
        del parent[place[-1]]
        if self.is_toml:
            text = json_text.take_table(self.text, tuple(map(str, place)))
        else:
            text = json_text.take(self.text, place, stay=stay)
        return self._checked(text, place, data)

    def _checked(self, text: str, place: Place, expected: dict[str, Any]) -> ConfigDocument:
        changed = _parse(self.path, text)
        if _pruned(changed, place) != _pruned(expected, place):
            raise Invalid(
                f"{self.path} cannot be changed at {_place_name(place)} without side effects; change it by hand"
            )
        if not self.text.strip() and not text.endswith("\n"):
            text += "\n"
        return replace(self, text=text, data=changed, is_there=True)


def read_document(path: Path) -> ConfigDocument:
    """Read a file; one that does not exist is empty."""
    return _read_config(path, path) or ConfigDocument(path, "", is_there=False, data={})


def read_backup(path: Path) -> ConfigDocument | None:
    """Return the file as it was before it was set up, or None if there is no backup."""
    return _read_config(path, backup_of(path))


def backup_of(path: Path) -> Path:
    path = path.resolve()
    return path.with_name(path.name + BACKUP_SUFFIX)


def write_document(before: ConfigDocument, after: ConfigDocument) -> None:
    """Replace the file of ``before`` with ``after``. Follows symbolic links and keeps the mode."""
    if read_document(before.path).text != before.text:
        raise ConflictError(f"{before.path} has changed in the meantime and was not written; run the command again")
    path = before.path.resolve()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if after.is_there or before.path.is_symlink():
            mode = path.stat().st_mode & 0o777 if before.is_there else 0o600
            replace_file(path, after.mark + after.text, mode)
        else:
            path.unlink()
    except OSError as error:
        raise Unavailable(f"{before.path} cannot be written: {error.strerror}") from error


def write_backup(document: ConfigDocument) -> None:
    """Write a copy of the file beside it."""
    backup = backup_of(document.path)
    try:
        replace_file(backup, document.mark + document.text, document.path.stat().st_mode & 0o777)
    except OSError as error:
        raise Unavailable(f"{backup} cannot be written: {error.strerror}") from error


def _read_config(path: Path, source: Path) -> ConfigDocument | None:
    limit = _MAX_TOML if path.suffix == ".toml" else _MAX_BYTES
    try:
        content = read_foreign(source, limit=limit).decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise Unavailable(f"{source} cannot be read: {reason}") from error
    text = content.removeprefix(_MARK)
    return ConfigDocument(path, text, is_there=True, data=_parse(path, text), mark=content[: len(content) - len(text)])


def replace_file(path: Path, text: str, mode: int) -> None:
    with replacing(path) as file:
        file.write(text.encode())
        os.fchmod(file.fileno(), mode)


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        if path.suffix == ".toml":
            check_toml(text, longest_line=_MAX_TOML)
            return tomllib.loads(text)
        if path.suffix in (".js", ".md"):
            return {"code": text} if text else {}
        if path.suffix == _YAML:
            data = load_yaml(text) or {}
        else:
            scan = json_text.plain(text)
            data = json.loads(scan) if scan.strip() else {}
    except yaml.YAMLError as error:
        raise Invalid(f"{path} is not valid YAML: {' '.join(str(error).split())[:200]}; fix it first") from error
    except ValueError as error:  # also for a number of thousands of digits
        if path.suffix == ".toml":
            raise Invalid(f"{path} is not valid TOML: {error}; fix it first") from error
        where = f"line {error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else error
        raise Invalid(f"{path} is not valid JSON ({where}) and was not changed; change it by hand") from error
    except RecursionError as error:
        raise Invalid(f"{path} is nested too deeply and was not changed; change it by hand") from error
    if not isinstance(data, dict):
        raise Invalid(f"{path} must contain {'a mapping' if path.suffix == _YAML else 'a JSON object'}; fix it first")
    return data


def _child(parent: Any, name: str | int, empty: Any) -> Any:
    if isinstance(parent, dict):
        return parent.setdefault(name, empty)
    if name == len(parent):
        parent.append(empty)
    return parent[name]


# A copy without containers on the way to the place that are empty.
def _pruned(data: Any, place: Place) -> Any:
    if not place:
        return data
    name: Any = place[0]
    names = data if isinstance(data, dict) else range(len(data))
    if name not in names:
        return data
    copied = copy.copy(data)
    copied[name] = _pruned(data[name], place[1:])
    if copied[name] in ({}, []):
        del copied[name]
    return copied


def _kind(value: object) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return "a text"


def _place_name(place: Place) -> str:
    return ".".join(map(str, place)) or "the file"
