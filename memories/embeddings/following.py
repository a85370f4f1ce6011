"""The projector of vectors: follows the log from where it was, some documents at a time, outside every write."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from memories.embeddings import vectors
from memories.embeddings.choice import wanted_name
from memories.embeddings.current import current_engine
from memories.embeddings.engine import Engine
from memories.embeddings.vectors import StoreModel, Text
from memoryhub.core import log
from memoryhub.core.log.read import read_all
from memoryhub.core.projection import Event
from memoryhub.core.searchable import Document, Removal, makers_for
from memoryhub.core.wording import counted
from sessions_app.settings import project_settings

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
