"""Memories by id, name or filter, and their tags."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import Count, F, Max, Q, QuerySet

from memories import scopes
from memories.events import filled
from memories.kinds import number_defaults
from memories.models import PROJECT, Memory, MemoryQuerySet, MemoryScope, MemoryTag, ReviewState, Tag
from memories.present import memory_line, tag_line
from memories.references import end_id, require_ends
from memories.schemas import MemoryGet, MemoryList, MemoryView
from memories.schemas.links import FREE, PREDEFINED, TagList, TagView
from memories.search.snippets import snippet
from memories.selectors.relations import relations_of
from memories.selectors.versions import open_conflicts, versions_of
from memories.superseded import superseded_by
from memories.uses.events import Use
from memories.uses.notes import note_read
from memories.uses.selectors import uses_of
from memories.validity.anchoring import anchor_names
from memories.validity.checks import checked_at
from memories.validity.selectors import ids_with_mark, marks_of
from memories.validity.trust import trusts_of
from memoryhub.core import clock
from memoryhub.core.entities import not_found
from memoryhub.core.errors import Gone, Invalid, NotFound
from memoryhub.core.log.quarantine import outside_quarantine, quarantine_marks
from memoryhub.core.log.read import as_parameter
from memoryhub.core.origin import current_origin
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.schemas import Listing, Paging
from memoryhub.core.search import retrieval
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, begins_with
from memoryhub.core.stores.store import use_store
from memoryhub.core.text import flat
from memoryhub.core.tools import MAX_SUGGESTIONS
from sessions_app.selectors import profile

_DERIVED = {
    "memory_type",
    "attributes",
    "related_chunks",
    "expired",
    "conflicts",
    "superseded_by",
    "anchors",
    "marks",
    "checked_at",
    "quarantine",
}
_STORED = [name for name in MemoryView.model_fields if name not in _DERIVED]
# Parts of a memory that callers can ask for
_PARTS: dict[str, Callable[[list[int]], dict[int, Any]]] = {
    "versions": versions_of,
    "relations": relations_of,
    "use": uses_of,
}


def find_memory(memory_id: int) -> Memory:
    """Return the memory, deleted or not.

    Raises:
        NotFound: there is no such memory.
        Gone: it was permanently erased.
    """
    memory: Memory | None = Memory.objects.filter(id=memory_id).first()
    if memory is None:
        raise not_found("memory", [memory_id], id=memory_id)
    return memory


def views(memories: Sequence[Memory]) -> list[dict[str, Any]]:
    """Return memories of the current store as JSON data."""
    ids = [memory.id for memory in memories]
    conflicts = open_conflicts(ids)
    successors = superseded_by(ids)
    aside = quarantine_marks(ids)
    anchors = anchor_names(ids)
    marks = marks_of(ids)
    checked = checked_at(memories)
    now = clock.now()
    viewed = []
    for memory in memories:
        viewed.append(
            MemoryView(
                **{name: getattr(memory, name) for name in _STORED},
                memory_type=memory.type,
                attributes={**number_defaults(memory.kind), **memory.attributes},
                related_chunks=memory.attributes.get("related_chunks", []),
                expired=memory.valid_until is not None and memory.valid_until <= now,
                conflicts=conflicts.get(memory.id, []),
                superseded_by=successors.get(memory.id, []),
                anchors=anchors.get(memory.id, []),
                marks=[mark.data() for mark in marks.get(memory.id, ())],
                checked_at=checked.get(memory.id),
                quarantine=aside.get(memory.id, ""),
            ).model_dump(mode="json")
        )
    return viewed


def get_memories(*, command: MemoryGet) -> list[dict[str, Any]]:
    """Return memories by id, in the given order, or the nearest one with a title or topic.

    Raises:
        NotFound: one of them does not exist; the message has its id.
        Gone: one of them was permanently erased, or is deleted, and ``include_deleted`` is off.
    """
    with retrieval("get", command):
        if not command.ids:
            return _by_name(command)
        with scopes.reading(command.scope or MemoryScope.PROJECT):
            memories = Memory.objects.in_bulk(command.ids)
            missing = [memory_id for memory_id in command.ids if memory_id not in memories]
            if missing:
                raise not_found("memory", missing)
            return _whole([memories[memory_id] for memory_id in command.ids], command)


def _whole(memories: list[Memory], command: MemoryGet) -> list[dict[str, Any]]:
    gone = [memory.id for memory in memories if memory.deleted_at]
    if gone and not command.include_deleted:
        listed = ", ".join(f"#{memory_id}" for memory_id in gone)
        raise Gone(f"memory {listed} is deleted; restore it, or pass include_deleted to read it", ids=gone)
    items = views(memories)
    ids = [memory.id for memory in memories]
    trusts = trusts_of(ids)
    for item in items:
        if item["review"] == ReviewState.ACCEPTED and item["id"] in trusts:
            item["acceptance"] = trusts[item["id"]].text
    for name, read in _PARTS.items():
        if getattr(command, name):
            parts = read(ids)
            for item in items:
                item[name] = parts[item["id"]]
    note_read(Use.FETCHED, ids)
    return items


def _by_name(command: MemoryGet) -> list[dict[str, Any]]:
    if not command.name:
        raise Invalid("give either ids or name")
    chain = scopes.levels(command.scope, inherit=command.inherit)
    for condition_on in (_same_name, _same_letters):
        for level in chain:
            with use_store(level.store):
                memory = _named(condition_on(command.name), level, command)
                if memory:
                    return _whole([memory], command)
    raise NotFound(f"there is no memory titled {command.name[:200]!r} here; search for its words instead")


def _same_name(name: str) -> Q:
    return Q(title=name) | Q(topic_key=name)


# In Python, because SQLite compares only the letters of ASCII without regard to case
def _same_letters(name: str) -> Q:
    folded = name.casefold()
    titles = Memory.objects.values_list("id", "title").iterator()
    return Q(id__in=as_parameter(IDS, [entity for entity, title in titles if title.casefold() == folded]))


# Memories of the session win over those of the project, then the last changed one
def _named(condition: Q, level: scopes.Level, command: MemoryGet) -> Memory | None:
    candidates = Memory.objects.filter(condition)
    if level.scopes == (MemoryScope.SESSION,):
        candidates = candidates.filter(scope=MemoryScope.SESSION)
    candidates = candidates.of_session(level.session_id)
    if command.kind:
        candidates = candidates.filter(kind=command.kind)
    candidates = candidates.live(include_deleted=command.include_deleted)
    matches: list[Memory] = list(candidates.order_by("-updated_at", "-id"))
    return min(matches, key=lambda memory: memory.scope != MemoryScope.SESSION, default=None)


def list_memories(*, command: MemoryList) -> Listing:
    """Return a page of memories, last changed first; the cursor neither skips nor repeats."""
    with retrieval("list", command), scopes.reading(command.scope or MemoryScope.PROJECT):
        return page_by_change(filtered(command), command, listed, newest_first=True)


def page_by_change(
    matching: MemoryQuerySet,
    command: Paging,
    view: Callable[[Sequence[Memory]], list[dict[str, Any]]],
    *,
    newest_first: bool,
) -> Listing:
    """Return the page of memories that follows the cursor, in the order of their last change."""
    sign = ""
    comparison = "gt"
    if newest_first:
        sign = "-"
        comparison = "lt"
    following = matching
    last = decode_cursor(command.cursor, (str, int))
    if last:
        later = matching.filter(**{f"updated_at__{comparison}": last[0]})
        following = later | matching.filter(updated_at=last[0], **{f"id__{comparison}": last[1]})
    memories = list(following.order_by(f"{sign}updated_at", f"{sign}id")[: command.limit + 1])
    on_page = memories[: command.limit]
    cursors = {memory.id: encode_cursor(memory.updated_at.isoformat(), memory.id) for memory in on_page}
    return page(
        [{"id": memory.id, "title": memory.title} for memory in on_page] if command.compact else view(on_page),
        total=matching.count(),
        more=len(memories) > command.limit,
        cursor_of=lambda item: cursors[item["id"]],
        line=memory_line,
        max_tokens=command.max_tokens,
    )


def filtered(command: MemoryList) -> MemoryQuerySet:
    """Return the memories of the current store that are visible and match the filters."""
    conditions = {
        "kind": command.kind,
        "type": command.type,
        "scope": command.scope if command.scope is MemoryScope.SESSION else None,
        "session_id": command.session_id,
        "created_at__gte": command.since,
        "created_at__lt": command.until,
    }
    memories: MemoryQuerySet = Memory.objects.filter(**filled(**conditions))
    memories = memories.live(include_deleted=command.include_deleted)
    if command.mark:
        memories = memories.filter(id__in=as_parameter(IDS, ids_with_mark(command.mark)))
    return memories.of_session(command.session_id or current_origin().session_id).tagged(*command.tags)


def listed(memories: Sequence[Memory]) -> list[dict[str, Any]]:
    """Return memories for a list, with snippets instead of texts."""
    return [{**memory, "content": snippet(memory["content"], [])} for memory in views(memories)]


def count_by_type() -> dict[str, int]:
    """Return the number of live memories by type."""
    return dict(Memory.objects.live().values_list("type").annotate(Count("id")).order_by("type"))


_ID_DIGITS = 16
# Memories whose types are counted; types have no index
_LATELY = 1_000
_AT_MOST = MAX_SUGGESTIONS + 1


def suggest_ids(typed: str) -> list[str]:
    """Return ids of memories that begin with ``typed``, newest first."""
    return ids_among(Memory.objects.live(), typed)


def ids_among(entities: QuerySet[Any], typed: str) -> list[str]:
    """Return ids of the entities that begin with ``typed``, newest first."""
    prefix = typed.strip().removeprefix("#")
    newest = entities.order_by("-id")
    if prefix:
        if not (prefix.isascii() and prefix.isdigit() and len(prefix) <= _ID_DIGITS):
            return []
        ranges = Q(id__in=[])  # of ids that begin with these digits: 41, 410 to 419, 4100 to 4199, …
        for digits in range(_ID_DIGITS - len(prefix) + 1):
            least = int(prefix) * 10**digits
            ranges |= Q(id__range=(least, least + 10**digits - 1))
        # Ordered by a plain id, SQLite would scan the table in that order instead of using the ranges
        newest = entities.filter(ranges).order_by((F("id") + 0).desc())
    return [str(number) for number in newest.values_list("id", flat=True)[:_AT_MOST]]


def suggest_tags(typed: str) -> list[str]:
    """Return completions of the last tag in a comma-separated list, most used first, with the tags before it."""
    before, comma, last = typed.rpartition(",")
    prefix = last.strip().lower()
    matching = MemoryTag.objects.filter(begins_with("tag", prefix))
    visible = outside_quarantine(matching, "memory_id")
    counted = visible.values_list("tag").annotate(uses=Count("memory_id")).order_by("-uses", "tag")
    return [f"{before}{comma}{tag}" for tag, _ in counted[:_AT_MOST]]


def suggest_types(typed: str) -> list[str]:
    """Return types of recently changed memories that begin with ``typed``, most used first."""
    lately = Memory.objects.live().order_by("-updated_at", "-id").values_list("type", flat=True)
    counts = Counter(lately[:_LATELY])
    prefix = typed.strip().lower()
    return [name for name, _ in counts.most_common() if name.startswith(prefix)][:_AT_MOST]


# Subtracts the few memories that do not count, through their indexes, instead of testing all
_USES = (
    "SELECT tag, count(*) FROM memories_memorytag WHERE memory_id NOT IN ("
    "SELECT id FROM memories_memory WHERE deleted_at IS NOT NULL UNION ALL SELECT id FROM quarantine UNION ALL "
    "SELECT id FROM memories_memory WHERE scope = 'session' AND session_id <> %s) GROUP BY tag"
)


def list_tags(*, command: TagList) -> Listing:
    """Return a page of tags by name, with the number of visible memories.

    Raises:
        NotFound, Gone, Invalid: ``id`` names no memory here, an erased one, or something without tags.
    """
    with retrieval("list", command), scopes.reading(command.scope):
        matching = [tag for tag in view_tags() if _matches(tag, command)]
        if command.id is not None:
            target = end_id("id", command.id, command.entry_type)
            if target == PROJECT:
                names = set(profile().tags)
            else:
                names = set(map(flat, find_memory(target).tags))
                require_ends(("id", target, command.entry_type))
            matching = [tag for tag in matching if tag.name in names]
        after = decode_cursor(command.cursor, (str,)) or ("",)
        following = [tag for tag in matching if tag.name > after[0]]
        fields = {"name"} if command.compact else None
        return page(
            [tag.model_dump(mode="json", include=fields) for tag in following[: command.limit]],
            total=len(matching),
            more=len(following) > command.limit,
            cursor_of=lambda item: encode_cursor(item["name"]),
            line=tag_line,
            max_tokens=command.max_tokens,
        )


def _matches(tag: TagView, command: TagList) -> bool:
    return (
        tag.name.startswith(command.prefix)
        and command.category in (None, tag.category)
        and not (command.used and not tag.memories and not tag.on_project)
    )


def view_tags() -> list[TagView]:
    """Return every tag of the current store, by name."""
    uses: dict[str, int] = dict(rows.fetch(_USES, [current_origin().session_id]))
    described = Tag.objects.in_bulk(field_name="name")
    of_project = set(profile().tags)
    tags = []
    for name in sorted({*PREDEFINED, *described, *uses, *of_project}):
        tag = described.get(name) or Tag(category=PREDEFINED.get(name, FREE))
        tags.append(
            TagView(
                id=tag.id,
                name=name,
                category=tag.category,
                description=tag.description,
                predefined=name in PREDEFINED,
                memories=uses.get(name, 0),
                on_project=name in of_project,
            )
        )
    return tags


@dataclass(slots=True)
class TagUse:
    """The live memories with a tag: how many of each kind, most first, and when the last one changed."""

    name: str
    used_at: datetime
    kinds: dict[str, int] = field(default_factory=dict)

    @property
    def memories(self) -> int:
        return sum(self.kinds.values())


def tags_in_use() -> list[TagUse]:
    """Return the tags of live memories, most used first."""
    # Through the join: a subquery of the live memories takes 1.4 times as long
    live = MemoryTag.objects.filter(memory__deleted_at__isnull=True).exclude(memory__review=ReviewState.REJECTED)
    counted = outside_quarantine(live, "memory_id").values_list("tag", "memory__kind")
    counted = counted.annotate(total=Count("memory_id"), last=Max("memory__updated_at"))
    uses: dict[str, TagUse] = {}
    for tag, kind, total, last in counted.order_by("tag", "-total", "memory__kind"):
        use = uses.setdefault(tag, TagUse(tag, last))
        use.kinds[kind] = total
        use.used_at = max(last, use.used_at)
    return sorted(uses.values(), key=lambda use: (-use.memories, use.name))


def tag_names(tags: Sequence[int | str]) -> list[str]:
    """Return the names of tags that are given by name or by id.

    Raises:
        NotFound: no tag has such an id.
    """
    ids = [tag for tag in tags if isinstance(tag, int)]
    names = dict(Tag.objects.filter(id__in=ids).values_list("id", "name"))
    missing = [tag_id for tag_id in ids if tag_id not in names]
    if missing:
        raise NotFound(f"there is no described tag #{missing[0]} here; give its name; tag_list shows all")
    return list(dict.fromkeys(names.get(tag, tag) for tag in tags))
