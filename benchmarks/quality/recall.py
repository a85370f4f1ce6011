"""Recall at prompts: how often a prompt is given what it is about, and how often nothing if there is nothing.

Four messages in a row of a LoCoMo conversation, some 500 characters, become a memory. Each question is a prompt, put to
its own conversation, to another one, and to another one with the names of its speakers. Tune on one half of the
questions, and look at the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks.quality.conversations import CATEGORIES, EVIDENCE, text_of, turns_of
from benchmarks.quality.embedding import embed
from benchmarks.quality.questions import Question, QuestionSet
from memories import scopes
from memories.pack.recall import MOST, relevant_entries
from memories.schemas import MemoryWrite
from memories.search.parsed_query import parse
from memories.services import write_memories
from memoryhub.config.project_settings import ProjectSettings
from memoryhub.core.errors import Invalid
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import StoreId, project_store, use_store

_MESSAGES = 4
DEFAULT: float = ProjectSettings.model_fields["recall_threshold"].default
_THRESHOLDS = (0.30, 0.36, DEFAULT, 0.48, 0.54)
OWN, OTHER, RENAMED = "own conversation", "another", "another, names replaced"
_HALVES = ("tuned on", "checked on")


@dataclass(frozen=True, slots=True)
class Figure:
    """Shares of the prompts of one half at one threshold."""

    half: str
    threshold: float
    # Something with the answer's evidence was given, of prompts to their own conversation
    relevant: float
    # Anything was given to those
    anything: float
    # Nothing was given, of prompts to another conversation
    nothing: float
    nothing_renamed: float
    prompts: int


@dataclass(frozen=True, slots=True)
class _Conversation:
    store: StoreId
    speakers: tuple[str, str]
    # LoCoMo's id of a message to the memory that it is in
    memories: Mapping[str, int]


# The relevance of the entries for one prompt, best first
_Asked = tuple[Question, list[tuple[float, int]]]


def measure_recall(path: Path, *, meaning: bool) -> list[Figure]:
    """Write the conversations, ask all questions and return the figures of both halves.

    Raises:
        Invalid: the file cannot be read, or has fewer than two conversations.
    """
    try:
        samples = json.loads(path.read_text())
        written = [_write(number, sample["conversation"]) for number, sample in enumerate(samples, 1)]
        prompts = [prompt for number in range(len(samples)) for prompt in _prompts(samples, written, number)]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise Invalid(f"{path} cannot be read as LoCoMo's conversations: {error!r}") from error
    if meaning:
        embed(QuestionSet("recall", "", 0, prompts))
    asked = [(prompt, _ask(prompt)) for prompt in prompts]
    return [_figure(asked, half, threshold) for half in (0, 1) for threshold in _THRESHOLDS]


def _write(number: int, conversation: Mapping[str, Any]) -> _Conversation:
    by_session: dict[str, list[dict[str, Any]]] = {}
    for session, turn in turns_of(dict(conversation)):
        by_session.setdefault(session, []).append(turn)
    groups = [group for turns in by_session.values() for group in _groups(turns)]
    commands = [_memory("\n".join(map(text_of, group))) for group in groups]
    store = project_store(f"recall-{number}")
    with use_store(store, create=True), use_origin(source="service", actor="evaluate"):
        ids = [result.id for result in write_memories(commands=commands)]
    memories = {turn["dia_id"]: entry for group, entry in zip(groups, ids, strict=True) for turn in group}
    return _Conversation(store, (conversation["speaker_a"], conversation["speaker_b"]), memories)


def _memory(text: str) -> MemoryWrite:
    return MemoryWrite(title=" ".join(text.split())[:80], content=text, kind="knowledge", type="fact")


def _groups(turns: Sequence[dict[str, Any]]) -> Iterator[Sequence[dict[str, Any]]]:
    return (turns[start : start + _MESSAGES] for start in range(0, len(turns), _MESSAGES))


def _prompts(samples: Sequence[Any], written: Sequence[_Conversation], number: int) -> Iterator[Question]:
    own, index = written[number], 0
    for item in samples[number]["qa"]:
        named = {name for text in item.get("evidence", ()) for name in EVIDENCE.findall(text)} & set(own.memories)
        if item["category"] not in CATEGORIES or not named:
            continue
        text, half = item["question"], index % 2
        yield Question(own.store, text, frozenset(own.memories[name] for name in named), OWN, half)
        other = written[(number + 1 + index % (len(written) - 1)) % len(written)]
        yield Question(other.store, text, frozenset(), OTHER, half)
        for name, replacement in zip(own.speakers, other.speakers, strict=True):
            text = text.replace(name, replacement)
        yield Question(other.store, text, frozenset(), RENAMED, half)
        index += 1


def _ask(prompt: Question) -> list[tuple[float, int]]:
    with use_store(prompt.store):
        (level,) = scopes.levels()
        found = relevant_entries(parse(prompt.text), sources=["memory"], level=level, least=0.0)
    return sorted(((relevance, entry) for entry, relevance in found.items()), reverse=True)[:MOST]


def _figure(asked: Sequence[_Asked], half: int, threshold: float) -> Figure:
    given: dict[str, list[tuple[Question, set[int]]]] = {OWN: [], OTHER: [], RENAMED: []}
    for prompt, found in asked:
        if prompt.half == half:
            entries = {entry for relevance, entry in found if relevance >= threshold}
            given[prompt.category].append((prompt, entries))
    return Figure(
        half=_HALVES[half],
        threshold=threshold,
        relevant=_share([bool(entries & prompt.answers) for prompt, entries in given[OWN]]),
        anything=_share([bool(entries) for _, entries in given[OWN]]),
        nothing=_share([not entries for _, entries in given[OTHER]]),
        nothing_renamed=_share([not entries for _, entries in given[RENAMED]]),
        prompts=len(given[OWN]),
    )


def _share(found: Sequence[bool]) -> float:
    return sum(found) / len(found) if found else 0.0


def render_recall(figures: Sequence[Figure]) -> Table:
    headings = ("half", "threshold", "prompts", "relevant", "anything", "nothing: another", "nothing: names replaced")
    table = Table(title="Recall at prompts", title_justify="left", box=SIMPLE_HEAD)
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left")
    for figure in figures:
        shares = (figure.relevant, figure.anything, figure.nothing, figure.nothing_renamed)
        default = " (default)" if figure.threshold == DEFAULT else ""
        row = (figure.half, f"{figure.threshold:.2f}{default}", f"{figure.prompts:,}")
        table.add_row(*row, *(f"{share:.3f}".removeprefix("0") for share in shares))
    return table
