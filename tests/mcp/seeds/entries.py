"""Tools, guidelines and knowledge of seed 003."""

from __future__ import annotations

from tests.mcp.seeds.call import ID, Call

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
