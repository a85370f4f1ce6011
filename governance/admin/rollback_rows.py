"""The rows of the roll-back pages: items with links and what is done to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.urls import reverse

from governance.retention.candidates import words_of
from governance.rollback.effects import groups
from governance.rollback.schemas import Group, RollbackPlan, Thing
from memoryhub.core.entities import Entity, find_entities
from memoryhub.core.events.rollback import effects
from memoryhub.core.models import RawEvent

_PAGES = {
    "memory": "memories_memory",
    "decision": "decisions_decision",
    "commit": "sessions_app_commit",
    "session": "sessions_app_session",
    "turn": "sessions_app_turn",
    "iteration": "sessions_app_iteration",
}
# Downstream groups whose items can be included one by one.
_ALSO = frozenset({"built_on", "influenced", "relations", "told_sessions"})
_DEEPEST = 6


def group_rows(groups: Iterable[Group], plan: RollbackPlan) -> list[dict[str, Any]]:
    return [_group(group, plan) for group in groups]


def _group(group: Group, plan: RollbackPlan) -> dict[str, Any]:
    derived = any(thing.how for thing in group.shown)
    field = ("also" if group.name in _ALSO else "") if derived else ("leave" if groups()[group.name].can_leave else "")
    marked = set(plan.also if derived else plan.leave)
    things = _as_tree(group.shown) if group.name == "built_on" else group.shown
    return {
        "group": group,
        "field": field,
        "more": group.count - len(group.shown),
        "rows": [
            {
                "thing": thing,
                "url": address(thing),
                "checked": thing.id in marked,
                "title": _title(thing),
                **_way(thing),
            }
            for thing in things
        ],
    }


def _title(thing: Thing) -> str:
    title = thing.title or thing.type
    is_name = thing.type == "relation" or title.startswith(f"{thing.type}.")
    return _as_words(title) if is_name else title


def _as_words(text: str, name: str = "") -> str:
    """Return the name of an event in words; with ``name``, only if the text is exactly that name."""
    return text.replace(".", " ").replace("_", " ") if not name or text == name else text


def _way(thing: Thing) -> dict[str, Any]:
    return {
        "type": thing.type.capitalize(),
        "level": min(max(thing.depth - 1, 0), _DEEPEST),
        "how": thing.how.replace("_", " "),
    }


def _as_tree(things: Sequence[Thing]) -> list[Thing]:
    """Return items in depth-first order: each follows the one that it depends on."""
    children: dict[int | None, list[Thing]] = {}
    for thing in things:
        children.setdefault(thing.via, []).append(thing)
    ids = {thing.id for thing in things}
    stack = [thing for thing in reversed(things) if thing.via not in ids]
    ordered: list[Thing] = []
    while stack:
        thing = stack.pop()
        ordered.append(thing)
        stack += reversed(children.get(thing.id, ()))
    return ordered


def address(thing: Thing) -> str:
    """Return the page of an item, or that of its event."""
    page = _PAGES.get(thing.type)
    if page and (thing.event == thing.id or thing.type in ("memory", "decision", "session")):
        return reverse(f"admin:{page}_change", args=[thing.id])
    return reverse("admin:core_rawevent_change", args=[thing.event])


def counts_text(counts: Mapping[str, int]) -> str:
    """Return the effects in words: ``3 quarantined, 1 deleted``."""
    return ", ".join(f"{count:,} {effects()[do].words}" for do, count in counts.items())


def selection_text(selection: Mapping[str, Any]) -> str:
    names = {"session_id": "session", "actor": "client", "source": "source", "since": "from", "until": "until"}
    parts = [f"{names[name]} {selection[name]}" for name in names if selection.get(name)]
    return ", ".join([*parts, *(["including people"] if selection.get("include_people") else [])])


def step_rows(steps: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    titled = _titled(steps)
    return [
        {**titled[index], "done": effects()[step["do"]].words, "change": _change(step), "name": step.get("name", "")}
        for index, step in enumerate(steps)
    ]


def left_rows(left: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    titled = _titled(left)
    return [
        {**titled[index], "why": item["why"], "name": _as_words(item.get("title", ""))}
        for index, item in enumerate(left)
    ]


def _titled(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    ids = {item["id"] for item in items if item.get("id")}
    known = find_entities(ids)
    events = RawEvent.objects.filter(position__in=ids - set(known))
    types = dict(events.values_list("position", "event_type"))
    words = words_of(list(types))
    return [_named(item.get("id", 0), known, types, words) for item in items]


def _named(
    thing: int, known: Mapping[int, Entity], types: Mapping[int, str], words: Mapping[int, str]
) -> dict[str, Any]:
    entity = known.get(thing)
    page = _PAGES.get(entity.type) if entity else None
    name, wanted = (f"admin:{page}_change", thing) if page else ("admin:core_rawevent_change", thing)
    url = reverse(name, args=[wanted]) if thing else ""
    kind = (entity.type if entity else types.get(thing, "")).partition(".")[0]
    return {
        "id": thing,
        "url": url,
        "title": entity.title if entity else _as_words(words.get(thing, ""), types.get(thing, "")),
        "type": kind,
        "label": kind.capitalize(),
    }


def _change(step: Mapping[str, Any]) -> str:
    if step.get("to_version"):
        return f"version {step['from_version']} → {step['to_version']}"
    if effects()[step["do"]].values:
        return f"{_value(step.get('before'))} → {_value(step.get('after'))}"
    return ""


def _value(value: Any) -> str:
    return "default" if value is None else str(value)[:120] or "empty"
