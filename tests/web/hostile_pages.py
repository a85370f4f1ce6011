"""Fill projects with hostile texts and print the address of every page of theirs, from the URL configuration.

Run by a test in the home of its server; the arguments are how many objects of each model to open, and names of
``tests.hostile.MARKUP``. Prints a line of JSON for
each text: its project, addresses, parameters that nothing fills, and an answer of ``decision_get``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import django

django.setup()

from django.apps import apps  # noqa: E402  (after setup)
from django.conf import settings  # noqa: E402
from django.urls import get_resolver  # noqa: E402
from django.urls.resolvers import URLResolver  # noqa: E402

from decisions import selectors  # noqa: E402
from decisions.schemas import DecisionGet  # noqa: E402
from memories.schemas import MemoryWrite  # noqa: E402
from memories.services import write_memory  # noqa: E402
from memoryhub.core.origin import use_origin  # noqa: E402
from memoryhub.core.stores.store import project_store, use_store  # noqa: E402
from tests.hostile import MARKUP, Hostile, fill  # noqa: E402

# Objects of a model whose pages are opened: the newest
_OBJECTS = int(sys.argv[1])
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


def values_of(place: str, name: str, ids: Hostile) -> list[Any]:
    """Return the values of a parameter of an address; none if the texts are not shown there."""
    entities = [ids.memory, ids.guideline, ids.tool, ids.knowledge, ids.decision, ids.later_decision]
    fixed: dict[str, list[Any]] = {
        "entity_id": entities[-_OBJECTS:],
        "memory_id": entities[: min(_OBJECTS, 4)],
        "version": [2],
        "relation": [ids.relation],
        "sha": ["0123abcd" * 5],
        "name": ["s-hostile"],
        "app_label": ["core", "sessions_app", "memories", "decisions", "governance"],
        "stream": [f"memory:{ids.memory}", f"decision:{ids.decision}"],
    }
    model = re.match(r"admin/(\w+)/(\w+)/", place)
    if name == "object_id" and model:
        objects = apps.get_model(model[1], model[2]).objects.order_by("-pk").values_list("pk", flat=True)[:_OBJECTS]
        # The newest memory is the wide one
        return [ids.memory, *objects[1:]] if model[2] == "memory" else list(objects)
    return fixed.get(name, [])


def addresses(text: str, ids: Hostile) -> tuple[list[str], set[str]]:
    pages, unfilled = [], set()
    for place in patterns(get_resolver(settings.STORE_URLCONF)):
        filled = [place]
        for name in _PARAMETER.findall(place):
            values = values_of(place, name, ids)
            # Not every model has objects then
            unfilled |= set() if values or name == "object_id" else {name}
            filled = [_PARAMETER.sub(quote(str(value)), address, count=1) for address in filled for value in values]
        pages += filled
        if "<" not in place and re.search(r"^admin/\w+/\w+/$|secrets/|blame/|pick/|as-of/|replay/", place):
            asked = dict.fromkeys(("q", "tag", "author", "session_id", "path", "part"), text)
            pages.append(f"{place}?{urlencode(asked)}")
    return pages, unfilled


for name in sys.argv[2:]:
    text, project = MARKUP[name], f"hostile-{name}"
    origin = use_origin(source="rest", actor=text[:190], session_id="s-hostile")
    with use_store(project_store(project), create=True), origin:
        ids = fill(text)
        write_memory(command=MemoryWrite(title="W" * 200, content="W" * 100_000, tags=["w" * 64]))
        pages, unfilled = addresses(text, ids)
        decision = selectors.get_decisions(command=DecisionGet(ids=[ids.later_decision], lineage=True))[0]
        line = {
            "project": project,
            "pages": [f"/p/{project}/{page}" for page in dict.fromkeys(pages)],
            "unfilled": sorted(unfilled),
            "decision": decision,
        }
    print(json.dumps(line, default=str), flush=True)
