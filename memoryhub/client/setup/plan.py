"""Plan the changes of a client's files, and say where the hub is set up already."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from memoryhub.client.setup import json_text
from memoryhub.client.setup.agent_files import is_own_agent, put_agent, read_agent
from memoryhub.client.setup.clients import SetupTarget, folder_target, in_folder, user_target
from memoryhub.client.setup.document import (
    ConfigDocument,
    backup_of,
    read_backup,
    read_document,
    write_backup,
    write_document,
)
from memoryhub.client.setup.entries import (
    find_server,
    has_hooks,
    hook_groups,
    http_entry,
    is_own_plugin,
    present_hooks,
    put_hooks,
    put_input,
    put_plugin,
    put_server,
    require_own_hooks,
    server_place,
    server_url,
    stdio_entry,
    take_hooks,
    take_server,
)
from memoryhub.client.setup.json_text import put_table
from memoryhub.config.clients import SERVER, Client, SameName, find_client
from memoryhub.core.errors import ConflictError, HubError
from memoryhub.teams.connections import VARIABLE, all_connections
from memoryhub.teams.transport import LOOPBACK


@dataclass(frozen=True, slots=True)
class ConfigChange:
    before: ConfigDocument
    after: ConfigDocument
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
    target: SetupTarget, *, project: str | None, hooks: bool, profile: str = "", url: str = "", variable: str = VARIABLE
) -> list[ConfigChange]:
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
        ConflictError: another server has the hub's name, or the client could not start with both entries.
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
            after = put_hooks(client, client.hooks, after, hook_groups(client, client.hooks))
        changed[target.hooks] = (before, after)
    agent = read_agent(target.agent)
    if hooks and agent and client.agent:
        changed[agent.path] = (agent, put_agent(client.agent, agent))
    changes = []
    for before, after in changed.values():
        if before.text != after.text:
            is_first = before.is_there and not (has_hooks(client, before) or has_entry(client, before))
            changes.append(ConfigChange(before, after, adds_backup=is_first and not is_own_agent(before)))
    return changes


def plan_removal(target: SetupTarget, *, hooks: bool = True) -> list[ConfigChange]:
    """Return the file changes that remove the hub from a client's configuration, with or without its hooks."""
    client, paths = target.client, {target.config}
    if hooks and target.hooks:
        paths.add(target.hooks)
    changes = []
    for document in map(read_document, sorted(paths)):
        if find_server(client, document) is not None or (hooks and has_hooks(client, document)):
            changes.append(_removal(client, document, hooks=hooks))
    agent = read_agent(target.agent)
    if hooks and agent and agent.is_there:
        changes.append(ConfigChange(agent, _removed(agent)))
    return changes


def apply(changes: list[ConfigChange]) -> None:
    """Write the changes, and the backups beside the files."""
    for change in changes:
        if change.adds_backup:
            write_backup(change.before)
        write_document(change.before, change.after)
        if change.removes_backup:
            backup_of(change.path).unlink(missing_ok=True)


def to_paste(
    target: SetupTarget, project: str | None, url: str = "", variable: str = VARIABLE, profile: str = ""
) -> str:
    """Return the text to paste into the target's file by hand."""
    client = target.client
    entry = http_entry(client, {}, url, variable) if url else stdio_entry(client, {}, project, profile)
    if target.config.suffix == ".toml":
        return put_table("", (*client.servers, SERVER), entry)
    return json_text.put("{}", (*client.servers, SERVER), entry) + "\n"


def status_of(target: SetupTarget) -> str:
    """Return the client's status in a few words, or the error that prevents it."""
    client = target.client
    try:
        entry = find_server(client, read_document(target.config))
        if entry is None:
            return "not set up"
        url = server_url(client, entry)
        if not url and stdio_entry(client, entry, None) != entry:
            return "set up for another installation"
        status = f"set up for {url}" if url else "set up"
        if target.hooks is not None and has_hooks(client, read_document(target.hooks)):
            status += ", with hooks"
        return status
    except HubError as error:
        return error.message


def _removed(document: ConfigDocument) -> ConfigDocument:
    return replace(document, text="", data={}, is_there=False)


# If nothing else has changed since the backup, every byte is restored.
def _removal(client: Client, document: ConfigDocument, *, hooks: bool) -> ConfigChange:
    if hooks:
        require_own_hooks(client, document)
    try:
        original = read_backup(document.path)
        is_whole = hooks or not has_hooks(client, document)
        is_same = is_whole and original is not None and _adds(client, original, document)
    except HubError:
        original, is_same = None, False
    if original and is_same:
        return ConfigChange(document, original, removes_backup=True)
    if is_own_plugin(document):
        return ConfigChange(document, _removed(document))
    after = take_server(client, document, original)
    if hooks:
        after = take_hooks(client, after, original)
    is_original = original is not None and after.text == original.text
    has_content = after.text.split() not in ([], ["{}"], ["{", "}"])  # comments are content, too
    return ConfigChange(document, replace(after, is_there=has_content or bool(original)), removes_backup=is_original)


# Whether the document is the original with what the hub adds, and nothing else.
def _adds(client: Client, original: ConfigDocument, document: ConfigDocument) -> bool:
    if has_hooks(client, original) or find_server(client, original) is not None:
        return False
    if is_own_plugin(document):
        return True
    entry = find_server(client, document)
    added = original
    if entry:
        added = added.put(server_place(client, original), entry)
    if entry and server_url(client, entry):
        added = put_input(client, added)
    if client.hooks:
        added = put_hooks(client, client.hooks, added, present_hooks(client, document))
    return added.text == document.text


def target_in_use(client: Client, directory: Path) -> SetupTarget:
    """Return the files whose server the client uses in a folder."""
    target = folder_target(client, directory)
    if _has_server(target):
        return target
    return user_target(client)


def has_entry(client: Client, document: ConfigDocument) -> bool:
    """Return whether a file has an entry of the hub, for every folder or for any one."""
    declared = find_client(client.id)
    scopes = [declared]
    folders = document.data.get(declared.folder[0]) if declared.folder else None
    if isinstance(folders, dict):
        scopes += [in_folder(declared, name) for name in folders]
    for scope in scopes:
        with suppress(HubError):  # what another folder has there is not the hub's
            if find_server(scope, document) is not None:
                return True
    return False


def require_one_transport(target: SetupTarget, url: str) -> None:
    """Raise Conflict if the client would merge the new entry with one that another transport needs."""
    if target.client.same_name is not SameName.MERGED:
        return
    targets = _connected(target.client) if target.is_for_all else [_user_target(target)]
    for other in targets:
        entry = find_server(other.client, read_document(other.config))
        if entry is not None and bool(server_url(other.client, entry)) != bool(url):
            raise ConflictError(
                f"{other.config} has {SERVER!r} too, and {target.client.name} merges the two but can't start one over "
                f"HTTP with a command; take that one out first, and set up each repository with --repository"
            )


def named_variable(target: SetupTarget, url: str) -> str:
    """Return the environment variable that the entry for a URL takes the token from, "" if it names none."""
    client = target.client
    try:
        entry = find_server(client, read_document(target.config)) or {}
    except HubError:
        return ""  # the change of the file says why
    if client.http and server_url(client, entry) == url:
        return client.http.variable_of(entry)
    return ""


def warnings(target: SetupTarget) -> Iterator[str]:
    """Yield a sentence for each server that counts in more folders than it should, once one over HTTP is set up."""
    client, user = target.client, _user_target(target)
    if target.is_for_all:
        yield f"{client.name} has no configuration for a folder: it will use this server in every folder."
        return
    entry = find_server(user.client, read_document(user.config))
    url = server_url(user.client, entry or {})
    if url and urlsplit(url).hostname not in LOOPBACK:
        yield f"{user.config} has {url} for every other folder; `memory-hub setup {client.id} --remove` takes it out."
    if entry and client.same_name is SameName.BOTH:
        yield f"{client.name} starts the server of {user.config} here too; switch that one off in this workspace."


def needs_hooks(target: SetupTarget, folder: Path) -> bool:
    """Return whether the user's hooks stay when the server of a target is removed: for other folders."""
    if target.hooks != _user_target(target).hooks:
        return False
    if target.is_for_all:
        return any(_has_server(other) for other in _connected(target.client))
    for connection in all_connections():
        if not connection.client and connection.folder != str(folder):
            return True
    return _has_server(_user_target(target))


def _connected(client: Client) -> Iterator[SetupTarget]:
    for folder in {connection.folder for connection in all_connections()}:
        target = folder_target(client, Path(folder))
        if not target.is_for_all:
            yield target


# The client is the one that is declared: that of a folder's target has other keys.
def _user_target(target: SetupTarget) -> SetupTarget:
    return user_target(find_client(target.client.id))


def _has_server(target: SetupTarget) -> bool:
    return find_server(target.client, read_document(target.config)) is not None
