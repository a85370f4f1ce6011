"""Memories as text for models: one line per hit, with its evidence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from memories.kinds import number_defaults
from memories.models import AmendmentKind, EndType, MemoryScope, ReviewState
from memories.schemas import WriteResult, WriteStatus
from memories.schemas.links import LinkStatus, RelationResult, TagResult, TagsChanged
from memories.schemas.validity import AmendedEntry
from memories.validity.marks import MarkKind
from memoryhub.core import clock
from memoryhub.core.kinds import DEFAULT_KIND, KINDS, type_name
from memoryhub.core.text import as_data, as_name, counted, flat, hanging, indented
from memoryhub.core.tools import Answer


def reference(item: dict[str, Any]) -> str:
    """Return ``#412``, with the scope in front unless it is the project."""
    scope = item.get("scope", MemoryScope.PROJECT)
    return f"#{item['id']}" if scope == MemoryScope.PROJECT else f"{scope}#{item['id']}"


def clause(prefix: str, value: object, suffix: str = "") -> str:
    """Return the value between prefix and suffix; "" without a value."""
    return f"{prefix}{value}{suffix}" if value else ""


def proposed_text(accepted_version: int | None) -> str:
    return f"proposed; v{accepted_version} is in effect" if accepted_version else "proposed"


def tag_line(tag: dict[str, Any]) -> str:
    if "category" not in tag:
        return as_name(tag["name"])
    category = f"{tag['category']}, predefined" if tag["predefined"] else tag["category"]
    uses = counted(tag["memories"], "memory", "memories")
    if tag["on_project"]:
        uses += " and the project"
    return flat(f"{as_name(tag['name'])} ({category}) {uses}{clause(': ', tag['description'])}")


def tag_text(tag: TagResult) -> str:
    return f"described #{tag.id} {tag_line(tag.model_dump())}{_redactions(tag.redacted)}"


def _redactions(kinds: list[str]) -> str:
    return clause(" (redacted before storing: ", ", ".join(kinds), ")")


def tags_changed_text(result: TagsChanged, verb: str) -> str:
    owner = "project"
    if result.type is not EndType.PROJECT:
        owner = reference({"id": result.id, "scope": result.scope})
    tags = f"[{', '.join(result.tags)}]{clause(' v', result.version)}"
    if result.status is WriteStatus.UNCHANGED:
        return flat(f"{owner} {result.title} is unchanged: {tags}")
    changed = ", ".join(result.changed)
    return flat(f"{verb} {changed}: {owner} {result.title} {tags}{_redactions(result.redacted)}")


def end_text(end: dict[str, Any], scope: str) -> str:
    title = f" {as_data(end['title'])}" if "title" in end else ""
    if end["type"] == EndType.PROJECT:
        return f"{scope}{title}"
    kind = end.get("kind") or end["type"]
    deleted = " (deleted)" if end.get("deleted") else ""
    text = f"{reference({'id': end['id'], 'scope': scope})}{title}{deleted}"
    word = KINDS[kind].word if kind in KINDS else ""
    return text if EndType.MEMORY in (kind, word) else f"{kind} {text}"


def relation_line(relation: dict[str, Any]) -> str:
    scope = relation["scope"]
    ends = f"{end_text(relation['source'], scope)} {relation['relation']} {end_text(relation['target'], scope)}"
    origin = f", {clock.day(relation['created_at'])} by {relation['actor']}" if "actor" in relation else ""
    return flat(f"{reference(relation)} {ends}{origin}")


def amendment_line(amendment: dict[str, Any]) -> str:
    if "newer" not in amendment:
        return flat(f"{reference(amendment)} {as_data(amendment['title'])}")
    newer, older = (end_text(amendment[name], amendment["scope"]) for name in ("newer", "older"))
    doubt = "" if amendment["certain"] else " (not certain)"
    verb = AmendmentKind(amendment["kind"]).label.lower()
    return flat(f"{newer} {verb} {older}{doubt}, {clock.day(amendment['created_at'])}")


def relation_text(result: RelationResult) -> str:
    verbs = {LinkStatus.CREATED: "related", LinkStatus.KEPT: "existed already", LinkStatus.DELETED: "deleted"}
    return f"{verbs[result.status]}: {relation_line(result.model_dump(mode='json'))}"


def warnings(item: dict[str, Any]) -> str:
    """Return the reasons to distrust an item in parentheses."""
    return clause(" (", ", ".join(doubts(item)), ")")


def doubts(item: dict[str, Any]) -> list[str]:
    """Return the reasons to distrust an item: quarantined, deleted, expired, superseded, disputed or marked."""
    review = ""
    if item.get("review") == ReviewState.REJECTED:
        review = f"rejected{clause(': ', as_data(item['review_reason']))}"
    elif item.get("review") == ReviewState.PROPOSED:
        review = proposed_text(item["accepted_version"])
    reasons = [
        item.get("quarantine", ""),
        "deleted" if item.get("deleted_at") else "",
        review,
        "expired" if item.get("expired") else "",
        *(f"conflict #{conflict} open" for conflict in item.get("conflicts", [])),
        *(f"superseded by #{successor}" for successor in item.get("superseded_by", [])),
        *(mark["text"] for mark in item.get("marks", [])),
    ]
    return list(filter(None, reasons))


def _type_name(item: dict[str, Any]) -> str:
    return as_data(type_name(item.get("kind", ""), item["type"]))


def memory_line(memory: dict[str, Any]) -> str:
    if "content" not in memory:
        return flat(f"{reference(memory)} {as_data(memory['title'])}")
    tags = clause(" [", as_data(", ".join(memory["tags"])), "]")
    head = f"{reference(memory)} {_type_name(memory)} {clock.day(memory['updated_at'])}"
    return flat(f"{head} {as_data(memory['title'])}{tags}{warnings(memory)}")


def without_repetition(title: str, text: str) -> tuple[str, str]:
    """Return title and text of a line: the longer one as the title if one is the beginning of the other.

    Titles are often the first line of their text, cut with an ellipsis if it is long.
    """
    flat_title, flat_text = " ".join(title.split()), " ".join(text.split())
    if _begins_with(flat_text, flat_title):
        return text, ""
    if _begins_with(flat_title, flat_text):
        return title, ""
    return title, text


def _begins_with(text: str, beginning: str) -> bool:
    whole = beginning.removesuffix("…").rstrip()
    if not whole or not text.startswith(whole):
        return False
    # Not inside a word, unless that was cut
    return beginning.endswith("…") or not text[len(whole) : len(whole) + 1].isalnum()


def hit_line(hit: dict[str, Any]) -> str:
    """Return ``#id kind date session title (warnings): snippet``."""
    if "snippet" not in hit:
        return flat(f"{reference(hit)} {as_data(hit['title'])}")
    type_of = _type_name(hit) or hit["source"]
    session = clause(" session=", as_data(hit["session_id"]))
    title, snippet = without_repetition(hit["title"], hit["snippet"])
    head = f"{reference(hit)} {type_of} {clock.day(hit['created_at'])}{session}"
    note = clause(" (", hit["note"], ")")
    return flat(f"{head} {as_data(title)}{warnings(hit)}{note}{clause(': ', as_data(snippet))}")


# Title and content are indented: only the answer's own lines begin at the margin, so stored text cannot pose as one
# (decision 33)
def memory_text(memory: dict[str, Any]) -> str:
    """Return a whole memory, with its relations and history if the caller asked for them."""
    is_named = memory["kind"] == DEFAULT_KIND or not KINDS[memory["kind"]].word
    context = (
        clause(" kind=", "" if is_named else memory["kind"])
        + clause(" session=", memory["session_id"])
        + clause(" topic=", memory["topic_key"])
        + clause(" tags=", ",".join(memory["tags"]))
        + clause(" source=", memory["source"])
    )
    head = (
        f"{reference(memory)} {_type_name(memory)} v{memory['version']} {clock.minute(memory['updated_at'])} "
        f"by {_author(memory)}{_acceptance(memory)}{as_data(context)}{warnings(memory)}"
    )
    if memory.get("checked_at"):
        head += f" (checked {clock.day(memory['checked_at'])})"
    lines = [flat(head), indented(flat(memory["title"])), indented(memory["content"])]
    defaults = number_defaults(memory["kind"])
    for name, value in memory["attributes"].items():
        if value != defaults.get(name):
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            lines.append(f"{name}: {hanging(text)}")
    if memory["anchors"]:
        lines.append(flat(f"code: {', '.join(memory['anchors'])}"))
    if "use" in memory:
        use = memory["use"]
        counts = ", ".join(f"{name} {use[name]}" for name in ("given", "found", "fetched", "cited", "updated"))
        last = f", last used {clock.minute(use['last_used_at'])}" if use["last_used_at"] else ""
        lines.append(f"use: {counts}{last}{' (ignored)' if use['ignored'] else ''}")
    for relation in memory.get("relations", []):
        text = f"← {end_text(relation['source'], relation['scope'])} {relation['relation']} this"
        if relation["source"]["id"] == memory["id"]:
            text = f"→ {relation['relation']} {end_text(relation['target'], relation['scope'])}"
        lines.append(flat(f"{text} (relation #{relation['id']})"))
    lines += [version_text(version) for version in memory.get("versions", [])]
    return "\n".join(lines)


# A mark tells where it comes from, too
def _acceptance(memory: dict[str, Any]) -> str:
    is_marked = any(mark["kind"] == MarkKind.ORIGIN for mark in memory.get("marks", []))
    return "" if is_marked else clause(", ", memory.get("acceptance"))


# Quoted if it could be read as more than a name
def _author(memory: dict[str, Any]) -> str:
    name = as_data(memory["author"]) or "unknown"
    return f"'{name}'" if "," in name else name


def version_text(version: dict[str, Any]) -> str:
    return version_line(version) + clause("\n", indented(version["diff"]))


def version_line(version: dict[str, Any]) -> str:
    head = (
        f"v{version['version']} {clock.minute(version['created_at'])} by {as_data(version['actor'])} "
        f"event #{version['event']}"
    )
    return flat(head + clause(" beside v", version["conflicts_with"]) + clause(": ", as_data(version["reason"])))


def amended_text(entries: Sequence[AmendedEntry]) -> str:
    """Return what a new entry seems to amend or contradict as a clause; "" if there is nothing."""
    verbs = {AmendmentKind.AMENDS: "amend", AmendmentKind.CONTRADICTS: "contradict"}
    listed = ", ".join(f"{verbs[entry.kind]} #{entry.id} {as_data(entry.title)}" for entry in entries)
    return clause("it seems to ", listed)


def written(result: WriteResult) -> Answer:
    """Return what a write did as the answer of a tool."""
    outcome = result.status.line.format(**{**result.model_dump(), "title": as_data(result.title)})
    similar = "".join(f"; #{memory.id} is nearly the same: {as_data(memory.title)}" for memory in result.similar)
    amended = clause("; ", amended_text(result.amendments), "; memory_update or supersede it")
    scope = "" if result.scope is MemoryScope.PROJECT else f" (scope {result.scope})"
    review = ""
    if result.status not in (WriteStatus.DELETED, WriteStatus.ERASED):
        if result.review is ReviewState.REJECTED:
            review = f"; a reviewer has rejected it{clause(': ', result.review_reason)}"
        elif result.review is ReviewState.PROPOSED:
            until = clause("; v", result.accepted_version, " stays in effect until then")
            review = f"; proposed: a person will review it{until}"
    text = flat(f"{outcome}{scope}{_redactions(result.redacted)}{similar}{amended}{review}").rstrip()
    return Answer(text, result.model_dump(mode="json"))


def entry_line(item: dict[str, Any]) -> str:
    if "content" not in item:
        return memory_line(item)
    kind = KINDS[item["kind"]]
    priority = ""
    if kind.order == "priority":
        priority = f" priority {item['attributes'].get('priority', kind.shapes['priority'].default)}"
    title, text = without_repetition(item["title"], item["content"])
    return flat(f"{memory_line({**item, 'title': title})}{priority}{clause(': ', as_data(text))}")
