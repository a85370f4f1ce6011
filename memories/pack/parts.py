"""The sections of context packs that memories, sessions and their work fill."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import repeat
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
from memories.review.policy import PROPOSED_BY_RULE
from memories.schemas import SearchSourceName
from memories.scopes import Level
from memories.search.snippets import snippet, words_in
from memories.substance import is_boilerplate_section, split_joined
from memories.superseded import is_superseded, supersedes
from memoryhub.config.current_settings import project_settings
from memoryhub.core import clock
from memoryhub.core.events.event_types import Speech, names_of_speech, quoted
from memoryhub.core.kinds import DEFAULT_KIND, KINDS, Kind, type_name
from memoryhub.core.log.quarantine import OUTSIDE
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, NO_LIMIT, json_text
from memoryhub.core.stores.store import use_store
from memoryhub.core.text import one_line
from sessions_app.models import Session


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
    memories = list(map(PackableMemory._make, matches))
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
        )
        memories.append(memory)
    return memories


_TITLE = 120
_HEAD = 200  # characters of an item before its text: id, type and title
_FACT, _SUMMARY, _TURN, _SHORT = 300, 1_600, 300, 160

_SECTIONS = [(kind, kind.pack) for kind in KINDS.values() if kind.pack]
_IS_FACT = " AND ".join(f"NOT (m.kind = '{kind.name}')" for kind, _ in _SECTIONS) or "1"
_OPEN_CONFLICTS = (
    "SELECT c.id, c.version_a, c.version_b, m.id, m.title, m.review FROM memories_conflict c "
    "JOIN memories_memory m ON m.id = c.memory_id "
    f"WHERE c.resolved_at IS NULL AND c.memory_id {OUTSIDE} ORDER BY c.id DESC"
)
_LAST_SESSION = (
    "SELECT id, coalesce(ended_at, started_at) || '', agent, summary FROM sessions_app_session "
    f"WHERE session_id <> %s AND session_id <> %s AND summary <> '' AND status <> 'discarded' AND id {OUTSIDE} "
    "AND id > %s "
    "ORDER BY ended_at DESC NULLS LAST, id DESC LIMIT 1"
)
# Imported prompts are old, whatever their position
_SAID_HERE = f"source <> 'import' AND payload_json IS NOT NULL AND position {OUTSIDE}"
_PROMPTS = (
    f"SELECT position, occurred_at, {json_text('payload_json', 'content')} FROM raw_events "
    f"WHERE event_type IN ({{prompts}}) AND {_SAID_HERE} "
    "ORDER BY position DESC LIMIT %s"
)
_COUNT_PROMPTS = f"SELECT count(*) FROM raw_events WHERE event_type IN ({{prompts}}) AND {_SAID_HERE}"
_OPEN_ITERATION = (
    "SELECT id, command, description, phase FROM sessions_app_iteration "
    f"WHERE status = 'active' AND id {OUTSIDE} ORDER BY id DESC LIMIT 1"
)
_COMMITS = f"SELECT id, sha, message, committed_at || '' FROM sessions_app_commit WHERE id {OUTSIDE}"
_COUNT_COMMITS = f"SELECT count(*) FROM sessions_app_commit WHERE id {OUTSIDE}"
# Commits with at least this share of the best one's score come first, then so many of the newest
_NEAR_BEST, _NEWEST = 0.5, 2
# What the most recent match gains over the oldest
_RECENT = 0.5
# A line of a commit is so many times shorter than one of a memory
_SHORTER = 3
# Guidelines are put in order by their folders: so many times the candidates of other sections
_MOST_RULES = 4
_BY_PRIORITY = "m.priority DESC, length(m.source) - length(replace(m.source, '/', '')), m.id"
# Depth of the deepest folder in which a client looks for rules, as in ``.cursor/rules/api``
_CLIENT_FOLDERS = 3
_Placed = tuple[Level, PackableMemory]
# Share of the question's words from which a guideline concerns it
_CONCERNS = 0.6


# Those that concern the question first; then by priority where the kind is ordered so, else by last change. Of equal
# names, the nearest scope wins.
def _of_kind(kind: Kind, text_length: int, request: GatherRequest) -> list[PackItem]:
    if kind.order == "priority" and request.edition is Edition.PRESENT:
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
        line = partial(_of_kind_line, label, memory, text_length)
        item = PackItem(label, line, _text_of(memory, request))
        share = 0.0
        if words:
            share = len(words_in(f"{memory.title} {memory.content}", words)) / len(words)
        ranked[name] = (share if share >= _CONCERNS else 0, priority, item)
    return [item for *_, item in sorted(ranked.values(), key=lambda rank: (-rank[0], -rank[1]))]


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


def _of_kind_line(name: str, memory: PackableMemory, text_length: int) -> str:
    priority = "" if memory.priority is None else f" p{memory.priority}"
    return f"- {name}{priority} {memory.type}: {_titled(memory.title, memory.content, text_length)}"


# The last heading and the text: two files with the same section, or a section as a note and as a guideline
def _text_of(memory: PackableMemory, request: GatherRequest | None = None) -> str:
    if request and request.edition is not Edition.PRESENT:
        return ""
    return " ".join([memory.title.rpartition(BETWEEN_HEADINGS)[2], *memory.content.split()])


# The best answers to the question first, then the latest changes, and then lists of links
def _facts(request: GatherRequest) -> list[PackItem]:
    return without_repeats([*_answering(request), *_latest(request)])


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
    memories = list(_visible_memories(request, _IS_FACT, "m.updated_at DESC, m.id DESC"))
    memories.sort(key=lambda entry: (entry[1].updated_at, entry[1].id), reverse=True)
    if request.edition is Edition.PRESENT:
        memories.sort(key=lambda entry: is_boilerplate_section(entry[1].title, entry[1].content))
    return [_fact(request, level, memory) for level, memory in memories]


def _answering(request: GatherRequest) -> list[PackItem]:
    words = () if request.has_superseded else request.query.terms
    scored: list[tuple[float, PackItem]] = []
    for level in request.chain:
        with use_store(level.store):
            scores = request.matching(level, SearchSourceName.MEMORY)
            ids = json.dumps(list(scores))
            memories = packable_memories(f"m.id IN {IDS} AND {_IS_FACT}", [ids], with_superseded=request.has_superseded)
        visible = _without_hidden(request, level, memories)
        scored += [(scores[memory.id], _fact(request, level, memory, words)) for memory in visible]
    return [item for _, item in sorted(scored, key=lambda pair: (-pair[0], pair[1].reference))]


def _recallable(level: Level, ids: Sequence[int], now: datetime, passages: Mapping[int, slice]) -> dict[int, PackItem]:
    items: dict[int, PackItem] = {}
    for memory in packable_memories(f"m.id IN {IDS}", [json.dumps(list(ids))], now=now):
        label = reference(level, memory.id)
        passage = passages.get(memory.id, slice(0, None))
        excerpt = memory._replace(content=memory.content[passage])
        section = KINDS[memory.kind].pack
        line = _of_kind_line(label, excerpt, section.text_length) if section else _fact_line(label, excerpt, ())
        place = f"{passage.start}-{passage.stop}" if passage.start else ""
        items[memory.id] = PackItem(label, line, _text_of(memory), place)
    return items


define_recallable(SearchSourceName.MEMORY, _recallable)


def _fact(request: GatherRequest, level: Level, memory: PackableMemory, words: Sequence[str] = ()) -> PackItem:
    label = reference(level, memory.id)
    return PackItem(label, partial(_fact_line, label, memory, words), _text_of(memory, request))


# The passage that has the most of the words
def _fact_line(name: str, memory: PackableMemory, words: Sequence[str]) -> str:
    content = snippet(split_joined(memory.content)[0], words, _FACT) if words else memory.content
    text = _titled(memory.title, content, _FACT)
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


# For a session that goes on, only one that began after it
def _last_session(request: GatherRequest) -> list[PackItem]:
    items: list[PackItem] = []
    began = Session.objects.filter(session_id=request.progress_of).values_list("id", flat=True).first() or 0
    parameters = [request.session_id, request.progress_of or "", began]
    for session, when, agent, summary in rows.fetch(_LAST_SESSION, parameters):
        line = f"- #{session} {clock.day(when)} by {agent or 'unknown'}: {one_line(summary, _SUMMARY)}"
        items.append(PackItem(f"#{session}", line))
    return items


def _turns(request: GatherRequest) -> list[PackItem]:
    prompts = rows.fetch(_PROMPTS.format(prompts=quoted(names_of_speech(Speech.PROMPT))), [request.most])
    items: list[PackItem] = []
    for position, occurred_at, content in prompts:
        label = f"#{position}"
        items.append(PackItem(label, f"- {label} {clock.minute(occurred_at)} {one_line(content, _TURN)}", label))
    return items


def _count_turns(_: GatherRequest) -> int:
    return int(rows.fetch(_COUNT_PROMPTS.format(prompts=quoted(names_of_speech(Speech.PROMPT))))[0][0])


def _work(request: GatherRequest) -> list[PackItem]:
    items: list[PackItem] = []
    for iteration, command, description, phase in rows.fetch(_OPEN_ITERATION):
        reached = f", now in phase {one_line(phase, 64)}" if phase else ""
        about = f"{one_line(command, 64)}: {one_line(description, _SHORT)}"
        items.append(PackItem(f"#{iteration}", f"- #{iteration} open iteration {about}{reached}"))
    return items + _commits(request)


# Those that match the query best, the two newest, the other matches, then the rest by time
def _commits(request: GatherRequest) -> list[PackItem]:
    newest = _fetch_commits("ORDER BY committed_at DESC, id DESC LIMIT %s", _SHORTER * request.most)
    if not newest:
        return []
    scores = request.matching(request.chain[0], SearchSourceName.COMMIT)
    matches = _fetch_commits(f"AND id IN {IDS}", json.dumps(list(scores)))
    # A recent one of equal matches tells more of the code as it is now
    for place, commit in enumerate(sorted(matches, key=lambda commit: str(commit.committed_at)), 1):
        scores[commit.id] *= 1 + _RECENT * place / len(matches)
    matches.sort(key=lambda commit: -scores[commit.id])
    best = [commit for commit in matches if scores[commit.id] >= _NEAR_BEST * scores[matches[0].id]]
    commits = [*best, *newest[:_NEWEST], *matches, *newest]
    return without_repeats(PackItem(f"#{commit.id}", partial(_commit_line, commit)) for commit in commits)


class _Commit(NamedTuple):
    id: int
    sha: str
    message: str
    # Text in a format that sorts
    committed_at: str


def _fetch_commits(condition: str, parameter: int | str) -> list[_Commit]:
    return list(map(_Commit._make, rows.fetch(f"{_COMMITS} {condition}", [parameter])))


def _commit_line(commit: _Commit) -> str:
    subject = one_line(commit.message.split("\n", 1)[0], _SHORT)
    return f"- #{commit.id} commit {commit.sha[:10]} {clock.day(commit.committed_at)} {subject}"


def _count_work(_: GatherRequest) -> int:
    return int(rows.fetch(_COUNT_COMMITS)[0][0]) + len(rows.fetch(_OPEN_ITERATION))


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


def _titled(title: str, content: str, longest: int) -> str:
    head, text = one_line(title, _TITLE), one_line(content, longest)
    return head if text == head else f"{head}: {text}"


define_section(SectionDefinition("session", "Last session", 10, 0.25, 1_700, _last_session, "session_list"))
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
define_section(
    SectionDefinition(
        "facts", "What is known", 40, 0.40, 500, _facts, "memory_search", partial(_count_memories, _IS_FACT)
    )
)
define_section(SectionDefinition("conflicts", "Open conflicts", 50, 0.15, 300, _conflicts, "memory_conflicts"))
define_section(SectionDefinition("turns", "Asked lately", 60, 0.40, 400, _turns, "memory_timeline", _count_turns))
define_section(SectionDefinition("work", "Work", 70, 0.50, 300, _work, "memory_timeline", _count_work))
