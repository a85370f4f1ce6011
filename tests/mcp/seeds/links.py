"""Scopes, tags, relations, queries and conflicts of seed 003."""

from __future__ import annotations

from tests.mcp.seeds.call import ID, Call

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
            "metadata": {"mode": "scratch", "auto_promote": False, "ephemeral_entries": ["a", "b"], "notes": "tank"},
        },
        (r"session \S+ active", "by claude Tuesday: Clean the tank"),
        keeps={"session": r"session (\S+) active"},
    ),
    Call("003", "memory_session_list", {"project_id": "alpha", "status": "active"}, (r"session $session active",)),
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
    Call("003", "memory_tag_list", {}, (r"java \(language, predefined\)", "aquarium")),
    Call(
        "003",
        "memory_tag_attach",
        {"entry_type": "tool", "entry_id": "$tool", "tag_id": "$tag"},
        (r"attached aquarium: #$tool git_commit \[aquarium\] v3",),
    ),
    Call(
        "003",
        "memory_tag_list",
        {"entry_type": "tool", "entry_id": "$tool"},
        (r"^aquarium \(domain\) 1 memory: About fish", r"\(1 of 1\)"),
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
        ("next to a version that you had not read",),
        keeps={"conflict": r"conflict #(\d+)"},
    ),
    Call("003", "memory_conflicts", {}, ("$conflict", "git_commit")),
    Call(
        "003",
        "memory_conflict_resolve",
        {"conflict_id": "$conflict", "resolution": "kept_version_b", "resolved_by": "user"},
        ("resolved conflict #$conflict with keep_b",),
    ),
    Call("", "memory_conflicts", {"all": True}, ("#$conflict .*resolved: keep_b by user",)),
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
    Call("003", "memory_relation_delete", {"relation_id": "$relation"}, ("deleted: #$relation",)),
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
        {"id": "$session", "summary": "Nothing came of it."},
        ("scratch session with 1 entry; ask the user", "promote=true, or with discard=true", "entries: .*try_it"),
        error=True,
    ),
    Call(
        "003",
        "memory_session_end",
        {"id": "$session", "status": "discarded", "summary": "Nothing came of it."},
        ("session $session discarded", "Nothing came of it"),
    ),
    Call("003", "memory_guideline_get", {"name": "try_it"}, ("not_found",), error=True),
    Call("003", "memory_session_start", {"metadata": {"mode": "scratch"}}, keeps={"second": r"session (\S+) active"}),
    Call(
        "003",
        "memory_knowledge_add",
        {"scope_type": "session", "scope_id": "$second", "title": "Quiet pump", "content": "The blue pump is quiet."},
        (r"\(scope session\)",),
        keeps={"promoted": ID},
    ),
    Call("003", "memory_session_end", {"id": "$second", "status": "completed"}, ("session $second completed",)),
    Call("003", "memory_search", {"query": "blue pump"}, ("^#$promoted knowledge.*Quiet pump",)),
    Call("003", "memory_knowledge_get", {"title": "Quiet pump"}, ("^#$promoted knowledge/fact v2",)),
]
