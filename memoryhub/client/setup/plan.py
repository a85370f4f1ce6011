from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from memoryhub.client.setup import json_text
from memoryhub.client.setup.clients import config_file, hooks_file
from memoryhub.client.setup.document import Document, read_document, write_document
from memoryhub.client.setup.entries import (
    SERVER,
    find_server,
    has_hooks,
    put_hooks,
    put_server,
    server_place,
    take_hooks,
    wanted_entry,
)
from memoryhub.client.setup.json_text import put_table
from memoryhub.config.clients import Client
from memoryhub.core.errors import HubError


@dataclass(frozen=True, slots=True)
class Change:
    before: Document
    after: Document

    @property
    def path(self) -> Path:
        return self.before.path

    @property
    def diff(self) -> str:
        old = str(self.path) if self.before.is_there else "/dev/null"
        lines = (self.before.text.splitlines(), self.after.text.splitlines())
        return "\n".join(difflib.unified_diff(*lines, old, str(self.path), lineterm=""))


def plan_setup(client: Client, *, repository: Path | None, project: str | None, hooks: bool) -> list[Change]:
    """Return the file changes that connect a client; none if it is already set up.

    Args:
        client: the client.
        repository: the top of a working tree, for its own files instead of the user's.
        project: the project that the server is bound to; None for that of the folder where the client starts it.
        hooks: whether to add the client's hooks too.

    Raises:
        Invalid: a file cannot be changed in place, or the client needs a project.
        Conflict: another server has the hub's name.
    """
    config = read_document(config_file(client, repository))
    changed = {config.path: (config, put_server(client, config, project))}
    hooks_path = hooks_file(client, repository)
    if hooks and client.hooks and hooks_path:
        before, after = changed.get(hooks_path) or (read_document(hooks_path),) * 2
        changed[hooks_path] = (before, put_hooks(client, client.hooks, after))
    return _changes(changed)


def plan_removal(client: Client, *, repository: Path | None) -> list[Change]:
    """Return the file changes that remove the hub from a client's configuration."""
    config = read_document(config_file(client, repository))
    after = config.take(server_place(client, config)) if find_server(client, config) else config
    changed = {config.path: (config, after)}
    hooks_path = hooks_file(client, repository)
    if hooks_path:
        before, after = changed.get(hooks_path) or (read_document(hooks_path),) * 2
        changed[hooks_path] = (before, take_hooks(client, after))
    return _changes(changed)


def apply(changes: list[Change]) -> list[Path | None]:
    """Write the changes; return each file's backup, None for a new file."""
    return [write_document(change.before, change.after) for change in changes]


def to_paste(client: Client, project: str | None) -> str:
    entry = wanted_entry(client, {}, project)
    if config_file(client, None).suffix == ".toml":
        return put_table("", (*client.servers, SERVER), entry)
    return json_text.put("{}", (client.servers[0], SERVER), entry) + "\n"


def status_of(client: Client, *, repository: Path | None) -> str:
    """Return the client's status in a few words, or the error that prevents it."""
    try:
        found = find_server(client, read_document(config_file(client, repository)))
        if found is None:
            return "not set up"
        if wanted_entry(client, found, None) != found:
            return "set up for another installation"
        hooks_path = hooks_file(client, repository)
        with_hooks = hooks_path is not None and has_hooks(client, read_document(hooks_path))
        return "set up, with hooks" if with_hooks else "set up"
    except HubError as error:
        return error.message


def _changes(changed: dict[Path, tuple[Document, Document]]) -> list[Change]:
    return [Change(before, after) for before, after in changed.values() if before.text != after.text]
