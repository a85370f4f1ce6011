"""A store's vectors: the model that answers, the one that replaces it, and the rows of both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import F, QuerySet

from memories.embeddings.engine import ModelId, Packed, StoreIndex
from memories.models import EmbeddingModel, Vector
from memoryhub.core.backends.selected import stores
from memoryhub.core.events.projection import after_rebuild, text_caches
from memoryhub.core.models import ProjectionOffset
from memoryhub.core.search import text_queries
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, begins_with, blob
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.store import current_store, folder_of

text_caches["memories_vector"] = "document_id"

# No model reads more of a text
_READ_CHARACTERS = 6_000

# Read as BLOBs: a damaged row may contain text, which would fail to decode
NUMBERS = blob("numbers")
DIGEST = blob("content_hash")
# Rounding to one byte also rounds the length of a vector
_LENGTH_TOLERANCE = 0.01
_SCALE_OF_NOTHING = 1e-10


@dataclass(frozen=True, slots=True)
class ModelInStore:
    key: int
    model: ModelId
    revision: int
    complete: bool

    @property
    def cursor(self) -> str:
        return f"embeddings-{self.key}"

    def index(self) -> StoreIndex:
        return StoreIndex(stores.location(current_store()), self.key, self.model, self.revision)


@dataclass(frozen=True, slots=True)
class Text:
    id: int
    text: str

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(self.text.encode()).digest()[:16]


# Every search asks for the model, which takes the ORM a tenth of a millisecond
_ANSWERING = (
    "SELECT id, name, version, dimensions, revision, complete FROM memories_embeddingmodel "
    "ORDER BY complete DESC, id DESC LIMIT 1"
)


# The complete model, or the newest
@rows.InSteps
def answering_model() -> rows.Steps[ModelInStore | None]:
    (models,) = yield [(_ANSWERING, ())]
    for key, name, version, dimensions, revision, complete in models:
        return ModelInStore(key, ModelId(name, version, dimensions), revision, bool(complete))
    return None


def all_models() -> list[ModelInStore]:
    return list(map(_as_model, EmbeddingModel.objects.order_by("id")))


def _as_model(row: EmbeddingModel) -> ModelInStore:
    return ModelInStore(row.id, ModelId(row.name, row.version, row.dimensions), row.revision, row.complete)


def begin(model: ModelId) -> ModelInStore:
    with transaction.atomic(using=require_current_alias()):
        row, _ = EmbeddingModel.objects.get_or_create(
            name=model.name,
            version=model.version,
            defaults={"dimensions": model.dimensions, "revision": 0, "complete": False},
        )
        begun = _as_model(row)
        ProjectionOffset.objects.get_or_create(projector=begun.cursor, defaults={"position": 0})
    return begun


def position(model: ModelInStore) -> int:
    """Return the position up to which a model has embedded the log."""
    return ProjectionOffset.objects.filter(projector=model.cursor).values_list("position", flat=True).first() or 0


def texts(ids: Iterable[int]) -> list[Text]:
    queries = text_queries().values()
    united = " UNION ALL ".join(f"SELECT * FROM ({sql}) AS t WHERE id IN {IDS}" for sql in queries)
    documents = rows.fetch(
        f"WITH t (id, title, body) AS ({united}) SELECT t.id, t.title, substr(t.body, 1, {_READ_CHARACTERS}) "
        "FROM t JOIN memories_searchdocument d ON d.id = t.id",
        [json.dumps(list(ids))] * len(queries),
    )
    return [Text(document, f"{title}\n{body}".strip()) for document, title, body in documents]


def is_vector(scale: float, numbers: bytes, dimensions: int) -> bool:
    """Return whether stored numbers form a valid vector: right size, and length 1, or 0 for a text without words."""
    if len(numbers) != dimensions or not isinstance(scale, float):
        return False
    squares = sum(number * number for number in memoryview(numbers).cast("b"))
    if not squares:
        return scale < _SCALE_OF_NOTHING
    return abs(scale * scale * squares - 1) < _LENGTH_TOLERANCE


def stored(model: ModelInStore, digests: Sequence[bytes]) -> dict[bytes, Packed]:
    """Return the vectors that the model already has, by digest of their text."""
    if not digests:
        return {}
    marks = ", ".join(["%s"] * len(digests))
    vectors: dict[bytes, Packed] = {}
    for digest, scale, numbers in rows.fetch(
        f"SELECT content_hash, scale, {NUMBERS} FROM memories_vector WHERE content_hash IN ({marks}) AND model_id = %s",
        [*digests, model.key],
    ):
        if is_vector(scale, numbers, model.model.dimensions):
            vectors[bytes(digest)] = (scale, bytes(numbers))
    return vectors


def vector_of(document_id: int) -> list[float] | None:
    """Return the vector of a document by the model that answers questions; None if it has none."""
    model = answering_model()
    if model is None:
        return None
    for scale, numbers in stored(model, [text.digest for text in texts([document_id])]).values():
        return [round(scale * number, 5) for number in memoryview(numbers).cast("b")]
    return None


def unchanged(model: ModelInStore, documents: Sequence[Text]) -> set[int]:
    stored_rows = rows.fetch(
        f"SELECT document_id, {DIGEST}, scale, {NUMBERS} FROM memories_vector "
        f"WHERE document_id IN {IDS} AND model_id = %s",
        [json.dumps([text.id for text in documents]), model.key],
    )
    size = model.model.dimensions
    digests = {document: digest for document, digest, scale, numbers in stored_rows if is_vector(scale, numbers, size)}
    return {text.id for text in documents if digests.get(text.id) == text.digest}


def save(model: ModelInStore, vectors: Mapping[Text, Packed], *, up_to: int) -> None:
    with transaction.atomic(using=require_current_alias()):
        for text, (scale, numbers) in vectors.items():
            rows.execute(_SAVE, [text.id, model.key, text.digest, scale, numbers, text.id, model.key])
        if vectors:
            _raise_revisions(EmbeddingModel.objects.filter(id=model.key))
        ProjectionOffset.objects.filter(projector=model.cursor, position__lt=up_to).update(position=up_to)


# A document or model that was deleted meanwhile gets no row
_SAVE = (
    "INSERT INTO memories_vector (document_id, model_id, content_hash, scale, numbers) SELECT %s, %s, %s, %s, %s "
    "WHERE EXISTS (SELECT 1 FROM memories_searchdocument WHERE id = %s) "
    "AND EXISTS (SELECT 1 FROM memories_embeddingmodel WHERE id = %s) "
    "ON CONFLICT (document_id, model_id) DO UPDATE SET "
    "content_hash = excluded.content_hash, scale = excluded.scale, numbers = excluded.numbers"
)


_FORGET_UNFOUND = "DELETE FROM memories_vector WHERE document_id NOT IN (SELECT id FROM memories_searchdocument)"


def complete(model: ModelInStore) -> None:
    """Make the model the one that answers; delete the vectors of others and of missing documents."""
    with transaction.atomic(using=require_current_alias()):
        EmbeddingModel.objects.filter(id=model.key).update(complete=True)
        rows.execute(_FORGET_UNFOUND)
        for other in all_models():
            if other.key != model.key:
                _drop(other)


def drop_all() -> None:
    with transaction.atomic(using=require_current_alias()):
        for model in all_models():
            _drop(model)


def _drop(model: ModelInStore) -> None:
    Vector.objects.filter(model_id=model.key).delete()
    EmbeddingModel.objects.filter(id=model.key).delete()
    ProjectionOffset.objects.filter(projector=model.cursor).delete()


def forget(document_id: int) -> None:
    rows.execute("DELETE FROM memories_vector WHERE document_id = %s", [document_id])


def forget_files() -> None:
    """Delete the index files, which may contain vectors of erased texts; a running rebuild discards its file too."""
    _raise_revisions(EmbeddingModel.objects.all())
    folder = folder_of(current_store()) / "index"
    for path in folder.iterdir() if folder.is_dir() else ():
        path.unlink(missing_ok=True)


def _raise_revisions(models: QuerySet[EmbeddingModel]) -> None:
    models.update(revision=F("revision") + 1)


@after_rebuild
def go_over_again() -> None:
    # Reads the log again, as documents may have changed; unchanged texts are not embedded again
    ProjectionOffset.objects.filter(begins_with("projector", "embeddings-")).update(position=0)
    rows.execute(_FORGET_UNFOUND)
