"""LoCoMo: conversations over months, and questions whose evidence is a list of turns.

The data file is not part of this repository. A conversation becomes a project, its sessions become sessions with
their dates, its turns become messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.quality.questions import Question, QuestionSet
from memoryhub.core import clock, log
from memoryhub.core.errors import Invalid
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import project_store, use_store
from sessions_app.schemas import SessionStart
from sessions_app.services import start_session
from sessions_app.services.turns import append_automatically, automatic_turn, close_turn

# The fifth category has questions without an answer.
CATEGORIES = {1: "several turns", 2: "time", 3: "common sense", 4: "one turn"}
EVIDENCE = re.compile(r"D\d+:\d+")
_SESSION = re.compile(r"session_(\d+)")
_DATE = "%I:%M %p on %d %B, %Y"
_BETWEEN_TURNS = timedelta(seconds=20)


def conversations(path: Path) -> QuestionSet:
    """Write each conversation of the file into its own store, and return the questions.

    Raises:
        Invalid: the file cannot be read, or is not LoCoMo's.
    """
    try:
        samples = json.loads(path.read_text())
        found = [list(_conversation(number, sample)) for number, sample in enumerate(samples, 1)]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise Invalid(f"{path} cannot be read as LoCoMo's conversations: {error!r}") from error
    count = sum(len(turns_of(sample["conversation"])) for sample in samples)
    return QuestionSet(
        "conversations", "LoCoMo, turns", count, [question for questions in found for question in questions]
    )


def _conversation(number: int, sample: dict[str, Any]) -> Iterator[Question]:
    store = project_store(f"conversation-{number}")
    with use_store(store, create=True), use_origin(source="service", actor="evaluate"):
        ids = _write(sample["conversation"])
    index = 0
    for item in sample["qa"]:
        named = {name for text in item.get("evidence", ()) for name in EVIDENCE.findall(text)} & set(ids)
        if item["category"] not in CATEGORIES or not named:
            continue
        yield Question(
            store=store,
            text=item["question"],
            answers=frozenset(ids[name] for name in named),
            category=CATEGORIES[item["category"]],
            half=index % 2,
            sessions=frozenset(_session_name(name[1:].partition(":")[0]) for name in named),
            group=store.name,
        )
        index += 1


def turns_of(conversation: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    numbers = sorted(int(match[1]) for name in conversation if (match := _SESSION.fullmatch(name)))
    return [(str(number), turn) for number in numbers for turn in conversation[f"session_{number}"]]


def _write(conversation: dict[str, Any]) -> dict[str, int]:
    """Write all sessions; map LoCoMo's turn ids, which are not stored, to event positions."""
    ids: dict[str, int] = {}
    by_session: dict[str, list[dict[str, Any]]] = {}
    for number, turn in turns_of(conversation):
        by_session.setdefault(number, []).append(turn)
    for number, turns in by_session.items():
        began = datetime.strptime(conversation[f"session_{number}_date_time"], _DATE).replace(tzinfo=UTC)
        with log.transaction():
            ids |= _write_session(number, turns, began, conversation["speaker_a"])
    return ids


def _write_session(number: str, turns: list[dict[str, Any]], began: datetime, first: str) -> dict[str, int]:
    ids: dict[str, int] = {}
    name = _session_name(number)
    with clock.frozen(began):
        start_session(command=SessionStart(session_id=name))
        turn = automatic_turn(session_id=name)
    for index, message in enumerate(turns):
        type_name = "message.user" if message["speaker"] == first else "message.assistant"
        with clock.frozen(began + index * _BETWEEN_TURNS):
            event = append_automatically(turn=turn, type=type_name, payload={"content": text_of(message)})
        ids[message["dia_id"]] = event.position
    with clock.frozen(began + len(turns) * _BETWEEN_TURNS):
        close_turn(turn)
    return ids


def _session_name(number: str) -> str:
    return f"s{number}"


def text_of(turn: dict[str, Any]) -> str:
    picture = f" [picture: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
    return f"{turn['speaker']}: {turn['text']}{picture}"
