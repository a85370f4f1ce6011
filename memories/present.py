"""Memories as text for a model: one line a hit, everything that is evidence, nothing that is not."""

from __future__ import annotations

from typing import Any

from memories.schemas import WriteResult, WriteStatus


def memory_line(memory: dict[str, Any]) -> str:
    """Return a listed memory as one line."""
    if "content" not in memory:
        return f"#{memory['id']} {memory['title']}"
    tags = f" [{', '.join(memory['tags'])}]" if memory["tags"] else ""
    deleted = " (deleted)" if memory["deleted_at"] else ""
    return f"#{memory['id']} {memory['type']} {memory['updated_at'][:10]} {memory['title']}{tags}{deleted}"


def hit_line(hit: dict[str, Any]) -> str:
    """Return a search hit as one line: id, what it is, date, title, and the words that matched."""
    if "snippet" not in hit:
        return f"#{hit['id']} {hit['title']}"
    what = hit["type"] or hit["source"]
    session = f" session={hit['session_id']}" if hit["session_id"] else ""
    shown = "" if hit["snippet"] in ("", hit["title"]) else f": {hit['snippet']}"
    return f"#{hit['id']} {what} {hit['created_at'][:10]}{session} {hit['title']}{shown}"


def memory_text(memory: dict[str, Any]) -> str:
    """Return a whole memory: a head line with its evidence, then its text, then its history if asked for."""
    tags = f" tags={','.join(memory['tags'])}" if memory["tags"] else ""
    topic = f" topic={memory['topic_key']}" if memory["topic_key"] else ""
    source = f" source={memory['source']}" if memory["source"] else ""
    session = f" session={memory['session_id']}" if memory["session_id"] else ""
    deleted = f" DELETED {memory['deleted_at'][:16]}" if memory["deleted_at"] else ""
    head = (
        f"#{memory['id']} {memory['type']} v{memory['version']} {memory['updated_at'][:16]} "
        f"by {memory['author'] or 'unknown'}{session}{topic}{tags}{source}{deleted}"
    )
    history = [version_line(version) for version in memory.get("versions", [])]
    return "\n".join([head, memory["title"], memory["content"], *history])


def version_line(version: dict[str, Any]) -> str:
    """Return one version as one line, with the event that is its evidence."""
    reason = f": {version['reason']}" if version["reason"] else ""
    return f"v{version['version']} {version['created_at'][:16]} by {version['actor']} event #{version['event']}{reason}"


_SAID = {
    WriteStatus.CREATED: "created #{id}",
    WriteStatus.UPDATED: "updated #{id} to v{version}",
    WriteStatus.SEEN: "#{id} has this text already; counted it",
    WriteStatus.KEPT: "kept #{id} as it is",
    WriteStatus.UNCHANGED: "#{id} is unchanged at v{version}",
    WriteStatus.DELETED: "deleted #{id}; memory_restore brings it back",
    WriteStatus.RESTORED: "restored #{id}",
}


def write_text(result: WriteResult) -> str:
    """Return what a write did as one line, with what was redacted."""
    redacted = f" (redacted before keeping: {', '.join(result.redacted)})" if result.redacted else ""
    return f"{_SAID[result.status].format(id=result.id, version=result.version)} {result.title}{redacted}"
