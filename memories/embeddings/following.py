"""The projector of vectors: follows the log from where it was, some documents at a time, outside every write."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from memories.embeddings import vectors
from memories.embeddings.choice import current_engine, wanted_name
from memories.embeddings.engine import Engine
from memories.embeddings.vectors import DIGEST, NUMBERS, StoreModel, Text, is_vector, texts
from memoryhub.config.project_settings import project_settings
from memoryhub.core import log
from memoryhub.core.events.projection import Event, define_check
from memoryhub.core.log.copy import LIVE
from memoryhub.core.log.read import head, read_all
from memoryhub.core.search.searchable import Document, Removal, makers_for
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS
from memoryhub.core.text import counted

_AT_ONCE = 500
_MODELS = (
    f"SELECT m.id, m.dimensions, m.complete, coalesce(o.position, 0) FROM {LIVE}.memories_embeddingmodel AS m "
    f"LEFT JOIN {LIVE}.projection_offsets AS o ON o.projector = 'embeddings-' || m.id"
)
_VECTORS = f"SELECT document_id, {DIGEST}, scale, {NUMBERS} FROM {LIVE}.memories_vector WHERE model_id = %s"
_AMONG = f" AND document_id IN {IDS}"


def differing_vectors(sample: Sequence[int] | None) -> list[int]:
    """Return documents whose vector is none, or is another text's, or is missing though the model has come so far."""
    found: set[int] = set()
    for model, dimensions, complete, position in rows.fetch(_MODELS):
        digests: dict[int, bytes] = {}
        for document, digest, scale, numbers in _vectors(model, sample):
            digests[document] = digest
            if not is_vector(scale, numbers, dimensions):
                found.add(document)
        if complete and position >= head(LIVE)[0]:
            found |= {document for document, digest in _expected(sample) if digests.get(document) != digest}
    return sorted(found)


define_check("the vectors", differing_vectors)


def _vectors(model: int, sample: Sequence[int] | None) -> Iterator[tuple[int, bytes, float, bytes]]:
    if sample is None:
        return rows.iterate(_VECTORS, [model])
    return rows.iterate(_VECTORS + _AMONG, [model, json.dumps(sample)])


def _expected(sample: Sequence[int] | None) -> Iterator[tuple[int, bytes]]:
    """Yield each document that can be found, with the digest of its text, as the copy has them."""
    known = sample or [
        document for (document,) in rows.fetch("SELECT id FROM main.memories_searchdocument ORDER BY id")
    ]
    for start in range(0, len(known), _AT_ONCE):
        yield from ((text.id, text.digest) for text in texts(known[start : start + _AT_ONCE]))


_DOCUMENTS_AT_ONCE = 32
"""Documents that are kept together: so much is done again after a crash."""


@dataclass(slots=True)
class Progress:
    """What following did, and how far it still is behind."""

    embedded: int = 0
    behind: int = 0


def embed_current_store(*, until: float) -> str:
    """Follow the current store's log with the model that its settings name; return what was done, as one sentence.

    Args:
        until: when to leave the rest for the next time, on the monotonic clock; some is done in any case.

    Raises:
        Unavailable: the model can't be had.
    """
    name = wanted_name(project_settings().embedding_model)
    if name is None:
        vectors.drop_all()
        return ""
    progress = follow(current_engine(), name, until=until)
    behind = f", {counted(progress.behind, 'event')} to go" if progress.behind else ""
    return f"embedded {counted(progress.embedded, 'text')}{behind}" if progress.embedded or behind else ""


def follow(engine: Engine, name: str, *, until: float) -> Progress:
    """Embed what the log brought since the last time with the model of this name, until a time is over.

    Whoever dies in the middle goes on where it was. A model that is new to the store begins at the start of the log,
    while the one before it answers, and takes its place at the end.

    Raises:
        Unavailable: the model can't be had.
    """
    model = vectors.begin(engine.describe(name))
    progress = Progress()
    at = vectors.position(model)
    for ids, position in _batches(at):
        progress.embedded += _take(engine, model, ids, position)
        at = position
        if time.monotonic() > until:
            break
    progress.behind = log.head()[0] - at
    if not progress.behind and (not model.complete or len(vectors.all_models()) > 1):
        vectors.complete(model)
    return progress


def _batches(after: int) -> Iterator[tuple[list[int], int]]:
    """Yield ids of documents that events behind a position touched, each with the last of these events."""
    ids: dict[int, None] = {}
    position = after
    for event in read_all(after=after):
        ids |= dict.fromkeys(_touched(event))
        position = event.position
        if len(ids) >= _DOCUMENTS_AT_ONCE:
            yield list(ids), position
            ids = {}
    if position > after:
        yield list(ids), position


def _touched(event: Event[Any]) -> Iterator[int]:
    if event.payload is None:
        return
    for make in makers_for(event.type):
        made = make(event)
        if made is None or isinstance(made, Removal):
            continue
        yield from (each.id for each in ((made,) if isinstance(made, Document) else made))


def _take(engine: Engine, model: StoreModel, ids: list[int], position: int) -> int:
    """Embed these documents as they are now; return how many of them the model had to read."""
    found = vectors.texts(ids)
    same = vectors.unchanged(model, found)
    changed = [each for each in found if each.id not in same]
    have = vectors.known(model, [each.digest for each in changed])
    new = _by_text(each for each in changed if each.digest not in have)
    made = engine.embed(model.model, [each.text for each in new])
    have |= {each.digest: packed for each, packed in zip(new, made, strict=True)}
    vectors.save(model, {each: have[each.digest] for each in changed}, up_to=position)
    return len(new)


def _by_text(texts: Iterator[Text]) -> list[Text]:
    """Return one of each text."""
    return list({each.digest: each for each in texts}.values())
