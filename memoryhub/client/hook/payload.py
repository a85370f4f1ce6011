"""Rare processing of an event: cut it, parse it, identify its project. Imported only when needed."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from memoryhub.config import enabled

if TYPE_CHECKING:
    from memoryhub.client.hook.post import Event

_LONGEST = 100_000
_SHORTEST = 1_000
_DEEPEST = 40


def shortened(body: bytes, limit: int) -> bytes:
    """Return the JSON object with long texts cut until it has at most ``limit`` bytes."""
    value = read(body)
    longest = _LONGEST
    while longest >= _SHORTEST:
        found = json.dumps(cut(value, longest)).encode()
        if len(found) <= limit:
            return found
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
        return cut_text(value, longest)
    if depth == 0 and isinstance(value, dict | list):
        return "[left out: nested too deeply]"
    if isinstance(value, dict):
        return {key: cut(item, longest, depth - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [cut(item, longest, depth - 1) for item in value]
    return value


def cut_text(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    head = longest * 2 // 3
    return f"{text[:head]}\n[… {len(text) - longest} characters left out …]\n{text[head - longest :]}"


def project_of(event: Event) -> str:
    """Return the project of the event's folder, by this process's environment."""
    from pathlib import Path

    from memoryhub.config.identity import identify_project

    path, directory = _path_and_directory(event)
    if not directory:
        raise ValueError(f"the event names no folder ({path!r}), so its project is unknown; it is not kept")
    return identify_project(project=None, directory=Path(directory))


def is_switched_off(event: Event) -> bool:
    """Return whether the hub is disabled for the event's folder, which may be another than this process's."""
    try:
        directory = directory_of(event)
    except ValueError:
        return False
    return directory.startswith("/") and bool(enabled.switched_off_by(os.path.realpath(directory)))


def directory_of(event: Event) -> str:
    """Return the folder that the event names, "" if it names none.

    Raises:
        ValueError: the event is not JSON.
    """
    return _path_and_directory(event)[1]


# The path of the folder in the event, and the folder; "" if the event names none.
def _path_and_directory(event: Event) -> tuple[str, str]:
    from memoryhub.config.json_path import value_at

    path = path_of_directory(event.client)
    directory = value_at(read(event.body), path)
    return path, directory if isinstance(directory, str) and "\0" not in directory else ""


def path_of_directory(client: str) -> str:
    """Return the path of the folder in a client's events. Searches the text, which parsing as TOML takes long."""
    from memoryhub.client.hook.post import CLIENTS_FILE

    with open(CLIENTS_FILE, encoding="utf-8") as file:  # noqa: PTH123
        text = file.read()
    table = text.partition(f"\n[{client}.hooks]\n")[2].partition("\n[")[0]
    return f"\n{table}".partition('\ndirectory = "')[2].partition('"')[0] or "cwd"
