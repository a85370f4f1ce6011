"""The hub's entries in a client's configuration: the MCP server and the hooks."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from memoryhub import __version__, env
from memoryhub.client.setup.document import ConfigDocument, Place
from memoryhub.config.clients import SERVER, Client, Hooks
from memoryhub.config.hook_table import HookEffect
from memoryhub.core.errors import ConflictError, Invalid
from memoryhub.mcp.options import PROFILES
from memoryhub.teams.connections import VARIABLE

_PROGRAM, _SCRIPT = "memory-hub", "manage.py"
# Folders of uv's cache in which `uvx` makes environments
_CACHED = re.compile(r"/(archive|builds|environments)-v\d+/")
# The extras of the distribution, by a package that only they bring
_EXTRAS = {"onnxruntime": "semantic", "psycopg": "postgresql"}
_CHECKOUT = Path(__file__).parents[3]


def command_words() -> list[str]:
    """Return the command of this installation: its ``memory-hub``, else its interpreter and ``manage.py``.

    One that `uvx` made has its own command, because uv removes what is in its cache.
    """
    if _CACHED.search(f"{Path(sys.prefix).as_posix()}/"):
        return _uvx_words()
    interpreter = Path(sys.executable)  # not resolved: a virtual environment is identified by its symbolic link
    program = interpreter.with_name(_PROGRAM)
    if program.is_file():
        return [str(program)]
    return [str(interpreter), str(_CHECKOUT / _SCRIPT)]


def _uvx_words() -> list[str]:
    beside = Path(os.environ.get("UV") or "uv").with_name("uvx")
    program = shutil.which("uvx") or "uvx"
    if beside.is_absolute() and beside.exists():
        program = str(beside)
    extras = ",".join(extra for package, extra in _EXTRAS.items() if find_spec(package))
    requirement = f"django-memory-hub[{extras}]" if extras else "django-memory-hub"
    # Without a network, uv would exit with 2, by which hooks block what the user does.
    return [program, "--offline", "--from", f"{requirement}=={__version__}", _PROGRAM]


def variables() -> dict[str, str]:
    """Return the environment that the client must set, since it does not inherit this shell's."""
    if os.environ.get("MEMORY_HUB_HOME"):
        return {"MEMORY_HUB_HOME": env.home_text()}
    return {}


def shell_command(*words: str) -> str:
    """Return a command of this installation for a shell, with its settings."""
    settings = [f"{name}={shlex.quote(value)}" for name, value in variables().items()]
    return " ".join([*settings, shlex.join([*command_words(), *words])])


def verb_index(words: Sequence[str], verb: str) -> int:
    """Return the index of ``verb`` in a command that starts the hub with it; 0 if the command is another one."""
    for at, word in enumerate(words[:-1], 1):
        if Path(word).name in (_PROGRAM, _SCRIPT) and words[at] == verb:
            return at
    return 0


def find_server(client: Client, document: ConfigDocument) -> dict[str, Any] | None:
    """Return the hub's entry, or None.

    Raises:
        ConflictError: another server has its name.
    """
    if not is_file_of(document, (*client.user, *client.repository)):
        return None
    entry = document.at(server_place(client, document), {})
    if not entry:
        return None
    if not verb_index(entry_words(entry), "mcp") and not server_url(client, entry):
        raise ConflictError(f"{document.path} has another server named {SERVER!r}; rename or remove it first")
    return dict(entry)


def server_place(client: Client, document: ConfigDocument) -> Place:
    place = (*client.servers, SERVER)
    if not client.nested:
        return place
    nested = document.at(client.servers, {}).get(client.nested)
    # A server may have that name.
    if isinstance(nested, dict) and "command" not in nested and "url" not in nested:
        return (*client.servers, client.nested, SERVER)
    return place


def server_url(client: Client, entry: Mapping[str, Any]) -> str:
    """Return the URL of an entry for a hub over HTTP, "" for another entry."""
    url = entry.get(client.http.url) if client.http else None
    if not isinstance(url, str) or not url.rstrip("/").endswith("/mcp"):
        return ""
    return url


def put_server(
    client: Client,
    document: ConfigDocument,
    project: str | None,
    url: str = "",
    variable: str = VARIABLE,
    *,
    profile: str = "",
) -> ConfigDocument:
    """Return the document with the hub's entry; the user's additions to it are kept."""
    present = find_server(client, document)
    entry = present or {}
    changed = http_entry(client, entry, url, variable) if url else stdio_entry(client, entry, project, profile)
    if changed != present:
        document = document.put(server_place(client, document), changed)
    if url:
        return put_input(client, document)
    return _take_input(client, document, None)


def http_entry(client: Client, present: Mapping[str, Any], url: str, variable: str) -> dict[str, Any]:
    """Return the entry for a hub over HTTP, with the user's additions to the one that was found."""
    if client.http is None:
        raise Invalid(f"{client.name} has no entry for a server over HTTP; choose another client")
    entry = client.http.entry_for(url, variable)
    replaced = {"command", "args", client.environment, *client.entry}
    additions = {name: value for name, value in present.items() if name not in replaced}
    headers = additions.get(client.http.headers)
    if isinstance(headers, dict) and client.http.headers in entry:
        entry[client.http.headers] = {**headers, **entry[client.http.headers]}
    return {**additions, **entry}


def put_input(client: Client, document: ConfigDocument) -> ConfigDocument:
    """Return the document with the input that asks for the token, if the client has inputs."""
    inputs = document.at(("inputs",), [])
    if not client.http or not client.http.input or _input_at(inputs, client.http.input) is not None:
        return document
    return document.put(("inputs", len(inputs)), client.http.asked())


def _take_input(client: Client, document: ConfigDocument, original: ConfigDocument | None) -> ConfigDocument:
    if not client.http or not client.http.input:
        return document
    inputs = document.at(("inputs",), [])
    at = _input_at(inputs, client.http.input)
    if at is None:
        return document
    if len(inputs) > 1:
        return remove_value(document, ("inputs", at), original)
    return remove_value(document, ("inputs",), original)


def _input_at(inputs: Sequence[Any], name: str) -> int | None:
    positions = (at for at, item in enumerate(inputs) if isinstance(item, dict) and item.get("id") == name)
    return next(positions, None)


def stdio_entry(client: Client, present: dict[str, Any], project: str | None, profile: str = "") -> dict[str, Any]:
    if client.http and server_url(client, present):
        replaced = {client.http.url, client.http.headers, client.http.variable, *client.http.entry}
        present = {name: value for name, value in present.items() if name not in replaced}
    words = entry_words(present)
    added = words[verb_index(words, "mcp") + 1 :]
    arguments = _arguments(client, added, project, profile)
    if client.names_no_folder and "--project" not in arguments:
        raise Invalid(f"{client.name} does not start servers in a project's folder; name the project with --project ID")
    command = [*command_words(), "mcp", *arguments]
    entry = {**client.entry, **present}
    if client.command_is_list:
        entry[client.command] = command
    else:
        entry |= {client.command: command[0], "args": command[1:]}
    environment = present.get(client.environment)
    if not isinstance(environment, dict):
        environment = {}
    if settings := environment | variables():
        entry[client.environment] = settings
    return entry


def _arguments(client: Client, added: list[str], project: str | None, profile: str) -> list[str]:
    options, current_profile = [], ""
    words = iter(added or client.arguments)
    for word in words:
        if word == "--profile":
            current_profile = next(words, "")
        elif word.startswith("--profile="):
            current_profile = word.partition("=")[2]
        else:
            options.append(word)
    if project:
        options = ["--project", project]
    chosen = profile or current_profile
    if chosen and profile != PROFILES[0]:
        options += ["--profile", chosen]
    return options


def entry_words(entry: dict[str, Any]) -> list[str]:
    command = entry.get("command") or entry.get("cmd") or []
    if not isinstance(command, list):
        command = [command, *(entry.get("args") or [])]
    return list(map(str, command))


def take_server(client: Client, document: ConfigDocument, original: ConfigDocument | None) -> ConfigDocument:
    """Return the document without the hub's entry; parents that are in the original stay."""
    if not find_server(client, document):
        return document
    return _take_input(client, remove_value(document, server_place(client, document), original), original)


def hook_groups(client: Client, hooks: Hooks, hub: str = "") -> dict[str, Any]:
    """Return what is added to the list of each event, with ``hub`` as the command instead of this installation's."""
    hub = hub or shell_command()
    groups: dict[str, Any] = {}
    for event, declared in hooks.set_up().items():
        command = f"{hub} {shlex.join(['hook', client.id, event])}"
        hook = {"type": "command", "command": command, "timeout": declared.timeout or hooks.timeout}
        if hooks.flat:
            groups[event] = hook
        elif declared.effect.is_tool:
            matcher = hooks.matcher if declared.effect.is_recorded else "|".join(declared.tool_names)
            groups[event] = {"matcher": matcher, "hooks": [hook]}
        else:
            groups[event] = {"hooks": [hook]}
    return groups


def present_hooks(client: Client, document: ConfigDocument) -> dict[str, Any]:
    """Return the hub's item in the list of each event that has one."""
    hooks = client.hooks
    if not hooks or hooks.plugin or not is_file_of(document, (*hooks.user, hooks.repository)):
        return {}
    places = {event: _own_hooks(client, document, event) for event in hooks.set_up()}
    return {event: document.at(own_places[0][:3], {}) for event, own_places in places.items() if own_places}


def is_file_of(document: ConfigDocument, paths: Sequence[str]) -> bool:
    return document.path.name in {Path(path).name for path in paths}


def put_hooks(client: Client, hooks: Hooks, document: ConfigDocument, groups: Mapping[str, Any]) -> ConfigDocument:
    """Return the document with a hook for each event; existing hooks keep everything except their command."""
    if hooks.version and groups and "version" not in document.data:
        document = document.put(("version",), hooks.version)
    for event, group in groups.items():
        command = group.get("hooks", [group])[0]["command"]
        places = _own_hooks(client, document, event)
        if not places:
            document = document.put(("hooks", event, len(document.at(("hooks", event), []))), group)
        elif (present := document.at((*places[0], "command"), "")) != command and not _is_chained(present):
            document = document.put((*places[0], "command"), command)
    return document


def take_hooks(client: Client, document: ConfigDocument, original: ConfigDocument | None) -> ConfigDocument:
    """Return the document without the hub's hooks; parents that are in the original stay."""
    for event in present_hooks(client, document):
        for place in reversed(_own_hooks(client, document, event)):
            siblings = document.at(place[:-1], [])
            if len(siblings) == 1:
                place = place[:3]  # noqa: PLW2901  (its group goes with it)
            document = remove_value(document, place, original)
    if client.hooks and client.hooks.version and set(document.data) == {"version"} and not original:
        document = document.take(("version",))
    return document


def require_own_hooks(client: Client, document: ConfigDocument) -> None:
    """Raise Invalid if a hook of the hub also runs commands of the user, which its removal would take along."""
    for event in present_hooks(client, document):
        for place in _own_hooks(client, document, event):
            if _is_chained(document.at((*place, "command"), "")):
                raise Invalid(
                    f"{document.path}: the hook of {event} also runs other commands; take `memory-hub hook` out of it "
                    "by hand, then run this again"
                )


def has_hooks(client: Client, document: ConfigDocument) -> bool:
    return is_own_plugin(document) or bool(present_hooks(client, document))


def put_plugin(client: Client, hooks: Hooks, document: ConfigDocument) -> ConfigDocument:
    """Return the plugin of this installation.

    Raises:
        ConflictError: the file is another plugin.
    """
    if document.text and not is_own_plugin(document):
        raise ConflictError(f"{document.path} is not from `memory-hub setup`; rename or remove it first")
    text = Path(__file__).with_name(hooks.plugin).read_text("utf-8")
    actions = [hook.tool_names for hook in hooks.events.values() if hook.effect is HookEffect.ACTION]
    values = {"COMMAND": [*command_words(), "hook", client.id], "ENVIRONMENT": variables(), "SECONDS": hooks.timeout}
    values["ACTIONS"] = list(chain.from_iterable(actions))
    for name, value in values.items():
        head, _, tail = text.partition(f"const {name} = ")
        text = f"{head}const {name} = {json.dumps(value, ensure_ascii=False)}\n{tail.partition(chr(10))[2]}"
    return document.with_code(text)


def is_own_plugin(document: ConfigDocument) -> bool:
    return document.path.suffix == ".js" and "`memory-hub setup" in document.text.partition("\n")[0]


def remove_value(document: ConfigDocument, place: Place, original: ConfigDocument | None) -> ConfigDocument:
    stay = 0
    data: Any = original.data if original else None
    for name in place[:-1]:
        if not isinstance(data, dict) or data.get(name) is None:
            break
        data = data[name]
        stay += 1
    return document.take(place, stay=stay)


def _own_hooks(client: Client, document: ConfigDocument, event: str) -> list[Place]:
    places: list[Place] = []
    for at, item in enumerate(document.at(("hooks", event), [])):
        inside: Place = ("hooks", event, at)
        if client.hooks and client.hooks.flat:
            candidates = [(inside, item)]
        else:
            hooks = document.at((*inside, "hooks"), [])
            candidates = [((*inside, "hooks", index), hook) for index, hook in enumerate(hooks)]
        places += [place for place, hook in candidates if is_own_hook(client, hook)]
    return places


# Whether a command line has more than one command.
def _is_chained(command: str) -> bool:
    words = shlex.shlex(command, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    return any(word and set(word) <= set(";&|") for word in words)


def is_own_hook(client: Client, hook: Any) -> bool:
    try:
        words = shlex.split(hook["command"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return False
    at = verb_index(words, "hook")
    return bool(at) and words[at + 1 : at + 2] == [client.id]
