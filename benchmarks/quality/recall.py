"""Recall at prompts: how often a prompt is given what it is about, and how often nothing if there is nothing.

Prompts come from LoCoMo's file or from folders of sets. In LoCoMo, four messages in a row of a conversation, some 500
characters, become a memory; each question is put to its own conversation, to another one, and to another one with the
names of its speakers. A set is a JSON file: ``project``, ``nature``, ``entries`` with ``key``, ``title``, ``content``,
``kind`` and ``type``, and ``prompts`` with ``text``, ``right`` (keys; none if nothing is about it) and ``nature``.
Tune on one half of the prompts, and look at the other.
"""

from __future__ import annotations

import json
from collections import defaultdict
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
from memories.pack.recall import recall_body
from memories.pack.sections import GatherRequest
from memories.schemas import MemorySearch, MemoryWrite
from memories.search.parsed_query import parse
from memories.selectors.search import search
from memories.services import write_memories
from memoryhub.config.project_settings import ProjectSettings
from memoryhub.core import clock
from memoryhub.core.errors import Invalid
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import StoreId, project_store, use_store

_MESSAGES = 4
_LONGEST_QUERY = 2_000
DEFAULT: float = ProjectSettings.model_fields["recall_threshold"].default
_THRESHOLDS = tuple(round(min(1.0, max(0.0, DEFAULT + step)), 2) for step in (-0.2, -0.1, 0.0, 0.1, 0.2))
OWN, OTHER, RENAMED = "own conversation", "another", "another, names replaced"


@dataclass(frozen=True, slots=True)
class Prompt:
    store: StoreId
    text: str
    # Entries that it is about
    right: frozenset[int]
    nature: str


@dataclass(frozen=True, slots=True)
class Figure:
    """Shares of the prompts of one nature at one threshold."""

    nature: str
    threshold: float
    prompts: int
    # One of the right entries was given; nothing was given where there is none
    correct: float
    anything: float
    # Mean share of right entries among those given, over prompts that were given any
    precision: float
    # A search for the prompt has a right entry first
    found_first: float
    # It says that nothing stored is about the prompt
    absent: float


@dataclass(frozen=True, slots=True)
class _Outcome:
    prompt: Prompt
    # What was given
    entries: Sequence[int]
    first_hit: int | None
    absent: bool


@dataclass(frozen=True, slots=True)
class _Conversation:
    store: StoreId
    speakers: tuple[str, str]
    # LoCoMo's id of a message to the memory that it is in
    memories: Mapping[str, int]


def measure_recall(prompts: Sequence[Prompt], *, meaning: bool) -> list[Figure]:
    """Ask all prompts at all thresholds and return the figures of each nature, and of all that are about something."""
    if meaning:
        embed_stores([prompt.store for prompt in prompts])
    outcomes: dict[tuple[str, float], list[_Outcome]] = defaultdict(list)
    for prompt in prompts:
        natures = [prompt.nature, f"{prompt.nature.partition(':')[0]}: all of these"][: 1 + bool(prompt.right)]
        for threshold, outcome in zip(_THRESHOLDS, _outcomes(prompt), strict=True):
            for nature in natures:
                outcomes[nature, threshold].append(outcome)
    return [_figure(nature, threshold, asked) for (nature, threshold), asked in sorted(outcomes.items())]


def _outcomes(prompt: Prompt) -> Iterator[_Outcome]:
    with use_store(prompt.store):
        answer = search(command=MemorySearch(query=prompt.text[:_LONGEST_QUERY]))
    first = answer.results[0]["id"] if answer.results else None
    entries: Sequence[int] = [0]
    for threshold in _THRESHOLDS:
        # A higher threshold gives no more
        entries = recalled_entries(prompt.store, prompt.text, threshold) if entries else []
        yield _Outcome(prompt, entries, first, bool(answer.meta.absent))


def embed_stores(stores: Sequence[StoreId]) -> None:
    questions = [Question(store, "", frozenset(), "", 0) for store in dict.fromkeys(stores)]
    embed(QuestionSet("recall", "", 0, questions))


def recalled_entries(store: StoreId, text: str, least: float = DEFAULT) -> list[int]:
    """Return the ids of the memories that a prompt is given, as a client's prompt hook is, newest first."""
    with use_store(store):
        body = recall_body(GatherRequest(scopes.levels(), clock.now(), parse(text)), least)
    return [int(item.reference.partition("#")[2]) for section in body.sections for item in section.items]


def set_prompts(folder: Path) -> list[Prompt]:
    """Write the entries of all sets in a folder, each set into a store, and return their prompts.

    Raises:
        Invalid: the folder has no sets, or one cannot be read.
    """
    prompts = []
    for number, path in enumerate(sorted(folder.glob("*.json")), 1):
        try:
            data = json.loads(path.read_text())
            store, ids = _write_set(f"{folder.name}-{number}", data["entries"])
            for item in data["prompts"]:
                right = frozenset(ids[key] for key in item["right"])
                prompts.append(Prompt(store, item["text"], right, f"{data['nature']}: {item['nature']}"))
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise Invalid(f"{path} cannot be read as a set of prompts: {error!r}") from error
    if not prompts:
        raise Invalid(f"{folder} has no sets of prompts")
    return prompts


def _write_set(name: str, entries: Sequence[Mapping[str, str]]) -> tuple[StoreId, dict[str, int]]:
    fields = ("title", "content", "kind", "type")
    commands = [MemoryWrite.model_validate({field: entry[field] for field in fields}) for entry in entries]
    store, ids = write_store(name, commands)
    return store, dict(zip((entry["key"] for entry in entries), ids, strict=True))


def write_store(name: str, commands: Sequence[MemoryWrite]) -> tuple[StoreId, list[int]]:
    store = project_store(f"recall-{name}")
    with use_store(store, create=True), use_origin(source="service", actor="evaluate"):
        return store, [result.id for result in write_memories(commands=commands)]


def conversation_prompts(path: Path) -> list[Prompt]:
    """Write LoCoMo's conversations and return their questions as prompts.

    Raises:
        Invalid: the file cannot be read, or has fewer than two conversations.
    """
    try:
        samples = json.loads(path.read_text())
        written = [_write(number, sample["conversation"]) for number, sample in enumerate(samples, 1)]
        return [prompt for number in range(len(samples)) for prompt in _prompts(samples, written, number)]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise Invalid(f"{path} cannot be read as LoCoMo's conversations: {error!r}") from error


def _write(number: int, conversation: Mapping[str, Any]) -> _Conversation:
    by_session: dict[str, list[dict[str, Any]]] = {}
    for session, turn in turns_of(dict(conversation)):
        by_session.setdefault(session, []).append(turn)
    groups = [group for turns in by_session.values() for group in _groups(turns)]
    store, ids = write_store(str(number), [_memory("\n".join(map(text_of, group))) for group in groups])
    memories = {turn["dia_id"]: entry for group, entry in zip(groups, ids, strict=True) for turn in group}
    return _Conversation(store, (conversation["speaker_a"], conversation["speaker_b"]), memories)


def _memory(text: str) -> MemoryWrite:
    return MemoryWrite(title=" ".join(text.split())[:80], content=text, kind="knowledge", type="fact")


def _groups(turns: Sequence[dict[str, Any]]) -> Iterator[Sequence[dict[str, Any]]]:
    return (turns[start : start + _MESSAGES] for start in range(0, len(turns), _MESSAGES))


def _prompts(samples: Sequence[Any], written: Sequence[_Conversation], number: int) -> Iterator[Prompt]:
    own, index = written[number], 0
    for item in samples[number]["qa"]:
        named = {name for text in item.get("evidence", ()) for name in EVIDENCE.findall(text)} & set(own.memories)
        if item["category"] not in CATEGORIES or not named:
            continue
        text, half = item["question"], ("tuned on", "checked on")[index % 2]
        yield Prompt(own.store, text, frozenset(own.memories[name] for name in named), f"{half}: {OWN}")
        other = written[(number + 1 + index % (len(written) - 1)) % len(written)]
        yield Prompt(other.store, text, frozenset(), f"{half}: {OTHER}")
        for name, replacement in zip(own.speakers, other.speakers, strict=True):
            text = text.replace(name, replacement)
        yield Prompt(other.store, text, frozenset(), f"{half}: {RENAMED}")
        index += 1


def _figure(nature: str, threshold: float, asked: Sequence[_Outcome]) -> Figure:
    shares = [len(item.prompt.right & set(item.entries)) / len(item.entries) for item in asked if item.entries]
    return Figure(
        nature=nature,
        threshold=threshold,
        prompts=len(asked),
        correct=_mean([_is_correct(item) for item in asked]),
        anything=len(shares) / len(asked),
        precision=_mean(shares),
        found_first=_mean([item.first_hit in item.prompt.right for item in asked]),
        absent=_mean([item.absent for item in asked]),
    )


def _is_correct(item: _Outcome) -> bool:
    if item.prompt.right:
        return bool(item.prompt.right & set(item.entries))
    return not item.entries


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def render_recall(figures: Sequence[Figure]) -> Table:
    """Return a row per nature: figures at the default threshold, and what is correct at each."""
    headings = [
        "nature",
        "prompts",
        "first hit",
        "absent",
        "given",
        "precision",
        *(f"{threshold:.2f}" for threshold in _THRESHOLDS),
    ]
    table = Table(title="Recall at prompts: correct by threshold", title_justify="left", box=SIMPLE_HEAD)
    for place, heading in enumerate(headings):
        default = " (default)" if heading == f"{DEFAULT:.2f}" else ""
        table.add_column(heading + default, justify="right" if place else "left")
    by_nature: dict[str, dict[float, Figure]] = defaultdict(dict)
    for figure in figures:
        by_nature[figure.nature][figure.threshold] = figure
    for nature, curve in by_nature.items():
        usual = curve[DEFAULT]
        shares = [
            usual.found_first,
            usual.absent,
            usual.anything,
            usual.precision,
            *(curve[threshold].correct for threshold in _THRESHOLDS),
        ]
        table.add_row(nature, f"{usual.prompts:,}", *(f"{share:.3f}".removeprefix("0") for share in shares))
    return table
