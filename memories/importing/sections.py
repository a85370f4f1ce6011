"""Split a document into sections: the text under each heading, without sub-sections."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any

from markdown_it import MarkdownIt

from memories.importing.files import MARKDOWN, split_front_matter
from memories.substance import is_boilerplate
from memoryhub.core.errors import Invalid
from memoryhub.core.slugs import heading_slug

_MARKDOWN = MarkdownIt("commonmark").disable("inline")
_HEADING_ALONE = re.compile(r"(?:\A|\n\n)#{1,6}[ \t]+\S[^\n]*(?:\n\n|\Z)")
_UNDERLINE = re.compile(r"([!-/:-@\[-`{-~])\1{2,}[ \t]*")
_LINK = re.compile(r"!?\[([^\]\[]*)\](?:\([^()]*\)|\[[^\]\[]*\])")
# For a text without runs of spaces; each run of ``_`` is read once
_MARKS = re.compile(r"[`*]|<[^<>]*>|[ ]?\{#[^{}]*\}$|[ ]#+$|(?<!\w)_++|(?<!_)_++(?!\w)|\\(?=[^\w\s])")
# Lines that can be a heading or its underline; a file with so many is a listing, and is not parsed
_MAY_BE_HEADING = re.compile(r"^ {0,3}(?:#{1,6}[ \t]|(?:=+|-+)[ \t]*$)", re.MULTILINE)
_MOST_CANDIDATES = 20_000

# Targets of links in reStructuredText, and horizontal rules: a section that has nothing else says nothing
_NAVIGATION = re.compile(r"^(?:\.\. _[^\n]*:[ \t]*|[-*_=]{3,})$", re.MULTILINE)
# Headings of sections that list the other ones, and lines of such a list
_LISTINGS = {"table-of-contents", "contents", "toc"}
_LISTED = re.compile(r"\s|[-*+<\[|]|\d+[.)]|\.\. |\Z")


@dataclass(frozen=True, slots=True)
class Heading:
    level: int
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TextSection:
    headings: tuple[str, ...]
    key: str
    text: str


@dataclass(frozen=True, slots=True)
class TextDocument:
    sections: list[TextSection]
    tags: list[str]
    # The front matter
    matter: Mapping[str, Any]


def parse_document(text: str, ending: str, *, max_headings: int | None = None) -> TextDocument:
    """Split a text, with the file's extension (``.md``), into sections; one that says nothing is joined to another.

    Raises:
        Invalid: the front matter is nested too deeply, or there are more than ``max_headings`` headings.
    """
    matter, body = split_front_matter(text)
    if max_headings is not None:
        candidates = sum(1 for _ in islice(_MAY_BE_HEADING.finditer(body), max_headings + _MOST_CANDIDATES))
        _require_few(candidates, max_headings + _MOST_CANDIDATES - 1)
    sections = split_sections(body, ending, max_headings=max_headings)
    sections = _joined(sections)
    description = matter.get("description")  # is often what one searches for
    if isinstance(description, str) and sections and description not in sections[0].text:
        sections[0] = replace(sections[0], text=f"{description}\n\n{sections[0].text}".strip())
    return TextDocument(sections, _tags(matter), matter)


def split_sections(body: str, ending: str, *, max_headings: int | None = None) -> list[TextSection]:
    """Return the sections of a text without front matter, each as it is written.

    Raises:
        Invalid: there are more than ``max_headings`` headings.
    """
    lines = body.split("\n")
    headings: list[Heading] = []
    if ending == ".rst":
        headings += _underlined_headings(lines)
    elif ending in MARKDOWN or _HEADING_ALONE.search(body):
        # Only top-level headings: not those inside lists, quotations or code
        for opening, inline in pairwise(_MARKDOWN.parse(body)):
            if opening.type == "heading_open" and opening.level == 0 and opening.map:
                headings.append(Heading(int(opening.tag[1:]), plain(inline.content), opening.map[0], opening.map[1]))
    if max_headings is not None:
        _require_few(len(headings), max_headings)
    return list(_sections(lines, headings))


def _require_few(headings: int, limit: int) -> None:
    if headings > limit:
        raise Invalid(f"it has {headings:,} headings, more than {limit:,}; split it, or raise --max-headings")


def split_text(text: str, limit: int) -> list[str]:
    """Split a text into parts of at most ``limit`` characters, preferably between paragraphs, lines or words."""
    parts = []
    while len(text) > limit:
        gaps = [text.rfind(gap, limit // 2, limit) for gap in ("\n\n", "\n", " ")]
        cut = next((gap for gap in gaps if gap > 0), limit)
        parts.append(text[:cut].rstrip())
        text = text[cut:].lstrip("\n ")
    return [part for part in [*parts, text] if part.strip()]


def _tags(matter: dict[str, Any]) -> list[str]:
    tags = matter.get("tags") or []
    if isinstance(tags, str):
        tags = tags.split(",")
    elif not isinstance(tags, list):
        tags = [tags]
    return list(filter(None, [str(tag).strip().strip("\"'") for tag in tags]))


# reStructuredText: the order of first use decides which underline has which level
def _underlined_headings(lines: list[str]) -> Iterator[Heading]:
    styles: list[tuple[str, bool]] = []
    for number in range(1, len(lines)):
        title, underline = lines[number - 1], lines[number]
        if not _UNDERLINE.fullmatch(underline) or not title.strip() or _UNDERLINE.fullmatch(title):
            continue
        is_overlined = number >= 2 and lines[number - 2].rstrip() == underline.rstrip()
        if len(underline.rstrip()) < len(title.rstrip()) or (title[0] in " \t" and not is_overlined):
            continue
        style = (underline[0], is_overlined)
        styles += [style] if style not in styles else []
        yield Heading(styles.index(style) + 1, title.strip(), number - 1 - is_overlined, number + 1)


def _sections(lines: list[str], headings: Iterable[Heading]) -> Iterator[TextSection]:
    path: list[tuple[int, str, str]] = []
    used: set[str] = set()
    start = 0
    key = ""
    for heading in headings:
        yield from _section(path, key, lines[start : heading.start])
        path = [parent for parent in path if parent[0] < heading.level]
        key = _unused("/".join([*(parent[2] for parent in path[-1:]), heading_slug(heading.text)]), used)
        path.append((heading.level, heading.text, key))
        start = heading.end
    yield from _section(path, key, lines[start:])


def _section(path: list[tuple[int, str, str]], key: str, lines: list[str]) -> Iterator[TextSection]:
    text = "\n".join(lines).strip("\n").rstrip()
    is_listing = path and heading_slug(path[-1][1]) in _LISTINGS and all(map(_LISTED.match, text.split("\n")))
    if _NAVIGATION.sub("", text).strip() and not is_listing:
        yield TextSection(tuple(heading for _, heading, _ in path if heading), key, text)


# A section that says nothing is joined to the one before it, else after it, below the same heading
def _joined(sections: list[TextSection]) -> list[TextSection]:
    empty = []
    texts = {}
    for index, section in enumerate(sections):
        if section.headings and is_boilerplate(section.headings[-1], section.text):
            empty.append(index)
        else:
            texts[index] = section.text
    for index in empty:
        target = _neighbour(sections, index, list(texts))
        if target is None:
            texts[index] = sections[index].text
        else:
            texts[target] += f"\n\n{sections[index].headings[-1]}:\n\n{sections[index].text}"
    return [replace(sections[index], text=texts[index]) for index in sorted(texts)]


def _neighbour(sections: Sequence[TextSection], index: int, texts: Sequence[int]) -> int | None:
    above = sections[index].headings[:-1]
    near = [other for other in texts if sections[other].headings[: len(above)] == above]
    below = [other for other in near if sections[other].headings[: len(above) + 1] == sections[index].headings]
    before = [other for other in near if other < index]
    return next(iter(below or before[-1:] or near), None)


def _unused(key: str, used: set[str]) -> str:
    unique = key
    number = 1
    while unique in used:
        number += 1
        unique = f"{key}-{number}"
    used.add(unique)
    return unique


def plain(heading: str) -> str:
    text = " ".join(_LINK.sub(r"\1", heading).split())
    return " ".join(_MARKS.sub("", text).split())
