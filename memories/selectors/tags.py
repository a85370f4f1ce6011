"""Tags: predefined, described and merely used ones, and where they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from memories import scopes
from memories.models import Tag
from memories.present_links import tag_line
from memories.schemas.links import TagList, TagView
from memories.vocabulary import FREE, PREDEFINED
from memoryhub.core import rows
from memoryhub.core.errors import NotFound
from memoryhub.core.origin import current_origin
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.retrieval import retrieval
from memoryhub.core.schemas import Listing
from sessions_app.profile import profile

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
