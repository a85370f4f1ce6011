"""Memories as text for models: one line per hit, with its evidence."""

from __future__ import annotations

import json
from typing import Any

from memories.kinds import number_defaults
from memories.models import EndType, MemoryScope, ReviewState
from memories.references import proposed_text, reference
from memories.schemas import WriteResult, WriteStatus
from memories.schemas.links import LinkStatus, RelationResult, TagResult, TagsChanged
from memoryhub.core import clock
from memoryhub.core.kinds import DEFAULT_KIND, KINDS, type_name
from memoryhub.core.text import as_name, counted, flat, hanging, indented


def tag_line(tag: dict[str, Any]) -> str:
    if "category" not in tag:
        return as_name(tag["name"])
    where = f"{tag['category']}, predefined" if tag["predefined"] else tag["category"]
    on = counted(tag["memories"], "memory", "memories")
    on += " and the project" if tag["on_project"] else ""
    described = f": {tag['description']}" if tag["description"] else ""
    return flat(f"{as_name(tag['name'])} ({where}) {on}{described}")


def tag_text(tag: TagResult) -> str:
    redacted = f" (redacted before storing: {', '.join(tag.redacted)})" if tag.redacted else ""
    return f"described #{tag.id} {tag_line(tag.model_dump())}{redacted}"


def tags_changed_text(result: TagsChanged, verb: str) -> str:
    where = f"project {result.title}" if result.type is EndType.PROJECT else f"{_named(result)} {result.title}"
    now = f"[{', '.join(result.tags)}]" + ("" if result.version is None else f" v{result.version}")
    redacted = f" (redacted before storing: {', '.join(result.redacted)})" if result.redacted else ""
    if result.status is WriteStatus.UNCHANGED:
        return flat(f"{where} is unchanged: {now}")
    return flat(f"{verb} {', '.join(result.changed)}: {where} {now}{redacted}")


def _named(result: TagsChanged) -> str:
    return reference({"id": result.id, "scope": result.scope})


def end_text(end: dict[str, Any], scope: str) -> str:
    title = f" {end['title']}" if "title" in end else ""
    if end["type"] == EndType.PROJECT:
        return f"{scope}{title}"
    kind = end.get("kind") or end["type"]
    what = "" if kind in (DEFAULT_KIND, EndType.MEMORY) else f"{kind} "
    deleted = " (deleted)" if end.get("deleted") else ""
    return f"{what}{reference({'id': end['id'], 'scope': scope})}{title}{deleted}"


def relation_line(relation: dict[str, Any]) -> str:
    scope = relation["scope"]
    ends = f"{end_text(relation['source'], scope)} {relation['relation']} {end_text(relation['target'], scope)}"
    origin = f", {clock.day(relation['created_at'])} by {relation['actor']}" if "actor" in relation else ""
    return flat(f"{reference(relation)} {ends}{origin}")


def related_line(relation: dict[str, Any], memory_id: int) -> str:
    source, target = (end_text(relation[end], relation["scope"]) for end in ("source", "target"))
    is_source = relation["source"]["id"] == memory_id
    text = f"→ {relation['relation']} {target}" if is_source else f"← {source} {relation['relation']} this"
    return flat(f"{text} (relation #{relation['id']})")


def relation_text(result: RelationResult) -> str:
    verbs = {LinkStatus.CREATED: "related", LinkStatus.KEPT: "existed already", LinkStatus.DELETED: "deleted"}
    return f"{verbs[result.status]}: {relation_line(result.model_dump(mode='json'))}"


def warnings(item: dict[str, Any]) -> str:
    """Return the reasons to distrust an item: quarantined, deleted, expired, superseded or disputed."""
    reasons = [
        item.get("quarantine", ""),
        "deleted" if item.get("deleted_at") else "",
        _reviewed(item),
        "expired" if item.get("expired") else "",
        *(f"conflict #{conflict} open" for conflict in item.get("conflicts", [])),
        *(f"superseded by #{successor}" for successor in item.get("superseded_by", [])),
    ]
    text = ", ".join(filter(None, reasons))
    return f" ({text})" if text else ""


def _reviewed(item: dict[str, Any]) -> str:
    if item.get("review", ReviewState.ACCEPTED) == ReviewState.ACCEPTED:
        return ""
    if item["review"] == ReviewState.REJECTED:
        return f"rejected: {item['review_reason']}" if item["review_reason"] else "rejected"
    return proposed_text(item["accepted_version"])


def _what(item: dict[str, Any]) -> str:
    return type_name(item.get("kind", ""), item["type"])


def memory_line(memory: dict[str, Any]) -> str:
    if "content" not in memory:
        return flat(f"{reference(memory)} {memory['title']}")
    tags = f" [{', '.join(memory['tags'])}]" if memory["tags"] else ""
    head = f"{reference(memory)} {_what(memory)} {clock.day(memory['updated_at'])}"
    return flat(f"{head} {memory['title']}{tags}{warnings(memory)}")


def hit_line(hit: dict[str, Any]) -> str:
    """Return ``#id kind date session title (warnings): snippet``."""
    if "snippet" not in hit:
        return flat(f"{reference(hit)} {hit['title']}")
    what = _what(hit) or hit["source"]
    session = f" session={hit['session_id']}" if hit["session_id"] else ""
    note = f" ({hit['note']})" if hit["note"] else ""
    snippet = "" if hit["snippet"] in ("", hit["title"]) else f": {hit['snippet']}"
    head = f"{reference(hit)} {what} {clock.day(hit['created_at'])}{session}"
    return flat(f"{head} {hit['title']}{warnings(hit)}{note}{snippet}")


# Title and content are indented: only the answer's own lines begin at the margin, so stored text cannot pose as one
# (decision 33)
def memory_text(memory: dict[str, Any]) -> str:
    """Return a whole memory, with its relations and history if the caller asked for them."""
    tags = f" tags={','.join(memory['tags'])}" if memory["tags"] else ""
    topic = f" topic={memory['topic_key']}" if memory["topic_key"] else ""
    source = f" source={memory['source']}" if memory["source"] else ""
    session = f" session={memory['session_id']}" if memory["session_id"] else ""
    head = (
        f"{reference(memory)} {_what(memory)} v{memory['version']} {clock.minute(memory['updated_at'])} "
        f"by {memory['author'] or 'unknown'}{session}{topic}{tags}{source}{warnings(memory)}"
    )
    usual = number_defaults(memory["kind"])
    attributes = {name: value for name, value in memory["attributes"].items() if value != usual.get(name)}
    fields = [f"{name}: {hanging(_shown(value))}" for name, value in attributes.items()]
    related = [related_line(relation, memory["id"]) for relation in memory.get("relations", [])]
    history = [version_text(version) for version in memory.get("versions", [])]
    used = [use_line(memory["use"])] if "use" in memory else []
    text = [indented(flat(memory["title"])), indented(memory["content"])]
    return "\n".join([flat(head), *text, *fields, *used, *related, *history])


def use_line(use: dict[str, Any]) -> str:
    counts = ", ".join(f"{name} {use[name]}" for name in ("given", "found", "fetched", "cited", "updated"))
    last = f", last used {clock.minute(use['last_used_at'])}" if use["last_used_at"] else ""
    return f"use: {counts}{last}{' (ignored)' if use['ignored'] else ''}"


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def version_text(version: dict[str, Any]) -> str:
    changed = f"\n{indented(version['diff'])}" if version["diff"] else ""
    return f"{version_line(version)}{changed}"


def version_line(version: dict[str, Any]) -> str:
    reason = f": {version['reason']}" if version["reason"] else ""
    beside = f" beside v{version['conflicts_with']}" if version["conflicts_with"] else ""
    head = (
        f"v{version['version']} {clock.minute(version['created_at'])} by {version['actor']} event #{version['event']}"
    )
    return flat(f"{head}{beside}{reason}")


def write_text(result: WriteResult) -> str:
    redacted = f" (redacted before storing: {', '.join(result.redacted)})" if result.redacted else ""
    outcome = result.status.line.format(**result.model_dump())
    similar = "".join(f"; #{memory.id} is nearly the same: {memory.title}" for memory in result.similar)
    scope = "" if result.scope is MemoryScope.PROJECT else f" (scope {result.scope})"
    return flat(f"{outcome}{scope}{redacted}{similar}{_review_note(result)}").rstrip()


def _review_note(result: WriteResult) -> str:
    if result.review is ReviewState.ACCEPTED or result.status in (WriteStatus.DELETED, WriteStatus.ERASED):
        return ""
    if result.review is ReviewState.REJECTED:
        why = f": {result.review_reason}" if result.review_reason else ""
        return f"; a reviewer has rejected it{why}"
    until = f"; v{result.accepted_version} stays in effect until then" if result.accepted_version else ""
    return f"; proposed: a person will review it{until}"


def entry_line(item: dict[str, Any]) -> str:
    if "content" not in item:
        return memory_line(item)
    kind = KINDS[item["kind"]]
    default = kind.shapes["priority"].default if kind.order == "priority" else None
    priority = "" if default is None else f" priority {item['attributes'].get('priority', default)}"
    text = "" if item["content"] in ("", item["title"]) else f": {item['content']}"
    return flat(f"{memory_line(item)}{priority}{text}")
