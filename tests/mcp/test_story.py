"""Calls of clients that know older names of tools and arguments, in the order of one story."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any, Self

from django.test import tag

from memoryhub.core.tools import all_tools
from tests.mcp.case import McpTestCase, Server

ID = r"#(\d+)"

Values = dict[str, str | int]


class Call:
    """A call of a tool, or the URI of a resource. ``$name`` is a value that an earlier call kept under that name."""

    def __init__(self, name: str, /, **arguments: Any) -> None:
        self.name = name
        self.arguments = arguments
        self.patterns: tuple[str, ...] = ()
        self.forbidden: tuple[str, ...] = ()
        self.kept: dict[str, str] = {}
        self.is_error = False

    def says(self, *patterns: str) -> Self:
        self.patterns = patterns
        return self

    def fails(self, *patterns: str) -> Self:
        self.is_error = True
        return self.says(*patterns)

    def never(self, *patterns: str) -> Self:
        self.forbidden = patterns
        return self

    def keeps(self, **patterns: str) -> Self:
        """Keep the first group of each pattern for later calls."""
        self.kept = patterns
        return self

    def problems(self, server: Server, values: Values) -> list[str]:
        """Make the call, keep its values, and return what is wrong with the answer."""
        text, is_error = self._answer(server, values)
        problems = [] if is_error == self.is_error else ["it failed" if is_error else "it did not fail"]
        problems += [f"lacks {pattern!r}" for pattern in self.patterns if not re.search(filled(pattern, values), text)]
        problems += [f"says {pattern!r}" for pattern in self.forbidden if re.search(filled(pattern, values), text)]
        for name, pattern in self.kept.items():
            if match := re.search(pattern, text):
                values[name] = int(match[1]) if pattern == ID else match[1]
            else:
                problems.append(f"lacks {pattern!r}")
        return [f"{problem}: {text[:2_000]}" for problem in problems]

    def _answer(self, server: Server, values: Values) -> tuple[str, bool]:
        if "://" in self.name:
            answer = server.ask("resources/read", {"uri": filled(self.name, values)})
            contents = answer.get("result", {}).get("contents")
            return (contents[0]["text"], False) if contents else (str(answer), True)
        result = server.call(self.name, **filled(self.arguments, values))
        return result["content"][0]["text"], bool(result.get("isError"))


def filled(value: Any, values: Values) -> Any:
    if isinstance(value, str) and value.startswith("$") and value[1:] in values:
        return values[value[1:]]
    if isinstance(value, str):
        return re.sub(r"\$([a-z_]+)", lambda match: str(values.get(match[1], match[0])), value)
    if isinstance(value, list):
        return [filled(part, values) for part in value]
    if isinstance(value, dict):
        return {name: filled(part, values) for name, part in value.items()}
    return value


STORY = [
    # Scopes and a scratch session
    Call("memory_org_create", name="Acme", metadata={"team": "core"}).says(r"organisation acme \(Acme\)"),
    Call("org_create", id="acme").fails("exists already; send if_exists=update"),
    Call("memory_org_list").says(r"acme \(Acme\)", r"\(1 of 1\)"),
    Call("memory_project_create", id="alpha", org_id="acme", name="Alpha", description="Keeps fish.",
        root_path="/src/alpha", metadata={"goals": ["ship"]}).says(r"project alpha \(Alpha\)", "organisation: acme",
        "folder: /src/alpha", r'metadata: \{"goals": \["ship"\]\}'),
    Call("project_create", id="alpha", name="A").fails("exists already; send if_exists=update"),
    Call("project_create", id="alpha", tags=["ops"], if_exists="update", format="json")
        .says('"name":"Alpha"', r'"tags":\["ops"\]', '"org_id":"acme"'),
    Call("memory_project_get", format="json").says('"name":"Alpha"', r'"tags":\["ops"\]', r'"redacted":\[\]'),
    Call("org_create", id="acme", description="Makes everything.", if_exists="update").says("projects: alpha"),
    Call("memory_project_create", name="Gamma Ray", org_id="acme").says(r"gamma-ray \(Gamma Ray\) of acme"),
    Call("memory_project_list", org_id="acme").says(r"alpha \(Alpha\) of acme", "gamma-ray"),
    Call("memory_project_get", project_id="alpha").says(r'metadata: \{"goals": \["ship"\]\}', "Keeps fish"),
    Call("memory_session_start", project_id="alpha", name="Tuesday", purpose="Clean the tank", agent_id="claude",
        metadata={"mode": "scratch", "auto_promote": False, "ephemeral_entries": ["a", "b"], "notes": "tank"})
        .says(r"session \S+ active", "by claude Tuesday: Clean the tank").keeps(session=r"session (\S+) active"),
    Call("memory_session_list", project_id="alpha", status="active").says("session $session active"),
    # Tools
    Call("memory_tool_add", scope_type="project", scope_id="alpha", name="git_commit", category="cli",
        description="Makes a commit.", parameters={"type": "object", "properties": {"message": {"type": "string"}}},
        examples=["git commit -m 'Feed the fish'"], constraints="Only when the tests pass.", created_by="claude")
        .says(r"^created #\d+ git_commit$").keeps(tool=ID),
    Call("memory_tool_add", name="git_commit", description="x").fails("exists as #$tool"),
    Call("memory_tool_update", id="$tool", description="Makes a commit of what is staged.", updated_by="codex",
        change_reason="said what of").says("^updated #$tool to v2 git_commit$"),
    Call("memory_tool_get", name="git_commit", scope_type="session", scope_id="$session")
        .says("^#$tool tool/cli v2 .* by claude", "of what is staged", "constraints: Only when the tests",
        "Feed the fish"),
    Call("memory_tool_list", scope_type="project", scope_id="alpha", category="cli").says("#$tool .*git_commit",
        r"\(1 of 1\)"),
    Call("memory_tool_history", tool_id="$tool").says("v2 .* by codex .*: said what of", "v1 .* by claude"),
    # Guidelines
    Call("memory_guideline_add", scope_type="global", name="parametrise_sql", category="security", priority=90,
        content="Give SQL its values as parameters.", rationale="A quote ends the statement.",
        examples={"good": ["execute(sql, [x])"], "bad": ["execute(sql % x)"]}, tags=["security", "python"])
        .says(r"^created #\d+ parametrise_sql \(scope global\)$").keeps(wide=ID),
    Call("memory_guideline_add", name="feed_daily", content="Feed the fish daily.", priority=20, tags=["python"])
        .says(r"^created #\d+ feed_daily$").keeps(guideline=ID),
    Call("memory_guideline_update", id="$wide", scope_type="global", priority=95, change_reason="it happened")
        .says(r"^updated #$wide to v2 parametrise_sql \(scope global\)$"),
    Call("memory_guideline_get", name="parametrise_sql").says("^global#$wide guideline/security v2", "priority: 95",
        "rationale: A quote", r"execute\(sql % x\)"),
    Call("memory_guideline_list", scope_type="project", scope_id="alpha", tags=["python"])
        .says(r"(?s)^global#$wide .*parametrise_sql.*\n#$guideline .*feed_daily", r"\(2 of 2\)"),
    Call("memory_guideline_history", name="parametrise_sql").says("v2 .*: it happened", "v1 ", r"\(2 of 2\)"),
    # Knowledge
    Call("memory_knowledge_add", title="Tank nine", category="fact",
        content="Tank nine holds 400 litres; authentication is by key card.", source="the label", confidence=0.8,
        valid_until="2999-01-01T00:00:00Z").says(r"^created #\d+ Tank nine$").keeps(knowledge=ID),
    Call("memory_knowledge_update", knowledge_id="$knowledge", confidence=0.9, change_reason="measured")
        .says("^updated #$knowledge to v2 Tank nine$"),
    Call("memory_knowledge_get", title="Tank nine").says("memory v2", "kind=knowledge", "source=the label",
        "confidence: 0.9", "valid_until: 2999"),
    Call("memory_knowledge_list", category="fact").says("#$knowledge .*Tank nine", r"\(1 of 1\)"),
    Call("memory_knowledge_history", title="Tank nine").says("v2 .*: measured", "v1 "),
    # Tags and relations
    Call("memory_tag_create", name="Aquarium", category="domain", description="About fish.")
        .says(r"^described #\d+ aquarium \(domain\) 0 memories: About fish").keeps(tag=ID),
    Call("memory_tag_list", category="domain").says("aquarium", r"security \(domain, predefined\)"),
    Call("memory_tag_list").says(r"java \(language, predefined\)", "aquarium"),
    Call("memory_tag_attach", entry_type="tool", entry_id="$tool", tag_id="$tag")
        .says(r"attached aquarium: #$tool git_commit \[aquarium\] v3"),
    Call("memory_tag_list", entry_type="tool", entry_id="$tool").says(r"^aquarium \(domain\) 1 memory: About fish",
        r"\(1 of 1\)"),
    Call("memory_tag_detach", entry_type="tool", entry_id="$tool", tag_name="aquarium")
        .says(r"detached aquarium: #$tool git_commit \[\] v4"),
    Call("memory_tag_attach", entry_type="project", entry_id="alpha", tag="aquarium")
        .says(r"attached aquarium: project Alpha \[ops, aquarium\]"),
    Call("tag_create", name="python").fails("conflict: tag 'python' is predefined"),
    Call("tag_attach", id="$guideline", tags=["sql", "aquarium"]).says(r"\[aquarium, python, sql\] v2"),
    Call("tag_attach", id="$guideline", tags=["sql"]).says("is unchanged"),
    Call("tag_list", used=True, category="language")
        .says(r"^python \(language, predefined\) 1 memory\nsql \(language, predefined\) 1 memory\n\(2 of 2\)$"),
    Call("memory_tag_detach", entry_type="guideline", entry_id="#$guideline", tag="sql")
        .says(r"\[aquarium, python\] v3"),
    Call("tag_attach", id="$guideline", tag="a", tags=["b"]).fails("send only 'tags'"),
    Call("memory_relation_create", source_type="guideline", source_id="$guideline", target_type="tool",
        target_id="$tool", relation_type="applies_to", created_by="feeding agent")
        .says("by feeding agent", "guideline #$guideline feed_daily applies_to tool #$tool git_commit")
        .keeps(relation=r"related: #(\d+)"),
    Call("memory_relation_create", source_type="tool", source_id="$tool", target_type="project", target_id="alpha",
        relation_type="related_to").says("tool #$tool git_commit related_to project"),
    Call("memory_relation_list", entry_type="guideline", entry_id="$guideline")
        .says(r"^#$relation guideline .* applies_to tool #$tool git_commit, \d{4}-\d\d-\d\d by \S", r"\(1 of 1\)"),
    Call("relation_create", source="$guideline", relation="applies_to", target="$tool").says("existed already"),
    Call("relation_create", source="$tool", relation="depends_on", target="$knowledge"),
    Call("relation_create", source="$knowledge", relation="depends_on", target="$tool")
        .fails("path: $tool, $knowledge"),
    Call("memory_get", ids=["$tool"], relations=True)
        .says(r"→ depends_on #$knowledge Tank nine \(relation #"),
    Call("memory_relation_delete", source_id="$tool", target_id="$knowledge", relation_type="depends_on")
        .says(r"deleted: #\d+"),
    Call("relation_list", id="$knowledge").says("^no relation matches$"),
    # Queries and conflicts
    Call("memory_query", types=["guidelines"], scope={"type": "project", "id": "alpha", "inherit": True},
        tags={"require": ["python"]}).says("parametrise_sql", r"feed_daily .* score [\d.]+ \(tags 3\.0, scope 1\.",
        r"\(2 of 2\)"),
    Call("memory_query", types=["tools"], related_to={"type": "project", "id": "alpha"}).says("git_commit",
        "relation 5.0", r"\(1 of 1\)"),
    Call("memory_query", search="authentication", scope={"type": "project", "id": "alpha", "inherit": True})
        .says("Tank nine", r"\(1 of 1; mode: fts5 \(words\)\)"),
    Call("memory_query", types=["guidelines"], tags={"require": ["security"]}, scope={"type": "global"})
        .says("global#$wide .*parametrise_sql", r"\(1 of 1\)"),
    Call("memory_query", types=["tool"], format="json")
        .says('"parts":{"relation":.*"tags":.*"scope":.*"priority":.*"text":.*"recency":', '"total_count":1'),
    Call("memory_query", search="commit", limit=1, include_versions=True, include_inactive=True).says("git_commit",
        "said what of"),
    Call("memory_tool_update", id="$tool", base_version=4, description="Makes two commits.").says("to v5"),
    Call("memory_tool_update", id="$tool", base_version=4, description="Makes four commits.")
        .says("next to a version that you had not read").keeps(conflict=r"conflict #(\d+)"),
    Call("memory_conflicts").says(r"conflict #$conflict \(open\)", "git_commit",
        r"Makes \[-two-\]\{\+four\+\} commits\."),
    Call("memory_conflict_resolve", conflict_id="$conflict", resolution="kept_version_b", resolved_by="user")
        .says("resolved conflict #$conflict with keep_b"),
    Call("memory_conflicts", all=True).says("#$conflict .*resolved: keep_b by user"),
    Call("memory_conflicts").says("^no open conflict$"),
    # Context
    Call("memory_context", project_id="alpha", session_id="$session").says("p95 security: parametrise_sql",
        "Tank nine", "git_commit"),
    Call("context.pack", project_id="alpha", max_tokens=400).says("parametrise_sql"),
    # Relations, entries and sessions end
    Call("memory_relation_delete", relation_id="$relation").says("deleted: #$relation"),
    Call("memory_tool_deactivate", name="git_commit").says("^deleted #$tool"),
    Call("memory_tool_get", name="git_commit").fails("not_found"),
    Call("memory_tool_get", id="$tool", include_inactive=True).says(r"\(deleted\)"),
    Call("memory_guideline_deactivate", id="$guideline", reason="they eat less").says("deleted #$guideline"),
    Call("memory_knowledge_deactivate", title="Tank nine").says("deleted #$knowledge"),
    Call("memory_knowledge_list").says("^no fact here"),
    Call("memory_guideline_add", scope_type="session", scope_id="$session", name="try_it", content="Try another pump.")
        .says(r"\(scope session\)"),
    Call("memory_session_end", id="$session", summary="Nothing came of it.")
        .fails("scratch session with 1 entry; ask the user", "promote=true, or with discard=true",
        "entries: .*try_it"),
    Call("memory_session_end", id="$session", status="discarded", summary="Nothing came of it.")
        .says("session $session discarded", "Nothing came of it"),
    Call("memory_guideline_get", name="try_it").fails("not_found"),
    Call("memory_session_start", metadata={"mode": "scratch"}).keeps(second=r"session (\S+) active"),
    Call("memory_knowledge_add", scope_type="session", scope_id="$second", title="Quiet pump",
        content="The blue pump is quiet.").says(r"\(scope session\)").keeps(promoted=ID),
    Call("memory_session_end", id="$second", status="completed")
        .fails("1 entry; ask the user", "entries: .*Quiet pump"),
    Call("memory_session_end", id="$second", promote=True).says("session $second completed"),
    Call("memory_search", query="blue pump").says("^#$promoted memory.*Quiet pump"),
    Call("memory_knowledge_get", title="Quiet pump").says("^#$promoted memory v2"),
    # Memories of document 001
    Call("write_memory", title="User prefers async", content="The user prefers async/await patterns over callbacks.",
        memory_type="note", tags=["preferences", "python"], author="Claude", project_id="alpha",
        related_chunks=["chunk-1", "chunk-2"], resource_links=[{"uri": "code://chunk/xyz", "type": "related"}])
        .says(r"^created #\d+ User prefers async$").keeps(memory=ID),
    Call("write_memory", title="Seen whole", content="The pump hums.", tags=["pump"], format="json")
        .says('"memory_type":"note"', '"created_at":"20', '"updated_at":"20', '"embedding_generated":(true|false)',
        r'"tags":\["pump"\]').keeps(whole=r'"id":(\d+)'),
    Call("update_memory", id="$whole", tags=["pump", "hum"], format="json")
        .says('"updated_at":"20', '"embedding_regenerated":false', r'"tags":\["hum","pump"\]'),
    Call("memories://get/$whole").says('"memory_type":"note"', '"project_id":"', '"related_chunks":',
        '"deleted_at":null', '"embedding":', '"embedding_model":'),
    Call("memories://search/pump%20hums?threshold=0.4").says('"similarity_score":', '"memory_type":"note"',
        '"content":"The pump hums."', r'"threshold":0\.4'),
    Call("memories://list?tags=hum").says(r'"id":$whole\b', '"memory_type":"note"', '"has_more":false'),
    Call("delete_memory", id="$whole", format="json").says('"permanent":false', '"can_restore":true',
        '"deleted_at":"20'),
    Call("memory_guideline_add", name="Plain", content="Feed at noon.", format="json").keeps(plain=r'"id":(\d+)'),
    Call("memory_guideline_get", id="$plain", format="json").says(r'"priority":50'),
    Call("memory_guideline_get", id="$plain").never("priority: 50"),
    Call("memory_knowledge_get", title="Quiet pump", format="json").says(r'"confidence":1\.0'),
    Call("write_memory", title="User prefers async", content="Otherwise.", memory_type="note", author=None,
        project_id=None, related_chunks=[]).fails("^conflict: .*#$memory"),
    Call("write_memory", title="T", content="c", memory_type="wish")
        .fails("invalid: .*note, decision, task, reference, conversation"),
    Call("update_memory", id="$memory", memory_type="reference", tags=["preferences"], related_chunks=["chunk-3"])
        .says("^updated #$memory to v2 User prefers async$"),
    Call("memories://get/$memory").says('"type":"reference"', '"author":"Claude"', r'"tags":\["preferences"\]',
        r'"related_chunks":\["chunk-3"\]', '"uri":"code://chunk/xyz"', '"deleted_at":null'),
    Call("memories://list?project_id=alpha&memory_type=reference&tags=preferences&limit=10&offset=0")
        .says('"title":"User prefers async"', r'"pagination":\{"limit":10,"offset":0,"total":1,"has_more":false\}'),
    Call("memories://search/async%20patterns?project_id=alpha&limit=5&threshold=0.7").says('"query":"async patterns"',
        '"title":"User prefers async"', '"threshold":0.7'),
    Call("memories://list?project_id=beta").fails("bound to project 'alpha'"),
    Call("delete_memory", id="$memory", permanent=True).fails("precondition"),
    Call("delete_memory", id="$memory").says("^deleted #$memory .*; memory_restore brings it back"),
    Call("memories://list?include_deleted=true&memory_type=reference").says('"total":1', '"deleted_at":"20'),
    Call("memories://list?memory_type=reference").says('"total":0'),
    Call("delete_memory", id="$memory", permanent=True).fails("confirmation_required", "User prefers async")
        .keeps(token=r"confirm_token: (\w+)"),
    Call("delete_memory", id="$memory", permanent=True, confirm_token="$token").says("^permanently erased #$memory"),
    Call("memories://get/$memory").fails("#$memory was permanently erased"),
    Call("delete_memory", id="$memory").fails("^gone: .*#$memory was permanently erased"),
    Call("delete_memory", id="$memory", permanent=True).fails("^gone: .*#$memory was permanently erased"),
    Call("update_memory", id="$memory", title="x").fails("^gone: "),
    Call("write_memory", title="T", content="c", author="a" * 101).fails("'author'.*100"),
    Call("write_memory", title="T", content="c", author="a" * 100).says("^created").keeps(brief=ID),
    Call("delete_memory", id="$brief", permanent=False, format="json").says(r'"id":$brief\b', r'"deleted_at":"20\S+Z"',
        '"can_restore":true'),
    # Turns of 002
    Call("turn.begin", project_id="alpha", session_id="s-1", turn_id="t-1").says("turn t-1 is open")
        .keeps(ack=r"ack_token=(\S+)"),
    Call("event.append", project_id="alpha", session_id="s-1", turn_id="t-1", event_type="message.user",
        payload={"content": "Which pump is the quietest?"}, ack_token="$ack")
        .says(r"appended #\d+ message.user to turn t-1").keeps(event=ID),
    Call("session_list", status="active").says("session s-1 active"),
    Call("event.append", project_id="alpha", session_id="s-1", turn_id="t-1", event_type="message.assistant",
        payload_json='{"content": "The blue one."}', ack_token="$ack")
        .says(r"appended #\d+ message.assistant to turn t-1"),
    Call("event.append", event_type="message.user", payload_json="{", ack_token="$ack")
        .fails("invalid: .*'payload'.*an object as JSON text"),
    Call("event.append", session_id="s-1", turn_id="t-1", type="message.user", payload={"content": "x"})
        .fails("precondition"),
    Call("turn.end", project_id="alpha", session_id="s-1", turn_id="t-1", ack_token="$ack").says("turn t-1 closed",
        "session=s-1"),
    Call("memory.search", query="the quietest pump").says("#.* assistant .*session=s-1 .*The blue one"),
    Call("audit.replay", stream_id="turn:s-1/t-1").says("turn.began", "message.user", "turn.ended"),
    Call("audit.replay", since="2020-01-01T00:00:00Z", until="2020-01-02T00:00:00Z").says("^no event"),
    # Work of 004
    Call("iteration_start", command="feature", description="Filter the water").says("Filter the water")
        .keeps(iteration=ID),
    Call("memory_log_commit", sha="a" * 40, message="Add a filter for the water", author="Ada",
        committed_at="2026-01-02T03:04:05Z").says("aaaaaaaaaa", "Add a filter", "iteration=#$iteration")
        .keeps(commit=ID),
    Call("memory_search", query="filter for the water", limit=3).says("#$commit commit .*Add a filter"),
    Call("memory_get_iteration", id="$iteration").says("#$iteration feature active", "Add a filter"),
    Call("memory_get_iteration").says("#$iteration feature active"),
    Call("memory_get_timeline", iteration_id="$iteration").says("^#$iteration .*iteration.started",
        "#$commit .*commit.recorded.*Add a filter").never("turn t-1", "memory.written"),
    Call("memory_stats").says(r"events: \d+", "memories: ", "mode: fts5"),
    # Decisions of 002 and 004
    Call("memory_log_decision", title="Use a canister filter", context="The tank is large.", chosen="A canister",
        alternatives=["A sponge"], rationale="It is quiet.", impact="medium", phase="design")
        .says("Use a canister filter").keeps(decision=ID),
    Call("memory_log_commit", sha="b" * 40, message="Fit the canister", decision_ids=["$decision"],
        iteration_id="$iteration").says("Fit the canister", "#$decision").keeps(fitted=ID),
    Call("memory_search", query="canister", iteration_id="$iteration", limit=5).says("#$fitted commit", "#$decision")
        .never("Tank nine"),
    Call("decision.record", project_id="alpha", title="Clean the glass weekly", rationale="Algae.")
        .says("Clean the glass weekly"),
    Call("decision.record", project_id="alpha", title="Feed twice a day", chosen="Twice", rationale="They look thin.")
        .says("Feed twice a day").keeps(fed=ID),
    Call("decision.supersede", project_id="alpha", id="$fed", title="Feed once a day", chosen="Once",
        rationale="Enough.").says("Feed once a day", "#$fed"),
]  # fmt: skip

# A decision, its replacement, a commit with other words, and what finds and explains them
JOURNAL = [
    Call("memory_log_decision", title="Journal of the database", context="Readers wait while one writes",
        chosen="Rollback journal with retries").keeps(earlier=ID),
    Call("decision.supersede", id="$earlier", chosen="Write-ahead log", context="Retries were slow")
        .keeps(current=ID),
    Call("memory_log_commit", sha="abcdef1234" * 4, message="Set a PRAGMA at opening", decision_ids=["$current"],
        files=["core/sqlite.py"]),
    Call("memory_write", title="Journal on network drives", content="The database journal fails on NFS")
        .keeps(memory=ID),
    Call("decision_get", ids=["$current"], lineage=True, format="json")
        .says('"status":"accepted"', r'"ancestors":\[\{"id":$earlier\b', '"sha":"abcdef1234abcdef'),
    Call("decisions://get/$current").says('"ancestor_count":1'),
    Call("decision_get", file_path="core/sqlite.py").says("^#$current decision accepted", "supersedes #$earlier"),
    Call("decision_supersede", id="$earlier", chosen="MVCC")
        .fails("#$current is in force; supersede that, or pass branch=true"),
    Call("memory_search", query="database journal", sources=["decision"], format="json")
        .says('"source":"decision"').never('"source":"(memory|commit)"'),
    Call("memory_search", query="database journal", type="decision", format="json")
        .says('"source":"decision"').never('"source":"(memory|commit)"'),
    Call("memory_search", query="database journal", kind="observation", format="json")
        .says('"source":"memory"').never('"source":"(decision|commit)"'),
    Call("memory_get", ids=["$current"])
        .fails("not_found: #$current is a decision, not a memory; decision_get shows it"),
    Call("decision_get", ids=["$memory"])
        .fails("not_found: #$memory is a memory, not a decision; memory_get shows it"),
    Call("relation_create", source="$memory", relation="derived_from", target="$current")
        .says("derived_from decision #$current"),
    Call("memory_get", ids=["$memory"], relations=True).says("decision #$current"),
]  # fmt: skip


class StoryTests(McpTestCase):
    tools_module = ""

    def check(self, story: list[Call]) -> None:
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        server = self.connect("--project", self.id().rpartition("_")[2], cwd=folder)
        values: Values = {}
        for number, call in enumerate(story):
            with self.subTest(number=number, name=call.name):
                self.assertEqual(call.problems(server, values), [])

    @tag("backend")
    def test_every_call_gets_the_expected_answer_in_alpha(self) -> None:
        self.check(STORY)

    @tag("backend")
    def test_decisions_are_found_explained_and_kept_apart_from_memories_in_beta(self) -> None:
        self.check(JOURNAL)

    def test_the_story_has_every_older_name(self) -> None:
        names = {name for tool in all_tools() for name in tool.other_names}
        self.assertGreater(len(names), 30)
        self.assertEqual(names - {call.name.replace(".", "_") for call in STORY}, set())
