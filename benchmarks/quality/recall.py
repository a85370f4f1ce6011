"""Recall at prompts: how often a prompt is given what it is about, and how often nothing if there is nothing.

Prompts are the questions of LoCoMo or of JSON sets. In LoCoMo, four messages in a row of a conversation, some 500
characters, become a memory; each question is put to its own conversation, to another one, and to another one with the
names of its speakers. Tune on one half of the prompts, and look at the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice

from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks.quality.embedding import embed
from benchmarks.quality.questions import Question, QuestionSet
from benchmarks.quality.stores import WrittenCollection, write_collection
from benchmarks.sets.model import Collection, EvaluationSet, SetDocument
from memories import scopes
from memories.pack.recall import recall_body
from memories.pack.sections import GatherRequest
from memories.schemas import MemorySearch
from memories.search.parsed_query import parse
from memories.selectors.search import search
from memoryhub.config.project_settings import ProjectSettings
from memoryhub.core import clock
from memoryhub.core.errors import Invalid
from memoryhub.core.stores.store import StoreId, use_store

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


def set_prompts(read: EvaluationSet) -> list[Prompt]:
    """Write each collection into a store, and return its queries."""
    prompts = []
    for collection in read.collections:
        written = write_collection(collection)
        for query in collection.queries:
            right = frozenset(written.ids[key] for key in query.right)
            prompts.append(Prompt(written.store, query.text, right, query.category))
    return prompts


def conversation_prompts(read: EvaluationSet) -> list[Prompt]:
    """Write LoCoMo's conversations and return their questions as prompts.

    Raises:
        Invalid: there are fewer than two conversations.
    """
    if len(read.collections) < 2:
        raise Invalid("LoCoMo's file has fewer than two conversations")
    written = [_write_groups(collection) for collection in read.collections]
    return [prompt for number in range(len(written)) for prompt in _prompts(read.collections, written, number)]


def _write_groups(collection: Collection) -> WrittenCollection:
    """Write messages in groups, each as a memory; the ids are those of the messages."""
    groups: list[list[SetDocument]] = []
    for _, messages in groupby(collection.documents, key=lambda document: document.session):
        remaining = iter(messages)
        groups += iter(lambda: list(islice(remaining, _MESSAGES)), [])  # noqa: B023 - used up before the next one
    written = write_collection(replace(collection, documents=[_memory(messages) for messages in groups]))
    ids = {message.key: written.ids[messages[0].key] for messages in groups for message in messages}
    return WrittenCollection(written.store, ids)


def _memory(messages: Sequence[SetDocument]) -> SetDocument:
    text = "\n".join(message.text for message in messages)
    return SetDocument(messages[0].key, text, " ".join(text.split())[:80], kind="knowledge", type="fact")


def _prompts(collections: Sequence[Collection], written: Sequence[WrittenCollection], number: int) -> Iterator[Prompt]:
    home, speakers = written[number], collections[number].speakers or ()
    for index, query in enumerate(collections[number].queries):
        text, half = query.text, ("tuned on", "checked on")[query.half]
        yield Prompt(home.store, text, frozenset(home.ids[key] for key in query.right), f"{half}: {OWN}")
        other = (number + 1 + index % (len(written) - 1)) % len(written)
        yield Prompt(written[other].store, text, frozenset(), f"{half}: {OTHER}")
        for name, replacement in zip(speakers, collections[other].speakers or (), strict=True):
            text = text.replace(name, replacement)
        yield Prompt(written[other].store, text, frozenset(), f"{half}: {RENAMED}")


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
