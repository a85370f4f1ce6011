"""Conversations, and questions whose evidence is a list of messages. The data is not part of this repository."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.sets.model import Collection, EvaluationSet, SetDocument, SetQuery
from memoryhub.core.errors import Invalid

UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError)
BETWEEN_MESSAGES = timedelta(seconds=20)
# LoCoMo's fifth category has questions without an answer
_CATEGORIES = {1: "several turns", 2: "time", 3: "common sense", 4: "one turn"}
_EVIDENCE = re.compile(r"D\d+:\d+")
_SESSION = re.compile(r"session_(\d+)")
_LOCOMO_DATE = "%I:%M %p on %d %B, %Y"
_BEAM_DATE = "%B-%d-%Y"
_Chat = Sequence[Mapping[str, str]]
_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
_BEAM_END = re.compile(r"\s*->->\s*[\d,\s]*$")


def locomo(path: Path, *, without: Path | None = None) -> EvaluationSet:
    """Read LoCoMo's JSON: conversations over months of two people.

    Args:
        path: the file.
        without: a file in the same format, whose conversations are left out.

    Raises:
        Invalid: a file cannot be read, or is not LoCoMo's.
    """
    try:
        skipped = {sample["sample_id"] for sample in json.loads(without.read_text())} if without else set()
        samples = [sample for sample in json.loads(path.read_text()) if sample.get("sample_id") not in skipped]
        collections = [_locomo_conversation(number, sample) for number, sample in enumerate(samples, 1)]
    except UNREADABLE as error:
        raise Invalid(f"{path} cannot be read as LoCoMo's conversations: {error!r}") from error
    return EvaluationSet("conversations", "LoCoMo, turns", collections)


def _locomo_conversation(number: int, sample: Mapping[str, Any]) -> Collection:
    conversation, name = sample["conversation"], f"conversation-{number}"
    speakers = (conversation["speaker_a"], conversation["speaker_b"])
    numbers = sorted(int(match[1]) for field in conversation if (match := _SESSION.fullmatch(field)))
    documents: list[SetDocument] = []
    for session in numbers:
        began = datetime.strptime(conversation[f"session_{session}_date_time"], _LOCOMO_DATE).replace(tzinfo=UTC)
        for place, turn in enumerate(conversation[f"session_{session}"]):
            time = began + place * BETWEEN_MESSAGES
            documents.append(_locomo_turn(turn, f"s{session}", time, is_first=turn["speaker"] == speakers[0]))
    keys = {document.key for document in documents}
    return Collection(name, documents, list(_locomo_queries(sample["qa"], keys, name)), speakers)


def _locomo_turn(turn: Mapping[str, Any], session: str, time: datetime, *, is_first: bool) -> SetDocument:
    picture = f" [picture: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
    text = f"{turn['speaker']}: {turn['text']}{picture}"
    role = "user" if is_first else "assistant"
    return SetDocument(turn["dia_id"], text, session=session, speaker=turn["speaker"], role=role, time=time)


def _locomo_queries(items: Iterable[Mapping[str, Any]], keys: set[str], group: str) -> Iterator[SetQuery]:
    index = 0
    for item in items:
        right = frozenset(key for text in item.get("evidence", ()) for key in _EVIDENCE.findall(text)) & keys
        if item["category"] in _CATEGORIES and right:
            yield SetQuery(item["question"], right, _CATEGORIES[item["category"]], index % 2, group=group)
            index += 1


def beam(folder: Path) -> EvaluationSet:
    """Read a copy of BEAM, or one folder of its chats: ``N/chat.json`` and ``N/probing_questions``.

    Raises:
        Invalid: there are no chats, or one cannot be read.
    """
    root = next((path for path in (folder / "chats" / "100K", folder / "100K") if path.is_dir()), folder)
    paths = sorted(root.glob("*/chat.json"), key=lambda path: (len(path.parent.name), path.parent.name))
    if not paths:
        raise Invalid(f"{folder} has no chats of BEAM, such as chats/100K/1/chat.json")
    collections = []
    for path in paths:
        try:
            collections.append(_beam_chat(path))
        except UNREADABLE as error:
            raise Invalid(f"{path} cannot be read as a chat of BEAM: {error!r}") from error
    return EvaluationSet("beam", f"BEAM {root.name}, messages", collections)


def _beam_chat(path: Path) -> Collection:
    name = f"beam-{path.parent.name}"
    documents: list[SetDocument] = []
    began = _BEGAN
    for batch in json.loads(path.read_text()):
        for message in (message for turn in batch["turns"] for message in turn):
            if message.get("time_anchor"):
                began = datetime.strptime(message["time_anchor"], _BEAM_DATE).replace(tzinfo=UTC)
            text = _BEAM_END.sub("", message["content"])
            time = began + len(documents) * BETWEEN_MESSAGES
            session, role = f"s{batch['batch_number']}", message["role"]
            documents.append(SetDocument(str(message["id"]), text, session=session, speaker=role, role=role, time=time))
    questions = json.loads((path.parent / "probing_questions" / "probing_questions.json").read_text())
    queries: list[SetQuery] = []
    keys = {document.key for document in documents}
    for ability, items in questions.items():
        for item in items:
            right = keys.intersection(map(str, _flattened(item.get("source_chat_ids", ()))))
            if right:
                category = ability.replace("_", " ")
                queries.append(SetQuery(item["question"], frozenset(right), category, len(queries) % 2, group=name))
    return Collection(name, documents, queries)


def _flattened(ids: Any) -> Iterator[int]:
    if isinstance(ids, Mapping):
        ids = ids.values()
    for item in ids:
        if isinstance(item, int):
            yield item
        else:
            yield from _flattened(item)


def sde(folder: Path) -> EvaluationSet:
    """Read a copy of sde-bench: a task is the question, the messages of the chat that decided it are right.

    Tasks of which the decision was amended in a later chat are a collection of their own; the earlier chat is wrong.
    Both have the unrelated chats, too.

    Raises:
        Invalid: the files cannot be read, or no task has a chat.
    """
    try:
        unrelated = [chat["turns"] for chat in json.loads((folder / "gen" / "decoy_conversations.json").read_text())]
        paths = sorted(folder.glob("boltons-*/tasks/main/task.json"))
        tasks = {path.parts[-4].removeprefix("boltons-"): json.loads(path.read_text()) for path in paths}
        collections = [_sde_collection(source, tasks, unrelated) for source in ("conversation", "conversation-amended")]
    except UNREADABLE as error:
        raise Invalid(f"{folder} cannot be read as a copy of sde-bench: {error!r}") from error
    if not any(collection.queries for collection in collections):
        raise Invalid(f"{folder} has no task whose decision is in a chat")
    return EvaluationSet("sde", "sde-bench, chats", [collection for collection in collections if collection.queries])


def _sde_collection(source: str, tasks: Mapping[str, Any], unrelated: Sequence[_Chat]) -> Collection:
    chosen = {name: task for name, task in tasks.items() if task["source"] == source}
    sessions: dict[str, _Chat] = {f"unrelated-{number}": chat for number, chat in enumerate(unrelated)}
    for name, task in chosen.items():
        chats = task["conversations"] if isinstance(task["conversations"][0], list) else [task["conversations"]]
        sessions |= {f"{name}/{number}": chat for number, chat in enumerate(chats)}
    keys = {name: [f"{name}:{place}" for place in range(len(chat))] for name, chat in sessions.items()}
    documents = [
        SetDocument(key, message["text"], session=name, speaker=message["role"], role=message["role"], time=time)
        for day, (name, chat) in enumerate(sessions.items())
        for key, message, time in zip(keys[name], chat, _times(_BEGAN + timedelta(days=day)), strict=False)
    ]
    queries = []
    for index, (name, task) in enumerate(chosen.items()):
        *earlier, last = (session for session in sessions if session.startswith(f"{name}/"))
        wrong = frozenset(key for session in earlier for key in keys[session])
        harm = "superseded" if wrong else ""
        queries.append(SetQuery(task["bug_report"], frozenset(keys[last]), source, index % 2, wrong, harm))
    return Collection(f"sde-{source}", documents, queries)


def _times(began: datetime) -> Iterator[datetime]:
    return (began + place * BETWEEN_MESSAGES for place in count())
