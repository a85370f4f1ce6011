"""PrecisionMemBench: whether a question gets the right beliefs and no others.

Reads ``fixtures/`` of a copy of github.com/tenurehq/precisionMemBench. Every scope of every user is a project. Recall
answers a case's query in the case's scopes; the benchmark itself supplies pinned beliefs, open questions and the
persona, as for every system that it measures. A case passes if all that it expects holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.quality.recall import embed_stores, recalled_entries, write_store
from memories.models import EndType, RelationType
from memories.schemas import MemoryWrite
from memories.schemas.links import RelationCreate
from memories.services.links import create_relation
from memoryhub.core.errors import Invalid
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import StoreId, use_store

_BELIEFS, _CASES = "fixtures/beliefs.seed.json", "fixtures/retrieval.cases.json"
_USER = "test-user"
_MOST = 20
_QUESTION = "open_question"

_Belief = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Scores:
    passed: int
    cases: int
    # Passes with a precision above 0, which nothing but the right beliefs can reach
    active: int
    # Means over the cases to which they apply
    precision: float
    recall: float
    failed: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class _Outcome:
    category: str
    failures: list[str]
    precision: float | None
    recall: float | None


@dataclass(frozen=True, slots=True)
class _Stores:
    beliefs: Mapping[str, _Belief]
    # By user and scope
    stores: Mapping[tuple[str, str], StoreId]
    names: Mapping[StoreId, Mapping[int, str]]


def is_copy(folder: Path) -> bool:
    return (folder / _CASES).is_file()


def measure(folder: Path, *, meaning: bool) -> Scores:
    """Write the beliefs, ask the queries of all cases, and return the scores.

    Raises:
        Invalid: the files cannot be read.
    """
    try:
        beliefs = {belief["_id"]: belief for belief in json.loads((folder / _BELIEFS).read_text())}
        cases = json.loads((folder / _CASES).read_text())
        written = _write(beliefs)
        if meaning:
            embed_stores(list(written.stores.values()))
        outcomes = [_outcome(written, case) for case in cases]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise Invalid(f"{folder} cannot be read as PrecisionMemBench: {error!r}") from error
    return _scores([case["caseId"] for case in cases], outcomes)


def _write(beliefs: Mapping[str, _Belief]) -> _Stores:
    stores: dict[tuple[str, str], StoreId] = {}
    names: dict[StoreId, dict[int, str]] = {}
    places = sorted({(belief["user_id"], scope) for belief in beliefs.values() for scope in belief["scope"]})
    for number, (user, scope) in enumerate(places, 1):
        own = [belief for belief in beliefs.values() if belief["user_id"] == user and scope in belief["scope"]]
        store, ids = write_store(f"beliefs-{number}", list(map(_memory, own)))
        stores[user, scope] = store
        names[store] = dict(zip(ids, (belief["_id"] for belief in own), strict=True))
        _supersede(store, own, {name: entry for entry, name in names[store].items()})
    return _Stores(beliefs, stores, names)


def _memory(belief: _Belief) -> MemoryWrite:
    text = " ".join([*belief["aliases"], belief["content"], belief["why_it_matters"]])
    attributes = {"valid_until": belief["resolved_at"]} if belief["resolved_at"] else {}
    return MemoryWrite(title=belief["canonical_name"], content=text, kind="knowledge", attributes=attributes)


def _supersede(store: StoreId, beliefs: Sequence[_Belief], ids: Mapping[str, int]) -> None:
    with use_store(store), use_origin(source="service", actor="evaluate"):
        for belief in beliefs:
            if belief["superseded_by"] in ids:
                source, target = ids[belief["superseded_by"]], ids[belief["_id"]]
                create_relation(
                    command=RelationCreate(
                        source=source,
                        relation=RelationType.SUPERSEDES,
                        target=target,
                        source_type=EndType.MEMORY,
                        target_type=EndType.MEMORY,
                    )
                )


def _outcome(written: _Stores, case: Mapping[str, Any]) -> _Outcome:
    user, scopes, expected = case.get("userId", _USER), case["scope"], case["expect"]
    own = [belief for belief in written.beliefs.values() if belief["user_id"] == user and belief["pinned"]]
    pinned = [belief for belief in own if not belief["resolved_at"] and set(belief["scope"]) & set(scopes)]
    questions = {belief["_id"] for belief in pinned if belief["type"] == _QUESTION}
    facts = [belief["_id"] for belief in pinned if belief["type"] != _QUESTION and not belief["superseded_by"]]
    most = case.get("budget", {}).get("maxBeliefs", _MOST)
    answers = _answers(written, user, scopes, case["query"]) if most else []
    given = [name for name in dict.fromkeys(answers) if name not in facts][: max(0, most - len(facts))]
    beliefs, shown = expected.get("relevantBeliefs", {}), set(facts[:most])
    failures = [
        *_differences(set(given) | shown, beliefs, "belief"),
        *_differences(shown, expected.get("pinnedFacts", {}), "pinned fact"),
        *_differences(questions, expected.get("openQuestions", {}), "open question"),
    ]
    only = beliefs.get("shouldOnlyInclude")
    if only is not None and set(only) != set(given):
        failures.append(f"gave {', '.join(given) or 'nothing'} instead of {', '.join(only) or 'nothing'}")
    right = set(beliefs.get("mustInclude", [])) - set(facts) if only is None else set(only)
    hits = len(right & set(given))
    precision = hits / len(given) if given else 0.0
    return _Outcome(
        case["category"],
        failures,
        precision if given or right else None,
        hits / len(right) if right else None,
    )


def _answers(written: _Stores, user: str, scopes: Sequence[str], query: str) -> list[str]:
    answers: list[str] = []
    for scope in scopes:
        if query.strip() and (store := written.stores.get((user, scope))):
            answers += (written.names[store][entry] for entry in recalled_entries(store, query))
    # The benchmark itself adds what a relation joins
    joined = [name for answer in answers for name in written.beliefs[answer].get("participants", ())]
    return answers + [name for name in joined if set(written.beliefs[name]["scope"]) & set(scopes)]


def _differences(given: set[str], expected: Mapping[str, Any], what: str) -> Iterator[str]:
    yield from (f"missing {what} {name}" for name in expected.get("mustInclude", ()) if name not in given)
    yield from (f"wrong {what} {name}" for name in expected.get("mustExclude", ()) if name in given)


def _scores(names: Sequence[str], outcomes: Sequence[_Outcome]) -> Scores:
    precisions = [outcome.precision for outcome in outcomes if outcome.precision is not None]
    recalls = [outcome.recall for outcome in outcomes if outcome.recall is not None]
    passed = [outcome for outcome in outcomes if not outcome.failures]
    return Scores(
        passed=len(passed),
        cases=len(outcomes),
        active=sum(1 for outcome in passed if outcome.precision),
        precision=sum(precisions) / max(1, len(precisions)),
        recall=sum(recalls) / max(1, len(recalls)),
        failed={name: outcome.failures for name, outcome in zip(names, outcomes, strict=True) if outcome.failures},
    )


def render(scores: Scores) -> str:
    lines = [
        f"PrecisionMemBench: {scores.passed} of {scores.cases} passed, {scores.active} of them active; "
        f"mean precision {scores.precision:.2f}, mean recall {scores.recall:.2f}",
        *(f"  {name}: {'; '.join(failures)}" for name, failures in scores.failed.items()),
    ]
    return "\n".join(lines)
