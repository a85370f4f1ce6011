"""The address of every page that may show a text, from the URL configuration, in projects full of hostile texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

from django.apps import apps
from django.conf import settings
from django.urls import get_resolver
from django.urls.resolvers import URLResolver

from decisions import selectors
from decisions.schemas import DecisionGet
from memories.models import Amendment
from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import project_store, use_store
from tests.hostile import MARKUP, Hostile, fill

# What no text of a project names, and what is there only after an import, a task or an operation
UNFILLED = {"batch_id", "task_id", "hold_id", "rollback_id", "tail", "number"}
HUB_PAGES = ("", "people", "tokens", "jobs", "new/project", "help/index.md", "api/v1/docs")
# Streams that never end, files, and what signs out
_LEFT_OUT = re.compile(r"live/|/export\.|logout|jsi18n|/r/|signin|<url>")
_NAMED = re.compile(r"\^?\(\?P<(\w+)>[^)]*\)")
_PARAMETER = re.compile(r"<(?:\w+:)?(\w+)>")


def patterns(resolver: Any, prefix: str = "") -> Iterator[str]:
    for pattern in resolver.url_patterns:
        place = prefix + _NAMED.sub(r"<\1>", str(pattern.pattern)).rstrip("$")
        if isinstance(pattern, URLResolver):
            yield from patterns(pattern, place)
        elif not place.startswith("^") and not _LEFT_OUT.search(place):
            yield place


def values_of(place: str, name: str, ids: Hostile, most: int) -> list[Any]:
    """Return the values of a parameter of an address; none if the texts are not shown there."""
    entities = [ids.memory, ids.guideline, ids.tool, ids.knowledge, ids.decision, ids.later_decision]
    fixed: dict[str, list[Any]] = {
        "entity_id": entities[-most:],
        "memory_id": entities[: min(most, 4)],
        "version": [2],
        "relation": [ids.relation],
        "amendment_id": list(Amendment.objects.order_by("-id").values_list("id", flat=True)[:most]),
        "sha": ["0123abcd" * 5],
        "name": ["s-hostile"],
        "app_label": ["core", "sessions_app", "memories", "decisions", "governance"],
        "stream": [f"memory:{ids.memory}", f"decision:{ids.decision}"],
    }
    model = re.match(r"admin/(\w+)/(\w+)/", place)
    if name == "object_id" and model:
        objects = apps.get_model(model[1], model[2]).objects.order_by("-pk").values_list("pk", flat=True)[:most]
        # The newest memory is the wide one
        return [ids.memory, *objects[1:]] if model[2] == "memory" else list(objects)
    return fixed.get(name, [])


def addresses(text: str, ids: Hostile, *, most: int = 1) -> tuple[list[str], set[str]]:
    """Return the addresses below a place, with the newest objects of each model, and parameters that nothing fills."""
    pages, unfilled = [], set()
    for place in patterns(get_resolver(settings.STORE_URLCONF)):
        filled = [place]
        for name in _PARAMETER.findall(place):
            values = values_of(place, name, ids, most)
            # Not every model has objects then
            unfilled |= set() if values or name == "object_id" else {name}
            filled = [_PARAMETER.sub(quote(str(value)), address, count=1) for address in filled for value in values]
        pages += filled
        if "<" not in place and re.search(r"^admin/\w+/\w+/$|secrets/|blame/|pick/|as-of/|replay/", place):
            asked = dict.fromkeys(("q", "tag", "author", "session_id", "path", "part"), text)
            pages.append(f"{place}?{urlencode(asked)}")
    return list(dict.fromkeys(pages)), unfilled


def print_filled(most: int, *names: str) -> None:
    """Fill a project for each text of ``MARKUP`` in the current home, and print a line of JSON about it."""
    for name in names:
        text, project = MARKUP[name], f"hostile-{name}"
        origin = use_origin(source="rest", actor=text[:190], session_id="s-hostile")
        with use_store(project_store(project), create=True), origin:
            ids = fill(text)
            write_memory(command=MemoryWrite(title="W" * 200, content="W" * 100_000, tags=["w" * 64]))
            pages, unfilled = addresses(text, ids, most=most)
            decision = selectors.get_decisions(command=DecisionGet(ids=[ids.later_decision], lineage=True))[0]
            line = {
                "pages": [f"/p/{project}/{page}" for page in pages],
                "unfilled": sorted(unfilled),
                "decision": decision,
            }
        print(json.dumps(line, default=str), flush=True)
