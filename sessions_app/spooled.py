"""Remove text from the hook events that are spooled for the current project.

They are not in the log yet: erasing only there would leave text that the hub captures later.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from memoryhub.config.clients import hook_clients
from memoryhub.core import spool
from memoryhub.core.errors import HubError
from memoryhub.core.session_places import ROOT_KEY
from memoryhub.core.spool import SpooledEvent
from memoryhub.core.stores.store import Scope, StoreId, current_store, use_store
from sessions_app.hook_parser import owner_of, parse_hook

# Takes JSON data; returns a copy without some text, and the texts that were removed.
Cleaner = Callable[[Any], tuple[Any, list[str]]]


@dataclass(slots=True)
class Spooled:
    # The cleaned lines.
    lines: list[str] = field(default_factory=list)
    # The removed texts.
    texts: list[str] = field(default_factory=list)


@cache
def hook_names() -> frozenset[str]:
    """Return the JSON keys by which hook events are parsed; they are names, not user text."""
    paths = {ROOT_KEY}
    for hooks in hook_clients().values():
        paths |= {hooks.session, hooks.directory, hooks.tool, hooks.call, hooks.input, hooks.start}
        for hook in hooks.events.values():
            paths.update(hook.paths())
    return frozenset(".".join(paths).split("."))


def find_spooled(clean: Cleaner) -> Spooled:
    """Return what ``clean`` would remove from the project's spooled events; changes nothing."""
    spooled = Spooled()
    if current_store().scope is Scope.PROJECT:
        for line in spool.each_line():
            _clean(line, clean, spooled)
    return spooled


# Lock order: the spool before a store's transaction, as in the hub. The opposite order could deadlock.
@contextmanager
def cleaning() -> Iterator[Callable[[Cleaner], Spooled]]:
    """Stop the hub from draining the spool inside the block; yields the function that cleans the events.

    Hooks may append meanwhile.

    Raises:
        Locked: the hub holds the spool for too long.
    """
    if current_store().scope is not Scope.PROJECT or not spool.folder().exists():
        yield lambda _: Spooled()
        return
    store = current_store()
    with spool.taking():
        yield lambda clean: _cleaned(clean, store)


def _cleaned(clean: Cleaner, store: StoreId) -> Spooled:
    spooled = Spooled()
    with use_store(store):
        spool.rewrite(lambda line: _clean(line, clean, spooled))
    return spooled


def _clean(line: str, clean: Cleaner, spooled: Spooled) -> str:
    cleaned_line, texts = _left_of(line, clean)
    if not texts:
        return line
    spooled.lines.append(cleaned_line)
    spooled.texts += texts
    return cleaned_line


# A line is an event, a broken line with the reason for which it was set aside, or no JSON at all.
def _left_of(line: str, clean: Cleaner) -> tuple[str, list[str]]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return clean(line)
    if isinstance(data, dict) and isinstance(data.get("line"), str) and "reason" in data:
        return _set_aside(data, line, clean)
    try:
        return _of_event(spool.parsed(line), line, clean)
    except (ValueError, TypeError):
        cleaned, texts = clean(data)
        return json.dumps(cleaned, ensure_ascii=False), texts


def _set_aside(data: Mapping[str, Any], line: str, clean: Cleaner) -> tuple[str, list[str]]:
    inner, texts = _left_of(data["line"], clean)
    reason, more = clean(data["reason"]) if _is_ours(data["line"]) else (data["reason"], [])
    if not texts and not more:
        return line, []
    return json.dumps({**data, "line": inner, "reason": reason}, ensure_ascii=False), [*texts, *more]


def _of_event(event: SpooledEvent, line: str, clean: Cleaner) -> tuple[str, list[str]]:
    payload, texts = clean(event.payload)
    owner = _owner(event) if texts else ""
    if not texts or owner not in ("", current_store().name):
        return line, []
    # Name the project: the folder that identified it may be part of the removed text.
    return spool.line_of(replace(event, payload=payload, project=owner or event.project)), texts


def _is_ours(line: str) -> bool:
    try:
        return _owner(spool.parsed(line)) in ("", current_store().name)
    except (ValueError, TypeError, RecursionError):
        return True


# "" if the project is unknown: then every project may clean the event.
def _owner(event: SpooledEvent) -> str:
    try:
        parsed = parse_hook(client=event.client, event=event.event, data=event.payload)
        return owner_of(parsed, client=event.client, project=event.project)
    except HubError:
        return ""
