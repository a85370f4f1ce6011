"""The hub's entries in a client's configuration: the MCP server and the hooks."""

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
    """Return the command of this installation: its ``memory-hub``, else its interpreter and ``manage.py``."""
    interpreter = Path(sys.executable)  # not resolved: a virtual environment is identified by its symbolic link
    program = interpreter.with_name(_PROGRAM)
    return [str(program)] if program.is_file() else [str(interpreter), str(_CHECKOUT / _SCRIPT)]


def variables() -> dict[str, str]:
    """Return the environment that the client must set, since it does not inherit this shell's."""
    return {"MEMORY_HUB_HOME": env.home_text()} if os.environ.get("MEMORY_HUB_HOME") else {}


def shell_command(words: Sequence[str]) -> str:
    """Return the shell command that starts this installation with further words."""
    settings = [f"{name}={shlex.quote(value)}" for name, value in variables().items()]
    return " ".join([*settings, shlex.join([*command_words(), *words])])


def own_part(words: Sequence[str], verb: str) -> int:
    """Return the index of ``verb`` in a command that starts the hub with it; 0 if the command is another one."""
    starts = (at for at, word in enumerate(words[:-1], 1) if _is_hub(word) and words[at] == verb)
    return next(starts, 0)


def _is_hub(word: object) -> bool:
    return isinstance(word, str) and Path(word).name in (_PROGRAM, _SCRIPT)


SERVER = "memory-hub"


def find_server(client: Client, document: Document) -> dict[str, Any] | None:
    """Return the hub's entry, or None.

    Raises:
        Conflict: another server has its name.
    """
    entry = document.at(server_place(client, document), {})
    if not entry:
        return None
    if not own_part(entry_words(entry), "mcp"):
        raise Conflict(f"{document.path} has another server named {SERVER!r}; rename or remove it first")
    return dict(entry)


def server_place(client: Client, document: Document) -> Place:
    nested = (client.nested,) if client.nested and document.at((*client.servers, client.nested), {}) else ()
    return (*client.servers, *nested, SERVER)


def put_server(client: Client, document: Document, project: str | None) -> Document:
    """Return the document with the hub's entry; the user's additions to it are kept."""
    found = find_server(client, document)
    wanted = wanted_entry(client, found or {}, project)
    return document if wanted == found else document.put(server_place(client, document), wanted)


def wanted_entry(client: Client, found: dict[str, Any], project: str | None) -> dict[str, Any]:
    """Return the entry for this installation."""
    words = entry_words(found)
    added = words[own_part(words, "mcp") + 1 :] if found else []
    arguments = ["--project", project] if project else added or list(client.arguments)
    if client.names_no_folder and "--project" not in arguments:
        raise Invalid(f"{client.name} does not start servers in a project's folder; name the project with --project ID")
    command = [*command_words(), "mcp", *arguments]
    own: dict[str, Any] = (
        {"command": command} if client.command_is_list else {"command": command[0], "args": command[1:]}
    )
    kept = found.get(client.environment)
    settings = (kept if isinstance(kept, dict) else {}) | variables()
    return {**client.entry, **found, **own, **({client.environment: settings} if settings else {})}


def entry_words(entry: dict[str, Any]) -> list[str]:
    command = entry.get("command") or []
    words = command if isinstance(command, list) else [command, *(entry.get("args") or [])]
    return [str(word) for word in words]


def put_hooks(client: Client, hooks: Hooks, document: Document) -> Document:
    """Return the document with a hook for each event; existing hooks keep everything except their command."""
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
    for event in client.hooks.set_up() if client.hooks else ():
        for place in reversed(_own_hooks(client, document, event)):
            siblings = document.at(place[:-1], [])
            document = document.take(place if len(siblings) > 1 else place[:3])
    return document


def has_hooks(client: Client, document: Document) -> bool:
    return any(_own_hooks(client, document, event) for event in (client.hooks.set_up() if client.hooks else ()))


def _group(hooks: Hooks, event: str, command: str) -> dict[str, Any]:
    matcher = {"matcher": hooks.matcher} if hooks.events[event].effect is Effect.TOOL else {}
    return {**matcher, "hooks": [{"type": "command", "command": command, "timeout": hooks.timeout}]}


def _own_hooks(client: Client, document: Document, event: str) -> list[Place]:
    places: list[Place] = []
    for at, _ in enumerate(document.at(("hooks", event), [])):
        inside: Place = ("hooks", event, at, "hooks")
        places += [(*inside, index) for index, hook in enumerate(document.at(inside, [])) if _is_own(client, hook)]
    return places


def _is_own(client: Client, hook: Any) -> bool:
    try:
        words = shlex.split(hook["command"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return False
    at = own_part(words, "hook")
    return bool(at) and words[at + 1 : at + 2] == [client.id]
