from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, F, Max, Q, QuerySet

from memories import scopes
from memories.models import PROJECT, Memory, MemoryTag, ReviewState, Tag
from memories.present import tag_line
from memories.references import end_id, require_ends
from memories.schemas.links import EntryType, TagList, TagView
from memories.selectors.memories import find_memory
from memories.vocabulary import FREE, PREDEFINED
from memoryhub.core.errors import NotFound
from memoryhub.core.log.quarantine import outside_quarantine
from memoryhub.core.origin import current_origin
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.schemas import Listing
from memoryhub.core.search.retrieval import retrieval
from memoryhub.core.stores import rows
from memoryhub.core.stores.lookups import begins_with
from memoryhub.core.text import flat
from memoryhub.core.tools import MAX_SUGGESTIONS
from sessions_app.selectors import profile

_ID_DIGITS = 16
# Memories whose types are counted; types have no index
_LATELY = 1_000
_WANTED = MAX_SUGGESTIONS + 1


def suggest_ids(typed: str) -> list[str]:
    """Return ids of memories that begin with ``typed``, newest first."""
    return ids_among(Memory.objects.live(), typed)


def ids_among(entities: QuerySet[Any], typed: str) -> list[str]:
    """Return ids of the entities that begin with ``typed``, newest first."""
    prefix = typed.strip().removeprefix("#")
    if prefix and not (prefix.isascii() and prefix.isdigit() and len(prefix) <= _ID_DIGITS):
        return []
    # Ordered by a plain id, SQLite would scan the table in that order instead of using the ranges
    newest = (F("id") + 0).desc() if prefix else "-id"
    found = entities.filter(_ids_from(prefix)).order_by(newest).values_list("id", flat=True)
    return [str(number) for number in found[:_WANTED]]


def suggest_tags(typed: str) -> list[str]:
    """Return completions of the last tag in a comma-separated list, most used first, with the tags before it."""
    before, comma, last = typed.rpartition(",")
    prefix = last.strip().lower()
    matching = MemoryTag.objects.filter(begins_with("tag", prefix))
    visible = outside_quarantine(matching, "memory_id")
    counted = visible.values_list("tag").annotate(uses=Count("memory_id")).order_by("-uses", "tag")
    return [f"{before}{comma}{tag}" for tag, _ in counted[:_WANTED]]


def suggest_types(typed: str) -> list[str]:
    """Return types of recently changed memories that begin with ``typed``, most used first."""
    lately = Memory.objects.live().order_by("-updated_at", "-id").values_list("type", flat=True)
    counts = Counter(lately[:_LATELY])
    prefix = typed.strip().lower()
    return [name for name, _ in counts.most_common() if name.startswith(prefix)][:_WANTED]


# Ranges of ids that begin with these digits: 41, 410 to 419, 4100 to 4199, …
def _ids_from(prefix: str) -> Q:
    ranges = Q(id__gt=0) if not prefix else Q(id__in=[])
    for digits in range(_ID_DIGITS - len(prefix) + 1 if prefix else 0):
        least = int(prefix) * 10**digits
        ranges |= Q(id__range=(least, least + 10**digits - 1))
    return ranges


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
        wanted = None if command.id is None else _tags_of(command.id, command.entry_type)
        matching = [tag for tag in view_tags() if _matches(tag, command) and (wanted is None or tag.name in wanted)]
        after = decode_cursor(command.cursor, (str,))
        following = [tag for tag in matching if after is None or tag.name > after[0]]
        return page(
            [_shown(tag, compact=command.compact) for tag in following[: command.limit]],
            total=len(matching),
            more=len(following) > command.limit,
            cursor_of=lambda item: encode_cursor(item["name"]),
            line=tag_line,
            max_tokens=command.max_tokens,
        )


def _tags_of(given: str, entry_type: EntryType | None) -> set[str]:
    target = end_id("id", given, entry_type)
    if target == PROJECT:
        return set(profile().tags)
    memory = find_memory(target)
    require_ends(("id", target, entry_type))
    return {flat(tag) for tag in memory.tags}


def _matches(tag: TagView, command: TagList) -> bool:
    return (
        tag.name.startswith(command.prefix)
        and command.category in (None, tag.category)
        and not (command.used and not tag.memories and not tag.on_project)
    )


def _shown(tag: TagView, *, compact: bool) -> dict[str, Any]:
    return {"name": tag.name} if compact else tag.model_dump(mode="json")


def view_tags() -> list[TagView]:
    """Return every tag of the current store, by name."""
    uses: dict[str, int] = dict(rows.fetch(_USES, [current_origin().session_id]))
    described = {tag.name: tag for tag in Tag.objects.all()}
    of_project = set(profile().tags)
    names = sorted({*PREDEFINED, *described, *uses, *of_project})
    return [_view(name, described.get(name), uses.get(name, 0), on_project=name in of_project) for name in names]


@dataclass(frozen=True, slots=True)
class TagUse:
    """The live memories with a tag: how many of each kind, most first, and when the last one changed."""

    name: str
    kinds: dict[str, int]
    used_at: datetime

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
        use = uses.get(tag)
        uses[tag] = TagUse(tag, {**(use.kinds if use else {}), kind: total}, max(last, use.used_at) if use else last)
    return sorted(uses.values(), key=lambda use: (-use.memories, use.name))


def _view(name: str, described: Tag | None, memories: int, *, on_project: bool) -> TagView:
    return TagView(
        id=described.id if described else None,
        name=name,
        category=described.category if described else PREDEFINED.get(name, FREE),
        description=described.description if described else "",
        predefined=name in PREDEFINED,
        memories=memories,
        on_project=on_project,
    )


def tag_names(tags: Sequence[int | str]) -> list[str]:
    """Return the names of tags that are given by name or by id.

    Raises:
        NotFound: no tag has such an id.
    """
    names = _names_of(tag for tag in tags if isinstance(tag, int))
    missing = [tag for tag in tags if isinstance(tag, int) and tag not in names]
    if missing:
        raise NotFound(f"there is no described tag #{missing[0]} here; give its name; tag_list shows all")
    return list(dict.fromkeys(names[tag] if isinstance(tag, int) else tag for tag in tags))


def _names_of(ids: Iterable[int]) -> dict[int, str]:
    wanted = list(ids)
    return dict(Tag.objects.filter(id__in=wanted).values_list("id", "name")) if wanted else {}
