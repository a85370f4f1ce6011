"""The candidates of each scope with the parts of their score, merged into a page of results."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Max

from memories.kinds import EXPIRED_WEIGHT, PROPOSED_WEIGHT
from memories.models import Memory, MemoryVersion
from memories.present import memory_line, version_line, without_repetition
from memories.query.question import Question, related_ids, tags_at
from memories.schemas.query import QueryOrder
from memories.scopes import (
    LIVE,
    NEAREST_FIRST,
    NOT_LIVE,
    Name,
    ScopePlace,
    Sql,
    every,
    hidden_by,
    joined,
    names_by_id,
    occupied,
    store_key,
)
from memories.search.engine import Ranked
from memories.search.index import Hits, text_index
from memories.search.relevance import ANSWERS, is_absent
from memories.search.snippets import snippet
from memories.search.weights import by_index
from memories.selectors.memories import views
from memories.selectors.versions import versions_of
from memoryhub.core.log.quarantine import OUTSIDE
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, LIKE, TEXTS, days_between, elements, greatest, json_list
from memoryhub.core.stores.store import StoreId, use_store
from memoryhub.core.text import as_data, flat


@dataclass(frozen=True, slots=True)
class QueryHit:
    place: ScopePlace
    # What orders the results
    key: float | str
    id: int
    score: float
    # In the order of ``PARTS``, each from 0 to 1
    parts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ResultPage:
    hits: list[QueryHit]
    total: int
    more: bool
    # How words were searched, and whether none of the matches is about them; None if there were none
    mode: str | None
    absent: bool | None


def answer(question: Question, *, mode: str) -> ResultPage:
    total = 0
    pages: list[list[QueryHit]] = []
    modes: set[str] = set()
    rankings: list[tuple[StoreId, Ranked]] = []
    for index, place in enumerate(question.places):
        # Relations never leave their store
        if question.related and question.related.store != store_key(place.store):
            continue
        nearer = occupied(question.places[:index])
        with use_store(place.store):
            basic = bool(question.command.search) and not by_index(mode)
            candidates = Candidates(question, place, basic=basic)
            names = candidates.names() if nearer else {}
        hidden = hidden_by(nearer, names)
        with use_store(place.store):
            count, page, best = candidates.page(hidden)
        total += count
        pages.append(page)
        modes.add("basic" if basic else "fts5")
        # The index has no deleted memories
        by_like = basic or question.command.include_inactive
        rankings.append((place.store, Ranked(best, "basic" if by_like else "fts5", question.words)))
    # At equal keys the nearer scope comes first
    if question.command.order is QueryOrder.NAME:
        hits = list(heapq.merge(*pages, key=lambda hit: (str(hit.key), hit.place.rank)))
    else:
        hits = list(heapq.merge(*pages, key=lambda hit: (-float(hit.key), hit.place.rank)))
    limit = question.command.limit
    page_hits, more = hits[:limit], len(hits) > limit
    if not question.command.search:
        return ResultPage(page_hits, total, more, None, None)
    return ResultPage(page_hits, total, more, min(modes, default="fts5"), is_absent(question.command.search, rankings))


def as_items(question: Question, hits: Sequence[QueryHit]) -> list[dict[str, Any]]:
    """Return the hits as JSON data, in order; memories erased meanwhile are left out."""
    items: dict[tuple[StoreId, int], dict[str, Any]] = {}
    for store in dict.fromkeys(hit.place.store for hit in hits):
        ids = [hit.id for hit in hits if hit.place.store == store]
        with use_store(store):
            for item in _items_of_store(question, ids):
                items[store, item["id"]] = item
    scored: list[dict[str, Any]] = []
    for hit in hits:
        if (hit.place.store, hit.id) not in items:
            continue
        scored.append({**items[hit.place.store, hit.id], "scope": hit.place.scope.value})
        if question.command.compact:
            continue
        parts: dict[str, dict[str, float]] = {}
        for name, value in zip(PARTS, hit.parts, strict=True):
            parts[name] = {"value": round(value, 4), "points": round(value * getattr(question.weights, name), 4)}
        scored[-1] |= {"score": round(hit.score, 4), "parts": parts}
    return scored


def _items_of_store(question: Question, ids: list[int]) -> list[dict[str, Any]]:
    if question.command.compact:
        return [dict(row) for row in Memory.objects.filter(id__in=ids).values("id", "kind", "title")]
    versions = MemoryVersion.objects.filter(memory_id__in=ids).order_by().values("memory_id")
    events = dict(versions.annotate(event=Max("id")).values_list("memory_id", "event"))
    histories = versions_of(ids) if question.command.include_versions else {}
    items: list[dict[str, Any]] = []
    for view in views(list(Memory.objects.filter(id__in=ids))):
        memory = view["id"]
        item = {**view, "content": snippet(view["content"], question.words), "event": events.get(memory)}
        if question.command.include_versions:
            item["versions"] = histories[memory]
        items.append(item)
    return items


def query_line(item: dict[str, Any]) -> str:
    if "score" not in item:
        return memory_line(item)
    title, text = without_repetition(item["title"], item["content"])
    line = memory_line({**item, "title": title})
    if item["session_id"]:
        line += f" session={as_data(item['session_id'])}"
    # ``score 7.1 (tags 3.0, scope 1.3, recency .4)``; parts that contribute nothing are left out
    points = {name: part["points"] for name, part in item["parts"].items() if part["points"] >= 0.05}
    parts = ", ".join(f"{name} {f'{value:.1f}'.removeprefix('0')}" for name, value in points.items())
    line += f" score {item['score']:.1f}"
    if parts:
        line += f" ({parts})"
    if text:
        line += f": {as_data(text)}"
    return "\n".join([flat(line), *map(version_line, item.get("versions", []))])


# Age at which the recency of a memory is one half
RECENT_DAYS = 30

# Characters of a name that order results: the cursor has to carry them
NAME_CHARACTERS = 40

# The scope part of the score
_PROXIMITY = dict(zip(NEAREST_FIRST, (1.0, 2 / 3, 1 / 3, 0.0), strict=True))

PARTS = ("relation", "tags", "scope", "priority", "text", "recency")

_KEYS = {
    QueryOrder.RELEVANCE: "score",
    QueryOrder.PRIORITY: "priority",
    QueryOrder.RECENT: "recency",
    QueryOrder.NAME: f"substr(lower(title), 1, {NAME_CHARACTERS})",
}


class Candidates:
    def __init__(self, question: Question, place: ScopePlace, *, basic: bool) -> None:
        self._question = question
        self._place = place
        self._basic = basic
        self._command = question.command

    def names(self) -> dict[int, set[Name]]:
        return names_by_id(self._select(Sql("m.id, m.kind, m.title, m.topic_key"), []))

    def page(self, hidden: Collection[int]) -> tuple[int, list[QueryHit], Hits]:
        """Return the total, the next results in order, one more than the page takes, and the best ones by words."""
        among = [Sql(f"m.id NOT IN {IDS}", (json_list(sorted(hidden)),))] if hidden else []
        scored = joined(
            "WITH parts AS MATERIALIZED ({}), scored AS MATERIALIZED ({})", self._parts(among), self._score()
        )
        descending = self._command.order is not QueryOrder.NAME
        # One statement: one row has the total, others have no key or are the page
        lines = joined(
            "{} SELECT NULL, count(*), NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM scored UNION ALL SELECT * FROM "
            "(SELECT * FROM scored WHERE {} "
            f"ORDER BY key {'DESC' if descending else 'ASC'}, id DESC LIMIT {{}}) AS page UNION ALL "
            "SELECT NULL, id, text, NULL, NULL, NULL, NULL, NULL, NULL FROM "
            f"(SELECT id, text FROM scored ORDER BY text DESC, id DESC LIMIT {ANSWERS}) AS best",
            scored,
            self._after_cursor(descending=descending),
            Sql("%s", (self._command.limit + 1,)),
        ).fetch()
        total = 0
        page: list[QueryHit] = []
        best: Hits = []
        for key, memory_or_total, score, *parts in lines:
            if key is not None:
                page.append(QueryHit(self._place, key, memory_or_total, score, tuple(parts)))
            elif score is not None:
                best.append((memory_or_total, score))
            else:
                total = memory_or_total
        return total, page, best

    # The full-text index drives the query wherever there are words
    def _select(self, columns: Sql, among: list[Sql]) -> Sql:
        where = every([*self._conditions(), *among])
        if not self._command.search:
            return joined("SELECT {} FROM memories_memory m WHERE {}", columns, where)
        shares = word_shares(self._question.words, basic=self._basic, include_deleted=self._command.include_inactive)
        template = "SELECT {} FROM memories_memory m JOIN ({}) AS t ON t.id = m.id WHERE {}"
        return joined(template, columns, shares, where)

    def _conditions(self) -> Iterator[Sql]:
        command = self._command
        yield self._place.holds
        yield Sql(f"m.id {OUTSIDE}" if command.include_inactive else LIVE)
        if command.types:
            yield Sql(f"m.kind IN {TEXTS}", (json_list(sorted(set(command.types))),))
        if command.type:
            yield Sql("m.type = %s", (command.type,))
        tags = command.tags
        tagged = f"(SELECT memory_id FROM memories_memorytag WHERE tag IN {TEXTS})"
        for tag in dict.fromkeys(tags.require):
            yield Sql("m.id IN (SELECT memory_id FROM memories_memorytag WHERE tag = %s)", (tag,))
        if tags.include:
            yield Sql(f"m.id IN {tagged}", (json_list(tags.include),))
        if tags.exclude:
            yield Sql(f"m.id NOT IN {tagged}", (json_list(tags.exclude),))
        if self._question.related:
            relation = command.related_to.relation if command.related_to else None
            yield joined("m.id IN ({})", related_ids(self._question.related, relation))

    # A materialised subquery with each part as a column; ``_score`` sums them by weight
    def _parts(self, among: list[Sql]) -> Sql:
        columns = joined(
            "m.id AS id, m.title AS title, {} AS tags, coalesce(m.priority, 0) / 100.0 AS priority, {} AS text, "
            "{} AS recency, coalesce(m.valid_until <= {}, false) AS expired, m.review = 'proposed' AS proposed",
            self._overlap(),
            Sql("t.share" if self._command.search else "0.0"),
            self._recency(),
            Sql("%s", (rows.time_value(self._question.now),)),
        )
        return self._select(columns, among)

    # Share of the requested tags, and of those of the related memory, that a candidate has
    def _overlap(self) -> Sql:
        tags = self._command.tags
        names = {*tags.include, *tags.require}
        if self._question.related:
            names.update(tags_at(self._question.related, self._place.position))
        if not names:
            return Sql("0.0")
        return Sql(
            f"(SELECT count(*) FROM memories_memorytag g WHERE g.memory_id = m.id AND g.tag IN {TEXTS}) "
            f"* 1.0 / {len(names)}",
            (json_list(sorted(names)),),
        )

    # Recency of the version that was current when the first page was made: later pages must rank the same
    def _recency(self) -> Sql:
        place = self._place
        changed = (
            "CASE WHEN m.id IN (SELECT memory_id FROM memories_memoryversion WHERE id > %s) THEN "
            "(SELECT max(v.created_at) FROM memories_memoryversion v WHERE v.memory_id = m.id AND v.id <= %s) "
            "ELSE m.updated_at END"
        )
        now = rows.time_value(self._question.now)
        days = greatest("0.0", days_between(changed, "%s"))
        return Sql(f"1.0 / (1.0 + {days} / {RECENT_DAYS}.0)", (now, place.position, place.position))

    def _score(self) -> Sql:
        weights = self._question.weights
        fixed = {"relation": 1.0 if self._question.related else 0.0, "scope": _PROXIMITY[self._place.scope]}
        terms = [f"{getattr(weights, part)!r} * {part}" for part in PARTS]
        lowered = f"CASE WHEN expired THEN {EXPIRED_WEIGHT} WHEN proposed THEN {PROPOSED_WEIGHT} ELSE 1.0 END"
        score = f"({' + '.join(terms)}) * {lowered}"
        whole = "SELECT *, " + ", ".join(f"{value!r} AS {part}" for part, value in fixed.items()) + " FROM parts"
        scored = f"SELECT *, {score} AS score FROM ({whole}) AS w"
        return Sql(f"SELECT {_KEYS[self._command.order]} AS key, id, score, {', '.join(PARTS)} FROM ({scored}) AS s")

    def _after_cursor(self, *, descending: bool) -> Sql:
        after = self._question.after
        if after is None:
            return Sql("true")
        further = "<" if descending else ">"
        if self._place.rank == after.rank:
            text = f"(key {further} %s OR key = %s AND id < %s)"
            return Sql(text, (after.key, after.key, after.id))
        also = "=" if self._place.rank > after.rank else ""
        return Sql(f"key {further}{also} %s", (after.key,))


_BODY = f"(m.content {LIKE} {{0}} OR m.tags {LIKE} {{0}} OR m.attributes {LIKE} {{0}})"


def word_shares(words: Sequence[str], *, basic: bool, include_deleted: bool) -> Sql:
    """Return a query of ``id, share`` (0 to 1) for all memories that have any of the words.

    A word in the title counts as one, in the body as half.
    """
    if not words:
        return Sql("SELECT 0 AS id, 0.0 AS share WHERE false")
    if basic:
        return _like(words, "" if include_deleted else LIVE)
    live = Sql(*text_index.shares(words))
    if not include_deleted:
        return live
    # The full-text index contains live memories only
    deleted = _like(words, NOT_LIVE)
    return Sql(f"{live.text} UNION ALL {deleted.text}", (*live.parameters, *deleted.parameters))


# Matches parts of words too; tags are matched in their stored JSON
def _like(words: Sequence[str], condition: str) -> Sql:
    has = f"CASE WHEN m.title {LIKE} w.value THEN 2 WHEN {_BODY.format('w.value')} THEN 1 ELSE 0 END"
    text = (
        f"SELECT id, share FROM (SELECT m.id AS id, (SELECT sum({has}) FROM {elements()} AS w) * 0.5 / {len(words)} "
        f"AS share FROM memories_memory m WHERE {condition or 'true'}) AS s WHERE share > 0"
    )
    return Sql(text, (json_list(f"%{word}%" for word in words),))
