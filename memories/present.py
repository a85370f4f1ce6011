"""Memories as text for a model: one line a hit, everything that is evidence, nothing that is not."""

from __future__ import annotations

import json
from typing import Any

from memories.ends import proposed_text, reference
from memories.models import MemoryScope, ReviewState
from memories.present_links import related_line
from memories.schemas import WriteResult, WriteStatus
from memoryhub.core.kinds import type_name
from memoryhub.core.wording import flat, hanging, indented


def warnings(item: dict[str, Any]) -> str:
    """Return what to know before relying on an item: put aside, deleted, expired, superseded or disputed."""
    said = [
        item.get("quarantine", ""),
        "deleted" if item.get("deleted_at") else "",
        _reviewed(item),
        "expired" if item.get("expired") else "",
        *(f"conflict #{each} open" for each in item.get("conflicts", [])),
        *(f"superseded by #{each}" for each in item.get("superseded_by", [])),
    ]
    told = ", ".join(filter(None, said))
    return f" ({told})" if told else ""


def _reviewed(item: dict[str, Any]) -> str:
    """Return how an item stands that a person has not accepted."""
    if item.get("review", ReviewState.ACCEPTED) == ReviewState.ACCEPTED:
        return ""
    if item["review"] == ReviewState.REJECTED:
        return f"rejected: {item['review_reason']}" if item["review_reason"] else "rejected"
    return proposed_text(item["accepted_version"])


def _what(item: dict[str, Any]) -> str:
    return type_name(item.get("kind", ""), item["type"])


def memory_line(memory: dict[str, Any]) -> str:
    """Return a listed memory as one line."""
    if "content" not in memory:
        return flat(f"{reference(memory)} {memory['title']}")
    tags = f" [{', '.join(memory['tags'])}]" if memory["tags"] else ""
    head = f"{reference(memory)} {_what(memory)} {memory['updated_at'][:10]}"
    return flat(f"{head} {memory['title']}{tags}{warnings(memory)}")


def hit_line(hit: dict[str, Any]) -> str:
    """Return a search hit as one line: id, what it is, date, title, and the words that matched."""
    if "snippet" not in hit:
        return flat(f"{reference(hit)} {hit['title']}")
    what = _what(hit) or hit["source"]
    session = f" session={hit['session_id']}" if hit["session_id"] else ""
    note = f" ({hit['note']})" if hit["note"] else ""
    shown = "" if hit["snippet"] in ("", hit["title"]) else f": {hit['snippet']}"
    head = f"{reference(hit)} {what} {hit['created_at'][:10]}{session}"
    return flat(f"{head} {hit['title']}{warnings(hit)}{note}{shown}")


def memory_text(memory: dict[str, Any]) -> str:
    """Return a whole memory: a head line with its evidence, its text, and its relations and history if asked for.

    Title and content are indented: only the answer's own lines begin at the margin.
    """
    tags = f" tags={','.join(memory['tags'])}" if memory["tags"] else ""
    topic = f" topic={memory['topic_key']}" if memory["topic_key"] else ""
    source = f" source={memory['source']}" if memory["source"] else ""
    session = f" session={memory['session_id']}" if memory["session_id"] else ""
    head = (
        f"{reference(memory)} {_what(memory)} v{memory['version']} {memory['updated_at'][:16]} "
        f"by {memory['author'] or 'unknown'}{session}{topic}{tags}{source}{warnings(memory)}"
    )
    own = [f"{name}: {hanging(_shown(value))}" for name, value in memory["attributes"].items()]
    related = [related_line(relation, memory["id"]) for relation in memory.get("relations", [])]
    history = [version_text(version) for version in memory.get("versions", [])]
    used = [use_line(memory["use"])] if "use" in memory else []
    text = [indented(flat(memory["title"])), indented(memory["content"])]
    return "\n".join([flat(head), *text, *own, *used, *related, *history])


def use_line(use: dict[str, Any]) -> str:
    """Return what became of a memory as one line."""
    counts = ", ".join(f"{name} {use[name]}" for name in ("given", "found", "fetched", "cited", "updated"))
    last = f", last used {use['last_used_at'][:16]}" if use["last_used_at"] else ""
    return f"use: {counts}{last}{' (ignored)' if use['ignored'] else ''}"


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def version_text(version: dict[str, Any]) -> str:
    """Return one version with what it changed."""
    changed = f"\n{indented(version['diff'])}" if version["diff"] else ""
    return f"{version_line(version)}{changed}"


def version_line(version: dict[str, Any]) -> str:
    """Return one version as one line, with the event that is its evidence."""
    reason = f": {version['reason']}" if version["reason"] else ""
    beside = f" beside v{version['conflicts_with']}" if version["conflicts_with"] else ""
    head = f"v{version['version']} {version['created_at'][:16]} by {version['actor']} event #{version['event']}"
    return flat(f"{head}{beside}{reason}")


_SAID = {
    WriteStatus.CREATED: "created #{id}",
    WriteStatus.UPDATED: "updated #{id} to v{version}",
    WriteStatus.SEEN: "#{id} has this text already; counted it",
    WriteStatus.KEPT: "kept #{id} as it is",
    WriteStatus.UNCHANGED: "#{id} is unchanged at v{version}",
    WriteStatus.DELETED: "deleted #{id} {title}; memory_restore brings it back",
    WriteStatus.RESTORED: "restored #{id}",
    WriteStatus.ERASED: "erased #{id} for good",
    WriteStatus.CONFLICT: "kept as v{version} of #{id}, beside a version that you had not seen: conflict #{conflict} "
    "is open, settle it with memory_conflict_resolve;",
}


def write_text(result: WriteResult) -> str:
    """Return what a write did as one line, with what was redacted."""
    redacted = f" (redacted before keeping: {', '.join(result.redacted)})" if result.redacted else ""
    said = _SAID[result.status].format(**result.model_dump())
    similar = "".join(f"; #{each.id} says nearly the same: {each.title}" for each in result.similar)
    scope = "" if result.scope is MemoryScope.PROJECT else f" (scope {result.scope})"
    title = "" if result.status is WriteStatus.DELETED else f" {result.title}"
    return flat(f"{said}{title}{scope}{redacted}{similar}{_standing(result)}").rstrip()


def _standing(result: WriteResult) -> str:
    """Return what a person has to do with what was written, if anything."""
    if result.review is ReviewState.ACCEPTED or result.status in (WriteStatus.DELETED, WriteStatus.ERASED):
        return ""
    if result.review is ReviewState.REJECTED:
        why = f": {result.review_reason}" if result.review_reason else ""
        return f"; a person has rejected it{why}"
    until = f"; v{result.accepted_version} holds until then" if result.accepted_version else ""
    return f"; proposed: a person will review it{until}"
