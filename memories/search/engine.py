"""Finding: ranked by FTS5's bm25, or by plain LIKE where there is no FTS5."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memories.schemas import MemorySearch
from memories.search.index import has_full_text
from memories.search.text import match_expression, terms
from memoryhub.core import rows
from memoryhub.core.searchable import text_queries

RANKED_AT_MOST = 1000
"""So many matches are ranked and counted; beyond that a total says "or more"."""

_TITLE_WEIGHT, _BODY_WEIGHT = 2.0, 1.0


@dataclass(frozen=True, slots=True)
class Ranked:
    """The ids of what matches, best first, each with its score (higher is better)."""

    hits: list[tuple[int, float]]
    mode: str


def rank(command: MemorySearch, mode: str = "auto") -> Ranked:
    """Return what matches the question and the filters.

    Args:
        command: the question and its filters.
        mode: ``auto``, or ``basic`` for LIKE although FTS5 is there.
    """
    conditions, parameters = _conditions(command)
    if mode != "basic" and has_full_text():
        return Ranked(_full_text(command.query, conditions, parameters), "fts5")
    return Ranked(_like(command.query, conditions, parameters), "basic")


def _conditions(command: MemorySearch) -> tuple[list[str], list[Any]]:
    wanted: list[tuple[str, list[Any]]] = []
    if command.sources:
        wanted.append((f"d.source IN ({_marks(command.sources)})", list(command.sources)))
    if command.type:
        wanted.append(("d.type = %s", [command.type]))
    if command.session_id:
        wanted.append(("d.session_id = %s", [command.session_id]))
    if command.since:
        wanted.append(("d.created_at >= %s", [rows.time_value(command.since)]))
    if command.until:
        wanted.append(("d.created_at < %s", [rows.time_value(command.until)]))
    tagged = "d.id IN (SELECT memory_id FROM memories_memorytag WHERE tag = %s)"
    wanted.extend((tagged, [tag]) for tag in command.tags)
    return [sql for sql, _ in wanted], [value for _, values in wanted for value in values]


def _marks(values: Sequence[Any]) -> str:
    return ", ".join(["%s"] * len(values))


def _full_text(question: str, conditions: list[str], parameters: list[Any]) -> list[tuple[int, float]]:
    expression = match_expression(question)
    if not expression:
        return []
    join = "JOIN memories_searchdocument d ON d.id = f.rowid" if conditions else ""
    where = "".join(f" AND {condition}" for condition in conditions)
    found = rows.fetch(
        f"SELECT f.rowid, bm25(search_fts, {_TITLE_WEIGHT}, {_BODY_WEIGHT}) AS score FROM search_fts f {join} "
        f"WHERE search_fts MATCH %s{where} ORDER BY score LIMIT {RANKED_AT_MOST}",
        [expression, *parameters],
    )
    return [(document_id, round(-score, 6)) for document_id, score in found]


def _like(question: str, conditions: list[str], parameters: list[Any]) -> list[tuple[int, float]]:
    words = terms(question)
    if not words:
        return []
    texts = " UNION ALL ".join(text_queries().values())
    patterns = [f"%{word}%" for word in words]
    score = " + ".join([f"({_TITLE_WEIGHT} * (t.title LIKE %s) + (t.body LIKE %s))"] * len(words))
    where = "".join(f" AND {condition}" for condition in conditions)
    found = rows.fetch(
        f"WITH t (id, title, body) AS ({texts}), s AS (SELECT t.id, {score} AS score FROM t) "
        f"SELECT s.id, s.score FROM s JOIN memories_searchdocument d ON d.id = s.id WHERE s.score > 0{where} "
        f"ORDER BY s.score DESC, s.id DESC LIMIT {RANKED_AT_MOST}",
        [pattern for pattern in patterns for _ in range(2)] + parameters,
    )
    return [(document_id, float(score)) for document_id, score in found]


def texts_of(ids: Sequence[int]) -> dict[int, str]:
    """Return the body of each id, from wherever its source keeps it, in one query."""
    if not ids:
        return {}
    texts = " UNION ALL ".join(f"SELECT * FROM ({sql}) WHERE id IN ({_marks(ids)})" for sql in text_queries().values())
    return {row[0]: row[2] for row in rows.fetch(texts, list(ids) * len(text_queries()))}
