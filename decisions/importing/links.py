"""Links between records: ``Superseded by [3. Title](0003-title.md)``, ``Amends ADR-0002``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from decisions.importing.vocabulary import (
    FILLERS,
    OF_SECTION,
    PARTLY,
    RELATIONS,
    REPLACED_BY_PRECEDING,
    REPLACES_PRECEDING,
    STATUS_WORDS,
)
from decisions.models import EdgeRelation

_PHRASES = {f"relation{number}": phrase for number, phrase in enumerate(RELATIONS)}
_PHRASE = "|".join(
    rf"(?P<{name}>(?<![a-zà-ÿ]){pattern.replace(' ', chr(92) + 's+')}(?![a-zà-ÿ]))"
    for name, (pattern, _, _) in _PHRASES.items()
)
_TOKEN = re.compile(
    r"!?\[(?:[^\[\]\\]|\\.)*\]\(\s*<?(?P<path>[^()\s<>]+)>?[^()]*\)|\[\[(?P<wiki>[^\[\]|#]++)[^\[\]]*+\]\]"
    rf"|{_PHRASE}"
    r"|\bADR[-_ ]?#?(?P<number>\d{1,9})(?!\w)"
    r"|(?<![\w.#/-])#?(?P<bare>\d{1,9})(?=\s*(?:[,;.)]?(?:\s|\Z)|[,;)]))"
    r"|(?P<open>\()|(?P<close>\))"
    r"|(?P<end>[;；。]|\.[*_\"”')]*(?=\s|\Z)|\n\s*\n|\n(?=\s*(?:[*+-]|\d+[.)])\s)"
    r"|\n(?=[*_]{0,2}[A-Z][\w -]{0,30}[*_]*:)|\b(?:which|that)\b)",
    re.IGNORECASE,
)
_RECORD = re.compile(r"[^:?#]+\.(?:md|markdown|mdx|rst)", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://[^/\s]+(?:/[^/\s]+){2}/(?:-/)?(?:blob|raw|tree)/[^/\s]+(/\S+)", re.IGNORECASE)
# Between a phrase and a bare number, or between two of them: `superseded by 11, 12 and #13`
_LIST = re.compile(r"[\s*_:,]*(?:(?:and|und|et|y|&)\s+)?")
# `updates ADR-3's table`: not the record itself
_POSSESSIVE = ("'s", "’s")
# Longer texts are no lists of links
_MAX_LENGTH = 200_000
# Characters before a phrase that may hold its subject
_MAX_BEFORE = 500
_LINK_TEXT = re.compile(r"\[[^\[\]]*\]\([^()]*\)|\([^()]*\)")
_BEFORE = FILLERS | {word for words in STATUS_WORDS.values() for word in words.split()}


@dataclass(frozen=True, slots=True)
class RecordLink:
    """A link to another record, by its relative path or its number."""

    relation: EdgeRelation
    target: str
    # The other record is the subject: `superseded by`.
    is_backward: bool = False
    # Another record than the text's own, if it is the subject: `ADR-3 supersedes ADR-1`.
    subject: str = ""


def links_in(text: str, *, otherwise: EdgeRelation | None = None) -> list[RecordLink]:
    """Return the links to other records that have a relation; ``otherwise`` is the relation of those that have none.

    A relation applies to the end of its sentence, clause or list item. A record of which only a section is superseded
    is refined.
    """
    return list(dict.fromkeys(_Clauses(text[:_MAX_LENGTH], otherwise).links()))


def named_records(value: Any, relation: EdgeRelation, *, is_backward: bool) -> list[RecordLink]:
    """Return the links in a field of the front matter that is named after a relation, such as ``supersedes``."""
    values = value if isinstance(value, list) else [value]
    texts = [str(item).strip() for item in values if not isinstance(item, dict | bool) and item is not None]
    targets = [target for text in texts for target in _targets_of(text)]
    return [RecordLink(relation, target, is_backward) for target in dict.fromkeys(targets)]


# A path, a number, or a text with links and numbers
def _targets_of(text: str) -> list[str]:
    whole = re.fullmatch(r"#?(\d{1,9})", text)
    if whole:
        return [whole[1]]
    if _RECORD.fullmatch(text) and " " not in text:
        return [text]
    return [target for token in _TOKEN.finditer(text) if (target := _target(token)) and not token["bare"]]


class _Clauses:
    """Reads a text token by token; each clause, list item and pair of parentheses begins without a relation."""

    def __init__(self, text: str, otherwise: EdgeRelation | None) -> None:
        self._text, self._otherwise = text, otherwise
        self._begin(0)

    def _begin(self, position: int) -> None:
        self._start = position
        self._relation, self._is_backward = self._otherwise, False
        self._has_phrase = self._has_record = False
        # The last record without a relation, and the end of the last token that a bare number may follow
        self._subject, self._last = "", -1
        # In parentheses after a record, which speak of that record
        self._aside = 0

    def links(self) -> Iterator[RecordLink]:
        for token in _TOKEN.finditer(self._text):
            if token["end"]:
                self._begin(token.end())
            elif token["open"]:
                self._aside += self._has_record
            elif token["close"]:
                self._aside = max(self._aside - 1, 0)
            elif self._aside:
                continue
            elif target := _target(token):
                yield from self._link(token, target)
            elif token.lastgroup in _PHRASES:
                self._phrase(token)

    def _phrase(self, token: re.Match[str]) -> None:
        _, relation, is_backward = _PHRASES[str(token.lastgroup)]
        before = self._text[max(self._start, token.start() - _MAX_BEFORE) : token.start()]
        if relation is EdgeRelation.SUPERSEDES and self._is_partial(before, is_backward=is_backward):
            relation = EdgeRelation.REFINES
        self._relation, self._is_backward, self._has_phrase = relation, is_backward, True
        self._last = token.end()

    # `Section 2 is superseded by …`, `partially supersedes …`, but not `this decision has been superseded by …`
    def _is_partial(self, before: str, *, is_backward: bool) -> bool:
        words = [word.casefold() for word in re.findall(r"[^\W\d_]+", _LINK_TEXT.sub(" ", before))]
        return any(word in PARTLY for word in words) or (is_backward and bool(set(words) - _BEFORE) and len(words) > 1)

    def _link(self, token: re.Match[str], target: str) -> Iterator[RecordLink]:
        end = token.end()
        is_replaced = REPLACED_BY_PRECEDING.match(self._text, end)
        if is_replaced or REPLACES_PRECEDING.match(self._text, end):
            self._has_record = True
            yield RecordLink(EdgeRelation.SUPERSEDES, target, bool(is_replaced))
            return
        if self._text.startswith(_POSSESSIVE, end) or (token["bare"] and not self._is_listed(token)):
            return
        self._has_record = True
        if self._relation is None:
            self._subject = target
            return
        is_whole = self._relation is not EdgeRelation.SUPERSEDES or not self._has_phrase
        is_part = not is_whole and OF_SECTION.search(self._text, self._last, token.start())
        relation = EdgeRelation.REFINES if is_part else self._relation
        self._last = token.end()
        yield RecordLink(relation, target, self._is_backward, self._subject)

    # A number alone may be anything: only a list right after the phrase counts, and `requires 3` is no record
    def _is_listed(self, token: re.Match[str]) -> bool:
        is_certain = self._relation in (EdgeRelation.SUPERSEDES, EdgeRelation.REFINES) or token["bare"].startswith("0")
        return self._has_phrase and is_certain and bool(_LIST.fullmatch(self._text, self._last, token.start()))


# A path, a number or the stem of a file; empty for other links.
def _target(token: re.Match[str]) -> str:
    if token["number"] or token["bare"]:
        return token["number"] or token["bare"]
    if token["wiki"]:
        return f"{token['wiki'].strip().removesuffix('.md')}.md"
    path = (token["path"] or "").split("#")[0]
    if address := _ADDRESS.fullmatch(path):
        path = address[1]
    return path if _RECORD.fullmatch(path) else ""


def without_links(text: str) -> str:
    """Return the text without the lines and list items that link to other records."""
    lines = [line for line in text.split("\n") if not links_in(line, otherwise=EdgeRelation.RELATES_TO)]
    return "\n".join(lines).strip()
