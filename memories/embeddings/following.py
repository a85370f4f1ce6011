"""The projector of vectors: it follows the log in batches, outside of write transactions."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from memories.embeddings import vectors
from memories.embeddings.engine import Engine, current_engine, wanted_name
from memories.embeddings.vectors import DIGEST, NUMBERS, ModelInStore, is_vector, texts
from memoryhub.config.current_settings import project_settings
from memoryhub.core import log
from memoryhub.core.backends.base import LIVE
from memoryhub.core.events.projection import Event, checks
from memoryhub.core.log.read import head, read_all
from memoryhub.core.search import Document, Removal, joint_makers_for, makers_for
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS
from memoryhub.core.text import counted

_AT_ONCE = 500
_MODELS = (
    f"SELECT m.id, m.dimensions, m.complete, coalesce(o.position, 0) FROM {LIVE}.memories_embeddingmodel AS m "
    f"LEFT JOIN {LIVE}.projection_offsets AS o ON o.projector = 'embeddings-' || m.id"
)
_VECTORS = f"SELECT document_id, {DIGEST}, scale, {NUMBERS} FROM {LIVE}.memories_vector WHERE model_id = %s"


def differing_vectors(sample: Sequence[int] | None) -> list[int]:
    """Return the documents whose vector is malformed, outdated, or missing although the model has caught up."""
    documents: set[int] = set()
    for model, dimensions, complete, position in rows.fetch(_MODELS):
        digests: dict[int, bytes] = {}
        if sample is None:
            stored = rows.iterate(_VECTORS, [model])
        else:
            stored = rows.iterate(f"{_VECTORS} AND document_id IN {IDS}", [model, json.dumps(sample)])
        for document, digest, scale, numbers in stored:
            digests[document] = digest
            if not is_vector(scale, numbers, dimensions):
                documents.add(document)
        if complete and position >= head(LIVE)[0]:
            # All findable documents, from the rebuilt copy
            ids = sample or rows.column("SELECT id FROM main.memories_searchdocument ORDER BY id")
            for start in range(0, len(ids), _AT_ONCE):
                for text in texts(ids[start : start + _AT_ONCE]):
                    if digests.get(text.id) != text.digest:
                        documents.add(text.id)
    return sorted(documents)


checks["the vectors"] = differing_vectors


# Documents saved per transaction: the most work that a crash repeats
_DOCUMENTS_AT_ONCE = 32


@dataclass(slots=True)
class Progress:
    embedded: int = 0
    behind: int = 0


def embed_current_store(*, until: float) -> str:
    """Follow the current store's log with the configured model; return a one-sentence summary.

    Args:
        until: monotonic time at which to stop; at least one batch is done.

    Raises:
        Unavailable: the model cannot be loaded.
    """
    name = wanted_name(project_settings().embedding_model)
    if name is None:
        vectors.drop_all()
        return ""
    progress = follow(current_engine(), name, until=until)
    if not progress.embedded and not progress.behind:
        return ""
    behind = f", {counted(progress.behind, 'event')} to go" if progress.behind else ""
    return f"embedded {counted(progress.embedded, 'text')}{behind}"


def events_to_embed() -> int:
    """Return how many events of the current store the configured model has not read yet; 0 without a model."""
    if wanted_name(project_settings().embedding_model) is None:
        return 0
    return log.head()[0] - max(map(vectors.position, vectors.all_models()), default=0)


def needs_embedding() -> bool:
    """Return whether ``embed_current_store`` has something to do, without asking the model for its version.

    Raises:
        Unavailable: the packages that run the configured model are not installed.
    """
    name = wanted_name(project_settings().embedding_model)
    models = vectors.all_models()
    if name is None:
        return bool(models)
    if [stored.model.name for stored in models] != [name]:
        return True
    return not models[0].complete or vectors.position(models[0]) < log.head()[0]


def follow(engine: Engine, name: str, *, until: float) -> Progress:
    """Embed what the log has added since the last call, until a monotonic time.

    Restartable: the cursor is saved with each batch. A model that is new to the store starts at the beginning of the
    log; the previous model keeps answering until the new one has caught up.

    Raises:
        Unavailable: the model cannot be loaded.
    """
    model = vectors.begin(engine.describe(name))
    progress = Progress()
    at = vectors.position(model)
    for ids, position in _batches(at):
        progress.embedded += _embed(engine, model, ids, position)
        at = position
        if time.monotonic() > until:
            break
    progress.behind = log.head()[0] - at
    if not progress.behind and (not model.complete or len(vectors.all_models()) > 1):
        vectors.complete(model)
    return progress


# Ids of the documents that events after a position changed, with the last of those positions
def _batches(after: int) -> Iterator[tuple[list[int], int]]:
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
        change = make(event)
        if isinstance(change, Document):
            yield change.id
        elif change is not None and not isinstance(change, Removal):
            yield from (document.id for document in change)
    for make_all in joint_makers_for(event.type):
        yield from (document.id for document in make_all([event.position]))


def _embed(engine: Engine, model: ModelInStore, ids: list[int], position: int) -> int:
    documents = vectors.texts(ids)
    same = vectors.unchanged(model, documents)
    changed = [text for text in documents if text.id not in same]
    packed = vectors.stored(model, [text.digest for text in changed])
    # Equal texts are embedded once
    new = list({text.digest: text for text in changed if text.digest not in packed}.values())
    embedded = engine.embed(model.model, [text.text for text in new])
    packed |= {text.digest: vector for text, vector in zip(new, embedded, strict=True)}
    vectors.save(model, {text: packed[text.digest] for text in changed}, up_to=position)
    return len(new)
