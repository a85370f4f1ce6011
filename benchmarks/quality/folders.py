"""Sets of questions that are files: any in BEIR's format, and the questions in other languages of this repository.

A folder in BEIR's format has ``corpus.jsonl`` (``_id``, ``title``, ``text``), ``queries.jsonl`` (``_id``, ``text``) and
``qrels.tsv`` or ``qrels/test.tsv`` (query, document, score; a score above 0 is a right answer).
"""

from __future__ import annotations

import csv
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.quality.questions import Question, QuestionSet
from memories.schemas import MemoryWrite
from memories.services import write_memories
from memoryhub.core.errors import Invalid
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import StoreId, project_store, use_store

LANGUAGES = Path(__file__).parents[1] / "data" / "languages.tsv"
_AT_ONCE = 500
_LONGEST_TITLE = 200


def folder_set(folder: Path) -> QuestionSet:
    """Write the documents of a folder in BEIR's format as memories, and return the questions.

    Raises:
        Invalid: a file is missing, cannot be read, or is not in that format.
    """
    qrels = next((path for path in (folder / "qrels.tsv", folder / "qrels" / "test.tsv") if path.is_file()), None)
    if qrels is None:
        raise Invalid(f"{folder} has no qrels.tsv or qrels/test.tsv; give a set in BEIR's format")
    try:
        right = _right_answers(qrels)
        documents = list(_lines(folder / "corpus.jsonl"))
        asked = [item for item in _lines(folder / "queries.jsonl") if str(item["_id"]) in right]
        names = [str(item["_id"]) for item in documents]
        texts = [(item.get("title", ""), item["text"]) for item in documents]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise Invalid(f"{folder} cannot be read as a set in BEIR's format: {error!r}") from error
    store = project_store(f"set-{_key(folder)}")
    ids = dict(zip(names, _write(store, _unique_titles(names, texts)), strict=True))
    questions = [
        Question(store, item["text"], answers, _key(folder), index % 2)
        for index, item in enumerate(asked)
        if (answers := frozenset(ids[name] for name in right[str(item["_id"])] if name in ids))
    ]
    if not questions:
        raise Invalid(f"{folder} has no question with a right answer among its documents")
    return QuestionSet(_key(folder), folder.name, len(set(ids.values())), questions)


def languages() -> QuestionSet:
    """Write the memories in other languages into one store, and return their questions.

    Every other memory of a language belongs to the second half.
    """
    with LANGUAGES.open(encoding="utf-8", newline="") as file:
        items = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    store = project_store("languages")
    ids = _write(store, [(item["title"], item["text"]) for item in items])
    return QuestionSet("languages", "ten languages", len(items), list(_questions(store, items, ids)))


def _questions(store: StoreId, items: Sequence[Mapping[str, str]], ids: Sequence[int]) -> Iterator[Question]:
    places: Counter[str] = Counter()
    for item, answer in zip(items, ids, strict=True):
        half = places[item["language"]] % 2
        places[item["language"]] += 1
        for text in filter(None, (item["question"], item["keywords"])):
            yield Question(store, text, frozenset({answer}), item["language"], half, group=item["title"])


# Memories of the same title are one memory
def _unique_titles(names: Sequence[str], texts: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    counts = Counter(title[:_LONGEST_TITLE].casefold() for title, _ in texts)
    return [
        (title if title and counts[title[:_LONGEST_TITLE].casefold()] == 1 else f"{name} {title}", text or title)
        for name, (title, text) in zip(names, texts, strict=True)
    ]


def _write(store: StoreId, texts: Sequence[tuple[str, str]]) -> list[int]:
    commands = [MemoryWrite(title=title[:_LONGEST_TITLE], content=text, type="reference") for title, text in texts]
    with use_store(store, create=True), use_origin(source="service", actor="evaluate"):
        return [result.id for part in _parts(commands) for result in write_memories(commands=part)]


def _parts(commands: Sequence[MemoryWrite]) -> Iterable[Sequence[MemoryWrite]]:
    return (commands[start : start + _AT_ONCE] for start in range(0, len(commands), _AT_ONCE))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from (json.loads(line) for line in file if line.strip())


def _right_answers(path: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for query, document, score in (line.split("\t")[:3] for line in path.read_text().splitlines()[1:] if line):
        if int(score) > 0:
            found[query].append(document)
    return found


def _key(folder: Path) -> str:
    return "".join(character if character.isalnum() else "-" for character in folder.name.lower())
