"""Recognise boilerplate sections: lists of links, a status, a date."""

from __future__ import annotations

import re

from memories.kinds import BETWEEN_HEADINGS
from memoryhub.core.slugs import heading_slug

# Headings of lists of links; under others, links to other sites are content
_LINK_LISTS = frozenset(
    "related see-also links external-links further-reading references backlinks more-information siehe-auch "
    "verweise voir-aussi liens véase-también enlaces 相关 参考 関連".split()
)
_RELATED = "related-"
# Headings and names of values
_VALUES = frozenset("status date created updated last-updated version id tags datum stand statut fecha estado".split())
_PLACEHOLDERS = frozenset("none nothing n/a na tbd tba todo keine aucun ninguno".split())
# A Markdown or wiki link, an address, or the path of a document
_LINK = re.compile(
    r"!?\[\[[^\[\]\n]+\]\]|!?\[[^\]\[\n]*\](?:\([^()\n]*\)|\[[^\]\n]*\])|<?https?://[^\s>]+>?"
    r"|`?(?<![\w./-])[\w./-]+\.(?:md|rst|adoc)`?"
)
_VALUE = re.compile(r"\W*([^\W\d_][\w -]{0,20}?)\W*:\W*(.*)")
_WORD = re.compile(r"[^\W\d_]+")
# Words beside the links of a line or in a value: more are a sentence
_MOST_WORDS = 4


def is_boilerplate_section(title: str, text: str) -> bool:
    """Return whether an imported section is boilerplate, given its title, such as ``notes.md › Port › Related``."""
    _, between, heading = title.rpartition(BETWEEN_HEADINGS)
    return bool(between) and is_boilerplate(heading, text)


def is_boilerplate(heading: str, text: str) -> bool:
    """Return whether the text under a heading has only links, values such as a status, or a placeholder."""
    slug = heading_slug(heading)
    return all(_is_nothing(line, slug) for line in text.split("\n"))


def split_joined(text: str) -> tuple[str, str]:
    """Return a text and the sections at its end that say nothing, each below a label such as ``Related:``."""
    if ":\n" not in text:
        return text, ""
    lines = text.split("\n")
    start, label = len(lines), ""
    for number, line in enumerate(lines):
        slug = heading_slug(line) if line.endswith(":") else ""
        if slug in _LINK_LISTS or slug in _VALUES or slug.startswith(_RELATED):
            start, label = min(start, number), slug
        elif not _is_nothing(line, label):
            start, label = len(lines), ""
    return "\n".join(lines[:start]).rstrip(), "\n".join(lines[start:])


# Below the heading or label of that slug
def _is_nothing(line: str, slug: str) -> bool:
    is_list = slug in _LINK_LISTS or slug.startswith(_RELATED)
    links = _LINK.findall(line)
    if links and (is_list or "://" not in line) and _has_few_words(_LINK.sub(" ", line), 2 * len(links)):
        return True
    value = _VALUE.fullmatch(line)
    if value and heading_slug(value[1]) in _VALUES:
        return _has_few_words(_LINK.sub(" ", value[2]), _MOST_WORDS)
    words = line.strip(" \t-*_.").lower()
    if not words or words in _PLACEHOLDERS:
        return True
    return slug in _VALUES and _has_few_words(_LINK.sub(" ", line), _MOST_WORDS)


def _has_few_words(text: str, most: int) -> bool:
    return len(_WORD.findall(text)) <= min(most, _MOST_WORDS)
