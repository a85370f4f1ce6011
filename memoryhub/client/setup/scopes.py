"""A client's entries of one name, for every folder and for one: which of them count, and which get along."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from memoryhub.client.setup.clients import Target, folder_target, in_folder, user_target
from memoryhub.client.setup.document import Document, read_document
from memoryhub.client.setup.entries import find_server, server_url
from memoryhub.config.clients import SERVER, Client, SameName, find_client
from memoryhub.core.errors import Conflict, HubError
from memoryhub.teams.connections import all_connections
from memoryhub.teams.transport import LOOPBACK


def target_in_use(client: Client, directory: Path) -> Target:
    """Return the files whose server the client uses in a folder."""
    target = folder_target(client, directory)
    return target if _has_server(target) else user_target(client)


def has_entry(client: Client, document: Document) -> bool:
    """Return whether a file has an entry of the hub, for every folder or for any one."""
    known = find_client(client.id)
    folders = document.data.get(known.folder[0]) if known.folder else None
    names = folders if isinstance(folders, dict) else {}
    return any(_is_in(scope, document) for scope in (known, *(in_folder(known, name) for name in names)))


def _is_in(client: Client, document: Document) -> bool:
    try:
        return find_server(client, document) is not None
    except HubError:
        return False  # what another folder has there is not the hub's


def require_one_transport(target: Target, url: str) -> None:
    """Raise Conflict if the client would merge the new entry with one that another transport needs."""
    if target.client.same_name is not SameName.MERGED:
        return
    others = _connected(target.client) if target.is_for_all else [_user_target(target)]
    for other in others:
        entry = find_server(other.client, read_document(other.config))
        if entry is not None and bool(server_url(other.client, entry)) != bool(url):
            raise Conflict(
                f"{other.config} has {SERVER!r} too, and {target.client.name} merges the two but can't start one over "
                f"HTTP with a command; take that one out first, and set up each repository with --repository"
            )


def named_variable(target: Target, url: str) -> str:
    """Return the environment variable that the entry for a URL takes the token from, "" if it names none."""
    client = target.client
    try:
        entry = find_server(client, read_document(target.config)) or {}
    except HubError:
        return ""  # the change of the file says why
    return client.http.variable_of(entry) if client.http and server_url(client, entry) == url else ""


def warnings(target: Target) -> Iterator[str]:
    """Yield a sentence for each server that counts in more folders than it should, once one over HTTP is set up."""
    client, user = target.client, _user_target(target)
    if target.is_for_all:
        yield f"{client.name} has no configuration for a folder: it will use this server in every folder."
        return
    entry = find_server(user.client, read_document(user.config))
    found = server_url(user.client, entry or {})
    if found and urlsplit(found).hostname not in LOOPBACK:
        yield f"{user.config} has {found} for every other folder; `memory-hub setup {client.id} --remove` takes it out."
    if entry and client.same_name is SameName.BOTH:
        yield f"{client.name} starts the server of {user.config} here too; switch that one off in this workspace."


def needs_hooks(target: Target, folder: Path) -> bool:
    """Return whether the user's hooks stay when the server of a target is removed: for other folders."""
    if target.hooks != _user_target(target).hooks:
        return False
    if target.is_for_all:
        return any(_has_server(other) for other in _connected(target.client))
    others = [found for found in all_connections() if not found.client and found.folder != str(folder)]
    return bool(others) or _has_server(_user_target(target))


def _connected(client: Client) -> Iterator[Target]:
    for folder in {found.folder for found in all_connections()}:
        target = folder_target(client, Path(folder))
        if not target.is_for_all:
            yield target


# Of the client as it is declared: that of a folder's target has other keys.
def _user_target(target: Target) -> Target:
    return user_target(find_client(target.client.id))


def _has_server(target: Target) -> bool:
    return find_server(target.client, read_document(target.config)) is not None
