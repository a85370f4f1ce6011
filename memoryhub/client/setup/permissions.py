"""The client's list of tools that it uses without asking, and the hub's read-only tools in it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from memoryhub.client.setup.document import ConfigDocument, Place
from memoryhub.client.setup.entries import entry_words, find_server, is_file_of, remove_value, server_place
from memoryhub.config.clients import Client, Permissions
from memoryhub.core.errors import HubError, Invalid
from memoryhub.core.tools import Tool, all_tools
from memoryhub.mcp.listing import listed_name, listed_tools, load_tools
from memoryhub.mcp.options import PROFILES

# Listed in any case: the librarian uses tools of this profile
_LEAST = "work"


def rules_for(client: Client, config: ConfigDocument) -> list[str]:
    """Return the client's names of the read-only tools that the server lists; ``config`` has its entry."""
    if client.permissions is None:
        return []
    load_tools()
    entry = find_server(client, config) or {}
    profiles = [_LEAST, *(profile for profile in PROFILES if profile in entry_words(entry))]
    names: dict[str, None] = {}
    for profile in profiles:
        names |= {listed_name(tool, profile): None for tool in listed_tools(profile) if not tool.writes}
    return client.permissions.rules(names)


def present_rules(client: Client, document: ConfigDocument) -> list[str]:
    """Return the rules of a file that allow read-only tools of the hub, in the file's order."""
    permissions = client.permissions
    if permissions is None or permissions.is_whole_file or not _has_list(client, permissions, document):
        return []
    load_tools()
    names = [name for tool in all_tools() if not tool.writes for name in _all_names(tool)]
    return [rule for rule, _ in _allowed(client, permissions, document, set(permissions.rules(names)))]


def put_rules(client: Client, document: ConfigDocument, rules: Sequence[str]) -> ConfigDocument:
    """Return the document with the rules; a tool that the user has a rule for keeps that.

    Raises:
        Invalid: the client's list has another type.
    """
    permissions = client.permissions
    if permissions is None:
        return document
    container = _container(client, permissions, document)
    added = [rule for rule in rules if rule not in _tools_with_rules(permissions, container)]
    if not added:
        return document
    if permissions.is_in_entry:
        return _put_in_entry(client, permissions, document, added)
    place = permissions.keys
    if not container:
        return document.put(place, _extended(permissions, container, added))
    for rule in added:
        key = rule if isinstance(container, dict) else len(document.at(place, []))
        document = document.put((*place, key), permissions.item(rule))
    return document


def take_rules(client: Client, document: ConfigDocument, original: ConfigDocument | None) -> ConfigDocument:
    """Return the document without the hub's rules; those of the original stay."""
    permissions = client.permissions
    if permissions is None or permissions.is_in_entry or permissions.is_whole_file:
        return document
    removed = set(present_rules(client, document))
    if original:
        removed -= set(present_rules(client, original))
    for _, place in reversed(list(_allowed(client, permissions, document, removed))):
        document = remove_value(document, place, original)
    return document


def _all_names(tool: Tool) -> tuple[str, ...]:
    return (tool.name, *tool.other_names)


# Whether the document is the file in which the client has its list
def _has_list(client: Client, permissions: Permissions, document: ConfigDocument) -> bool:
    if not permissions.user:
        return is_file_of(document, (*client.user, *client.repository))
    return is_file_of(document, (*permissions.user, permissions.repository))


def _place(client: Client, permissions: Permissions, document: ConfigDocument) -> Place:
    if permissions.is_in_entry:
        return (*server_place(client, document), *permissions.keys)
    return permissions.keys


def _container(client: Client, permissions: Permissions, document: ConfigDocument) -> list[Any] | dict[str, Any]:
    place = _place(client, permissions, document)
    if permissions.value is None or permissions.name:
        entries: list[Any] = document.at(place, [])
        return entries
    table: dict[str, Any] = document.at(place, {})
    return table


def _extended(permissions: Permissions, container: list[Any] | dict[str, Any], rules: Sequence[str]) -> Any:
    if isinstance(container, dict):
        return container | {rule: permissions.item(rule) for rule in rules}
    return container + [permissions.item(rule) for rule in rules]


# A table of TOML is written as a whole
def _put_in_entry(
    client: Client, permissions: Permissions, document: ConfigDocument, rules: Sequence[str]
) -> ConfigDocument:
    (key,) = permissions.keys
    entry = find_server(client, document)
    if entry is None:
        raise Invalid(f"{document.path} has no entry of the hub whose tools could be allowed")
    container = _container(client, permissions, document)
    return document.put(server_place(client, document), {**entry, key: _extended(permissions, container, rules)})


def _tools_with_rules(permissions: Permissions, container: list[Any] | dict[str, Any]) -> set[str]:
    if not permissions.name:
        return {item for item in container if isinstance(item, str)}
    return {str(item.get(permissions.name)) for item in container if isinstance(item, dict)}


def _allowed(
    client: Client, permissions: Permissions, document: ConfigDocument, rules: Collection[str]
) -> Iterator[tuple[str, Place]]:
    try:
        container = _container(client, permissions, document)
    except HubError:
        return  # the user's own, such as one word for all tools
    items = container.items() if isinstance(container, dict) else enumerate(container)
    place = _place(client, permissions, document)
    for key, item in items:
        rule = key if isinstance(key, str) else item
        if permissions.name and isinstance(item, dict):
            rule = item.get(permissions.name)
        if isinstance(rule, str) and rule in rules and item == permissions.item(rule):
            yield rule, (*place, key)
