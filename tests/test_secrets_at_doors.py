"""Secrets of a dozen types, through every door and every field that takes text: nowhere under the home folder."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tests.home import contents
from tests.hook.client import run_hook, wait_for_spooled
from tests.mcp.client import Process as McpServer
from tests.secrets_made import SECRETS, TEXTS
from tests.test_doors import Browser, DoorsTestCase, first_id, git
from tests.web.server import Server, serving

DIGEST = "4b1d" + hashlib.sha256(b"a key of ClickHouse begins so").hexdigest()[4:]
UUID = "4b1d0c1e-8f3a-4b6d-9a27-5c1f0e9d7b42"
EVERYTHING = "\n".join(TEXTS.values())
SHORT = [text for text in TEXTS.values() if len(text) <= 150]
"""Those that fit where a title fits."""
BARE = [SECRETS[name][0] for name in ("aws", "github", "gitlab", "stripe", "google")]
"""Those that say by themselves what they are, and fit where a word fits."""


class SecretsTests(DoorsTestCase):
    def test_no_secret_written_through_any_door_is_in_any_file(self):
        with serving(home=self.home) as server:
            server.api("POST", "projects", {"project_id": "alpha"})
            self.write_memories_through_mcp()
            self.write_the_rest_through_mcp()
            self.write_through_rest(server)
            self.write_through_the_admin(server)
            self.write_through_imports()
            self.write_through_hooks()
            self.search_the_bytes("while it runs")
            self.assertIn("[REDACTED:", server.api("GET", "projects/alpha/events?limit=100").body.decode())
        self.search_the_bytes("after it ended")
        self.write_through_hooks()
        wait_for_spooled(self.home, 2)
        self.search_the_bytes("in the spool")

    def test_a_digest_or_uuid_comes_back_as_it_was_written(self):
        with self.mcp("alpha") as server:
            self.say(server, "session_start", session_id=DIGEST)
            self.say(server, "commit_record", sha=DIGEST[:40], message=f"Restore blob {DIGEST}")
            content = f"The image is app@sha256:{DIGEST}, built from {DIGEST[:40]} with id {UUID}; md5 {DIGEST[:32]}."
            said = self.say(server, "memory_write", title=f"Release {DIGEST[:40]}", content=content)
            self.assertNotIn("redacted", said)
            self.assertIn(content, self.say(server, "memory_get", ids=[first_id(said)]))
            self.assertIn(f"Restore blob {DIGEST}", self.say(server, "memory_timeline"))
            named = self.say(server, "memory_write", title="Access", content=f"api_key: {DIGEST[:32]}")
            self.assertIn("redacted", named)
        lines = self.command("replay", "--project", "alpha").splitlines()
        events = {event["event_type"]: event for event in map(json.loads, lines)}
        self.assertEqual(events["commit.recorded"]["payload"]["sha"], DIGEST[:40])
        self.assertEqual(events["session.started"]["payload"]["session_id"], DIGEST)

    def say(self, server: McpServer, tool: str, **arguments: Any) -> str:
        """Call a tool, which must succeed: a refused write would prove nothing."""
        answer = server.call(tool, **arguments)
        text = str(answer["content"][0]["text"])
        self.assertFalse(answer.get("isError"), f"{tool}: {text}")
        return text

    def write_memories_through_mcp(self) -> None:
        with self.mcp("alpha") as server:
            for number, text in enumerate(SHORT):
                said = self.say(
                    server, "memory_write", title=f"{number} {text}", content=f"so: {text}", author=text, source=text
                )
                self.assertIn("redacted", said)
            for number, secret in enumerate(BARE):
                self.say(
                    server,
                    "memory_write",
                    title=f"word {number}",
                    content=f"{number} of {len(BARE)}",
                    tags=[secret, f"t-{number}"],
                    topic_key=f"topic {secret}",
                    resource_links=[{"uri": f"https://example.org/?key={secret}", "type": "related"}],
                )
                self.say(server, "tag_create", name=secret[:64], category=secret[:64], description=secret)
                self.say(server, "memory_search", query=secret, tags=[secret[:64]])
            said = self.say(server, "memory_write", title="long", content=EVERYTHING)
            self.say(server, "memory_update", id=first_id(said), content=f"new {EVERYTHING}", change_reason=EVERYTHING)
            for kind, attributes in (
                ("guideline", {"rationale": EVERYTHING, "examples": {"good": [EVERYTHING], "bad": [TEXTS["url"]]}}),
                ("tool", {"parameters": {"type": "object", "description": EVERYTHING}, "constraints": EVERYTHING}),
            ):
                self.say(
                    server, "memory_write", kind=kind, title=f"a {kind}", content=EVERYTHING, attributes=attributes
                )

    def write_the_rest_through_mcp(self) -> None:
        with self.mcp("alpha") as server:
            self.say(server, "session_start", purpose="; ".join(SHORT), directory=SHORT[0], session_id="s-1")
            begun = server.call("turn_begin", format="json")["structuredContent"]
            token = begun["ack_token"]
            payloads: dict[str, dict[str, Any]] = {
                "message.user": {"content": EVERYTHING},
                "message.tool": {
                    "tool": "db",
                    "input": {"password": SECRETS["password"][0], **TEXTS},
                    "output": [TEXTS],
                },
                "file.edited": {"path": f"config/{BARE[0]}.env", "change": EVERYTHING},
                "command.run": {"command": EVERYTHING, "output": EVERYTHING, "directory": SHORT[0]},
            }
            for name, payload in payloads.items():
                self.say(server, "event_append", type=name, payload=payload, ack_token=token)
            self.say(server, "turn_end", summary=EVERYTHING, ack_token=token)
            first = self.say(server, "iteration_start", command="feature", description=EVERYTHING)
            self.say(server, "iteration_advance", phase="two", artifacts=[BARE[0]])
            self.say(server, "iteration_complete", id=first_id(first), outcome=EVERYTHING)
            self.decide(server)
            self.say(
                server, "project_create", id="alpha", description=EVERYTHING, metadata={"n": TEXTS}, if_exists="update"
            )
            self.say(server, "org_create", id="acme", name=BARE[0], description=EVERYTHING)
            self.say(server, "memory_context", query=EVERYTHING[:1900])
            self.say(server, "session_end", summary=EVERYTHING)

    def decide(self, server: McpServer) -> None:
        for number, text in enumerate(SHORT):
            self.say(
                server,
                "decision_record",
                title=f"{number} {text}",
                context=text,
                chosen=f"so: {text}",
                rationale=text,
                alternatives=[{"option": f"or: {text}", "why_not": text}],
                notes=[f"see {text}"],
                validations=[f"ran {text}"],
                files=[f"config/{BARE[0]}"],
            )

    def write_through_rest(self, server: Server) -> None:
        body = {"title": "rest", "content": EVERYTHING, "author": SHORT[0], "tags": BARE}
        answer = server.api("POST", "projects/alpha/memories", body)
        self.assertEqual(answer.status, 201, answer.body)
        path = f"projects/alpha/memories/{answer.json()['id']}"
        self.assertEqual(server.api("PATCH", path, {"title": SHORT[1]}).status, 200)
        commit: dict[str, Any] = {"sha": "a" * 40, "message": EVERYTHING, "author": SHORT[0]}
        commit |= {"committed_at": "2026-11-20T08:00:00Z", "files": [{"path": f"config/{each}.env"} for each in BARE]}
        recorded = server.api("POST", "projects/alpha/commits", [commit])
        self.assertLess(recorded.status, 300, recorded.body)

    def write_through_the_admin(self, server: Server) -> None:
        browser = Browser(server)
        add = "/p/alpha/admin/memories/memory/add/"
        page = browser.post(add, title=f"admin {BARE[1]}", content=f"x {EVERYTHING}", type="note", tags=", ".join(BARE))
        self.assertIn("REDACTED", page)
        browser.post("/p/alpha/admin/describe/", name=BARE[0], description=EVERYTHING)

    def write_through_imports(self) -> None:
        documents = self.folder / "documents"
        documents.mkdir()
        (documents / f"{BARE[1]}.md").write_text(f"# Notes\n\n{EVERYTHING}\n\n## {BARE[0]}\n\nmore\n")
        (documents / "front.md").write_text(
            f"---\ntitle: {BARE[2]}\ntags: [{', '.join(BARE)}]\n---\n\nText {BARE[3]}.\n"
        )
        self.command("import", "markdown", str(documents), "--project", "alpha")
        git(documents, "init", "-q")
        git(documents, "add", ".")
        git(
            documents,
            "-c",
            "user.name=ada",
            "-c",
            "user.email=ada@example.org",
            "commit",
            "-q",
            "-m",
            f"Add {EVERYTHING}",
        )
        self.command("import", "git", str(documents), "--project", "alpha")
        records = self.folder / "records"
        records.mkdir()
        (records / "0001-it.md").write_text(
            f"# {BARE[0]}\n\n## Context\n\n{EVERYTHING}\n\n## Decision\n\n{EVERYTHING}\n"
        )
        self.command("import", "adr", str(records), "--project", "alpha")

    def write_through_hooks(self) -> None:
        payload: dict[str, Any] = {"session_id": "s-2", "cwd": str(self.folder / "documents")}
        for event, fields in (
            ("SessionStart", {"source": "startup"}),
            ("UserPromptSubmit", {"prompt": EVERYTHING}),
            ("PostToolUse", {"tool_name": "Bash", "tool_input": {"command": EVERYTHING}, "tool_response": TEXTS}),
            ("Stop", {"last_assistant_message": EVERYTHING}),
        ):
            done = run_hook(self.home, event, {**payload, **fields})
            self.assertEqual(done.returncode, 0, done.stderr)

    def search_the_bytes(self, when: str) -> None:
        files = contents(self.home)
        self.assertTrue(any(path.name == "events.db" for path in files))
        for name, (secret, _) in SECRETS.items():
            forms = {secret.encode(), secret.lower().encode(), secret.encode("utf-16-le")}
            for path, content in files.items():
                if any(form in content for form in forms):
                    self.fail(f"{name} is in {path.relative_to(self.home)} {when}")
