"""Memories of seed 001, turns of 002, work and decisions of 004."""

from __future__ import annotations

from tests.mcp.seeds.call import ID, Call

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
    Call("001", "delete_memory", {"id": "$memory"}, ("^deleted #$memory .*; memory_restore brings it back",)),
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
        ("^permanently erased #$memory",),
    ),
    Call("001", "memories://get/$memory", {}, ("#$memory was permanently erased",), error=True),
    Call("001", "delete_memory", {"id": "$memory"}, ("^gone: .*#$memory was permanently erased",), error=True),
    Call(
        "001",
        "delete_memory",
        {"id": "$memory", "permanent": True},
        ("^gone: .*#$memory was permanently erased",),
        error=True,
    ),
    Call("001", "update_memory", {"id": "$memory", "title": "x"}, ("^gone: ",), error=True),
    Call("001", "write_memory", {"title": "T", "content": "c", "author": "a" * 101}, ("'author'.*100",), error=True),
    Call(
        "001",
        "write_memory",
        {"title": "T", "content": "c", "author": "a" * 100},
        ("^created",),
        keeps={"brief": ID},
    ),
    Call(
        "001",
        "delete_memory",
        {"id": "$brief", "permanent": False, "format": "json"},
        (r'"id":$brief\b', r'"deleted_at":"20\S+Z"', '"can_restore":true'),
    ),
]

TURNS = [
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
    Call("", "session_list", {"status": "active"}, ("session s-1 active",)),
    Call(
        "002",
        "event.append",
        {
            "project_id": "alpha",
            "session_id": "s-1",
            "turn_id": "t-1",
            "event_type": "message.assistant",
            "payload_json": '{"content": "The blue one."}',
            "ack_token": "$ack",
        },
        (r"appended #\d+ message.assistant to turn t-1",),
    ),
    Call(
        "002",
        "event.append",
        {"event_type": "message.user", "payload_json": "{", "ack_token": "$ack"},
        ("invalid: .*'payload'.*an object as JSON text",),
        error=True,
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
        {"project_id": "alpha", "title": "Clean the glass weekly", "rationale": "Algae."},
        ("Clean the glass weekly",),
    ),
    Call(
        "002", "decision.record", {"project_id": "alpha", "title": "Nothing more"}, ("invalid: .*'chosen'",), error=True
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
