"""Tags and relations as text for a model: a line each."""

from __future__ import annotations

from typing import Any

from memories.ends import reference
from memories.models import EndType
from memories.schemas import WriteStatus
from memories.schemas.links import LinkStatus, RelationResult, TagResult, TagsChanged
from memoryhub.core.kinds import DEFAULT_KIND
from memoryhub.core.wording import as_name, counted, flat


def tag_line(tag: dict[str, Any]) -> str:
    """Return a tag as one line: name, category, on how many memories, what it marks."""
    if "category" not in tag:
        return as_name(tag["name"])
    where = f"{tag['category']}, predefined" if tag["predefined"] else tag["category"]
    on = counted(tag["memories"], "memory", "memories")
    on += " and the project" if tag["on_project"] else ""
    described = f": {tag['description']}" if tag["description"] else ""
    return flat(f"{as_name(tag['name'])} ({where}) {on}{described}")


def tag_text(tag: TagResult) -> str:
    """Return what describing a tag did."""
    redacted = f" (redacted before keeping: {', '.join(tag.redacted)})" if tag.redacted else ""
    return f"described #{tag.id} {tag_line(tag.model_dump())}{redacted}"


def tags_changed_text(result: TagsChanged, verb: str) -> str:
    """Return what attaching or detaching did, and what is there now."""
    where = f"project {result.title}" if result.type is EndType.PROJECT else f"{_named(result)} {result.title}"
    now = f"[{', '.join(result.tags)}]" + ("" if result.version is None else f" v{result.version}")
    redacted = f" (redacted before keeping: {', '.join(result.redacted)})" if result.redacted else ""
    if result.status is WriteStatus.UNCHANGED:
        return flat(f"{where} is unchanged: {now}")
    return flat(f"{verb} {', '.join(result.changed)}: {where} {now}{redacted}")


def _named(result: TagsChanged) -> str:
    return reference({"id": result.id, "scope": result.scope})


def end_text(end: dict[str, Any], scope: str) -> str:
    """Return one end of a relation: what it is, its id and title."""
    title = f" {end['title']}" if "title" in end else ""
    if end["type"] == EndType.PROJECT:
        return f"{scope}{title}"
    kind = end.get("kind") or end["type"]
    what = "" if kind in (DEFAULT_KIND, EndType.MEMORY) else f"{kind} "
    deleted = " (deleted)" if end.get("deleted") else ""
    return f"{what}{reference({'id': end['id'], 'scope': scope})}{title}{deleted}"


def relation_line(relation: dict[str, Any]) -> str:
    """Return a relation as one line: its id, both ends, when, by whom."""
    scope = relation["scope"]
    said = f"{end_text(relation['source'], scope)} {relation['relation']} {end_text(relation['target'], scope)}"
    made = f", {relation['created_at'][:10]} by {relation['actor']}" if "actor" in relation else ""
    return flat(f"{reference(relation)} {said}{made}")


def related_line(relation: dict[str, Any], memory_id: int) -> str:
    """Return a relation as one line under one of its ends."""
    source, target = (end_text(relation[end], relation["scope"]) for end in ("source", "target"))
    is_source = relation["source"]["id"] == memory_id
    said = f"→ {relation['relation']} {target}" if is_source else f"← {source} {relation['relation']} this"
    return flat(f"{said} (relation #{relation['id']})")


def relation_text(result: RelationResult) -> str:
    """Return what making a relation, or taking one away, did."""
    said = {LinkStatus.CREATED: "related", LinkStatus.KEPT: "was there already", LinkStatus.DELETED: "took away"}
    return f"{said[result.status]}: {relation_line(result.model_dump(mode='json'))}"
