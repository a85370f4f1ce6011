"""A client's configuration file: read it, change single values, verify each change, and replace the file atomically."""

from __future__ import annotations

import copy
import json
import os
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from memoryhub.client.setup import json_text
from memoryhub.client.setup import json_text as toml_text
from memoryhub.core.errors import Conflict, Invalid, Unavailable

Place = tuple[str | int, ...]

BACKUP_SUFFIX = ".before-memory-hub"


@dataclass(frozen=True, slots=True)
class Document:
    """A file's text and parsed data; ``text`` is "" if the file does not exist."""

    path: Path
    text: str
    is_there: bool
    data: dict[str, Any]

    @property
    def is_toml(self) -> bool:
        return self.path.suffix == ".toml"

    def at(self, place: Place, default: Any) -> Any:
        """Return the value at a place, or ``default``."""
        found: Any = self.data
        for depth, name in enumerate(place):
            if isinstance(name, str) != isinstance(found, dict):
                raise Invalid(f"{self.path}: {_named(place[:depth])} has the wrong type; fix it first")
            if isinstance(name, str) and name not in found:
                return default
            found = found[name]
        if not isinstance(found, type(default)):
            raise Invalid(f"{self.path}: {_named(place)} must be {_kind(default)}; fix it first")
        return found

    def put(self, place: Place, value: Any) -> Document:
        """Return the document with a value set.

        Raises:
            Invalid: the text cannot be changed without side effects.
        """
        wanted: Any = copy.deepcopy(self.data)
        parent = wanted
        for name, following in pairwise(place):
            parent = _child(parent, name, [] if isinstance(following, int) else {})
        _child(parent, place[-1], value)
        parent[place[-1]] = value
        text = _put_toml(self.text, place, value) if self.is_toml else json_text.put(self.text or "{}", place, value)
        return self._checked(text, place, wanted)

    def take(self, place: Place) -> Document:
        """Return the document without the value at a place, and without parents that become empty.

        Raises:
            Invalid: the text cannot be changed without side effects.
        """
        wanted: Any = copy.deepcopy(self.data)
        parent = wanted
        for name in place[:-1]:
            parent = parent[name]
        del parent[place[-1]]
        names = tuple(map(str, place))
        text = toml_text.take_table(self.text, names) if self.is_toml else json_text.take(self.text, place)
        return self._checked(text, place, wanted)

    def _checked(self, text: str, place: Place, wanted: dict[str, Any]) -> Document:
        changed = _parse(self.path, text)
        if _pruned(changed, place) != _pruned(wanted, place):
            raise Invalid(f"{self.path} cannot be changed at {_named(place)} without side effects; change it by hand")
        if not self.text.strip() and not text.endswith("\n"):
            text += "\n"
        return replace(self, text=text, data=changed)


def read_document(path: Path) -> Document:
    """Read a file; one that does not exist is empty."""
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        return Document(path, "", is_there=False, data={})
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(f"{path} cannot be read: {error}") from error
    return Document(path, text, is_there=True, data=_parse(path, text))


def write_document(before: Document, after: Document) -> Path | None:
    """Replace the file of ``before`` with ``after``; return the backup beside it, if one was written.

    Follows symbolic links and keeps the mode. A file that becomes empty is deleted, without a backup.
    """
    if read_document(before.path).text != before.text:
        raise Conflict(f"{before.path} has changed in the meantime and was not written; run the command again")
    path = before.path.resolve()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777 if before.is_there else 0o600
        backup = path.with_name(path.name + BACKUP_SUFFIX) if before.is_there and after.data else None
        if backup:
            replace_file(backup, before.text, mode)
        if after.data or before.path.is_symlink():
            replace_file(path, after.text, mode)
        else:
            path.unlink()
    except OSError as error:
        raise Unavailable(f"{before.path} cannot be written: {error.strerror}") from error
    return backup


# Atomic: readers see either the old or the new file.
def replace_file(path: Path, text: str, mode: int) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        if path.suffix == ".toml":
            return tomllib.loads(text)
        found = json.loads(text) if text.strip() else {}
    except tomllib.TOMLDecodeError as error:
        raise Invalid(f"{path} is not valid TOML: {error}; fix it first") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}: {error.msg}"
        raise Invalid(f"{path} is not plain JSON ({where}) and was not changed; change it by hand") from error
    except RecursionError as error:
        raise Invalid(f"{path} is nested too deeply and was not changed; change it by hand") from error
    if not isinstance(found, dict):
        raise Invalid(f"{path} must contain a JSON object; fix it first")
    return found


def _put_toml(text: str, place: Place, value: Mapping[str, Any]) -> str:
    return toml_text.put_table(text, tuple(map(str, place)), value)


def _child(parent: Any, name: str | int, empty: Any) -> Any:
    if isinstance(parent, dict):
        return parent.setdefault(name, empty)
    if name == len(parent):
        parent.append(empty)
    return parent[name]


# A copy without containers on the way to the place that are empty.
def _pruned(data: Any, place: Place) -> Any:
    name: Any = place[0] if place else None
    if name is None or not (name in data if isinstance(data, dict) else name in range(len(data))):
        return data
    copied = copy.copy(data)
    copied[name] = _pruned(data[name], place[1:])
    if copied[name] in ({}, []):
        del copied[name]
    return copied


def _kind(value: object) -> str:
    return "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else "a text"


def _named(place: Place) -> str:
    return ".".join(map(str, place)) or "the file"
