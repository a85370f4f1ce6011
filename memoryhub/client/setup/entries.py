"""What stands for the hub in a client's configuration: the server's entry, and the hooks."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memoryhub import env
from memoryhub.client.setup.document import Document, Place
from memoryhub.config.clients import Client, Effect, Hooks
from memoryhub.core.errors import Conflict, Invalid

_PROGRAM, _SCRIPT = "memory-hub", "manage.py"
_CHECKOUT = Path(__file__).parents[3]


def command_words() -> list[str]:
    """Return the words that start this installation: its ``memory-hub``, else its interpreter and ``manage.py``."""
    interpreter = Path(sys.executable)  # not resolved: a virtual environment is known by its link
    program = interpreter.with_name(_PROGRAM)
    return [str(program)] if program.is_file() else [str(interpreter), str(_CHECKOUT / _SCRIPT)]


def variables() -> dict[str, str]:
    """Return what a client has to set, because it does not know this shell: the hub's home, where it is elsewhere."""
    return {"MEMORY_HUB_HOME": env.home_text()} if os.environ.get("MEMORY_HUB_HOME") else {}


def shell_command(words: Sequence[str]) -> str:
    """Return what a shell runs to start this installation with further words."""
    settings = [f"{name}={shlex.quote(value)}" for name, value in variables().items()]
    return " ".join([*settings, shlex.join([*command_words(), *words])])


def own_part(words: Sequence[str], verb: str) -> int:
    """Return where ``verb`` stands in a command that starts some installation of the hub with it; 0 where none does."""
    starts = (at for at, word in enumerate(words[:-1], 1) if _is_hub(word) and words[at] == verb)
    return next(starts, 0)


def _is_hub(word: object) -> bool:
    return isinstance(word, str) and Path(word).name in (_PROGRAM, _SCRIPT)


SERVER = "memory-hub"
"""The name of the hub's entry."""


def find_server(client: Client, document: Document) -> dict[str, Any] | None:
    """Return the hub's entry, or None.

    Raises:
        Conflict: another server has its name.
    """
    entry = document.at(server_place(client, document), {})
    if not entry:
        return None
    if not own_part(entry_words(entry), "mcp"):
        raise Conflict(f"{document.path} has another server of the name {SERVER!r}; rename or remove that first")
    return dict(entry)


def server_place(client: Client, document: Document) -> Place:
    """Return where the entry stands, or would."""
    nested = (client.nested,) if client.nested and document.at((*client.servers, client.nested), {}) else ()
    return (*client.servers, *nested, SERVER)


def put_server(client: Client, document: Document, project: str | None) -> Document:
    """Return the document with the entry as it should be: what the user has added to hers stays."""
    found = find_server(client, document)
    wanted = wanted_entry(client, found or {}, project)
    return document if wanted == found else document.put(server_place(client, document), wanted)


def wanted_entry(client: Client, found: dict[str, Any], project: str | None) -> dict[str, Any]:
    """Return the entry as it should be.

    Raises:
        Invalid: the client starts servers in no project's folder, and no project is named.
    """
    words = entry_words(found)
    added = words[own_part(words, "mcp") + 1 :] if found else []
    arguments = ["--project", project] if project else added or list(client.arguments)
    if client.names_no_folder and "--project" not in arguments:
        raise Invalid(f"{client.name} starts servers in no project's folder; say with --project ID which it is for")
    command = [*command_words(), "mcp", *arguments]
    own: dict[str, Any] = (
        {"command": command} if client.command_is_list else {"command": command[0], "args": command[1:]}
    )
    kept = found.get(client.environment)
    settings = (kept if isinstance(kept, dict) else {}) | variables()
    return {**client.entry, **found, **own, **({client.environment: settings} if settings else {})}


def entry_words(entry: dict[str, Any]) -> list[str]:
    """Return the command that an entry names, as words."""
    command = entry.get("command") or []
    words = command if isinstance(command, list) else [command, *(entry.get("args") or [])]
    return [str(word) for word in words]


def put_hooks(client: Client, hooks: Hooks, document: Document) -> Document:
    """Return the document with a hook at each event; those that are there keep all but their command."""
    for event in hooks.set_up():
        command = shell_command(["hook", client.id, event])
        found = _own_hooks(client, document, event)
        if not found:
            end = len(document.at(("hooks", event), []))
            document = document.put(("hooks", event, end), _group(hooks, event, command))
        elif document.at((*found[0], "command"), "") != command:
            document = document.put((*found[0], "command"), command)
    return document


def take_hooks(client: Client, document: Document) -> Document:
    """Return the document without the hub's hooks."""
    for event in client.hooks.set_up() if client.hooks else ():
        for place in reversed(_own_hooks(client, document, event)):
            siblings = document.at(place[:-1], [])
            document = document.take(place if len(siblings) > 1 else place[:3])
    return document


def has_hooks(client: Client, document: Document) -> bool:
    """Whether any hook of the hub is there."""
    return any(_own_hooks(client, document, event) for event in (client.hooks.set_up() if client.hooks else ()))


def _group(hooks: Hooks, event: str, command: str) -> dict[str, Any]:
    matcher = {"matcher": hooks.matcher} if hooks.events[event].effect is Effect.TOOL else {}
    return {**matcher, "hooks": [{"type": "command", "command": command, "timeout": hooks.timeout}]}


def _own_hooks(client: Client, document: Document, event: str) -> list[Place]:
    """Return where the hub's hooks of an event stand."""
    places: list[Place] = []
    for at, _ in enumerate(document.at(("hooks", event), [])):
        inside: Place = ("hooks", event, at, "hooks")
        places += [(*inside, each) for each, hook in enumerate(document.at(inside, [])) if _is_own(client, hook)]
    return places


def _is_own(client: Client, hook: Any) -> bool:
    try:
        words = shlex.split(hook["command"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return False
    at = own_part(words, "hook")
    return bool(at) and words[at + 1 : at + 2] == [client.id]
