"""Rare processing of an event: cut it, parse it, identify its project. Imported only when needed."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from memoryhub.config import enabled
from memoryhub.config.hook_table import HookTable

if TYPE_CHECKING:
    from memoryhub.client.hook.post import ClientEvent

_LONGEST = 100_000
_SHORTEST = 1_000
_DEEPEST = 40


def shortened(body: bytes, limit: int) -> bytes:
    """Return the JSON object with long texts cut until it has at most ``limit`` bytes."""
    value = read(body)
    longest = _LONGEST
    while longest >= _SHORTEST:
        shorter = json.dumps(cut(value, longest)).encode()
        if len(shorter) <= limit:
            return shorter
        longest //= 4
    raise ValueError(f"the event cannot be cut to {limit} bytes; it is not kept")


def read(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"standard input is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError("standard input is not a JSON object")
    return value


def cut(value: Any, longest: int, depth: int = _DEEPEST) -> Any:
    """Return a copy whose texts have at most ``longest`` characters, cut in the middle with a note."""
    if isinstance(value, str):
        if len(value) <= longest:
            return value
        head = longest * 2 // 3
        return f"{value[:head]}\n[… {len(value) - longest} characters left out …]\n{value[head - longest :]}"
    if depth == 0 and isinstance(value, dict | list):
        return "[left out: nested too deeply]"
    if isinstance(value, dict):
        return {key: cut(item, longest, depth - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [cut(item, longest, depth - 1) for item in value]
    return value


def project_of(event: ClientEvent) -> str:
    """Return the project of the event's session, by this process's environment; "" if its folder has none.

    Raises:
        ValueError: the event is not JSON, or names no folder.
        Invalid: several projects are possible, or a settings file cannot be read.
    """
    from memoryhub.config.identity import place_session
    from memoryhub.core.errors import NotFound

    folder, session = folder_of(event), session_of(event)
    if not folder:
        path = HookTable(event.client).value("directory", "cwd")
        raise ValueError(f"the event names no folder ({path!r}), so its project is unknown; it is not kept")
    try:
        return place_session(event.client, session, folder).project
    except NotFound:
        return ""


def is_switched_off(event: ClientEvent) -> bool:
    """Return whether the hub is disabled for a folder of the event, which may be another than this process's."""
    from memoryhub.core.session_places import find_place

    try:
        folders = {folder_of(event), working_directory_of(event)}
        if place := find_place(event.client, session_of(event)):
            folders.add(place.folder)
    except ValueError:
        return False
    return any(enabled.switched_off_by(os.path.realpath(folder)) for folder in folders if folder.startswith("/"))


def folder_of(event: ClientEvent) -> str:
    """Return the root that the client names for its session, or else the folder in which it works now, or "".

    Raises:
        ValueError: the event is not JSON.
    """
    from memoryhub.core.session_places import ROOT_KEY

    return _folder(read(event.body).get(ROOT_KEY)) or working_directory_of(event)


def working_directory_of(event: ClientEvent) -> str:
    """Return the folder that the event itself names, "" if it names none.

    Raises:
        ValueError: the event is not JSON.
    """
    from memoryhub.config.hook_json import value_at

    return _folder(value_at(read(event.body), HookTable(event.client).value("directory", "cwd")))


def session_of(event: ClientEvent) -> str:
    """Return the name of the event's session, "" if it has none.

    Raises:
        ValueError: the event is not JSON.
    """
    from memoryhub.config.hook_json import value_at
    from memoryhub.core.session_places import session_name

    return session_name(value_at(read(event.body), HookTable(event.client).value("session", "session_id")))


def _folder(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        return ""
    return value
