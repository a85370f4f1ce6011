"""Sets of notes: folders in BEIR's format, JSON files of prompts or of cases of harm, and questions in ten languages.

A folder in BEIR's format has ``corpus.jsonl`` (``_id``, ``title``, ``text``), ``queries.jsonl`` (``_id``, ``text``) and
``qrels.tsv`` or ``qrels/test.tsv`` (query, document, score; a score above 0 is a right answer).
"""

from __future__ import annotations

import csv
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.sets.chats import UNREADABLE
from benchmarks.sets.model import Collection, EvaluationSet, SetDocument, SetQuery
from memoryhub.core.errors import Invalid

LANGUAGES = Path(__file__).parents[1] / "data" / "languages.tsv"


def beir(folder: Path) -> EvaluationSet:
    """Read a folder in BEIR's format.

    Raises:
        Invalid: a file is missing, cannot be read, or is not in that format.
    """
    qrels = next((path for path in (folder / "qrels.tsv", folder / "qrels" / "test.tsv") if path.is_file()), None)
    if qrels is None:
        raise Invalid(f"{folder} has no qrels.tsv or qrels/test.tsv; give a set in BEIR's format")
    key = "".join(character if character.isalnum() else "-" for character in folder.name.lower())
    try:
        answers = _right_answers(qrels)
        documents = [
            SetDocument(str(item["_id"]), item["text"] or item["title"], item.get("title", ""), type="reference")
            for item in _lines(folder / "corpus.jsonl")
        ]
        names = {document.key for document in documents}
        asked = [item for item in _lines(folder / "queries.jsonl") if str(item["_id"]) in answers]
        queries = [
            SetQuery(item["text"], right, key, index % 2)
            for index, item in enumerate(asked)
            if (right := answers[str(item["_id"])] & names)
        ]
    except UNREADABLE as error:
        raise Invalid(f"{folder} cannot be read as a set in BEIR's format: {error!r}") from error
    if not queries:
        raise Invalid(f"{folder} has no question with a right answer among its documents")
    return EvaluationSet(key, folder.name, [Collection(f"set-{key}", documents, queries)])


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from (json.loads(line) for line in file if line.strip())


def _right_answers(path: Path) -> dict[str, frozenset[str]]:
    answers: dict[str, frozenset[str]] = defaultdict(frozenset)
    for query, document, score in (line.split("\t")[:3] for line in path.read_text().splitlines()[1:] if line):
        if int(score) > 0:
            answers[query] |= {document}
    return answers


def languages() -> EvaluationSet:
    """Read the memories in other languages; every other memory of a language belongs to the second half."""
    with LANGUAGES.open(encoding="utf-8", newline="") as file:
        items = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    documents = [SetDocument(item["title"], item["text"], item["title"], type="reference") for item in items]
    queries: list[SetQuery] = []
    places: Counter[str] = Counter()
    for item in items:
        half = places[item["language"]] % 2
        places[item["language"]] += 1
        for text in filter(None, (item["question"], item["keywords"])):
            right = frozenset({item["title"]})
            queries.append(SetQuery(text, right, item["language"], half, group=item["title"]))
    return EvaluationSet("languages", "ten languages", [Collection("languages", documents, queries)])


def json_sets(folder: Path) -> EvaluationSet:
    """Read all JSON files of a folder, each of which is a collection of entries, and of prompts or cases of harm.

    Raises:
        Invalid: the folder has no such files, or one cannot be read.
    """
    collections = []
    for number, path in enumerate(sorted(folder.glob("*.json")), 1):
        try:
            data = json.loads(path.read_text())
            documents = [_entry(entry) for entry in data["entries"]]
            keys = {document.key for document in documents}
            asked = [*data.get("prompts", ()), *data.get("cases", ())]
            queries = [_query(item, data["nature"], index, keys) for index, item in enumerate(asked)]
        except UNREADABLE as error:
            raise Invalid(f"{path} cannot be read as a set of prompts: {error!r}") from error
        collections.append(Collection(f"{folder.name}-{number}", documents, queries))
    if not any(collection.queries for collection in collections):
        raise Invalid(f"{folder} has no sets of prompts")
    return EvaluationSet(folder.name, folder.name, collections)


def _entry(entry: Mapping[str, Any]) -> SetDocument:
    return SetDocument(
        key=entry["key"],
        text=entry["content"],
        title=entry["title"],
        kind=entry["kind"],
        type=entry["type"],
        supersedes=(entry["supersedes"],) if entry.get("supersedes") else (),
        ended=entry.get("ended") or "",
    )


def _query(item: Mapping[str, Any], nature: str, index: int, keys: set[str]) -> SetQuery:
    right, wrong = frozenset(item["right"]), frozenset(item.get("wrong", ()))
    if unknown := sorted((right | wrong) - keys):
        raise LookupError(f"no entry has the key {unknown[0]!r}")
    harm = item.get("harm", "")
    text, category = item.get("text") or item["query"], f"{nature}: {item.get('nature') or harm}"
    return SetQuery(text, right, category, index % 2, wrong, harm)
