"""The sections of context packs that memories, sessions and their work fill."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import repeat, starmap
from operator import itemgetter
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from memories.kinds import BETWEEN_HEADINGS, attribute_columns
from memories.models import MemoryScope, ReviewState
from memories.pack.sections import (
    Edition,
    GatherRequest,
    PackItem,
    SectionDefinition,
    define_recallable,
    define_section,
    reference,
    without_repeats,
)
from memories.present import without_repetition
from memories.review.policy import PROPOSED_BY_RULE
from memories.schemas import SearchSourceName
from memories.scopes import Level
from memories.search.snippets import snippet, words_in
from memories.substance import (
    BUILD_TOPIC,
    FOR_AGENTS,
    FOR_DEVELOPERS,
    REFERENCE,
    is_ballast,
    is_boilerplate_section,
    rank_of_work,
    split_joined,
)
from memories.superseded import is_superseded, supersedes
from memoryhub.config.current_settings import project_settings
from memoryhub.core import clock
from memoryhub.core.kinds import DEFAULT_KIND, KINDS, Kind, type_name
from memoryhub.core.log.quarantine import OUTSIDE
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, NO_LIMIT
from memoryhub.core.stores.store import use_store
from memoryhub.core.text import one_line


class PackableMemory(NamedTuple):
    """A memory as context packs show it."""

    id: int
    kind: str
    type: str
    scope: str
    title: str
    content: str
    priority: int | None
    # In the stored format, which sorts by time
    updated_at: str
    # Where it comes from, such as the path of an imported file
    source: str
    is_current: bool = True


_LIVE = f"m.deleted_at IS NULL AND NOT (m.review = 'rejected') AND m.id {OUTSIDE}"
_MEMORIES = (
    "SELECT m.id, m.kind, m.type, m.scope, m.title, m.content, m.priority, m.updated_at || '', m.source "
    f"FROM memories_memory m WHERE {_LIVE}"
)
# The accepted version, from its event, of each memory with a later proposed one; written as in the partial index of
# memories that are not accepted
_ACCEPTED_VERSIONS = (
    "SELECT m.id, v.created_at || '', e.payload_json FROM memories_memory m "
    "JOIN memories_memoryversion v ON v.memory_id = m.id AND v.version = m.accepted_version "
    "JOIN raw_events e ON e.position = v.id "
    "WHERE NOT (m.review = 'accepted') AND m.review = 'proposed' AND m.accepted_version IS NOT NULL "
    f"AND e.payload_json IS NOT NULL AND {_LIVE}"
)
# All memories less those that packs leave out: each reason has an index, and reading every memory takes half a
# microsecond for each. Sections of replaced records, which only older imports left, are not subtracted.
_COUNT = (
    "SELECT count(*) - (SELECT count(*) FROM memories_memory m WHERE {kinds} AND m.id IN ("
    "SELECT id FROM memories_memory WHERE deleted_at IS NOT NULL UNION ALL "
    "SELECT id FROM memories_memory WHERE NOT (review = 'accepted') {unless} UNION ALL "
    "SELECT id FROM memories_memory WHERE scope = 'session' AND session_id <> %s UNION ALL "
    "SELECT id FROM memories_memory WHERE valid_until <= %s UNION ALL SELECT id FROM quarantine UNION ALL "
    "SELECT r.target_id FROM memories_relation r WHERE {supersedes})) FROM memories_memory m WHERE {kinds}"
)


# What a rule has proposed is in no pack, whatever else is
_BY_RULE = f"(review = 'proposed' AND review_reason LIKE '{PROPOSED_BY_RULE}%%')"


def packable_memories(
    condition: str,
    parameters: Sequence[Any] = (),
    *,
    order: str = "m.id",
    most: int = NO_LIMIT,
    now: datetime | None = None,
    with_superseded: bool = False,
) -> list[PackableMemory]:
    """Return live memories ``m`` of the current store as context packs show them, earlier versions last.

    Unless the project includes everything in its packs, proposed memories are left out; those with an accepted version
    are shown in that version (decision 24). Superseded ones are left out (decision 49) unless asked for, and what has
    expired by ``now``. ``most`` is a limit for memories in their current version.
    """
    accepted_only = project_settings().packs_accepted_only
    if not with_superseded:
        condition = f"{condition} AND NOT {is_superseded()}"
    conditions, values = [condition], [*parameters]
    if accepted_only:
        conditions.append("m.review = 'accepted'")
    else:
        conditions.append(f"NOT {_BY_RULE}")
    if now:
        conditions.append("(m.valid_until IS NULL OR m.valid_until > %s)")
        values.append(rows.time_value(now))
    matches = rows.fetch(f"{_MEMORIES} AND {' AND '.join(conditions)} ORDER BY {order} LIMIT %s", [*values, most])
    memories = list(starmap(PackableMemory, matches))
    if accepted_only:
        memories += _accepted_versions(condition, parameters, now)
    return memories


# The event was validated when it was written; validating it again would take most of the time of a pack
def _accepted_versions(condition: str, parameters: Sequence[Any], now: datetime | None) -> list[PackableMemory]:
    memories: list[PackableMemory] = []
    for memory_id, moment, payload in rows.fetch(
        f"{_ACCEPTED_VERSIONS} AND {condition} ORDER BY m.id DESC", [*parameters]
    ):
        state = json.loads(payload)
        kind = state.get("kind", DEFAULT_KIND)
        columns = attribute_columns(kind, state.get("attributes", {}))
        ends = columns["valid_until"]
        if now and ends and ends <= now:
            continue
        memory = PackableMemory(
            id=memory_id,
            kind=kind,
            type=state.get("type") or KINDS[kind].default_type,
            scope=state.get("scope", MemoryScope.PROJECT),
            title=state["title"],
            content=state["content"],
            priority=columns["priority"],
            updated_at=moment,
            source=state.get("source", ""),
            is_current=False,
        )
        memories.append(memory)
    return memories


_TITLE = 120
_HEAD = 200  # characters of an item before its text: id, type and title
_FACT, _BUILD = 300, 700

_SECTIONS = [(kind, kind.pack) for kind in KINDS.values() if kind.pack]
_IS_FACT = " AND ".join(f"NOT (m.kind = '{kind.name}')" for kind, _ in _SECTIONS) or "1"
_OPEN_CONFLICTS = (
    "SELECT c.id, c.version_a, c.version_b, m.id, m.title, m.review FROM memories_conflict c "
    "JOIN memories_memory m ON m.id = c.memory_id "
    f"WHERE c.resolved_at IS NULL AND c.memory_id {OUTSIDE} ORDER BY c.id DESC"
)
# Guidelines are put in order by their folders: so many times the candidates of other sections
_MOST_RULES = 4
_BY_PRIORITY = "m.priority DESC, length(m.source) - length(replace(m.source, '/', '')), m.id"
# Depth of the deepest folder in which a client looks for rules, as in ``.cursor/rules/api``
_CLIENT_FOLDERS = 3
_Placed = tuple[Level, PackableMemory]
# Share of the question's words from which a guideline concerns it, and how many of the others are given with a question
_CONCERNS, _MOST_BESIDE = 0.6, 5
# How many of the nearest entries are given where none answers the question
_NEAREST = 2
# Sections of tutorials teach users what developers know
_LESSON, _OF_LESSON = re.compile(r"(?:^|/)(?:tutorials?|examples?|getting[-_]started)\b", re.IGNORECASE), 0.7
# Least relevance of a section of a document to a question
_LEAST_OF_REFERENCE = 0.7
# How many sections of files with rules are given, and how many on one subject
_MOST_FILE_RULES, _MOST_OF_RANK = 5, 2
# Words by which the text of a section is known
_FIRST_WORDS = 20


# Those that concern the question first; then by priority where the kind is ordered so, else by last change. Of equal
# names, the nearest scope wins.
def _of_kind(kind: Kind, text_length: int, request: GatherRequest) -> list[PackItem]:
    if kind.order == "priority" and request.edition >= Edition.BY_ARRIVAL:
        memories = list(_visible_memories(request, _is_of(kind), _BY_PRIORITY, most=_MOST_RULES * request.most))
        memories = _by_folder(memories, request)
    else:
        order = "m.priority DESC" if kind.order == "priority" else "m.updated_at DESC"
        memories = list(_visible_memories(request, _is_of(kind), f"{order}, m.id DESC"))
    words = request.query.terms
    ranked: dict[Any, tuple[float, int, PackItem]] = {}
    for level, memory in memories:
        name = memory.title if kind.tools else (level.store, memory.id)
        if name in ranked:
            continue
        priority = (memory.priority or 0) if kind.order == "priority" else 0
        label = reference(level, memory.id)
        line = partial(_of_kind_line, label, memory, text_length, request.edition)
        item = PackItem(label, line, _text_of(memory, request))
        share = 0.0
        if words:
            share = len(words_in(f"{memory.title} {memory.content}", words)) / len(words)
        ranked[name] = (share if share >= _CONCERNS else 0, priority, item)
    ordered = sorted(ranked.values(), key=lambda rank: (-rank[0], -rank[1]))
    if request.has_question:
        concerned = sum(share > 0 for share, *_ in ordered)
        ordered = ordered[: concerned + _MOST_BESIDE]
    return [item for *_, item in ordered]


# In one scope and priority, those of the folder that one works in and of the folders above it come first, the upper
# ones before the lower ones; in a folder, in the order in which they were written
def _by_folder(memories: list[_Placed], request: GatherRequest) -> list[_Placed]:
    rank = {level.store: number for number, level in enumerate(request.chain)}
    # Where the session began, and the folders above
    folders: set[PurePosixPath] = set()
    of_session = "SELECT directory FROM sessions_app_session WHERE session_id = %s"
    for directory in filter(None, rows.column(of_session, [request.session_id])):
        began = PurePosixPath(directory)
        folders.update((began, *began.parents))

    def order(placed: _Placed) -> tuple[int, bool, bool, int, int]:
        level, memory = placed
        folder = folder_of_rule(memory.source)
        is_elsewhere = bool(folder.parts) and folder not in folders
        return rank[level.store], memory.scope != MemoryScope.SESSION, is_elsewhere, len(folder.parts), memory.id

    return sorted(memories, key=order)


def folder_of_rule(source: str) -> PurePosixPath:
    """Return the folder that a file of rules is about, the empty one for a name without a path.

    A client's own folders, such as ``.cursor/rules``, are about the one above.
    """
    folder = PurePosixPath(source).parent
    for client_folder in (folder, *folder.parents)[:_CLIENT_FOLDERS]:
        if client_folder.name.startswith("."):
            return client_folder.parent
    return folder if folder.name else PurePosixPath()


def _is_of(kind: Kind) -> str:
    return f"m.kind = '{kind.name}'"


def _of_kind_line(name: str, memory: PackableMemory, text_length: int, edition: Edition = Edition.PRESENT) -> str:
    priority = "" if memory.priority is None else f" p{memory.priority}"
    return f"- {name}{priority} {memory.type}: {_titled(memory, memory.content, text_length, edition)}"


# The last heading and the text: two files with the same section, or a section as a note and as a guideline
def _text_of(memory: PackableMemory, request: GatherRequest | None = None) -> str:
    if request and request.edition < Edition.BY_ARRIVAL:
        return ""
    words = memory.content.split()
    if request and request.is_by_worth:
        # The same section in the documents of several versions
        words = words[:_FIRST_WORDS]
    return " ".join([memory.title.rpartition(BETWEEN_HEADINGS)[2], *words])


# The best answers to the question first, then the latest changes, and then lists of links. With a question there are
# only answers, and sections of documents are always ones about it, or about the work.
def _facts(request: GatherRequest) -> list[PackItem]:
    answers = _answering(request)
    return answers if request.has_question else without_repeats([*answers, *_latest(request)])


def _count_memories(condition: str, request: GatherRequest) -> int:
    count = 0
    for level in request.chain:
        with use_store(level.store):
            accepted_only = project_settings().packs_accepted_only
            unless = "AND accepted_version IS NULL" if accepted_only else f"AND (review = 'rejected' OR {_BY_RULE})"
            sql = _COUNT.format(kinds=condition, unless=unless, supersedes=supersedes())
            count += rows.fetch(sql, [level.session_id, rows.time_value(request.now)])[0][0]
    return count


def _latest(request: GatherRequest) -> list[PackItem]:
    condition = f"{_IS_FACT} AND NOT (m.type = '{REFERENCE}')" if request.is_by_worth else _IS_FACT
    memories = list(_visible_memories(request, condition, "m.updated_at DESC, m.id DESC"))
    memories.sort(key=lambda entry: (entry[1].updated_at, entry[1].id), reverse=True)
    if request.edition >= Edition.BY_ARRIVAL:
        memories.sort(key=lambda entry: is_boilerplate_section(entry[1].title, entry[1].content))
    return [_fact(request, level, memory) for level, memory in memories]


def _answering(request: GatherRequest) -> list[PackItem]:
    words = () if request.has_superseded else request.query.terms
    scored: list[tuple[float, PackItem]] = []
    # Sections of documents that are hardly about it: given if nothing else is
    nearest: list[tuple[float, PackItem]] = []
    for level in request.chain:
        with use_store(level.store):
            scores = request.matching(level, SearchSourceName.MEMORY)
            answers = request.answers(level, SearchSourceName.MEMORY) if request.is_by_worth else {}
            ids = json.dumps(list(scores))
            memories = packable_memories(f"m.id IN {IDS} AND {_IS_FACT}", [ids], with_superseded=request.has_superseded)
        for memory in _without_hidden(request, level, memories):
            if not request.is_by_worth:
                scored.append((scores[memory.id], _fact(request, level, memory, words)))
            elif not _is_ballast(memory):
                score, relevance = answers[memory.id]
                score *= _OF_LESSON if _LESSON.search(memory.source) else 1
                start = relevance.start if memory.is_current else 0
                item = _fact(request, level, memory, words, start)
                if request.has_question and memory.type == REFERENCE and relevance.score < _LEAST_OF_REFERENCE:
                    nearest.append((score, item))
                else:
                    scored.append((score, item))
    scored.sort(key=lambda pair: (-pair[0], pair[1].reference))
    if not request.is_by_worth:
        return [item for _, item in scored]
    choice = request.choice
    least = max(choice.least_score, choice.near_best * scored[0][0]) if scored else 0
    best = [item for score, item in scored[: choice.most] if score >= least]
    if not best and request.best_relevance() < _LEAST_OF_REFERENCE:
        scored = sorted([*scored, *nearest], key=lambda pair: (-pair[0], pair[1].reference))
        best = [item for _, item in scored[:_NEAREST]]
    return best


def _is_ballast(memory: PackableMemory) -> bool:
    return memory.type == REFERENCE and is_ballast(memory.title, memory.source, memory.content)


# What the project's files say to agents and developers, which holds for any work
def _rules(request: GatherRequest) -> list[PackItem]:
    if not request.is_by_worth or request.has_question:
        return []
    sources = ", ".join(f"'{path}'" for path in (*FOR_AGENTS, *FOR_DEVELOPERS))
    # Unary plus: SQLite would otherwise read all memories in the order of their ids
    memories = _visible_memories(request, f"m.type = '{REFERENCE}' AND m.source IN ({sources})", "+m.id")
    ranked: list[tuple[int, int, int, _Placed]] = []
    for level, memory in memories:
        is_for_agents = memory.source in FOR_AGENTS
        rank = -1 if is_for_agents else rank_of_work(memory.title)
        if rank is not None and (is_for_agents or not _is_ballast(memory)):
            # A short heading is about the whole
            chapter, _, heading = memory.title.rpartition(BETWEEN_HEADINGS)
            depth = chapter.count(BETWEEN_HEADINGS)
            order = (0, 0) if is_for_agents else (depth, len(heading))
            ranked.append((rank, *order, (level, memory)))
    ranked.sort(key=itemgetter(0, 1, 2))
    items: list[PackItem] = []
    chapters: list[str] = []
    counts: Counter[int] = Counter()
    for rank, _, _, (level, memory) in ranked:
        # A part of what is given, such as how to measure the coverage of the tests, is one step further
        is_part = memory.title.startswith(tuple(chapters))
        if rank < 0 or (counts[rank] < _MOST_OF_RANK and not is_part):
            items.append(_fact(request, level, memory))
            chapters.append(f"{memory.title}{BETWEEN_HEADINGS}")
            counts[rank] += 1
    return items[:_MOST_FILE_RULES]


# Written as in the index of topics
_IS_BUILD = f"NOT (m.scope = 'session') AND m.topic_key = '{BUILD_TOPIC}'"


def _build(request: GatherRequest) -> list[PackItem]:
    if not request.is_by_worth:
        return []
    items: list[PackItem] = []
    for level, memory in _visible_memories(request, _IS_BUILD, "m.id"):
        label = reference(level, memory.id)
        lines = "; ".join(memory.content.split("\n"))
        items.append(PackItem(label, f"- {label} {one_line(lines, _BUILD)}", _text_of(memory, request)))
    return items


def _recallable(level: Level, ids: Sequence[int], now: datetime, passages: Mapping[int, slice]) -> dict[int, PackItem]:
    items: dict[int, PackItem] = {}
    for memory in packable_memories(f"m.id IN {IDS}", [json.dumps(list(ids))], now=now):
        label = reference(level, memory.id)
        passage = passages.get(memory.id, slice(0, None))
        # It is part of the current version and its attributes
        if not memory.is_current or passage.start >= len(memory.content):
            passage = slice(0, None)
        excerpt = memory._replace(content=memory.content[passage])
        section = KINDS[memory.kind].pack
        line = _of_kind_line(label, excerpt, section.text_length) if section else _fact_line(label, excerpt, ())
        place = f"{passage.start}-{passage.stop}" if passage.start else ""
        items[memory.id] = PackItem(label, line, _text_of(memory), place)
    return items


define_recallable(SearchSourceName.MEMORY, _recallable)


def _fact(
    request: GatherRequest, level: Level, memory: PackableMemory, words: Sequence[str] = (), start: int = 0
) -> PackItem:
    label = reference(level, memory.id)
    return PackItem(label, partial(_fact_line, label, memory, words, start, request.edition), _text_of(memory, request))


# From the best passage on, or else the one that has the most of the words
def _fact_line(
    name: str,
    memory: PackableMemory,
    words: Sequence[str],
    start: int = 0,
    edition: Edition = Edition.PRESENT,
) -> str:
    content = memory.content
    if start or words:
        content = split_joined(content)[0]
    if 0 < start < len(content) - _FACT // 2:
        content = f"… {content[start:]}"
    elif words:
        content = snippet(content, words, _FACT)
    text = _titled(memory, content, _FACT, edition)
    return f"- {name} {type_name(memory.kind, memory.type)} {clock.day(memory.updated_at)} {text}"


def _conflicts(request: GatherRequest) -> list[PackItem]:
    items: list[PackItem] = []
    for level in request.chain:
        with use_store(level.store):
            for conflict, first, second, memory, title, review in rows.fetch(_OPEN_CONFLICTS):
                is_proposed = review == ReviewState.PROPOSED
                if review == ReviewState.ACCEPTED or (is_proposed and not project_settings().packs_accepted_only):
                    label = reference(level, conflict)
                    about = f"{reference(level, memory)} {one_line(title, _TITLE)}"
                    line = f"- {label} versions {first} and {second} of {about} were written at once"
                    items.append(PackItem(label, line))
    return items


# The visible memories of each store in turn, those of the session before those of the project
def _visible_memories(request: GatherRequest, condition: str, order: str, *, most: int = 0) -> Iterator[_Placed]:
    for level in request.chain:
        with use_store(level.store):
            memories = packable_memories(
                f"(m.scope <> 'session' OR m.session_id = %s) AND {condition}",
                [level.session_id],
                order=order,
                most=most or request.most,
                now=request.now,
                with_superseded=request.has_superseded,
            )
        memories = _without_hidden(request, level, memories)
        memories.sort(key=lambda memory: memory.scope != MemoryScope.SESSION)
        yield from zip(repeat(level), memories)


def _without_hidden(request: GatherRequest, level: Level, memories: Sequence[PackableMemory]) -> list[PackableMemory]:
    hidden = request.hidden(level, [memory.id for memory in memories])
    return [memory for memory in memories if memory.id not in hidden]


def _titled(memory: PackableMemory, content: str, longest: int, edition: Edition) -> str:
    head, text = one_line(memory.title, _TITLE), one_line(content, longest)
    if edition <= Edition.WITH_REPEATED_TITLES:
        return head if text == head else f"{head}: {text}"
    head, text = without_repetition(head, text)
    return f"{head}: {text}" if text else head


for _kind, _pack in _SECTIONS:
    define_section(
        SectionDefinition(
            _pack.name,
            _pack.title,
            _pack.order,
            _pack.share,
            _pack.text_length + _HEAD,
            items=partial(_of_kind, _kind, _pack.text_length),
            more=f"{_kind.name}_list" if _kind.tools else "memory_search",
            count=partial(_count_memories, _is_of(_kind)),
        )
    )
define_section(SectionDefinition("build", "How to build and test", 24, 0.25, 750, _build, "memory_search"))
define_section(SectionDefinition("rules", "Rules of the project's files", 25, 0.25, 500, _rules, "memory_search"))
define_section(
    SectionDefinition(
        "facts", "What is known", 40, 0.40, 500, _facts, "memory_search", partial(_count_memories, _IS_FACT)
    )
)
define_section(SectionDefinition("conflicts", "Open conflicts", 50, 0.15, 300, _conflicts, "memory_conflicts"))
