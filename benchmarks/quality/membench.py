"""PrecisionMemBench: whether a question gets the right beliefs and no others.

Every scope of every user is a project. Recall
answers a case's query in the case's scopes; the benchmark itself supplies pinned beliefs, open questions and the
persona, as for every system that it measures. A case passes if all that it expects holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.quality.recall import embed_stores, recalled_entries
from benchmarks.quality.stores import WrittenCollection, write_collection
from benchmarks.sets.beliefs import Belief, beliefs_in, read_beliefs
from benchmarks.sets.model import Collection
from memoryhub.core.errors import Invalid

_MOST = 20
_QUESTION = "open_question"


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
    beliefs: Mapping[str, Belief]
    # By user and scope
    stores: Mapping[tuple[str, str], WrittenCollection]


def measure(folder: Path, *, meaning: bool) -> Scores:
    """Write the beliefs, ask the queries of all cases, and return the scores.

    Raises:
        Invalid: the files cannot be read.
    """
    beliefs, cases = read_beliefs(folder)
    try:
        written = _write(beliefs)
        if meaning:
            embed_stores([collection.store for collection in written.stores.values()])
        outcomes = [_outcome(written, case) for case in cases]
    except (LookupError, TypeError) as error:
        raise Invalid(f"{folder} cannot be read as PrecisionMemBench: {error!r}") from error
    return _scores([case["caseId"] for case in cases], outcomes)


def _write(beliefs: Mapping[str, Belief]) -> _Stores:
    places = sorted({(belief["user_id"], scope) for belief in beliefs.values() for scope in belief["scope"]})
    stores = {}
    for number, (user, scope) in enumerate(places, 1):
        documents = beliefs_in(beliefs.values(), user, [scope])
        stores[user, scope] = write_collection(Collection(f"beliefs-{number}", documents, ()))
    return _Stores(beliefs, stores)


def _outcome(written: _Stores, case: Mapping[str, Any]) -> _Outcome:
    user, scopes, expected = case["userId"], case["scope"], case["expect"]
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
            names = {entry: name for name, entry in store.ids.items()}
            answers += (names[entry] for entry in recalled_entries(store.store, query))
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
