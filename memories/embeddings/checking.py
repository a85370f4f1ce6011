"""Whether a store has the vector of each text, by the digest of the text that a vector was made of.

That the numbers are those of the text, the model alone could say.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from memories.embeddings.vectors import DIGEST, NUMBERS, is_vector, texts
from memoryhub.core import rows
from memoryhub.core.dialect import IDS
from memoryhub.core.log.copy import LIVE
from memoryhub.core.log.read import head
from memoryhub.core.projection import define_check

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
