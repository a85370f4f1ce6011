from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from pathlib import Path

from memoryhub.client.setup import json_text
from memoryhub.client.setup.clients import Target
from memoryhub.client.setup.document import (
    Document,
    backup_of,
    read_backup,
    read_document,
    write_backup,
    write_document,
)
from memoryhub.client.setup.entries import (
    find_server,
    found_hooks,
    has_hooks,
    http_entry,
    is_own_plugin,
    put_hooks,
    put_input,
    put_plugin,
    put_server,
    require_own_hooks,
    server_place,
    server_url,
    take_hooks,
    take_server,
    wanted_entry,
    wanted_hooks,
)
from memoryhub.client.setup.json_text import put_table
from memoryhub.client.setup.librarian import is_own_agent, put_agent, read_agent
from memoryhub.client.setup.scopes import has_entry, require_one_transport
from memoryhub.config.clients import SERVER, Client
from memoryhub.core.errors import HubError
from memoryhub.teams.connections import VARIABLE


@dataclass(frozen=True, slots=True)
class Change:
    before: Document
    after: Document
    # The first change of a file leaves a copy of it beside it, which goes when the file is again as it was.
    adds_backup: bool = False
    removes_backup: bool = False

    @property
    def path(self) -> Path:
        return self.before.path

    @property
    def outcome(self) -> str:
        """What was done to the file, in a few words."""
        if self.removes_backup:
            return "as before"
        if self.adds_backup:
            return f"written; backup: {backup_of(self.path).name}"
        return "written" if self.after.is_there else "removed"

    @property
    def diff(self) -> str:
        old = str(self.path) if self.before.is_there else "/dev/null"
        lines = (self.before.text.splitlines(), self.after.text.splitlines())
        return "\n".join(difflib.unified_diff(*lines, old, str(self.path), lineterm=""))


def plan_setup(
    target: Target, *, project: str | None, hooks: bool, profile: str = "", url: str = "", variable: str = VARIABLE
) -> list[Change]:
    """Return the file changes that connect a client; none if it is already set up.

    Args:
        target: the client, and its files.
        project: the project that the server is bound to; None for that of the folder where the client starts it.
        hooks: whether to add the client's hooks and its librarian too.
        profile: the tools that the server lists; "" for those of the entry that is there, else the default.
        url: of a server over HTTP, instead of one that the client starts.
        variable: the environment variable from which the client takes the token for ``url``.

    Raises:
        Invalid: a file cannot be changed in place, or the client needs a project.
        Conflict: another server has the hub's name, or the client could not start with both entries.
    """
    client = target.client
    require_one_transport(target, url)
    config = read_document(target.config)
    changed = {config.path: (config, put_server(client, config, project, url, variable, profile=profile))}
    if hooks and client.hooks and target.hooks:
        before, after = changed.get(target.hooks) or (read_document(target.hooks),) * 2
        if client.hooks.plugin:
            after = put_plugin(client, client.hooks, after)
        else:
            after = put_hooks(client, client.hooks, after, wanted_hooks(client, client.hooks))
        changed[target.hooks] = (before, after)
    agent = read_agent(target.agent) if hooks else None
    if agent and client.agent:
        changed[agent.path] = (agent, put_agent(client.agent, agent))
    documents = [(before, after) for before, after in changed.values() if before.text != after.text]
    return [
        Change(
            before,
            after,
            adds_backup=before.is_there and not _has_any(client, before),
        )
        for before, after in documents
    ]


def plan_removal(target: Target, *, hooks: bool = True) -> list[Change]:
    """Return the file changes that remove the hub from a client's configuration, with or without its hooks."""
    paths = {target.config, (target.hooks if hooks else None) or target.config}
    documents = [read_document(path) for path in sorted(paths)]
    changes = [
        _removal(target.client, document, hooks=hooks)
        for document in documents
        if find_server(target.client, document) is not None or (hooks and has_hooks(target.client, document))
    ]
    agent = read_agent(target.agent) if hooks else None
    return [*changes, *([Change(agent, _removed(agent))] if agent and agent.is_there else [])]


def apply(changes: list[Change]) -> None:
    """Write the changes, and the backups beside the files."""
    for change in changes:
        if change.adds_backup:
            write_backup(change.before)
        write_document(change.before, change.after)
        if change.removes_backup:
            backup_of(change.path).unlink(missing_ok=True)


def to_paste(target: Target, project: str | None, url: str = "", variable: str = VARIABLE, profile: str = "") -> str:
    """Return the text to paste into the target's file by hand."""
    client = target.client
    entry = http_entry(client, {}, url, variable) if url else wanted_entry(client, {}, project, profile)
    if target.config.suffix == ".toml":
        return put_table("", (*client.servers, SERVER), entry)
    return json_text.put("{}", (*client.servers, SERVER), entry) + "\n"


def status_of(target: Target) -> str:
    """Return the client's status in a few words, or the error that prevents it."""
    client = target.client
    try:
        found = find_server(client, read_document(target.config))
        if found is None:
            return "not set up"
        url = server_url(client, found)
        if not url and wanted_entry(client, found, None) != found:
            return "set up for another installation"
        with_hooks = target.hooks is not None and has_hooks(client, read_document(target.hooks))
        return f"set up{f' for {url}' if url else ''}{', with hooks' if with_hooks else ''}"
    except HubError as error:
        return error.message


def _has_any(client: Client, document: Document) -> bool:
    return has_hooks(client, document) or has_entry(client, document) or is_own_agent(document)


def _removed(document: Document) -> Document:
    return replace(document, text="", data={}, is_there=False)


def _has_ours(client: Client, document: Document) -> bool:
    return has_hooks(client, document) or find_server(client, document) is not None


# If nothing else has changed since the backup, every byte is restored.
def _removal(client: Client, document: Document, *, hooks: bool) -> Change:
    if hooks:
        require_own_hooks(client, document)
    try:
        original = read_backup(document.path)
        is_whole = hooks or not has_hooks(client, document)
        is_same = is_whole and original is not None and _adds(client, original, document)
    except HubError:
        original, is_same = None, False
    if original and is_same:
        return Change(document, original, removes_backup=True)
    if is_own_plugin(document):
        return Change(document, _removed(document))
    after = take_server(client, document, original)
    after = take_hooks(client, after, original) if hooks else after
    is_original = original is not None and after.text == original.text
    has_content = after.text.split() not in ([], ["{}"], ["{", "}"])  # comments are content, too
    return Change(document, replace(after, is_there=has_content or bool(original)), removes_backup=is_original)


# Whether the document is the original with what the hub adds, and nothing else.
def _adds(client: Client, original: Document, document: Document) -> bool:
    if _has_ours(client, original):
        return False
    if is_own_plugin(document):
        return True
    entry = find_server(client, document)
    added = original.put(server_place(client, original), entry) if entry else original
    if entry and server_url(client, entry):
        added = put_input(client, added)
    if client.hooks:
        added = put_hooks(client, client.hooks, added, found_hooks(client, document))
    return added.text == document.text
