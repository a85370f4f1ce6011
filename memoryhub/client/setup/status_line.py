"""The hub's status line in a client: a command whose output the client shows below the prompt."""

from __future__ import annotations

from typing import Any

from memoryhub.client.setup.document import ConfigDocument
from memoryhub.client.setup.entries import is_file_of, is_own_hook, remove_value, shell_command
from memoryhub.config.clients import Client
from memoryhub.config.hook_table import STATUS_LINE


def status_line_of(client: Client, document: ConfigDocument) -> dict[str, Any]:
    """Return the status line of a file if it is the hub's, else {}."""
    line = client.status_line
    if line is None or not is_file_of(document, line.user):
        return {}
    value = _at(document.data, line.keys)
    if isinstance(value, dict) and is_own_hook(client, value):
        return value
    return {}


def has_another_line(client: Client, document: ConfigDocument) -> bool:
    """Return whether a file has a status line of the user."""
    return bool(client.status_line and _at(document.data, client.status_line.keys)) and not status_line_of(
        client, document
    )


def put_status_line(client: Client, document: ConfigDocument, value: dict[str, Any] | None = None) -> ConfigDocument:
    """Return the document with the hub's status line, unless the user has one."""
    if client.status_line is None or has_another_line(client, document):
        return document
    if value is None:
        present = status_line_of(client, document) or {"type": "command"}
        value = {**present, "command": shell_command("hook", client.id, STATUS_LINE)}
    if value == status_line_of(client, document):
        return document
    return document.put(client.status_line.keys, value)


def take_status_line(client: Client, document: ConfigDocument, original: ConfigDocument | None) -> ConfigDocument:
    """Return the document without the hub's status line."""
    if client.status_line is None or not status_line_of(client, document):
        return document
    return remove_value(document, client.status_line.keys, original)


def _at(data: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data
