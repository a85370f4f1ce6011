"""Recognise sections that say little: lists of links, a status, a licence; and those that say how to work."""

from __future__ import annotations

import re

from memories.kinds import BETWEEN_HEADINGS
from memoryhub.core.slugs import heading_slug

# The note on how a project is built and tested, and the type of what is imported from its files
BUILD_TOPIC = "import:markdown:#build-and-test"
REFERENCE = "reference"
# Files with rules
FOR_AGENTS = ("AGENTS.md", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md")
_GUIDES = ("CONTRIBUTING", "contributing", "DEVELOPMENT", "development", "HACKING", "developing", "developers")
FOR_DEVELOPERS = tuple(
    f"{folder}{name}{end}" for folder in ("", "docs/") for name in _GUIDES for end in (".md", ".rst")
)
# Headings of their sections on how one works, the most wanted first
_WORK_WORDS = (
    r"\btest(?:s|ing)?\b",
    r"style|lint|format|convention|guideline|\brules\b|typing",
    r"build|develop|set(?:ting)?[ -]?up|install|environment",
    r"commit|pull request|architect|structure|debug",
)
_WORK = [re.compile(words, re.IGNORECASE) for words in _WORK_WORDS]
# Headings on what few changes need
_SIDE_WORK = re.compile(r"document|\bdocs?\b|translat|releas|maintain|\bprox(?:y|ies)\b|docker|website", re.IGNORECASE)
# Names of files, and headings, of licences, notices, lists of changes and people, and data of tests
_BALLAST_FILE = re.compile(
    r"(?:.*/)?(?:licen[cs]es?|copying|notice|third[-_ ]?party|change(?:log|s)?|history|news|releases?|"
    r"release[-_]?notes|what'?s[-_]?new|authors|contributors|thanks|acknowledge?ments|code[-_]of[-_]conduct|sponsors|backers)"
    r"(?:[-_.][^/]*)?|(?:.*/)?breaking[-_]?changes[^/]*"
    r"|(?:.*/)?(?:change(?:log|s)\w*|whats_?new|history|releases?|licenses?|blog|news|archived?)/.*"
    r"|(?:.*/)?(?:test[-_]?data|fixtures?|snapshots?)/.*"
    r"|(?:.*/)?\w*tests?_*/(?!(?:.*/)?(?:readme|agents|claude|contributing)\b).*",
    re.IGNORECASE,
)
_BALLAST_HEADING = re.compile(
    r"(?:the )?(?:licen[cs]es?|licensing|copyright|change ?log|release notes|contributors|sponsors|backers|authors|"
    r"credits|acknowledge?ments|thanks|code of conduct|star history|(?:table of )?contents|toc)",
    re.IGNORECASE,
)
_LICENCE = re.compile(
    r"Permission is hereby granted|Redistribution and use in source|WITHOUT WARRANTIES OR CONDITIONS"
    r"|(?:GNU|Apache|Mozilla Public) (?:\w+ ){0,5}Licen[cs]e,? [Vv]ersion"
)
# Lines of a table: cells, rules, or what begins with a number
_ROW = re.compile(r"\s*(?:\|.*|[+=-][-+= |]*|(?=[A-Fa-f]*\d)[\dA-Fa-f]{2,}[\s.;,:].*)")
_MOST_ROWS = 0.6
# Lines that only the program that shows a document reads, in a text that is short enough to have little else
_DIRECTIVE = re.compile(r"^[ \t]*(?:\.\. .*|:[\w-]+:.*)$|<!--(?:.|\n)*?-->", re.MULTILINE)
_SHORT = 1_000

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


def is_ballast(title: str, source: str, text: str) -> bool:
    """Return whether an imported section is of a licence, a table, a list of changes or people, or data of tests.

    So is one with directives and hardly a word.
    """
    if _BALLAST_FILE.fullmatch(source) or _LICENCE.search(text):
        return True
    if any(map(_BALLAST_HEADING.fullmatch, title.split(BETWEEN_HEADINGS)[1:])):
        return True
    if len(text) < _SHORT and _DIRECTIVE.search(text) and _has_few_words(_DIRECTIVE.sub(" ", text), _MOST_WORDS):
        return True
    lines = [line for line in text.split("\n") if line.strip()]
    return sum(bool(_ROW.fullmatch(line)) for line in lines) > _MOST_ROWS * len(lines)


def rank_of_work(title: str) -> int | None:
    """Return how much an imported section of a guide for developers is wanted, by its heading: 0 is most, None not."""
    heading = title.rpartition(BETWEEN_HEADINGS)[2]
    if _SIDE_WORK.search(heading):
        return None
    return next((rank for rank, words in enumerate(_WORK) if words.search(heading)), None)


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
