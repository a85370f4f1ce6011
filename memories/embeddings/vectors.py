"""A store's vectors: which model answers, which is being made, and the rows of both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.db import transaction

from memories.embeddings.engine import ModelId, Packed, StoreIndex
from memoryhub.core.events.projection import after_rebuild, define_text_cache
from memoryhub.core.search.searchable import text_queries
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, blob
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.store import current_store

define_text_cache("memories_vector", "document_id")

_READ_CHARACTERS = 6_000
"""Of a text's beginning; a model reads no more of it."""

# Read so because a text in their place would fail to be decoded.
NUMBERS = blob("numbers")
DIGEST = blob("content_hash")
# Numbers of one byte are rounded; so is the length that comes of them.
_LENGTH_TOLERANCE = 0.01
_SCALE_OF_NOTHING = 1e-10

_COLUMNS = "id, name, version, dimensions, revision, complete"


@dataclass(frozen=True, slots=True)
class StoreModel:
    """A model as one store knows it."""

    key: int
    model: ModelId
    revision: int
    complete: bool

    @property
    def cursor(self) -> str:
        """The name of its place in the log, among those of the other projectors."""
        return f"embeddings-{self.key}"

    def index(self) -> StoreIndex:
        """Return its vectors as they stand now."""
        return StoreIndex(str(current_store().path), self.key, self.model, self.revision)


@dataclass(frozen=True, slots=True)
class Text:
    """A document's text as a model reads it."""

    id: int
    text: str

    @property
    def digest(self) -> bytes:
        """By which the same text is known again."""
        return hashlib.sha256(self.text.encode()).digest()[:16]


def answering() -> StoreModel | None:
    """Return the model whose vectors answer questions: the one that is complete, else the newest."""
    return next(iter(_models("ORDER BY complete DESC, id DESC LIMIT 1")), None)


def all_models() -> list[StoreModel]:
    """Return every model that the store has vectors of."""
    return _models("ORDER BY id")


def _models(condition: str, parameters: Sequence[object] = ()) -> list[StoreModel]:
    found = rows.fetch(f"SELECT {_COLUMNS} FROM memories_embeddingmodel {condition}", list(parameters))
    return [
        StoreModel(key, ModelId(name, version, dimensions), revision, bool(complete))
        for key, name, version, dimensions, revision, complete in found
    ]


def begin(model: ModelId) -> StoreModel:
    """Return the model as this store knows it; one that is new to it begins at the start of the log."""
    with transaction.atomic(using=require_current_alias()):
        rows.execute(
            "INSERT INTO memories_embeddingmodel (name, version, dimensions, revision, complete) "
            "VALUES (%s, %s, %s, 0, false) ON CONFLICT (name, version) DO NOTHING",
            [model.name, model.version, model.dimensions],
        )
        (found,) = _models("WHERE name = %s AND version = %s", [model.name, model.version])
        rows.execute(
            "INSERT INTO projection_offsets (projector, position) VALUES (%s, 0) ON CONFLICT DO NOTHING", [found.cursor]
        )
    return found


def position(model: StoreModel) -> int:
    """Return up to where in the log the model's vectors follow it."""
    found = rows.fetch("SELECT position FROM projection_offsets WHERE projector = %s", [model.cursor])
    return found[0][0] if found else 0


def texts(ids: Iterable[int]) -> list[Text]:
    """Return those of the documents that can be found now, with their texts."""
    wanted = json.dumps(list(ids))
    among = f"id IN {IDS}"
    united = " UNION ALL ".join(f"SELECT * FROM ({sql}) WHERE {among}" for sql in text_queries().values())
    found = rows.fetch(
        f"WITH t (id, title, body) AS ({united}) SELECT t.id, t.title, substr(t.body, 1, {_READ_CHARACTERS}) "
        "FROM t JOIN memories_searchdocument d ON d.id = t.id",
        [wanted] * len(text_queries()),
    )
    return [Text(document_id, f"{title}\n{body}".strip()) for document_id, title, body in found]


def is_vector(scale: float, numbers: bytes, dimensions: int) -> bool:
    """Return whether stored numbers can be a model's: as many, and of length 1, or 0 for a text without words."""
    if len(numbers) != dimensions or not isinstance(scale, float):
        return False
    squares = sum(number * number for number in memoryview(numbers).cast("b"))
    if not squares:
        return scale < _SCALE_OF_NOTHING
    return abs(scale * scale * squares - 1) < _LENGTH_TOLERANCE


def known(model: StoreModel, digests: Sequence[bytes]) -> dict[bytes, Packed]:
    """Return the vectors that the model has made already, by the digest of their text."""
    marks = ", ".join(["%s"] * len(digests))
    found = rows.fetch(
        f"SELECT content_hash, scale, {NUMBERS} FROM memories_vector WHERE content_hash IN ({marks}) AND model_id = %s",
        [*digests, model.key],
    )
    size = model.model.dimensions
    made = ((bytes(digest), scale, bytes(numbers)) for digest, scale, numbers in found)
    return {digest: (scale, numbers) for digest, scale, numbers in made if is_vector(scale, numbers, size)}


def unchanged(model: StoreModel, found: Sequence[Text]) -> set[int]:
    """Return the ids whose vector is that of their text already."""
    wanted = json.dumps([each.id for each in found])
    stored = rows.fetch(
        f"SELECT document_id, {DIGEST}, scale, {NUMBERS} FROM memories_vector "
        f"WHERE document_id IN {IDS} AND model_id = %s",
        [wanted, model.key],
    )
    size = model.model.dimensions
    have = {document: digest for document, digest, scale, numbers in stored if is_vector(scale, numbers, size)}
    return {each.id for each in found if have.get(each.id) == each.digest}


def save(model: StoreModel, vectors: Mapping[Text, Packed], *, up_to: int) -> None:
    """Keep vectors of those documents that can still be found, and that the log is followed up to a position."""
    with transaction.atomic(using=require_current_alias()):
        for text, (scale, numbers) in vectors.items():
            rows.execute(_SAVE, [text.id, model.key, text.digest, scale, numbers, text.id, model.key])
        if vectors:
            _raise_revisions("WHERE id = %s", [model.key])
        rows.execute(
            "UPDATE projection_offsets SET position = %s WHERE projector = %s AND position < %s",
            [up_to, model.cursor, up_to],
        )


_SAVE = (
    "INSERT INTO memories_vector (document_id, model_id, content_hash, scale, numbers) SELECT %s, %s, %s, %s, %s "
    "WHERE EXISTS (SELECT 1 FROM memories_searchdocument WHERE id = %s) "
    "AND EXISTS (SELECT 1 FROM memories_embeddingmodel WHERE id = %s) "
    "ON CONFLICT (document_id, model_id) DO UPDATE SET "
    "content_hash = excluded.content_hash, scale = excluded.scale, numbers = excluded.numbers"
)


_FORGET_UNFOUND = "DELETE FROM memories_vector WHERE document_id NOT IN (SELECT id FROM memories_searchdocument)"


def complete(model: StoreModel) -> None:
    """Let the model answer from now on; what others made goes, and what can't be found any more."""
    with transaction.atomic(using=require_current_alias()):
        rows.execute("UPDATE memories_embeddingmodel SET complete = true WHERE id = %s", [model.key])
        rows.execute(_FORGET_UNFOUND)
        for other in all_models():
            if other.key != model.key:
                _drop(other)


def drop_all() -> None:
    """Keep no vectors in this store."""
    with transaction.atomic(using=require_current_alias()):
        for each in all_models():
            _drop(each)


def _drop(model: StoreModel) -> None:
    rows.execute("DELETE FROM memories_vector WHERE model_id = %s", [model.key])
    rows.execute("DELETE FROM memories_embeddingmodel WHERE id = %s", [model.key])
    rows.execute("DELETE FROM projection_offsets WHERE projector = %s", [model.cursor])


def forget(document_id: int) -> None:
    """Drop what the models made of one document."""
    rows.execute("DELETE FROM memories_vector WHERE document_id = %s", [document_id])


def forget_files() -> None:
    """Remove the index files, which hold vectors of what was just erased; an index that is being made goes too."""
    _raise_revisions("WHERE id > %s", [0])
    folder = current_store().path.parent / "index"
    for path in folder.iterdir() if folder.is_dir() else ():
        path.unlink(missing_ok=True)


def _raise_revisions(condition: str, parameters: list[int]) -> None:
    rows.execute(f"UPDATE memories_embeddingmodel SET revision = revision + 1 {condition}", parameters)


@after_rebuild
def go_over_again() -> None:
    """Read the whole log once more, as documents may have changed; only those whose text did are embedded again."""
    rows.execute("UPDATE projection_offsets SET position = 0 WHERE projector LIKE %s", ["embeddings-%"])
    rows.execute(_FORGET_UNFOUND)
