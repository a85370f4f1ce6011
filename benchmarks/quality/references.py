"""Rankings by others, of the same documents: BM25 of a library, and the embeddings alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

from benchmarks.quality.questions import Question
from memories.embeddings.meaning import nearest
from memories.search import engine
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import StoreId

_MOST = 200


def by_meaning(question: Question) -> list[int]:
    return [hit for hit, _ in nearest(question.text).hits]


def by_bm25(question: Question) -> list[int]:
    ids, rank = _index(question.store)
    return [ids[place] for place in rank(question.text)]


@lru_cache(maxsize=32)
def _index(_store: StoreId) -> tuple[list[int], Callable[[str], list[int]]]:
    ids = [document for (document,) in rows.fetch("SELECT id FROM memories_searchdocument ORDER BY id")]
    titles = engine.documents_of(ids)
    texts = engine.texts_of(titles)
    documents = [
        texts.get(document, "")
        if titles[document]["source"] == "message"
        else f"{titles[document]['title']} {texts.get(document, '')}"
        for document in ids
    ]
    return ids, bm25_ranking(documents)


def bm25_ranking(texts: Sequence[str]) -> Callable[[str], list[int]]:
    """Return a function that ranks the places of the texts for a question, without those that have none of its words.

    With Lucene's form of BM25, English stop words and Snowball's stemmer: the library's defaults otherwise.
    """
    import bm25s
    import Stemmer

    logging.getLogger("bm25s").setLevel(logging.ERROR)
    tokenize = partial(bm25s.tokenize, stopwords="en", stemmer=Stemmer.Stemmer("english"), show_progress=False)
    index = bm25s.BM25()
    index.index(tokenize(texts), show_progress=False)

    def rank(question: str) -> list[int]:
        places, scores = index.retrieve(tokenize(question), k=min(_MOST, len(texts)), show_progress=False)
        return [int(place) for place, score in zip(places[0], scores[0], strict=True) if score > 0]

    return rank
