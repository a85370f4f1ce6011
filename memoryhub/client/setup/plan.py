"""Plan the changes of a client's files, and say where the hub is set up already."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from memoryhub.client.setup import json_text
from memoryhub.client.setup.agent_files import put_agent, put_policy, put_skill, read_own_file
from memoryhub.client.setup.clients import SetupTarget, folder_target, in_folder, repository_target, user_target
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
from memoryhub.client.setup.permissions import present_rules, put_rules, rules_for, take_rules
from memoryhub.client.setup.status_line import put_status_line, status_line_of, take_status_line
from memoryhub.config.clients import SERVER, Client, SameName, all_clients, find_client
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


@dataclass(frozen=True, slots=True)
class SetupChoices:
    """What to set up for a client."""

    # The project that the server is bound to; None for that of the folder where the client starts it
    project: str | None = None
    # The tools that the server lists; "" for those of the entry that is there, else the default
    profile: str = ""
    # A server over HTTP, instead of one that the client starts, and the environment variable of its token
    url: str = ""
    variable: str = VARIABLE
    # The client's hooks, librarian, skill and status line too
    hooks: bool = True
    # The permission to use the read-only tools without asking
    permissions: bool = False
    # The status line, if there are hooks
    status_line: bool = True


def plan_setup(target: SetupTarget, choices: SetupChoices) -> list[ConfigChange]:
    """Return the file changes that connect a client; none if it is already set up.

    Raises:
        Invalid: a file cannot be changed in place, or the client needs a project.
        ConflictError: another server has the hub's name, or the client could not start with both entries.
    """
    client = target.client
    require_one_transport(target, choices.url)
    config = _Draft(read_document(target.config))
    config.after = put_server(
        client, config.before, choices.project, choices.url, choices.variable, profile=choices.profile
    )
    drafts = {target.config: config}
    if choices.hooks and client.hooks and target.hooks:
        draft = _draft(drafts, target.hooks)
        if client.hooks.plugin:
            draft.after = put_plugin(client, client.hooks, draft.after)
        else:
            draft.after = put_hooks(client, client.hooks, draft.after, hook_groups(client, client.hooks))
    if choices.permissions and target.permissions and not _has_policy(client):
        draft = _draft(drafts, target.permissions)
        draft.after = put_rules(client, draft.after, rules_for(client, config.after))
    # A team's hub has no status line: the command asks that of this machine
    if choices.hooks and choices.status_line and target.status_line and not choices.url:
        draft = _draft(drafts, target.status_line)
        draft.after = put_status_line(client, draft.after)
    changes = [draft.change(client) for draft in drafts.values()]
    if choices.hooks:
        changes += [ConfigChange(file, after) for file, after in _agent_files(target)]
    policy = _policy_file(target)
    if choices.permissions and policy and client.permissions:
        rules = rules_for(client, config.after)
        changes.append(ConfigChange(policy, put_policy(client.permissions, policy, rules)))
    return [change for change in changes if change.before.text != change.after.text]


def lacks_permissions(target: SetupTarget, choices: SetupChoices) -> bool:
    """Return whether the client has a list of allowed tools that the hub's read-only tools can be added to."""
    try:
        return plan_setup(target, choices) != plan_setup(target, replace(choices, permissions=True))
    except HubError:
        return False


@dataclass(slots=True)
class _Draft:
    before: ConfigDocument
    after: ConfigDocument = field(init=False)

    def __post_init__(self) -> None:
        self.after = self.before

    def change(self, client: Client) -> ConfigChange:
        is_set_up = _has_more_than_rules(client, self.before)
        if present_rules(client, self.before) and backup_of(self.before.path).exists():
            is_set_up = True
        return ConfigChange(self.before, self.after, adds_backup=self.before.is_there and not is_set_up)


def _draft(drafts: dict[Path, _Draft], path: Path) -> _Draft:
    return drafts.setdefault(path, _Draft(read_document(path)))


def _has_more_than_rules(client: Client, document: ConfigDocument) -> bool:
    return has_hooks(client, document) or has_entry(client, document) or bool(status_line_of(client, document))


# The librarian and the skill as they are, if the hub may write them, and as they should be
def _agent_files(target: SetupTarget) -> Iterator[tuple[ConfigDocument, ConfigDocument]]:
    agent, skill = read_own_file(target.agent), read_own_file(target.skill)
    if agent and target.client.agent:
        yield agent, put_agent(target.client.agent, agent)
    if skill:
        yield skill, put_skill(skill)


def _has_policy(client: Client) -> bool:
    return client.permissions is not None and client.permissions.is_whole_file


# The file of the client's permissions, if it is the hub's as a whole
def _policy_file(target: SetupTarget) -> ConfigDocument | None:
    return read_own_file(target.permissions) if _has_policy(target.client) else None


def plan_removal(target: SetupTarget, *, hooks: bool = True) -> list[ConfigChange]:
    """Return the file changes that remove the hub from a client's configuration.

    Without ``hooks``, only the server goes: what counts in other folders too stays.
    """
    client, paths = target.client, {target.config}
    if hooks:
        permissions = None if _has_policy(client) else target.permissions
        paths |= {path for path in (target.hooks, permissions, target.status_line) if path}
    changes = []
    for document in map(read_document, sorted(paths)):
        is_there = find_server(client, document) is not None
        if is_there or (hooks and (_has_more_than_rules(client, document) or present_rules(client, document))):
            changes.append(_removal(client, document, hooks=hooks))
    if hooks:
        policy = _policy_file(target)
        if policy and policy.is_there:
            changes.append(ConfigChange(policy, _removed(policy)))
        for document, _ in _agent_files(target):
            if document.is_there and not _is_shared(target, document.path):
                changes.append(ConfigChange(document, _removed(document)))
    return [change for change in changes if change.before.text != change.after.text or not change.after.is_there]


# Whether another client that is set up reads the same file
def _is_shared(target: SetupTarget, path: Path) -> bool:
    for client in all_clients().values():
        if client.id == target.client.id or (target.repository and not client.repository):
            continue
        with suppress(HubError):  # the other client cannot be set up, or its file cannot be read
            other = repository_target(client, target.repository) if target.repository else user_target(client)
            if path in (other.agent, other.skill) and _has_server(other):
                return True
    return False


def apply(changes: list[ConfigChange]) -> None:
    """Write the changes, and the backups beside the files."""
    for change in changes:
        if change.adds_backup:
            write_backup(change.before)
        write_document(change.before, change.after)
        if change.removes_backup:
            backup_of(change.path).unlink(missing_ok=True)


def to_paste(target: SetupTarget, choices: SetupChoices) -> str:
    """Return the text to paste into the target's file by hand."""
    client = target.client
    if choices.url:
        entry = http_entry(client, {}, choices.url, choices.variable)
    else:
        entry = stdio_entry(client, {}, choices.project, choices.profile)
    if target.config.suffix == ".yaml":
        return yaml.safe_dump({client.servers[0]: {SERVER: entry}}, sort_keys=False, allow_unicode=True)
    if target.config.suffix == ".toml":
        return put_table("", (*client.servers, SERVER), entry)
    return json_text.put("{}", (*client.servers, SERVER), entry) + "\n"


NOT_SET_UP = "not set up"
WITH_HOOKS = ", with hooks"


def statuses_in(directory: Path) -> dict[str, str]:
    """Return the status of each client that is set up for a folder, or that has a problem, by the client's id."""
    statuses = {client.id: status_in(client, directory) for client in all_clients().values()}
    return {client_id: status for client_id, status in statuses.items() if status != NOT_SET_UP}


def status_in(client: Client, directory: Path) -> str:
    """Return the client's status in a folder, in a few words, or the error that prevents it."""
    try:
        return status_of(target_in_use(client, directory))
    except HubError as error:
        return error.message


def status_of(target: SetupTarget) -> str:
    """Return the client's status in a few words, or the error that prevents it."""
    client = target.client
    try:
        entry = find_server(client, read_document(target.config))
        if entry is None:
            return NOT_SET_UP
        url = server_url(client, entry)
        if not url and stdio_entry(client, entry, None) != entry:
            return "set up for another installation"
        status = f"set up for {url}" if url else "set up"
        if target.hooks is not None and has_hooks(client, read_document(target.hooks)):
            status += WITH_HOOKS
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
        is_whole = hooks or not (has_hooks(client, document) or present_rules(client, document))
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
        after = take_rules(client, after, original)
        after = take_status_line(client, after, original)
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
    if client.permissions and not client.permissions.is_in_entry:
        added = put_rules(client, added, present_rules(client, document))
    if line := status_line_of(client, document):
        added = put_status_line(client, added, line)
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
