"""Memories that a write may duplicate: with the same topic, text or title, or with nearly the same text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain

from memories.events import ACCEPTED, MemoryState, ReviewStatus
from memories.models import Memory, MemoryScope, ReviewState
from memories.projectors import content_hash
from memories.schemas import SimilarMemory
from memories.search.index import has_full_text, text_index
from memories.search.text import STOP_WORDS, folded
from memoryhub.core.log.quarantine import OUTSIDE
from memoryhub.core.secrets.context import current_tag_key
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import StoreCache, current_request

_JSON = ("tags", "resource_links", "attributes")
_REVIEW = ("review", "review_reason", "accepted_version")
_COLUMNS = ("id", "version", "session_id", *_REVIEW, *MemoryState.model_fields)


def namespace_of(state: MemoryState, session_id: str) -> tuple[str, str]:
    """Return the scope, with the session that writes it if the scope is a session: names are unique in a namespace."""
    return state.scope, session_id if state.scope is MemoryScope.SESSION else ""


@dataclass(slots=True)
class Existing:
    id: int
    # The current one
    version: int
    # That wrote it
    session_id: str
    state: MemoryState
    status: ReviewStatus = ACCEPTED

    @classmethod
    def of(cls, memory: Memory) -> Existing:
        state = MemoryState.of_stored(vars(memory))
        return cls(memory.id, memory.version, memory.session_id, state, review_status_of(memory))

    def differs(self, state: MemoryState) -> bool:
        """Return whether ``state`` sets any field to a new value; the author is ignored."""
        before = self.state.columns()
        after = state.columns()
        return any(before[name] != after[name] for name in state.model_fields_set & set(before) - {"author"})

    def revised(self, state: MemoryState, status: ReviewStatus | None) -> None:
        self.status = status or ACCEPTED
        self.state = MemoryState.of_stored(vars(state))
        self.version += 1


# A redaction changes the topic keys that have the text, such as the slug of a heading. The document that is imported
# again gives the old key; ``store_meta`` has its keyed digest and the id of the memory, never the key.
_TOPIC = "topic:"
_DIGEST_BYTES = 16


def remember_topics(topics: Mapping[str, int]) -> None:
    """Remember that memories had these topic keys before a redaction, so that ``current_topic`` finds them."""
    for topic, memory_id in topics.items():
        rows.put_meta(f"{_TOPIC}{_topic_digest(topic)}", str(memory_id))
    _redacted_topics.forget()


@StoreCache
def _redacted_topics(_before: dict[str, int] | None) -> dict[str, int]:
    stored = rows.fetch("SELECT key, value FROM store_meta WHERE key LIKE %s", [f"{_TOPIC}%"])
    return {key.removeprefix(_TOPIC): int(value) for key, value in stored}


def current_topic(topic: str) -> str:
    """Return the key that a topic has since a redaction, otherwise the topic itself."""
    request = current_request()
    if request is None:
        return topic
    ids = _redacted_topics.get(request)
    memory_id = ids.get(_topic_digest(topic)) if ids else None
    if memory_id is None:
        return topic
    return Memory.objects.filter(id=memory_id).values_list("topic_key", flat=True).first() or topic


def _topic_digest(topic: str) -> str:
    person = b"topic"
    return blake2b(topic.encode(), key=current_tag_key(), digest_size=_DIGEST_BYTES, person=person).hexdigest()


def review_status_of(memory: Memory) -> ReviewStatus:
    return ReviewStatus(
        state=ReviewState(memory.review), reason=memory.review_reason, accepted_version=memory.accepted_version
    )


class ExistingMemories:
    """Live memories that share a topic, content or title with the states about to be written.

    Topics are unique per scope, contents and titles per scope and kind (decision 8).
    """

    def __init__(self, states: Sequence[MemoryState], session_id: str) -> None:
        self._session_id = session_id
        self._by_topic: dict[tuple[object, ...], Existing] = {}
        self._by_hash: dict[tuple[object, ...], Existing] = {}
        self._by_title: dict[tuple[object, ...], Existing] = {}
        without_topic = [state for state in states if not state.topic_key]
        values_of = {
            "topic_key": [state.topic_key for state in states if state.topic_key],
            "content_hash": [content_hash(state.content) for state in without_topic],
            "title": [state.title for state in without_topic],
        }
        conditions = [f"{name} IN ({', '.join(['%s'] * len(values))})" for name, values in values_of.items() if values]
        if not conditions:
            return
        # Plain SQL: every write runs it
        matches = rows.fetch(
            f"SELECT {', '.join(_COLUMNS)} FROM memories_memory "
            f"WHERE deleted_at IS NULL AND id {OUTSIDE} AND ({' OR '.join(conditions)}) ORDER BY id",
            list(chain.from_iterable(values_of.values())),
        )
        for row in matches:
            columns = dict(zip(_COLUMNS, row, strict=True))
            for name in _JSON:
                columns[name] = json.loads(columns[name])
            self.add(Existing.of(Memory(**columns)))

    def of_topic(self, state: MemoryState) -> Existing | None:
        return self._by_topic.get((namespace_of(state, self._session_id), state.topic_key))

    def of_content(self, state: MemoryState) -> Existing | None:
        namespace = namespace_of(state, self._session_id)
        return self._by_hash.get((namespace, state.kind, content_hash(state.content)))

    def of_title(self, state: MemoryState) -> Existing | None:
        return self._by_title.get((namespace_of(state, self._session_id), state.kind, state.title))

    def named_like(self, state: MemoryState) -> Existing | None:
        """Return the memory with the topic of ``state``; without a topic, the one with its title."""
        return self.of_topic(state) if state.topic_key else self.of_title(state)

    def add(self, existing: Existing) -> None:
        state = existing.state
        namespace = namespace_of(state, existing.session_id)
        if state.topic_key:
            self._by_topic[namespace, state.topic_key] = existing
        self._by_hash.setdefault((namespace, state.kind, content_hash(state.content)), existing)
        self._by_title.setdefault((namespace, state.kind, state.title), existing)


_WORD = re.compile(r"\w{2,40}")
_MOST_CHARACTERS = 20_000

# Share of common words from which two texts are nearly the same
ALIKE = 0.7

# Share from which they may be about the same subject
NEAR = 0.25

_MOST_SIMILAR = 3
_CANDIDATES = 8
_PAIRS = 2
_LONGEST = 12
# Shorter texts are alike too easily
LEAST_WORDS = 6


def similar_memories(memory_id: int, state: MemoryState) -> list[SimilarMemory]:
    """Return live memories of the current store with nearly the same text, most similar first.

    None are found without a full-text index.
    """
    words = words_of(f"{state.title} {state.content}")
    if len(words) < LEAST_WORDS or not has_full_text():
        return []
    return _most_alike(memory_id, words, rare_pairs(words), by_score=False, least=ALIKE)


# Ranks all memories with any of the longest words, which takes as long as a search
def near_memories(memory_id: int, state: MemoryState) -> list[SimilarMemory]:
    """Return live memories of the current store that may be about the same subject, most similar first."""
    words = words_of(f"{state.title} {state.content}")
    if not words or not has_full_text():
        return []
    longest = [(word,) for word in _longest_words(words, _LONGEST)]
    return _most_alike(memory_id, words, longest, by_score=True, least=NEAR)


def _most_alike(
    memory_id: int, words: frozenset[str], groups: Sequence[Sequence[str]], *, by_score: bool, least: float
) -> list[SimilarMemory]:
    alike = []
    for candidate, title, content in _candidates(groups, by_score=by_score):
        if candidate == memory_id:
            continue
        share = round(share_of(words, words_of(f"{title} {content}")), 2)
        if share >= least:
            alike.append(SimilarMemory(id=candidate, title=title, alike=share))
    return sorted(alike, key=lambda memory: -memory.alike)[:_MOST_SIMILAR]


def already_stored(text: str) -> bool:
    """Return whether a live memory of the current store has nearly all words of a text."""
    words = words_of(text)
    if not words or not has_full_text():
        return False
    candidates = _candidates(rare_pairs(words) or [tuple(words)], by_score=False)
    return any(len(words & words_of(f"{title} {content}")) >= ALIKE * len(words) for _, title, content in candidates)


# Id, title and content of live memories that have all words of a group
def _candidates(groups: Sequence[Sequence[str]], *, by_score: bool) -> list[tuple[int, str, str]]:
    matches, parameters = text_index.with_any(groups, by_score=by_score, most=_CANDIDATES)
    sql = (
        f"SELECT m.id, m.title, m.content FROM ({matches}) f JOIN memories_memory m ON m.id = f.id "
        f"WHERE m.deleted_at IS NULL AND m.id {OUTSIDE}"
    )
    return rows.fetch(sql, parameters)


def words_of(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(folded(text[:_MOST_CHARACTERS]).lower())) - STOP_WORDS


def rare_pairs(words: frozenset[str]) -> list[tuple[str, str]]:
    """Return pairs of the longest words.

    Long words are mostly rare, and similar texts share nearly all of them: a few pairs find every similar text.
    """
    longest = _longest_words(words, 2 * _PAIRS)
    return list(zip(longest[::2], longest[1::2], strict=False))


def share_of(first: frozenset[str], second: frozenset[str]) -> float:
    """Return the share of the words of both texts that they have in common."""
    return len(first & second) / len(first | second)


def _longest_words(words: frozenset[str], most: int) -> list[str]:
    return sorted(words, key=lambda word: (-len(word), word))[:most]
