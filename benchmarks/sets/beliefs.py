"""PrecisionMemBench: reads ``fixtures/`` of a copy of github.com/tenurehq/precisionMemBench."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.sets.chats import UNREADABLE
from benchmarks.sets.model import Collection, EvaluationSet, SetDocument, SetQuery
from memoryhub.core.errors import Invalid

_BELIEFS, _CASES = "fixtures/beliefs.seed.json", "fixtures/retrieval.cases.json"
_USER = "test-user"

Belief = Mapping[str, Any]


def is_copy(folder: Path) -> bool:
    return (folder / _CASES).is_file()


def read_beliefs(folder: Path) -> tuple[dict[str, Belief], list[Mapping[str, Any]]]:
    """Return the beliefs by id, and the cases, each with its user.

    Raises:
        Invalid: the files cannot be read.
    """
    try:
        beliefs = {belief["_id"]: belief for belief in json.loads((folder / _BELIEFS).read_text())}
        return beliefs, [{"userId": _USER, **case} for case in json.loads((folder / _CASES).read_text())]
    except UNREADABLE as error:
        raise Invalid(f"{folder} cannot be read as PrecisionMemBench: {error!r}") from error


def beliefs_in(beliefs: Iterable[Belief], user: str, scopes: Iterable[str]) -> list[SetDocument]:
    """Return a user's beliefs in any of the scopes."""
    scopes = set(scopes)
    chosen = [belief for belief in beliefs if belief["user_id"] == user and scopes.intersection(belief["scope"])]
    older: dict[str, tuple[str, ...]] = defaultdict(tuple)
    for belief in chosen:
        older[belief["superseded_by"]] += (belief["_id"],)
    return [
        SetDocument(
            key=belief["_id"],
            text=" ".join([*belief["aliases"], belief["content"], belief["why_it_matters"]]),
            title=belief["canonical_name"],
            kind="knowledge",
            supersedes=older[belief["_id"]],
            ended=belief["resolved_at"] or "",
        )
        for belief in chosen
    ]


def belief_set(folder: Path) -> EvaluationSet:
    """Read the cases without pinned beliefs and open questions, which the benchmark itself supplies.

    The beliefs of the scopes of a case are one collection.

    Raises:
        Invalid: the files cannot be read.
    """
    beliefs, cases = read_beliefs(folder)
    queries: dict[tuple[str, ...], list[SetQuery]] = {}
    collections: list[Collection] = []
    try:
        for index, case in enumerate(cases):
            expected = case["expect"].get("relevantBeliefs", {})
            if case["query"].strip() and "shouldOnlyInclude" in expected:
                place = (case["userId"], *sorted(case["scope"]))
                right, wrong = frozenset(expected["shouldOnlyInclude"]), frozenset(expected.get("mustExclude", ()))
                query = SetQuery(case["query"], right, case["category"], index % 2, wrong)
                queries.setdefault(place, []).append(query)
        for number, ((user, *scopes), asked) in enumerate(queries.items(), 1):
            documents = beliefs_in(beliefs.values(), user, scopes)
            collections.append(Collection(f"beliefs-{number}", documents, asked))
    except UNREADABLE as error:
        raise Invalid(f"{folder} cannot be read as PrecisionMemBench: {error!r}") from error
    return EvaluationSet("beliefs", "PrecisionMemBench", collections)
