"""Take text out of the events of hooks that wait in the spool for the current project.

They are not in the log yet, so erasing there leaves them: the hub would capture the text later.
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
from memoryhub.core.spool import Kept
from memoryhub.core.stores.store import Scope, StoreId, current_store, use_store
from sessions_app.hook_parser import parse_hook, project_of

Cleaner = Callable[[Any], tuple[Any, list[str]]]
"""Takes JSON data; returns a copy of it without some text, and what was taken out."""


@dataclass(slots=True)
class Spooled:
    """What was found in the spool."""

    lines: list[str] = field(default_factory=list)
    """What is left of each line that holds something."""
    texts: list[str] = field(default_factory=list)
    """What is taken out, find by find."""


@cache
def hook_names() -> frozenset[str]:
    """Return the keys by which clients' events are read: names, and not text of anybody's."""
    paths: set[str] = set()
    for hooks in hook_clients().values():
        paths |= {hooks.session, hooks.directory, hooks.tool, hooks.call, hooks.input}
        paths.update(place for hook in hooks.events.values() for place in hook.places())
    return frozenset(part for path in paths for part in path.split("."))


def find_spooled(clean: Cleaner) -> Spooled:
    """Return what a cleaner would take out of the lines for the current project; changes nothing."""
    found = Spooled()
    if current_store().scope is Scope.PROJECT:
        for line in spool.each_line():
            _clean(line, clean, found)
    return found


@contextmanager
def cleaning() -> Iterator[Callable[[Cleaner], Spooled]]:
    """Keep the hub from taking events inside the block; yields what takes text out of those that wait.

    Each event stays, without the text. Hooks may append at the same time. Begin this before a transaction of a store,
    as the hub does: two processes that took the two locks in a different order would wait for each other.

    Raises:
        Locked: the hub takes events from the spool for long.
    """
    if current_store().scope is not Scope.PROJECT or not spool.folder().exists():
        yield lambda _: Spooled()
        return
    store = current_store()
    with spool.taking():
        yield lambda clean: _cleaned(clean, store)


def _cleaned(clean: Cleaner, store: StoreId) -> Spooled:
    found = Spooled()
    with use_store(store):
        spool.rewrite(lambda line: _clean(line, clean, found))
    return found


def _clean(line: str, clean: Cleaner, found: Spooled) -> str:
    """Return what is left of a line, and note what was taken out."""
    left, texts = _left_of(line, clean)
    if not texts:
        return line
    found.lines.append(left)
    found.texts += texts
    return left


def _left_of(line: str, clean: Cleaner) -> tuple[str, list[str]]:
    """Return what is left of a line: of an event, of one that was set aside with a reason, or of no JSON at all."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return clean(line)
    if isinstance(data, dict) and isinstance(data.get("line"), str) and "reason" in data:
        return _set_aside(data, line, clean)
    try:
        return _of_event(spool.parsed(line), line, clean)
    except (ValueError, TypeError):
        left, texts = clean(data)
        return json.dumps(left, ensure_ascii=False), texts


def _set_aside(data: Mapping[str, Any], line: str, clean: Cleaner) -> tuple[str, list[str]]:
    inner, texts = _left_of(data["line"], clean)
    reason, more = clean(data["reason"]) if _is_ours(data["line"]) else (data["reason"], [])
    if not texts and not more:
        return line, []
    return json.dumps({**data, "line": inner, "reason": reason}, ensure_ascii=False), [*texts, *more]


def _of_event(kept: Kept, line: str, clean: Cleaner) -> tuple[str, list[str]]:
    payload, texts = clean(kept.payload)
    owner = _owner(kept) if texts else ""
    if not texts or owner not in ("", current_store().name):
        return line, []
    # The project is named now: the folder that named it may be part of what was taken out.
    return spool.line_of(replace(kept, payload=payload, project=owner or kept.project)), texts


def _is_ours(line: str) -> bool:
    try:
        return _owner(spool.parsed(line)) in ("", current_store().name)
    except (ValueError, TypeError, RecursionError):
        return True


def _owner(kept: Kept) -> str:
    """Return the project that an event waits for; "" where none can be told, and any project may clean the event."""
    try:
        return project_of(parse_hook(client=kept.client, event=kept.event, told=kept.payload), kept.project)
    except HubError:
        return ""
