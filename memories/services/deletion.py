"""Delete, restore and permanently erase memories."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from django.db import DatabaseError

from memories import scopes
from memories.duplicates import Existing, ExistingMemories
from memories.embeddings.vectors import forget_files
from memories.events import MEMORY_DELETED, MEMORY_RESTORED, MemoryTouched
from memories.models import Memory
from memories.schemas import MemoryDelete, MemoryRestore, MemoryTouch, WriteResult, WriteStatus
from memories.search.index import forget_removed
from memories.selectors.memories import find_memory
from memories.services.revise import live_memory, restore_version, result_of, with_deletion, with_memory, write_result
from memoryhub.core import log
from memoryhub.core.errors import ConfirmationRequired, ConflictError, PreconditionFailed
from memoryhub.core.events.event_types import EventType, event_type
from memoryhub.core.log.erase import wipe_free_space
from memoryhub.core.permissions import Act, demand
from memoryhub.core.secrets.sanitize import TEXT, Shape, payload_shape
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, json_text, position_of
from memoryhub.core.stores.store import StoreId, current_store, use_store
from memoryhub.core.text import counted
from sessions_app.spooled import Spooled, cleaning, find_spooled, hook_names

logger = logging.getLogger(__name__)


def delete_memory(*, command: MemoryTouch) -> WriteResult:
    """Soft-delete a memory: it leaves lists and searches, and can be restored. ``permanent`` erases a deleted one.

    Raises:
        NotFound: there is no such memory.
        Gone: it is deleted already.
        ConfirmationRequired, PreconditionFailed: as ``erase_memory``.
        Forbidden: the caller may not erase.
    """
    if isinstance(command, MemoryDelete) and command.permanent:
        return erase_memory(command=command)
    return _touch(MEMORY_DELETED, command, WriteStatus.DELETED, live_memory)


def restore_memory(*, command: MemoryTouch) -> WriteResult:
    """Undelete a memory; with ``version``, make that version current again.

    Raises:
        NotFound: there is no such memory or version.
        ConflictError: it is not deleted, or another memory has its topic or title.
    """
    if isinstance(command, MemoryRestore) and command.version:
        return restore_version(command=command)
    return _touch(MEMORY_RESTORED, command, WriteStatus.RESTORED, _deleted_memory)


def _touch(
    touched: EventType[MemoryTouched], command: MemoryTouch, status: WriteStatus, find: Callable[[int], Memory]
) -> WriteResult:
    with scopes.writing(command.scope), log.transaction():
        first = log.find_by_key(command.idempotency_key, touched)
        if first:
            return result_of(first)
        memory = find(command.id)
        draft = log.prepare(touched, MemoryTouched(memory_id=memory.id, reason=command.reason))
        event = log.append(draft, stream=f"memory:{memory.id}", idempotency_key=command.idempotency_key)
        result = write_result(Existing.of(memory), status, redacted=draft.redactions)
        return with_memory(with_deletion(result, event.occurred_at))


def _deleted_memory(memory_id: int) -> Memory:
    memory = find_memory(memory_id)
    if memory.deleted_at is None:
        raise ConflictError(f"memory #{memory_id} is not deleted", id=memory_id)
    state = Existing.of(memory).state
    rival = ExistingMemories([state], memory.session_id).named_like(state)
    if rival:
        raise ConflictError(
            f"#{rival.id} has taken the topic or title of #{memory_id}; change or delete it first", id=rival.id
        )
    return memory


def erase_memory(*, command: MemoryDelete) -> WriteResult:
    """Erase every version of a soft-deleted memory. Events and their digests stay, so the chain still verifies.

    Context packs whose question quotes the text are erased with it, and the text is removed from spooled hook events.
    Afterwards the text is not in the store's files, unless another event quotes it. Older backups still contain it.

    Raises:
        NotFound: there is no such memory.
        Forbidden: the caller may not govern the memory's store.
        PreconditionFailed: it is not deleted.
        ConfirmationRequired: ``confirm_token`` is not the one in this error.
        Locked: another process holds the spool.
    """
    reason = command.reason or "permanently deleted"
    caller = current_store()
    # See decisions 6 and 31
    with scopes.writing(command.scope):
        demand(Act.GOVERN)  # in the memory's own store, and before packs of the caller's are erased
        memory = find_memory(command.id)
        traces = Traces(log.events().of_stream(f"memory:{memory.id}").positions(), caller)
        _require_confirmation(memory, traces, command.confirm_token)
        with traces.cleaning() as clean_spool:
            if caller != current_store():
                with use_store(caller):
                    if traces.erase_packs(reason=reason):
                        wipe_traces()
            with log.transaction():
                memory = find_memory(command.id)
                _require_confirmation(memory, traces, command.confirm_token)
                log.erase_streams([f"memory:{memory.id}"], reason=reason)
                traces.erase_packs(reason=reason)
                clean_spool()  # before the commit: afterwards the text is gone and could not be searched
        wipe_traces()
        status = WriteStatus.ERASED
        erased = WriteResult(id=memory.id, version=memory.version, status=status, title="", scope=memory.scope)
        return with_deletion(erased, memory.deleted_at)


def wipe_traces() -> bool:
    """Remove erased and redacted bytes from the files of the current store.

    Returns False if the store was locked or the disk is full; an hourly job retries.
    """
    try:
        forget_removed()
        forget_files()
    except DatabaseError as error:
        logger.warning("the index of %s could not be cleared: %s", current_store().name, error)
        return False
    return wipe_free_space()


def _require_confirmation(memory: Memory, traces: Traces, token: str | None) -> None:
    if memory.deleted_at is None:
        raise PreconditionFailed(
            f"memory #{memory.id} is not deleted; delete it first, then again with permanent=true", id=memory.id
        )
    expected = _token(memory)
    if token != expected:
        packs = traces.count_packs()
        spooled = len(traces.find_spooled().lines)
        quoting = f", {counted(packs, 'context pack')} whose question quotes it" if packs else ""
        if spooled:
            quoting += f", and its text in {counted(spooled, 'spooled event')}"
        raise ConfirmationRequired(
            f"permanently delete #{memory.id} {memory.title!r} with its {counted(memory.version, 'version')}"
            f"{quoting}? Its text cannot be restored",
            id=memory.id,
            confirm_token=expected,
        )


# Bound to the last event: the token expires when the memory changes or is restored
def _token(memory: Memory) -> str:
    last = log.events().of_stream(f"memory:{memory.id}").last()
    digest = last.chain_digest if last else ""
    return hashlib.sha256(f"erase memory {memory.id} at {digest}".encode()).hexdigest()[:16]


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
# A pack without a question is about what its session worked on
PACK_QUESTIONS = (
    f"SELECT p.id, p.query || coalesce({json_text('r.payload_json', 'work')}, '') FROM memories_contextpack p "
    "JOIN raw_events r ON r.position = p.id ORDER BY p.id"
)

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
        for name, payload in rows.fetch(_PAYLOADS, [self._erased]):
            declared = event_type(name)
            shape = payload_shape(declared.schema) if declared else TEXT
            for text in _texts(json.loads(payload), shape):
                words = _WORD.findall(_TAG.sub(" ", text.lower()))
                self._words.update(words)
                self._runs.update(_runs(words, _RUN))
                if 0 < len(words) < _RUN:
                    self._short[tuple(words)] = text.lower().strip()

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
        return [pack for pack, query in rows.fetch(PACK_QUESTIONS) if self._spans(query) or self._names(query)]

    def erase_packs(self, *, reason: str) -> int:
        packs = self.packs()
        if packs:
            log.erase_streams([f"pack:{pack}" for pack in packs], reason=reason)
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
        matches = list(_WORD.finditer(text))
        words = [match.group().lower() for match in matches]
        spans: list[tuple[int, int]] = []
        for size in range(1, _RUN + 1):
            for place, run in enumerate(_runs(words, size)):
                if self._is_quotation(run):
                    spans.append((matches[place].start(), matches[place + size - 1].end()))
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
            cleaned: dict[str, Any] = {}
            for key, item in value.items():
                name = key if key in hook_names() else self._cut(key, texts)
                cleaned[name if name not in cleaned else f"{name} {len(cleaned)}"] = self._without(item, texts)
            return cleaned
        if isinstance(value, list):
            return [self._without(item, texts) for item in value]
        return value

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


def _texts(value: Any, shape: Shape) -> Iterator[str]:
    if isinstance(value, str) and shape.is_text:
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, shape.at(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, shape.at(index))
