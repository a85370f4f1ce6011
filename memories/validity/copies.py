"""Whether a text was copied from a web page or from a tool's output, decided when it is written (decision 97).

The event of the version has the result: the outputs of the session can be erased, and reading them takes long.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from django.db.models import Q

from memories.duplicates import Existing
from memories.events import CopiedFrom
from memories.models import MemoryVersion
from memories.search.text import folded
from memories.validity.trust import CLIENT_DOORS, WEB_ADDRESS, is_of_web
from memoryhub.core import log
from memoryhub.core.events.event_types import Speech, names_of_speech
from memoryhub.core.origin import current_origin
from memoryhub.core.stores.dialect import has_part
from sessions_app.events.client import COMMAND_RUN, TOOL_MESSAGE
from sessions_app.selectors import SessionEvent, read_events

# Newest events of the session, outputs with a long word of the text that are compared, and characters that are read
_LATEST, _MOST_OUTPUTS, _READ = 400, 12, 20_000
# Longest words of a text by which outputs are looked up, and characters of such a word
_LOOKED_UP, _LONG = 6, 5
# Words of a sequence, and the fewest words of a text that is compared
_SEQUENCE, _FEWEST = 4, 6
# Share of the text's sequences that a page, or the output of another tool, has if the text was copied from it
_OF_PAGE, _OF_TOOL = 0.35, 0.5
# Share of the words of a new version that a copied one has, and how many copied versions are compared
_OF_VERSION, _VERSIONS = 0.6, 10
_WORD = re.compile(r"\w+")
_PLAIN_WORD = re.compile(r"[A-Za-z0-9]+")

_WEB_TOOL = re.compile(r"web|fetch|brows|http|\burl|crawl|scrap|navigat|tavily|\bexa\b|perplexity", re.IGNORECASE)
_WEB_COMMAND = re.compile(r"\b(?:curl|wget|https?|xh|lynx|w3m|e?links2?)\b[^|;&\n]*https?://", re.IGNORECASE)
# Tools and commands that read the project's files, which its people have committed, and the hub's own tools
_FILE_TOOL = re.compile(
    r"(?:read|view|open|cat|grep|glob|ls|search|list|find)(?:_?(?:many_)?(?:files?|dir(?:ectory)?|text|code))?"
    r"|notebookread|codebase_search|.*memory.?hub.*|memory_\w+",
    re.IGNORECASE,
)
_FILE_COMMAND = re.compile(r"\s*(?:cat|bat|head|tail|less|nl|sed|grep|rg|git (?:show|log|diff|blame|grep))\b")
# Files that other people wrote
_FOREIGN_FILE = re.compile(r"node_modules|site-packages|\bvendor/|/tmp/|\.cargo/|/go/pkg/")
# What a text says of itself, within so many characters from its beginning and its end
_BEGINNING = 200
_SAYS_COPIED = re.compile(
    r"\b(?:(?:copied|quoted|pasted|taken|excerpt(?:ed)?|clipped|scraped|summari[sz]ed|translated) (?:\w+ )?from"
    r"|according to|as (?:stated|described|documented) (?:on|at|in)|from the page|source:)"
    r"[ (<\[]{1,3}(?:https?://|(?:(?:an?|the|this) )?(?:(?!another|other|any|some)[\w.-]+ )?"
    r"(?:web ?(?:page|site)|blog(?: post)?|stack ?overflow|forum|wikipedia|article|gist)\b)",
    re.IGNORECASE,
)


def copied_from(title: str, content: str, existing: Existing | None = None) -> CopiedFrom | None:
    """Return what a text that is about to be written was copied from; None if it is no copy as far as known.

    It is one if it says so itself, repeats an output of the current session, or has most of the words of a version
    that was one. What the user has written in the session is the user's.

    Args:
        title: the new title.
        content: the new text.
        existing: the memory that gets them, before the change.
    """
    origin = current_origin()
    if origin.source not in CLIENT_DOORS:
        return None
    text = content[:_READ]
    if _SAYS_COPIED.search(f"{title}\n{text[:_BEGINNING]}\n{text[_BEGINNING:][-_BEGINNING:]}"):
        return CopiedFrom.WEB
    copied = _earlier_copy(text, existing) if existing else None
    if not origin.session_id:
        return copied
    return _copy_of_session(text, origin.session_id, copied)


# A change of a few words, or of the tags, leaves it a copy
def _earlier_copy(text: str, existing: Existing) -> CopiedFrom | None:
    is_copy = Q(copied_from__isnull=False) | Q(source=CopiedFrom.IMPORT)
    versions = MemoryVersion.objects.filter(is_copy, memory_id=existing.id).order_by("-version")[:_VERSIONS]
    kinds = {position: CopiedFrom(kind or CopiedFrom.IMPORT) for position, kind in versions.values_list(*_COPY)}
    states = log.events().at(kinds).payloads() if kinds else {}
    texts = [(kinds[position], state["content"]) for position, state in states.items()]
    if is_of_web(existing.state.source, existing.state.resource_links):
        texts.append((CopiedFrom.WEB, existing.state.content))
    words = set(_words(text))
    for kind, copy in texts:
        if len(words & set(_words(copy[:_READ]))) >= _OF_VERSION * len(words):
            return kind
    return None


_COPY = ("id", "copied_from")


def _copy_of_session(text: str, session_id: str, copied: CopiedFrom | None) -> CopiedFrom | None:
    sequences = _sequences(text)
    if not sequences:
        return copied
    prompts = names_of_speech(Speech.PROMPT)
    for event in _events_with(text, session_id, prompts):
        share = len(sequences & _sequences(_output_of(event))) / len(sequences)
        if event.type in prompts:
            if share >= _OF_TOOL:
                return None
            continue
        kind = _kind_of(event)
        if kind is CopiedFrom.WEB and share >= _OF_PAGE:
            copied = kind
        elif kind is CopiedFrom.TOOL and share >= _OF_TOOL:
            copied = copied or kind
    return copied


# The prompts and outputs with one of the longest words of the text, the newest first
def _events_with(text: str, session_id: str, prompts: Sequence[str]) -> Iterator[SessionEvent]:
    words = sorted(set(_PLAIN_WORD.findall(text)), key=lambda word: (-len(word), word))
    has_word = Q()
    for word in words[:_LOOKED_UP]:
        if len(word) >= _LONG:
            has_word |= Q(has_part("payload_json", word))
    if not has_word:
        return
    events = log.events().of_session(session_id).of_type(TOOL_MESSAGE, COMMAND_RUN, *prompts)
    newest = events.order_by("-position").values_list("position", flat=True)[:_LATEST]
    matching = log.events().at(list(newest)).filter(has_word)
    yield from read_events(matching.order_by("-position"), _MOST_OUTPUTS)


def _output_of(event: SessionEvent) -> str:
    output: Any = event.payload.get("output", event.payload.get("content", ""))
    if not isinstance(output, str):
        output = json.dumps(output, ensure_ascii=False).replace("\\n", "\n")
    return str(output[:_READ])


def _kind_of(event: SessionEvent) -> CopiedFrom | None:
    if event.type == COMMAND_RUN.name:
        command = event.payload.get("command", "")
        if _WEB_COMMAND.search(command):
            return CopiedFrom.WEB
        is_file = _FILE_COMMAND.match(command) and not _FOREIGN_FILE.search(command)
    else:
        tool = event.payload.get("tool", "")
        arguments = json.dumps(event.payload.get("input"))
        if _WEB_TOOL.search(tool) or WEB_ADDRESS.search(arguments):
            return CopiedFrom.WEB
        is_file = _FILE_TOOL.fullmatch(tool) and not _FOREIGN_FILE.search(arguments)
    return None if is_file else CopiedFrom.TOOL


def _sequences(text: str) -> set[tuple[str, ...]]:
    words = _words(text)
    if len(words) < _FEWEST:
        return set()
    return set(zip(*(words[start:] for start in range(_SEQUENCE)), strict=False))


def _words(text: str) -> list[str]:
    return _WORD.findall(folded(text).lower())
