"""Two versions of a memory side by side, and their differences as HTML."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from memories.diff import DiffPart, Effort, compare
from memories.models import Memory
from memories.selectors import plain_versions_of
from memoryhub.core.admin import cells
from memoryhub.core.errors import NotFound
from memoryhub.core.kinds import KINDS

# A version as ``memories.selectors.plain_versions_of`` returns it.
Version = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Side:
    """One of two versions, with its differences marked."""

    version: Version
    title: SafeString
    text: SafeString
    fields: SafeString  # type, tags and attributes; empty if both are the same
    whole: str


def history_of(memory: Memory) -> list[Version]:
    """Return all versions of a memory, newest first; each has a type."""
    default = KINDS[memory.kind].default_type
    return [{**version, "type": version["type"] or default} for version in plain_versions_of([memory.id])[memory.id]]


def version_in(history: list[Version], number: int, memory: Memory) -> Version:
    """Return a version of a memory.

    Raises:
        NotFound: it is not in the history, because the memory was erased after it was read.
    """
    match = next((version for version in history if version["version"] == number), None)
    if match is None:
        raise NotFound(f"#{memory.pk} was changed or erased while it was read; open it again", id=memory.pk)
    return match


def sides(first: Version, second: Version) -> tuple[Side, Side]:
    effort = Effort()
    titles = side_by_side(first["title"] or "", second["title"] or "", effort)
    texts = side_by_side(first["content"] or "", second["content"] or "", effort)
    fields = side_by_side(*_differing_fields(first, second), effort)
    return (
        Side(first, titles[0], texts[0], fields[0], first["content"] or ""),
        Side(second, titles[1], texts[1], fields[1], second["content"] or ""),
    )


def change(newer: Version, older: Version, effort: Effort | None = None) -> Version:
    """Return a version with its differences: ``title_diff``, ``diff``, ``own_diff`` and ``tag_changes``."""
    effort = effort or Effort()
    removed = [marked(tag, is_new=False) for tag in older["tags"] if tag not in newer["tags"]]
    added = [marked(tag, is_new=True) for tag in newer["tags"] if tag not in older["tags"]]
    return {
        **newer,
        "title_diff": word_diff(older["title"] or "", newer["title"] or "", effort),
        "diff": word_diff(older["content"] or "", newer["content"] or "", effort),
        "own_diff": word_diff(*_differing_fields({**older, "tags": []}, {**newer, "tags": []}), effort),
        "tag_changes": removed + added,
    }


def head(version: Version) -> SafeString:
    base = format_html("<span>based on v{}</span>", version["base_version"]) if version["base_version"] else ""
    source, time = cells.badge("source", version["source"]), cells.moment(version["created_at"])
    return format_html("<span>{}</span> {} {} {}", version["actor"], source, time, base)


# Type, tags and attributes that differ, one a line
def _differing_fields(first: Version, second: Version) -> tuple[str, str]:
    before = _fields_of(first)
    after = _fields_of(second)
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return (
        "".join(f"{name}: {before[name]}\n" for name in names if name in before),
        "".join(f"{name}: {after[name]}\n" for name in names if name in after),
    )


def _fields_of(version: Version) -> dict[str, str]:
    values = {"type": version["type"], "tags": ", ".join(sorted(version["tags"])), **version["attributes"]}
    return {name.replace("_", " ").capitalize(): _plain_text(value) for name, value in values.items() if value}


def _plain_text(value: Any) -> str:
    if isinstance(value, dict) and "type" not in value:
        return "".join(f"\n{name}: {_plain_text(inner)}" for name, inner in value.items() if inner)
    if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        return "".join(f"\n  {entry}" for entry in value)
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


_REMOVED = '<del><span class="visually-hidden">[removed:</span>{}<span class="visually-hidden">]</span></del>'
_ADDED = '<ins><span class="visually-hidden">[added:</span>{}<span class="visually-hidden">]</span></ins>'


def word_diff(before: str, after: str, effort: Effort | None = None) -> SafeString:
    """Return the changed lines with two lines of context; deletions in ``del``, insertions in ``ins``."""
    if before == after:
        return SafeString()
    return _joined_html([_html(part) for part in compare(before, after, effort)])


def side_by_side(before: str, after: str, effort: Effort | None = None) -> tuple[SafeString, SafeString]:
    """Return both texts, the first with the deletions marked, the second with the insertions."""
    parts = list(compare(before, after, effort))
    first = [_html(DiffPart(part.text, part.removed, "", part.hidden_lines)) for part in parts]
    second = [_html(DiffPart(part.text, "", part.added, part.hidden_lines)) for part in parts]
    return _joined_html(first), _joined_html(second)


def marked(word: str, *, is_new: bool) -> SafeString:
    return format_html(_ADDED if is_new else _REMOVED, word)


def _joined_html(parts: list[SafeString]) -> SafeString:
    return format_html_join("", "{}", ((part,) for part in parts))


def _html(part: DiffPart) -> SafeString:
    if part.hidden_lines:
        noun = "line" if part.hidden_lines == 1 else "lines"
        return format_html('<span class="gap">{} unchanged {}</span>', part.hidden_lines, noun)
    removed = marked(part.removed, is_new=False) if part.removed else ""
    added = marked(part.added, is_new=True) if part.added else ""
    return format_html("{}{}{}", part.text, removed, added)
