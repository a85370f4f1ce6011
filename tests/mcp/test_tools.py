from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from django.test import tag

from memoryhub.core.stores.store import list_projects
from tests.databases import at_home, sqlite_only
from tests.home import contents
from tests.mcp.case import McpTestCase, ProcessTestCase, Server
from tests.mcp.client import ENVELOPE, ROOT, environment


class ScopeToolsTests(McpTestCase):
    """A server bound to alpha; beta belongs to another organisation."""

    server: Server

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        beta = cls.share_server("--project", "beta")
        beta.say("org_create", id="umbrella", name="Umbrella")
        beta.say("memory_write", title="Fish", content="zebrafish are kept in tank nine")
        metadata = {"goals": "breed zebrafish"}
        beta.say("project_create", id="beta", name="Beta", org_id="umbrella", metadata=metadata, description="Pets.")
        beta.end()
        cls.server = cls.share_server()

    @tag("backend")
    def test_another_project_shows_only_its_card(self) -> None:
        card = "beta (Beta) of umbrella: Pets."
        self.assertEqual(self.server.say("memory_project_get", id="beta"), card)
        self.assertIn(card, self.server.say("memory_project_list"))
        for tool, arguments in (("project_get", {"id": "beta"}), ("project_list", {"org_id": "umbrella"})):
            output = str(self.server.data(tool, **arguments))
            self.assertIn("'beta'", output)
            for hidden in ("zebrafish", "metadata", "memories", "last_activity"):
                self.assertNotIn(hidden, output)
        self.assertIn("not_found", self.server.refusal("project_get", id="gamma"))

    def test_another_project_can_be_created_but_not_changed(self) -> None:
        self.assertEqual(self.server.say("project_create", id="delta", name="Delta"), "delta (Delta)")
        again = self.server.refusal("project_create", id="delta", name="Other", if_exists="update")
        self.assertIn("forbidden: project 'delta' can be described only from inside it", again)
        self.assertIn("forbidden", self.server.refusal("org_create", id="umbrella", name="x", if_exists="update"))
        self.assertIn("no organisation 'nobody'", self.server.refusal("project_create", id="epsilon", org_id="nobody"))
        self.assertIn("must match", self.server.refusal("project_create", id="../epsilon"))
        with at_home(self.home):
            self.assertEqual(list_projects(), ["alpha", "beta", "delta"])

    def test_lists_accept_the_common_arguments(self) -> None:
        self.assertIn("umbrella (Umbrella)", self.server.say("memory_org_list"))
        page = self.server.say("project_list", limit=1, compact=True)
        self.assertRegex(page, r"\(1 of \d; more: cursor=\S+\)$")
        self.assertEqual(len(self.server.data("project_list", limit=1)["results"]), 1)
        self.assertEqual(self.server.say("project_list", org_id="nobody"), "no project matches")

    def test_hub_db_is_neither_needed_nor_created(self) -> None:
        self.server.say("project_get")
        self.assertFalse((self.home / "hub.db").exists())


class StrictClientTests(McpTestCase):
    def setUp(self) -> None:
        self.server = self.connect(MEMORY_HUB_TURN_POLICY="strict")

    def begin(self, turn: str) -> str:
        match = re.search(r"ack_token=(\S+)", self.server.say("turn_begin", turn_id=turn))
        assert match
        return match[1]

    @tag("backend")
    def test_a_clients_whole_piece_of_work(self) -> None:
        say = self.server.say
        self.assertIn("reason: no_token", say("memory_write", title="T", content="x"))
        self.assertIn("reason: no_session", say("turn_begin"))
        self.assertIn("session work active", say("session_start", session_id="work", purpose="try turns"))
        token = self.begin("t1")
        self.assertIn("created #", say("memory_write", title="T", content="x", ack_token=token))
        approval = {"type": "user_approved", "payload": {"subject": "the plan"}, "ack_token": token}
        self.assertIn("user.approved to turn t1", say("event_append", **approval))
        self.assertIn("known: command.run", say("event_append", type="message.usr", payload={}, ack_token=token))
        self.work_in_an_iteration(token)
        self.assertRegex(say("turn_end", ack_token=token, summary="done"), r"turn t1 closed .* \d+ events: done")
        self.assertIn("reason: closed", say("turn_end", ack_token=token))
        self.pause_and_end()

    def work_in_an_iteration(self, token: str) -> None:
        say = self.server.say
        self.assertIn("feature active", say("iteration_start", command="feature", description="x", ack_token=token))
        self.assertIn("now: build", say("iteration_advance", phase="build", ack_token=token))
        sha = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
        given = {"sha": sha.strip()[:12]} if sha else {"sha": "a" * 40, "message": "m", "committed_at": "2026-11-20"}
        self.assertRegex(say("commit_record", **given, ack_token=token), r"#\d+ [0-9a-f]{10} .* iteration=#\d+")
        self.assertIn("completed", say("iteration_complete", outcome="it works", ack_token=token))
        shown = say("iteration_get")
        self.assertIn("outcome: it works", shown)
        self.assertIn("iteration.advanced build", shown)

    def pause_and_end(self) -> None:
        say = self.server.say
        self.assertIn("paused", say("session_pause", session_id="work"))
        self.assertIn("reason: session_ended", say("turn_begin", session_id="work"))
        self.assertIn("active", say("session_resume", session_id="work"))
        self.assertIn("reason: no_token", say("session_end", summary="tried"))
        self.assertIn("completed", say("session_end", summary="tried", ack_token=self.begin("t2")))
        self.assertIn("session work completed", say("session_list"))


BEGINNING = ["session.started", "turn.began"]


class AutomaticTurnTests(McpTestCase):
    def events(self, server: Server) -> list[str]:
        return [line.split()[2] for line in server.say("audit_replay").splitlines()[:-1]]

    def test_a_client_that_knows_no_turns_has_them_all_the_same(self) -> None:
        server = self.connect()
        for title in ("first", "second"):
            server.say("memory_write", title=title, content=title)
        events = server.say("memory_timeline", before=20)
        self.assertEqual([events.count(name) for name in (*BEGINNING, "memory.written")], [1, 1, 2])
        server.end()
        self.assertIn("turn.ended", self.connect().say("memory_timeline", before=20))

    @tag("backend")
    def test_a_call_that_reads_is_refused_or_changes_nothing_opens_no_turn(self) -> None:
        server = self.connect("--project", "refused")
        server.say("memory_search", query="anything")
        self.assertIn("not_found", server.say("memory_update", id=99, content="x"))
        self.assertIn("invalid", server.say("memory_write", title="T", content="x", related_chunks=[{}]))
        self.assertIn("not_found", server.say("memory_conflict_resolve", id=99, resolution="keep_a"))
        self.assertIn("no events yet", server.say("memory_timeline"))
        server.say("memory_write", title="T", content="x")
        self.assertEqual(self.events(server)[:3], [*BEGINNING, "memory.written"])

    def test_a_first_write_to_another_store_opens_the_turn_in_the_projects_own(self) -> None:
        server = self.connect("--project", "elsewhere")
        self.assertIn("created", server.say("memory_write", title="T", content="for all", scope="global"))
        self.assertEqual(self.events(server)[:2], BEGINNING)

    def test_a_timeline_has_as_many_events_as_asked_for(self) -> None:
        server = self.connect("--project", "limits")
        started = server.data("iteration_start", command="feature")
        for number in range(9):
            server.say("memory_write", title=f"Note {number}", content=f"text {number}")
        last = server.data("memory_timeline", limit=3)["results"][-1]["position"]
        for arguments, positions in (
            ({"limit": 3}, range(last - 2, last + 1)),
            ({"limit": 1}, range(last, last + 1)),
            ({"id": 6, "limit": 4}, range(4, 8)),
            ({"iteration_id": started["id"], "limit": 2}, range(last - 1, last + 1)),
            ({"limit": 10_000}, range(1, last + 1)),
            ({"before": 10_000, "after": 2**50}, range(last - 100 if last > 100 else 1, last + 1)),
        ):
            with self.subTest(arguments=arguments):
                events = server.data("memory_get_timeline", **arguments)["results"]
                self.assertEqual([event["position"] for event in events], list(positions))

    def test_a_limit_above_the_maximum_is_the_maximum(self) -> None:
        server = self.connect("--project", "limits")
        for tool in ("memory_list", "session_list", "tag_list", "audit_replay", "memory_query"):
            self.assertIn("results", server.data(tool, limit=100_000), tool)
        for uri, limit in (("memories://list?limit=500", 100), ("memories://search/text?limit=500", 50)):
            contents = server.ask("resources/read", {"uri": uri})["result"]["contents"][0]
            self.assertEqual(json.loads(contents["text"])["pagination"]["limit"], limit)

    def test_without_a_session_none_is_paused_or_resumed(self) -> None:
        server = self.connect("--project", "no-session")
        for tool in ("session_pause", "session_resume"):
            refusal = server.refusal(tool)
            self.assertEqual(refusal.count("this connection has no session; name one in session_id"), 1, refusal)
        self.assertIn("there is no session 'x'", server.refusal("session_pause", session_id="x"))

    def test_a_write_after_a_pause_resumes_the_session(self) -> None:
        server = self.connect("--project", "paused")
        server.say("memory_write", title="first", content="one")
        self.assertIn("paused", server.say("session_pause"))
        server.say("memory_write", title="second", content="two")
        self.assertIn("active", server.say("session_list"))
        events = self.events(server)
        self.assertEqual(events.count("session.started"), 1)
        self.assertEqual(events[4:8], ["session.paused", "session.resumed", "turn.began", "memory.written"])


SHA = "abcdef1234" * 4
SECRETS = ("ghp_" + "a1B2" * 9, "AKIA" + "Q7ZX" * 4, "glpat-" + "x9Y8z7W6v5" * 2)


def id_of(answer: str) -> int:
    match = re.search(r"#(\d+)", answer)
    assert match, answer
    return int(match[1])


def record_journal(server: Server) -> tuple[int, int]:
    """Record a decision and its replacement, implemented by a commit with other words; return their ids."""
    first = {"title": "Journal of the database", "context": "Readers wait while one writes", "rationale": "Simple"}
    earlier = id_of(server.say("memory_log_decision", **first, chosen="Rollback journal with retries"))
    later = id_of(server.say("decision.supersede", id=earlier, chosen="Write-ahead log", context="Retries were slow"))
    commit = {"sha": SHA, "message": "Set a PRAGMA at opening", "decision_ids": [later], "files": ["core/sqlite.py"]}
    server.say("memory_log_commit", **commit)
    server.say("memory_write", title="Journal on network drives", content="The database journal fails on NFS")
    return earlier, later


class AcceptanceTests(McpTestCase):
    server: Server
    iteration: int
    earlier: int
    current: int

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.server = cls.share_server("--project", "alpha", cwd=Path(folder.name))
        described = "Let people read while others write"
        cls.iteration = id_of(cls.server.say("iteration_start", command="feature", description=described))
        cls.earlier, cls.current = record_journal(cls.server)

    def lines(self, **question: Any) -> list[str]:
        return self.server.say("memory_search", **question).split("\n")[:-1]

    @tag("backend")
    def test_1_questions_about_decisions_return_verifiable_records(self) -> None:
        for question in (
            "what did we decide about the database journal?",
            "why was the journal of the database chosen",
            "decisions on the journal",
        ):
            first, *others = self.lines(query=question)
            self.assertRegex(first, rf"^#{self.current} decision \d{{4}}-\d\d-\d\d .*Journal of the database")
            evidence = (f"supersedes #{self.earlier}", f"iteration #{self.iteration}", "commits abcdef1")
            for part in ("accepted", "Write-ahead log", *evidence):
                self.assertIn(part, first)
            replaced = next(line for line in others if line.startswith(f"#{self.earlier} "))
            self.assertIn(f"superseded, now #{self.current}", replaced)

    @tag("backend")
    def test_2_commits_are_found_by_theme_and_not_only_by_message(self) -> None:
        for theme in ("journal of the database", "readers retries slow", "sqlite", "people read while others write"):
            with self.subTest(theme):
                (found,) = self.lines(query=theme, sources=["commit"])
                self.assertIn("Set a PRAGMA at opening", found)

    @sqlite_only("its full-text index")
    def test_3_without_fts5_everything_works_in_basic_mode(self) -> None:
        server = self.connect("--project", "basic")
        earlier, current = record_journal(server)
        server.end()
        with sqlite3.connect(self.home / "projects/basic/events.db") as store:
            store.execute("DROP TABLE search_fts")
        store.close()
        server = self.connect("--project", "basic")
        self.assertIn("mode: basic", server.say("memory_stats"))
        found = server.say("memory_search", query="what did we decide about the database journal?")
        self.assertRegex(found, rf"^#{current} decision .*supersedes #{earlier}")
        self.assertIn("mode: basic", found)
        third = id_of(server.say("decision_supersede", id=current, chosen="A log of our own"))
        self.assertIn("implements", server.say("commit_record", sha=SHA, decision_ids=[third]))
        self.assertRegex(server.say("memory_search", query="log own"), rf"(?m)^#{third} decision .*commits abcdef1")
        self.assertIn(f"ancestor 2: #{earlier}", server.say("decision_get", ids=[third], lineage=True))

    def test_6_no_secret_is_stored(self) -> None:
        output = " ".join(SECRETS)
        fields = dict.fromkeys(("title", "context", "chosen", "rationale"), output)
        lists = {"alternatives": [{"option": output, "why_not": output}], "notes": [output], "files": [output]}
        answer = self.server.say("decision_record", **fields, **lists)
        self.assertIn("redacted before storing", answer)
        commit = {"sha": "b" * 40, "message": f"Deploy with {output}", "author": output, "files": [output]}
        self.server.say("commit_record", **commit, decision_ids=[id_of(answer)])
        shown = self.server.say("decision_get", ids=[id_of(answer)])
        self.assertIn("[REDACTED", shown)
        files = contents(self.home)
        self.assertGreater(len(files), 3)
        for secret in SECRETS:
            self.assertEqual([path for path, content in files.items() if secret.encode() in content], [])


class SwitchedOffTests(ProcessTestCase):
    def test_when_switched_off_nothing_is_stored_or_found(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            home, folder = Path(name, "home"), Path(name, "project")
            folder.mkdir()
            (folder / ".memory-hub.toml").write_text("enabled = false\n")
            before = contents(Path(name))
            server = self.start(home=home, cwd=folder)
            self.assertIn("switched off here by enabled = false", server.initialize()["instructions"])
            self.assertEqual(server.ask("tools/list")["result"]["tools"], [])
            refusal = server.refusal("memory_write", title="T", content="x")
            self.assertIn(".memory-hub.toml; nothing is stored or found", refusal)
            self.assertEqual(server.end(), (0, ""))
            hook_input = json.dumps({"cwd": str(folder), "session_id": "s", "prompt": "x"}).encode()
            for event in ("SessionStart", "UserPromptSubmit", "PostToolUse"):
                done = subprocess.run(
                    [sys.executable, str(ROOT / "manage.py"), "hook", "claude-code", event],
                    input=hook_input, capture_output=True, cwd=folder, env=environment(home), timeout=120, check=True,
                )  # fmt: skip
                self.assertEqual((done.stdout, done.stderr), (b"", b""))
            self.assertEqual(contents(Path(name)), before)
            self.assertFalse(home.exists())

    def test_switching_off_works_by_environment_and_in_the_newest_revision(self) -> None:
        server = self.start("--project", "alpha", MEMORY_HUB_ENABLED="false")
        found = server.ask("server/discover", {"_meta": ENVELOPE})["result"]
        self.assertIn("MEMORY_HUB_ENABLED=false", found["instructions"])
        self.assertIn("switched off", server.ask("prompts/get", {"name": "librarian"})["error"]["message"])
