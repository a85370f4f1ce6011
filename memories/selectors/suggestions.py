"""What the beginning of an id, a tag or a type may become."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.db.models import Count, F, Q, QuerySet

from memories.models import Memory, MemoryTag
from memoryhub.core.quarantine import outside_quarantine
from memoryhub.core.tools import MAX_SUGGESTIONS

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
