"""Find what a new text amends or contradicts when it is written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress

from memories.duplicates import words_of
from memories.embeddings.meaning import nearest
from memories.events import AMENDMENT_FOUND, AmendmentFound
from memories.models import Amendment
from memories.schemas.validity import AmendedEntry
from memories.search import engine
from memories.search.index import has_full_text, text_index
from memories.search.snippets import place_in_english
from memories.search.weights import successors_of
from memories.validity.amendment_rules import TitledText, states_change
from memories.validity.amendments import COMPARED, Pair, pairs_among
from memoryhub.core import log
from memoryhub.core.contributions import recalls
from memoryhub.core.errors import Locked, Unavailable
from memoryhub.core.log.quarantine import OUTSIDE
from memoryhub.core.origin import current_origin
from memoryhub.core.secrets.sanitize import sanitize_text
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, TEXTS
from sessions_app.events.client import USER_MESSAGE

# Rarest words of a new text by which entries on the same subject are looked for, and how many of these are compared
_WORDS, _CANDIDATES = 8, 12
# Cosine of entries that are compared although they have none of the words
_NEAR = 0.5
_LONGEST_QUESTION = 2_000
_ENTRIES = ("memory", "decision")
_LIVE = (
    f"SELECT d.id FROM memories_searchdocument d WHERE d.source IN {TEXTS} AND d.id IN {IDS} "
    f"AND d.id {OUTSIDE} AND NOT EXISTS (SELECT 1 FROM memories_memory m WHERE m.id = d.id AND m.scope = 'session' "
    "AND NOT (m.session_id = %s))"
)


def find_amendments(entity_id: int, text: TitledText, among: Sequence[str] = _ENTRIES) -> list[AmendedEntry]:
    """Record and return what a new text seems to amend or contradict in the current store.

    Args:
        entity_id: the memory, decision or message that was written.
        text: of it.
        among: sources of what it is compared with.
    """
    candidates = _candidates(text)
    ids = json.dumps([entity_id, *candidates])
    live = rows.column(_LIVE, [json.dumps(list(among)), ids, current_origin().session_id])
    superseded = successors_of(live)
    documents = engine.documents_of([key for key in live if key not in superseded])
    pairs: list[Pair] = []
    for pair in pairs_among(documents, engine.texts_of(documents), about=entity_id):
        if pair.newer_id == entity_id and pair.is_marked:
            pairs.append(pair)
    if not pairs:
        return []
    with log.transaction():
        stored = set(Amendment.objects.filter(newer_id=entity_id).values_list("older_id", flat=True))
        for pair in pairs:
            if pair.older_id not in stored:
                record_amendment(pair)
    return [
        AmendedEntry(id=pair.older_id, title=documents[pair.older_id]["title"], kind=pair.kind, certain=pair.is_certain)
        for pair in pairs
    ]


def find_amended_by_prompt(session_id: str, prompt: str) -> str:
    """Record what the last prompt of a session amends by explicit words; return ""."""
    text = TitledText(sanitize_text(prompt[:_LONGEST_QUESTION])[0])
    if session_id and states_change(text):
        prompts = log.events().of_session(session_id).of_type(USER_MESSAGE).order_by("-position")
        position = prompts.values_list("position", flat=True).first()
        # Another hook may be writing for long
        with suppress(Locked, Unavailable):
            if position is not None:
                find_amendments(position, text, COMPARED)
    return ""


recalls.insert(0, find_amended_by_prompt)


def _candidates(text: TitledText) -> list[int]:
    words = words_of(f"{text.title} {text.content}")
    if not words or not has_full_text():
        return []
    rarest = sorted(words, key=lambda word: (-place_in_english(word), word))[:_WORDS]
    if engine.is_large():
        # Ranking all matches of its common words would take longer with every entry
        rarest = engine.rarest(rarest)
    sql, parameters = text_index.with_any([(word,) for word in rarest], by_score=True, most=_CANDIDATES)
    candidates = rows.column(f"SELECT f.id FROM ({sql}) f", parameters)
    if states_change(text):
        near = nearest(f"{text.title}\n{text.content}"[:_LONGEST_QUESTION]).hits[:_CANDIDATES]
        candidates += [document for document, cosine in near if cosine >= _NEAR]
    return candidates


def record_amendment(pair: Pair) -> Amendment:
    """Record a pair that was compared; needs an open transaction of the log."""
    payload = AmendmentFound(newer_id=pair.newer_id, older_id=pair.older_id, kind=pair.kind, is_certain=pair.is_certain)
    event = log.append(log.prepare(AMENDMENT_FOUND, payload), entity="amendment")
    amendment: Amendment = Amendment.objects.get(id=event.position)
    return amendment
