"""Every call of the documents that the hub was conceived from, by the names and arguments of theirs, as one story.

A row is made after the one before it; ``$name`` in an argument is what an earlier row kept under that name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from tests.mcp.client import Server

Values = dict[str, str | int]
ID = r"#(\d+)"


@dataclass(frozen=True)
class Call:
    """One call, and what its answer must say."""

    document: str
    """Which of the documents it is in; "" where it only prepares what follows."""
    name: str
    """A tool, or the address of a resource."""
    arguments: dict[str, Any] = field(default_factory=dict)
    says: tuple[str, ...] = ()
    """Patterns, each of which must be found in the answer."""
    never: tuple[str, ...] = ()
    """Patterns that must not be."""
    keeps: dict[str, str] = field(default_factory=dict)
    """Names, each with the pattern whose first group is kept under it."""
    error: bool = False

    def make(self, server: Server, known: Values) -> str:
        """Make the call, check what it says, keep what later ones need, and return the answer's text."""
        text, failed = self._answer(server, known)
        assert failed == self.error, f"{self.name} answered: {text}"
        for pattern in self.says:
            assert re.search(str(filled(pattern, known)), text), f"{self.name} did not say {pattern!r}: {text}"
        for pattern in self.never:
            assert not re.search(str(filled(pattern, known)), text), f"{self.name} said {pattern!r}: {text}"
        for name, pattern in self.keeps.items():
            found = re.search(pattern, text)
            assert found, f"{self.name} did not say {pattern!r}: {text}"
            known[name] = int(found[1]) if pattern == ID else found[1]
        return text

    def _answer(self, server: Server, known: Values) -> tuple[str, bool]:
        if "://" in self.name:
            answer = server.ask("resources/read", {"uri": filled(self.name, known)})
            contents = answer.get("result", {}).get("contents")
            return (contents[0]["text"], False) if contents else (str(answer), True)
        result = server.call(self.name, **filled(self.arguments, known))
        return result["content"][0]["text"], bool(result.get("isError"))


def filled(value: Any, known: Values) -> Any:
    """Return ``value`` with every ``$name`` in it replaced by what was kept."""
    if isinstance(value, str) and value.startswith("$") and value[1:] in known:
        return known[value[1:]]
    if isinstance(value, str):
        return re.sub(r"\$([a-z_]+)", lambda found: str(known.get(found[1], found[0])), value)
    if isinstance(value, list):
        return [filled(each, known) for each in value]
    if isinstance(value, dict):
        return {name: filled(each, known) for name, each in value.items()}
    return value


SCOPES = [
    Call("003", "memory_org_create", {"name": "Acme", "metadata": {"team": "core"}}, (r"organisation acme \(Acme\)",)),
    Call("003", "memory_org_list", {}, (r"acme \(Acme\)", r"\(1 of 1\)")),
    Call(
        "003",
        "memory_project_create",
        {
            "id": "alpha",
            "org_id": "acme",
            "name": "Alpha",
            "description": "Keeps fish.",
            "root_path": "/src/alpha",
            "metadata": {"goals": ["ship"]},
        },
        (r"project alpha \(Alpha\)", "organisation: acme", "folder: /src/alpha"),
    ),
    Call(
        "003", "memory_project_create", {"name": "Gamma Ray", "org_id": "acme"}, (r"gamma-ray \(Gamma Ray\) of acme",)
    ),
    Call("003", "memory_project_list", {"org_id": "acme"}, (r"alpha \(Alpha\) of acme", "gamma-ray")),
    Call("003", "memory_project_get", {"project_id": "alpha"}, (r'metadata: \{"goals": \["ship"\]\}', "Keeps fish")),
    Call(
        "003",
        "memory_session_start",
        {
            "project_id": "alpha",
            "name": "Tuesday",
            "purpose": "Clean the tank",
            "agent_id": "claude",
            "metadata": {"mode": "scratch"},
        },
        (r"session \S+ active", "by claude Tuesday: Clean the tank"),
        keeps={"session": r"session (\S+) active"},
    ),
    Call("003", "memory_session_list", {"project_id": "alpha", "status": "active"}, (r"session $session active",)),
]

TOOLS = [
    Call(
        "003",
        "memory_tool_add",
        {
            "scope_type": "project",
            "scope_id": "alpha",
            "name": "git_commit",
            "category": "cli",
            "description": "Makes a commit.",
            "parameters": {"type": "object", "properties": {"message": {"type": "string"}}},
            "examples": ["git commit -m 'Feed the fish'"],
            "constraints": "Only when the tests pass.",
            "created_by": "claude",
        },
        (r"^created #\d+ git_commit$",),
        keeps={"tool": ID},
    ),
    Call("003", "memory_tool_add", {"name": "git_commit", "description": "x"}, (r"exists as #$tool",), error=True),
    Call(
        "003",
        "memory_tool_update",
        {
            "id": "$tool",
            "description": "Makes a commit of what is staged.",
            "updated_by": "codex",
            "change_reason": "said what of",
        },
        ("^updated #$tool to v2 git_commit$",),
    ),
    Call(
        "003",
        "memory_tool_get",
        {"name": "git_commit", "scope_type": "session", "scope_id": "$session"},
        ("^#$tool tool/cli v2 .* by claude", "of what is staged", "constraints: Only when the tests", "Feed the fish"),
    ),
    Call(
        "003",
        "memory_tool_list",
        {"scope_type": "project", "scope_id": "alpha", "category": "cli"},
        ("#$tool .*git_commit", r"\(1 of 1\)"),
    ),
    Call("003", "memory_tool_history", {"tool_id": "$tool"}, (r"v2 .* by codex .*: said what of", r"v1 .* by claude")),
]

GUIDELINES = [
    Call(
        "003",
        "memory_guideline_add",
        {
            "scope_type": "global",
            "name": "parametrise_sql",
            "category": "security",
            "priority": 90,
            "content": "Give SQL its values as parameters.",
            "rationale": "A quote ends the statement.",
            "examples": {"good": ["execute(sql, [x])"], "bad": ["execute(sql % x)"]},
            "tags": ["security", "python"],
        },
        (r"^created #\d+ parametrise_sql \(scope global\)$",),
        keeps={"wide": ID},
    ),
    Call(
        "003",
        "memory_guideline_add",
        {"name": "feed_daily", "content": "Feed the fish daily.", "priority": 20, "tags": ["python"]},
        (r"^created #\d+ feed_daily$",),
        keeps={"guideline": ID},
    ),
    Call(
        "003",
        "memory_guideline_update",
        {"id": "$wide", "scope_type": "global", "priority": 95, "change_reason": "it happened"},
        (r"^updated #$wide to v2 parametrise_sql \(scope global\)$",),
    ),
    Call(
        "003",
        "memory_guideline_get",
        {"name": "parametrise_sql"},
        (r"^global#$wide guideline/security v2", "priority: 95", "rationale: A quote", r"execute\(sql % x\)"),
    ),
    Call(
        "003",
        "memory_guideline_list",
        {"scope_type": "project", "scope_id": "alpha", "tags": ["python"]},
        (r"(?s)^global#$wide .*parametrise_sql.*\n#$guideline .*feed_daily", r"\(2 of 2\)"),
    ),
    Call(
        "003",
        "memory_guideline_history",
        {"name": "parametrise_sql"},
        (r"v2 .*: it happened", r"v1 ", r"\(2 of 2\)"),
    ),
]

KNOWLEDGE = [
    Call(
        "003",
        "memory_knowledge_add",
        {
            "title": "Tank nine",
            "category": "fact",
            "content": "Tank nine holds 400 litres; authentication is by key card.",
            "source": "the label",
            "confidence": 0.8,
            "valid_until": "2999-01-01T00:00:00Z",
        },
        (r"^created #\d+ Tank nine$",),
        keeps={"knowledge": ID},
    ),
    Call(
        "003",
        "memory_knowledge_update",
        {"knowledge_id": "$knowledge", "confidence": 0.9, "change_reason": "measured"},
        ("^updated #$knowledge to v2 Tank nine$",),
    ),
    Call(
        "003",
        "memory_knowledge_get",
        {"title": "Tank nine"},
        ("knowledge/fact v2", "source=the label", "confidence: 0.9", "valid_until: 2999"),
    ),
    Call("003", "memory_knowledge_list", {"category": "fact"}, ("#$knowledge .*Tank nine", r"\(1 of 1\)")),
    Call("003", "memory_knowledge_history", {"title": "Tank nine"}, (r"v2 .*: measured", "v1 ")),
]

TAGS = [
    Call(
        "003",
        "memory_tag_create",
        {"name": "aquarium", "category": "domain", "description": "About fish."},
        (r"described #\d+ aquarium \(domain\)", "About fish"),
        keeps={"tag": ID},
    ),
    Call("003", "memory_tag_list", {"category": "domain"}, ("aquarium", r"security \(domain, predefined\)")),
    Call(
        "003",
        "memory_tag_attach",
        {"entry_type": "tool", "entry_id": "$tool", "tag_id": "$tag"},
        (r"attached aquarium: #$tool git_commit \[aquarium\] v3",),
    ),
    Call(
        "003",
        "memory_tag_detach",
        {"entry_type": "tool", "entry_id": "$tool", "tag_name": "aquarium"},
        (r"detached aquarium: #$tool git_commit \[\] v4",),
    ),
    Call(
        "003",
        "memory_tag_attach",
        {"entry_type": "project", "entry_id": "alpha", "tag": "aquarium"},
        ("attached aquarium: project",),
    ),
    Call(
        "003",
        "memory_relation_create",
        {
            "source_type": "guideline",
            "source_id": "$guideline",
            "target_type": "tool",
            "target_id": "$tool",
            "relation_type": "applies_to",
        },
        ("guideline #$guideline feed_daily applies_to tool #$tool git_commit",),
        keeps={"relation": r"related: #(\d+)"},
    ),
    Call(
        "003",
        "memory_relation_create",
        {
            "source_type": "tool",
            "source_id": "$tool",
            "target_type": "project",
            "target_id": "alpha",
            "relation_type": "related_to",
        },
        ("tool #$tool git_commit related_to project",),
    ),
    Call(
        "003",
        "memory_relation_list",
        {"entry_type": "guideline", "entry_id": "$guideline"},
        ("#$relation .*applies_to tool #$tool", r"\(1 of 1\)"),
    ),
]

QUERIES = [
    Call(
        "003",
        "memory_query",
        {
            "types": ["guidelines"],
            "scope": {"type": "project", "id": "alpha", "inherit": True},
            "tags": {"require": ["python"]},
        },
        ("parametrise_sql", "feed_daily", r"\(2 of 2\)"),
    ),
    Call(
        "003",
        "memory_query",
        {"types": ["tools"], "related_to": {"type": "project", "id": "alpha"}},
        ("git_commit", r"relation 5.0", r"\(1 of 1\)"),
    ),
    Call(
        "003",
        "memory_query",
        {"search": "authentication", "scope": {"type": "project", "id": "alpha", "inherit": True}},
        ("Tank nine", r"\(1 of 1\)"),
    ),
    Call(
        "003",
        "memory_query",
        {"types": ["guidelines"], "tags": {"require": ["security"]}, "scope": {"type": "global"}},
        ("global#$wide .*parametrise_sql", r"\(1 of 1\)"),
    ),
    Call(
        "003",
        "memory_query",
        {"search": "commit", "limit": 1, "include_versions": True, "include_inactive": True},
        ("git_commit", "said what of"),
    ),
    Call("", "memory_tool_update", {"id": "$tool", "base_version": 4, "constraints": "Never on Friday."}, ("to v5",)),
    Call(
        "",
        "memory_tool_update",
        {"id": "$tool", "base_version": 4, "constraints": "Never at night."},
        ("beside a version that you had not seen",),
        keeps={"conflict": r"conflict #(\d+)"},
    ),
    Call("003", "memory_conflicts", {}, ("$conflict", "git_commit")),
    Call(
        "003",
        "memory_conflict_resolve",
        {"conflict_id": "$conflict", "resolution": "kept_version_b"},
        ("settled conflict #$conflict with keep_b",),
    ),
    Call("003", "memory_conflicts", {}, ("^no open conflict$",)),
]

CONTEXT = [
    Call(
        "003",
        "memory_context",
        {"project_id": "alpha", "session_id": "$session"},
        ("p95 security: parametrise_sql", "Tank nine", "git_commit"),
    ),
    Call("002", "context.pack", {"project_id": "alpha", "max_tokens": 400}, ("parametrise_sql",)),
]

ENDS = [
    Call("003", "memory_relation_delete", {"relation_id": "$relation"}, ("took away: #$relation",)),
    Call("003", "memory_tool_deactivate", {"name": "git_commit"}, ("^deleted #$tool",)),
    Call("003", "memory_tool_get", {"name": "git_commit"}, ("not_found",), error=True),
    Call("003", "memory_tool_get", {"id": "$tool", "include_inactive": True}, (r"\(deleted\)",)),
    Call(
        "003", "memory_guideline_deactivate", {"id": "$guideline", "reason": "they eat less"}, ("deleted #$guideline",)
    ),
    Call("003", "memory_knowledge_deactivate", {"title": "Tank nine"}, ("deleted #$knowledge",)),
    Call("003", "memory_knowledge_list", {}, ("^no knowledge entry here",)),
    Call(
        "003",
        "memory_guideline_add",
        {"scope_type": "session", "scope_id": "$session", "name": "try_it", "content": "Try another pump."},
        (r"\(scope session\)",),
    ),
    Call(
        "003",
        "memory_session_end",
        {"id": "$session", "status": "discarded", "summary": "Nothing came of it."},
        ("session $session discarded", "Nothing came of it"),
    ),
    Call("003", "memory_guideline_get", {"name": "try_it"}, ("not_found",), error=True),
]

MEMORIES = [
    Call(
        "001",
        "write_memory",
        {
            "title": "User prefers async",
            "content": "The user prefers async/await patterns over callbacks.",
            "memory_type": "note",
            "tags": ["preferences", "python"],
            "author": "Claude",
            "project_id": "alpha",
            "related_chunks": ["chunk-1", "chunk-2"],
            "resource_links": [{"uri": "code://chunk/xyz", "type": "related"}],
        },
        (r"^created #\d+ User prefers async$",),
        keeps={"memory": ID},
    ),
    Call(
        "001",
        "write_memory",
        {
            "title": "User prefers async",
            "content": "Otherwise.",
            "memory_type": "note",
            "author": None,
            "project_id": None,
            "related_chunks": [],
        },
        ("^conflict: .*#$memory",),
        error=True,
    ),
    Call(
        "001",
        "write_memory",
        {"title": "T", "content": "c", "memory_type": "wish"},
        ("invalid: .*note, decision, task, reference, conversation",),
        error=True,
    ),
    Call(
        "001",
        "update_memory",
        {"id": "$memory", "memory_type": "reference", "tags": ["preferences"], "related_chunks": ["chunk-3"]},
        ("^updated #$memory to v2 User prefers async$",),
    ),
    Call(
        "001",
        "memories://get/$memory",
        {},
        (
            '"type":"reference"',
            '"author":"Claude"',
            r'"tags":\["preferences"\]',
            r'"related_chunks":\["chunk-3"\]',
            '"uri":"code://chunk/xyz"',
            '"deleted_at":null',
        ),
    ),
    Call(
        "001",
        "memories://list?project_id=alpha&memory_type=reference&tags=preferences&limit=10&offset=0",
        {},
        ('"title":"User prefers async"', r'"pagination":\{"limit":10,"offset":0,"total":1,"has_more":false\}'),
    ),
    Call(
        "001",
        "memories://search/async%20patterns?project_id=alpha&limit=5&threshold=0.7",
        {},
        ('"query":"async patterns"', '"title":"User prefers async"', '"threshold":0.7'),
    ),
    Call("001", "memories://list?project_id=beta", {}, ("bound to project 'alpha'",), error=True),
    Call("001", "delete_memory", {"id": "$memory", "permanent": True}, ("precondition",), error=True),
    Call("001", "delete_memory", {"id": "$memory"}, ("^deleted #$memory; memory_restore brings it back",)),
    Call("001", "memories://list?include_deleted=true&memory_type=reference", {}, ('"total":1', '"deleted_at":"20')),
    Call("001", "memories://list?memory_type=reference", {}, ('"total":0',)),
    Call(
        "001",
        "delete_memory",
        {"id": "$memory", "permanent": True},
        ("confirmation_required", "User prefers async"),
        keeps={"token": r"confirm_token: (\w+)"},
        error=True,
    ),
    Call(
        "001",
        "delete_memory",
        {"id": "$memory", "permanent": True, "confirm_token": "$token"},
        ("^erased #$memory for good",),
    ),
    Call("001", "memories://get/$memory", {}, ("no memory #$memory",), error=True),
]

TURNS = [
    Call("", "session_start", {"session_id": "s-1", "purpose": "Talk"}, ("session s-1 active",)),
    Call(
        "002",
        "turn.begin",
        {"project_id": "alpha", "session_id": "s-1", "turn_id": "t-1"},
        ("turn t-1 is open",),
        keeps={"ack": r"ack_token=(\S+)"},
    ),
    Call(
        "002",
        "event.append",
        {
            "project_id": "alpha",
            "session_id": "s-1",
            "turn_id": "t-1",
            "event_type": "message.user",
            "payload": {"content": "Which pump is the quietest?"},
            "ack_token": "$ack",
        },
        (r"appended #\d+ message.user to turn t-1",),
        keeps={"event": ID},
    ),
    Call(
        "002",
        "event.append",
        {"session_id": "s-1", "turn_id": "t-1", "type": "message.user", "payload": {"content": "x"}},
        ("precondition",),
        error=True,
    ),
    Call(
        "002",
        "turn.end",
        {"project_id": "alpha", "session_id": "s-1", "turn_id": "t-1", "ack_token": "$ack"},
        ("turn t-1 closed", "session=s-1"),
    ),
    Call("002", "memory.search", {"query": "the quietest pump"}, ("#$event user .*session=s-1 .*quietest",)),
    Call("002", "audit.replay", {"stream_id": "turn:s-1/t-1"}, ("turn.began", "message.user", "turn.ended")),
    Call("002", "audit.replay", {"since": "2020-01-01T00:00:00Z", "until": "2020-01-02T00:00:00Z"}, ("^no event",)),
]

WORK = [
    Call(
        "",
        "iteration_start",
        {"command": "feature", "description": "Filter the water"},
        ("Filter the water",),
        keeps={"iteration": ID},
    ),
    Call(
        "004",
        "memory_log_commit",
        {
            "sha": "a" * 40,
            "message": "Add a filter for the water",
            "author": "Ada",
            "committed_at": "2026-01-02T03:04:05Z",
        },
        ("aaaaaaaaaa", "Add a filter", "iteration=#$iteration"),
        keeps={"commit": ID},
    ),
    Call("004", "memory_search", {"query": "filter for the water", "limit": 3}, ("#$commit commit .*Add a filter",)),
    Call("004", "memory_get_iteration", {"id": "$iteration"}, ("#$iteration feature active", "Add a filter")),
    Call("004", "memory_get_iteration", {}, ("#$iteration feature active",)),
    Call(
        "004",
        "memory_get_timeline",
        {"iteration_id": "$iteration"},
        ("^#$iteration .*iteration.started", "#$commit .*commit.recorded.*Add a filter"),
        ("turn t-1", "memory.written"),
    ),
    Call("004", "memory_stats", {}, (r"events: \d+", "memories: ", "mode: fts5")),
]

DECISIONS = [
    Call(
        "004",
        "memory_log_decision",
        {
            "title": "Use a canister filter",
            "context": "The tank is large.",
            "chosen": "A canister",
            "alternatives": ["A sponge"],
            "rationale": "It is quiet.",
            "impact": "medium",
            "phase": "design",
        },
        ("Use a canister filter",),
        keeps={"decision": ID},
    ),
    Call(
        "004",
        "memory_log_commit",
        {
            "sha": "b" * 40,
            "message": "Fit the canister",
            "decision_ids": ["$decision"],
            "iteration_id": "$iteration",
        },
        ("Fit the canister", "#$decision"),
        keeps={"fitted": ID},
    ),
    Call(
        "004",
        "memory_search",
        {"query": "canister", "iteration_id": "$iteration", "limit": 5},
        ("#$fitted commit", "#$decision"),
        ("Tank nine",),
    ),
    Call(
        "002",
        "decision.record",
        {"project_id": "alpha", "title": "Feed twice a day", "chosen": "Twice", "rationale": "They look thin."},
        ("Feed twice a day",),
        keeps={"fed": ID},
    ),
    Call(
        "002",
        "decision.supersede",
        {"project_id": "alpha", "id": "$fed", "title": "Feed once a day", "chosen": "Once", "rationale": "Enough."},
        ("Feed once a day", "#$fed"),
    ),
]

STORY = [
    *SCOPES,
    *TOOLS,
    *GUIDELINES,
    *KNOWLEDGE,
    *TAGS,
    *QUERIES,
    *CONTEXT,
    *ENDS,
    *MEMORIES,
    *TURNS,
    *WORK,
    *DECISIONS,
]
