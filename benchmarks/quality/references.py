"""Rankings by others, of the same documents: BM25 of a library, and the embeddings alone."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any

from benchmarks.quality.questions import Question
from memories.embeddings.meaning import nearest
from memories.search import engine
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import StoreId

_MOST = 200


def by_meaning(question: Question) -> list[int]:
    return [hit for hit, _ in nearest(question.text).hits]


def by_bm25(question: Question) -> list[int]:
    import bm25s

    ids, index = _index(question.store)
    words = bm25s.tokenize(question.text, stopwords="en", stemmer=_stemmer(), show_progress=False)
    found, scores = index.retrieve(words, k=min(_MOST, len(ids)), show_progress=False)
    return [ids[place] for place, score in zip(found[0], scores[0], strict=True) if score > 0]


# With Lucene's form of BM25, English stop words and Snowball's stemmer: the library's defaults otherwise
@lru_cache(maxsize=32)
def _index(_store: StoreId) -> tuple[list[int], Any]:
    import bm25s

    ids = [document for (document,) in rows.fetch("SELECT id FROM memories_searchdocument ORDER BY id")]
    titles = engine.documents_of(ids)
    texts = engine.texts_of(titles)
    documents = [
        texts.get(document, "")
        if titles[document]["source"] == "message"
        else f"{titles[document]['title']} {texts.get(document, '')}"
        for document in ids
    ]
    logging.getLogger("bm25s").setLevel(logging.ERROR)
    index = bm25s.BM25()
    index.index(bm25s.tokenize(documents, stopwords="en", stemmer=_stemmer(), show_progress=False), show_progress=False)
    return ids, index


def _stemmer() -> Any:
    import Stemmer

    return Stemmer.Stemmer("english")
