"""Tags: predefined, described and merely used ones, and where they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from django.db.models import Count, F, Q, QuerySet

from memories import scopes
from memories.models import Memory, MemoryTag, Tag
from memories.present import tag_line
from memories.schemas.links import TagList, TagView
from memories.vocabulary import FREE, PREDEFINED
from memoryhub.core.errors import NotFound
from memoryhub.core.log.quarantine import outside_quarantine
from memoryhub.core.origin import current_origin
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.schemas import Listing
from memoryhub.core.search.retrieval import retrieval
from memoryhub.core.stores import rows
from memoryhub.core.tools import MAX_SUGGESTIONS
from sessions_app.selectors import profile

_ID_DIGITS = 16
_LATELY = 1_000
"""So many memories are looked through for their types, which have no index."""
_LAST_CHARACTER = "\U0010ffff"
_WANTED = MAX_SUGGESTIONS + 1


def suggest_ids(typed: str) -> list[str]:
    """Return ids of memories that begin with ``typed``, the newest first."""
    return ids_among(Memory.objects.live(), typed)


def ids_among(entities: QuerySet[Any], typed: str) -> list[str]:
    """Return the ids of these entities that begin with ``typed``, the newest first."""
    begun = typed.strip().removeprefix("#")
    if begun and not (begun.isascii() and begun.isdigit() and len(begun) <= _ID_DIGITS):
        return []
    # A plain id to order by would make SQLite walk the whole table in its order, and leave the ranges aside.
    newest = (F("id") + 0).desc() if begun else "-id"
    found = entities.filter(_ids_from(begun)).order_by(newest).values_list("id", flat=True)
    return [str(number) for number in found[:_WANTED]]


def suggest_tags(typed: str) -> list[str]:
    """Return tags for the last of a list separated by commas, the most used first, each with the list before it."""
    before, comma, last = typed.rpartition(",")
    begun = last.strip().lower()
    matching = MemoryTag.objects.filter(tag__gte=begun, tag__lt=begun + _LAST_CHARACTER)
    told = outside_quarantine(matching, "memory_id")
    counted = told.values_list("tag").annotate(uses=Count("memory_id")).order_by("-uses", "tag")
    return [f"{before}{comma}{tag}" for tag, _ in counted[:_WANTED]]


def suggest_types(typed: str) -> list[str]:
    """Return the types of what was changed lately that begin with ``typed``, the most used first."""
    lately = Memory.objects.live().order_by("-updated_at", "-id").values_list("type", flat=True)
    counts = Counter(lately[:_LATELY])
    begun = typed.strip().lower()
    return [name for name, _ in counts.most_common() if name.startswith(begun)][:_WANTED]


def _ids_from(begun: str) -> Q:
    """Return the ranges of ids that begin with these digits: 41, 410 to 419, 4100 to 4199, and so on."""
    ranges = Q(id__gt=0) if not begun else Q(id__in=[])
    for digits in range(_ID_DIGITS - len(begun) + 1 if begun else 0):
        least = int(begun) * 10**digits
        ranges |= Q(id__range=(least, least + 10**digits - 1))
    return ranges


_USES = (
    "SELECT tag, count(*) FROM memories_memorytag WHERE memory_id NOT IN ("
    "SELECT id FROM memories_memory WHERE deleted_at IS NOT NULL UNION ALL SELECT id FROM quarantine UNION ALL "
    "SELECT id FROM memories_memory WHERE scope = 'session' AND session_id <> %s) GROUP BY tag"
)
"""Looks up the few that do not count, in indexes, and not the many that do."""


def list_tags(*, command: TagList) -> Listing:
    """Return a page of tags by name; counts are of the memories that hold here."""
    with retrieval("list", command), scopes.reading(command.scope):
        matching = [tag for tag in view_tags() if _matches(tag, command)]
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
    """Return the names of tags, each given by its name or by the id under which it was described.

    Raises:
        NotFound: no tag was described under that id.
    """
    known = _names_of(each for each in tags if isinstance(each, int))
    missing = [each for each in tags if isinstance(each, int) and each not in known]
    if missing:
        raise NotFound(f"there is no described tag #{missing[0]} here; give the tag's name, tag_list shows them")
    return list(dict.fromkeys(known[each] if isinstance(each, int) else each for each in tags))


def _names_of(ids: Iterable[int]) -> dict[int, str]:
    wanted = list(ids)
    return dict(Tag.objects.filter(id__in=wanted).values_list("id", "name")) if wanted else {}
