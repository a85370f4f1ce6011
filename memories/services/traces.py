"""Find quotations of erased texts in questions of context packs and in spooled events (decision 31)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from memoryhub.core.events.event_types import event_type
from memoryhub.core.log import erase_streams
from memoryhub.core.secrets.shapes import TEXT, Shape, payload_shape
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, position_of
from memoryhub.core.stores.store import StoreId, current_store, use_store
from sessions_app.spooled import Spooled, cleaning, find_spooled, hook_names

# Texts are compared word by word: questions lose their line breaks, and long texts are cut.

# This many words in a row are a quotation; a shorter text counts as a whole
_RUN = 4
# Characters; shorter words are in every text
_SHORTEST = 5
_ERASED = "[REDACTED:erased]"
_TAG = re.compile(r"\[REDACTED:[^\]\s]{1,64}\]")
_WORD = re.compile(r"\w+")
_PAYLOADS = f"SELECT event_type, payload_json FROM raw_events WHERE payload_json IS NOT NULL AND position IN {IDS}"
# Whether an event outside of a set contains a text, other than in the question of a pack
_ELSEWHERE = (
    "SELECT 1 FROM raw_events WHERE payload_json IS NOT NULL AND event_type <> 'context.packed' "
    f"AND position NOT IN {IDS} AND {position_of('%s', 'lower(payload_json)')} > 0 LIMIT 1"
)
_QUESTIONS = "SELECT id, query FROM memories_contextpack WHERE query <> '' ORDER BY id"

Words = tuple[str, ...]


class Traces:
    """Quotations of the texts of events that are about to be erased."""

    def __init__(self, positions: Sequence[int], caller: StoreId | None = None) -> None:
        """Read the texts; the store of the events must be current.

        Args:
            positions: of the events.
            caller: another store whose packs and spooled events may quote them.
        """
        self._store = current_store()
        self._caller = caller or self._store
        self._erased = json.dumps(list(positions))
        self._runs: set[Words] = set()
        # Texts with fewer words than a run
        self._short: dict[Words, str] = {}
        self._words: set[str] = set()
        self._unique: dict[str, bool] = {}
        for text in _erased_texts(self._erased):
            self._learn(text.lower())

    def _learn(self, text: str) -> None:
        words = _WORD.findall(_TAG.sub(" ", text))
        self._words.update(words)
        self._runs.update(_runs(words, _RUN))
        if 0 < len(words) < _RUN:
            self._short[tuple(words)] = text.strip()

    # Whether no other event of the store contains the text; questions of packs do not count
    def _is_only_here(self, text: str) -> bool:
        if len(text) < _SHORTEST:
            return False
        if text not in self._unique:
            with use_store(self._store):
                written = json.dumps(text, ensure_ascii=False)[1:-1]
                self._unique[text] = not rows.fetch(_ELSEWHERE, [self._erased, written])
        return self._unique[text]

    def packs(self) -> list[int]:
        """Return the packs of the current store whose question quotes the text, or has a word that is unique to it."""
        return [pack for pack, query in rows.fetch(_QUESTIONS) if self._spans(query) or self._names(query)]

    def erase_packs(self, *, reason: str) -> int:
        packs = self.packs()
        if packs:
            erase_streams([f"pack:{pack}" for pack in packs], reason=reason)
        return len(packs)

    def count_packs(self) -> int:
        count = 0
        for store in {self._store, self._caller}:
            with use_store(store):
                count += len(self.packs())
        return count

    def find_spooled(self) -> Spooled:
        with use_store(self._caller):
            return find_spooled(self._clean)

    @contextmanager
    def cleaning(self) -> Iterator[Callable[[], Spooled]]:
        """Yield a function that removes the text from spooled events; see ``spooled.cleaning``."""
        with ExitStack() as stack:
            with use_store(self._caller):
                clean = stack.enter_context(cleaning())
            yield lambda: clean(self._clean)

    def _names(self, text: str) -> bool:
        words = self._words.intersection(_WORD.findall(text.lower()))
        return any(self._is_only_here(word) for word in sorted(words))

    def _spans(self, text: str) -> list[tuple[int, int]]:
        found = list(_WORD.finditer(text))
        words = [match.group().lower() for match in found]
        spans: list[tuple[int, int]] = []
        for size in range(1, _RUN + 1):
            for place, run in enumerate(_runs(words, size)):
                if self._is_quotation(run):
                    spans.append((found[place].start(), found[place + size - 1].end()))
        return _united(spans)

    def _is_quotation(self, run: Words) -> bool:
        return run in self._runs or (run in self._short and self._is_only_here(self._short[run]))

    def _clean(self, value: Any) -> tuple[Any, list[str]]:
        texts: list[str] = []
        return self._without(value, texts), texts

    def _without(self, value: Any, texts: list[str]) -> Any:
        if isinstance(value, str):
            return self._cut(value, texts)
        if isinstance(value, dict):
            made: dict[str, Any] = {}
            for key, item in value.items():
                name = key if key in hook_names() else self._cut(key, texts)
                made[name if name not in made else f"{name} {len(made)}"] = self._without(item, texts)
            return made
        return [self._without(item, texts) for item in value] if isinstance(value, list) else value

    def _cut(self, text: str, texts: list[str]) -> str:
        for start, end in reversed(self._spans(text)):
            texts.append(text[start:end])
            text = f"{text[:start]}{_ERASED}{text[end:]}"
        return text


def _runs(words: Sequence[str], size: int) -> Iterator[Words]:
    return (tuple(words[place : place + size]) for place in range(len(words) - size + 1))


def _united(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    united: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if united and start <= united[-1][1] + 1:
            united[-1] = (united[-1][0], max(end, united[-1][1]))
        else:
            united.append((start, end))
    return united


def _erased_texts(positions: str) -> Iterator[str]:
    for name, payload in rows.fetch(_PAYLOADS, [positions]):
        kind = event_type(name)
        yield from _texts(json.loads(payload), payload_shape(kind.schema) if kind else TEXT)


def _texts(value: Any, shape: Shape) -> Iterator[str]:
    if isinstance(value, str) and shape.is_text:
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, shape.at(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, shape.at(index))
