"""Every interface at once, as real processes on one home: what none may show, and what two people do there."""

from __future__ import annotations

import contextlib
import hashlib
import http.cookiejar
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.test import SimpleTestCase, tag

from tests.home import contents
from tests.hook.client import run_hook, wait_for_spooled
from tests.mcp.client import Process as McpServer
from tests.mcp.http_server import HttpSession, HubProject
from tests.secrets_made import SECRETS, TEXTS
from tests.sessions_app.test_git import Repository
from tests.web.server import DEADLINE_SECONDS, Server, Shell, serving, temporary_home

ALPHAS_OWN = "zebrafish are kept in tank nine"


class Browser:
    def __init__(self, server: Server) -> None:
        self.address = server.address
        jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self._opener = urllib.request.build_opener(jar)
        self.get(server.link.removeprefix(server.address))

    def get(self, path: str) -> str:
        with self._opener.open(self.address + path, timeout=DEADLINE_SECONDS) as answer:
            return str(answer.read().decode())

    def status(self, path: str) -> tuple[int, str]:
        try:
            return 200, self.get(path)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def post(self, path: str, **fields: str) -> str:
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', self.get(path))
        assert token, f"{path} has no form"
        data = urllib.parse.urlencode({"csrfmiddlewaretoken": token[1], **fields}).encode()
        request = urllib.request.Request(self.address + path, data, {"Referer": self.address + path})
        with self._opener.open(request, timeout=DEADLINE_SECONDS) as answer:
            return str(answer.read().decode())


class DoorsTestCase(SimpleTestCase):
    _shell: Shell | None = None

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="memory-hub-doors-", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.home = self.enterContext(temporary_home())

    @contextlib.contextmanager
    def mcp(self, project: str) -> Iterator[McpServer]:
        server = McpServer(self.home, "--project", project, MEMORY_HUB_TEST_TOOLS="")
        try:
            server.initialize()
            yield server
        finally:
            server.destroy()

    def command(self, *arguments: str) -> str:
        if self._shell is None:
            self._shell = Shell(self.home)
            self.addCleanup(self._shell.close)
        code, output = self._shell.run(*arguments)
        self.assertEqual(code, 0, output)
        return output


@tag("process")
class IsolationTests(DoorsTestCase):
    def test_nothing_of_alpha_is_reachable_from_beta_by_any_door(self):
        with self.mcp("alpha") as server:
            server.say("session_start", purpose=f"alpha: {ALPHAS_OWN}", session_id="alphas-session")
            self.memory = first_id(server.say("memory_write", title="Fish", content=ALPHAS_OWN))
        with self.mcp("beta") as server:
            server.say("memory_write", title="Beta", content="beta has something else")
            self.ask_mcp(server)
        with serving(home=self.home) as server:
            self.ask_rest(server)
            self.ask_the_admin(server)
        self.assertNotIn("zebrafish", self.command("replay", "--project", "beta"))

    def ask_mcp(self, server: McpServer) -> None:
        questions: dict[str, dict[str, Any]] = {
            "memory_search": {"query": ALPHAS_OWN},
            "memory_list": {},
            "memory_timeline": {},
            "memory_stats": {},
            "session_list": {},
            "project_list": {},
            "project_get": {},
            "org_list": {},
            "memory_get": {"ids": [self.memory]},
        }
        for tool, arguments in questions.items():
            self.assertNotIn("zebrafish", str(server.call(tool, **arguments)), tool)
            refused = server.call(tool, **arguments, project_id="alpha")
            self.assertIn("forbidden", refused["content"][0]["text"])
        for uri in (f"memories://get/{self.memory}", "memories://list", "memories://search/zebrafish%20tank"):
            answer = str(server.ask("resources/read", {"uri": uri}).get("result"))
            self.assertNotIn("tank nine", answer, uri)

    def ask_rest(self, server: Server) -> None:
        commit = {"sha": "a" * 40, "message": ALPHAS_OWN, "author": "Ada", "committed_at": "2026-11-20T08:00:00Z"}
        self.assertLess(server.api("POST", "projects/alpha/commits", [commit]).status, 300)
        paths = ["memories", "search?query=zebrafish", "timeline", "events", "sessions", "commits"]
        paths += [f"memories/{self.memory}", f"memories/{self.memory}/versions", "sessions/alphas-session"]
        for path in paths:
            self.assertIn("zebrafish", self.rest(server, "alpha", path), path)
            self.assertNotIn("zebrafish tank", self.rest(server, "beta", path))
            self.assertNotIn("tank nine", self.rest(server, "beta", path), path)
        for project, commits in (("alpha", 1), ("beta", 0)):
            stats = server.api("GET", f"projects/{project}/stats").json()
            self.assertEqual((stats["store"], stats["rows"]["commit"]), (project, commits))
        for name in ("..%2Falpha", "beta%2F..%2Falpha", "ALPHA", "alpha%00"):
            self.assertGreaterEqual(server.api("GET", f"projects/{name}/memories").status, 400, name)

    def rest(self, server: Server, project: str, path: str) -> str:
        return server.api("GET", f"projects/{project}/{path}").body.decode()

    def ask_the_admin(self, server: Server) -> None:
        browser = Browser(server)
        self.assertIn("tank nine", browser.get(f"/p/alpha/admin/memories/memory/{self.memory}/change/"))
        beta = "/p/beta/admin"
        for path in (
            f"{beta}/",
            f"{beta}/memories/memory/",
            f"{beta}/memories/memory/?q=zebrafish",
            f"{beta}/memories/memory/{self.memory}/change/",
            f"{beta}/memories/memory/{self.memory}/history/",
            f"{beta}/sessions_app/session/",
            f"{beta}/sessions_app/session/1/change/",
            f"{beta}/sessions_app/turn/",
            f"{beta}/sessions_app/iteration/",
            f"{beta}/core/rawevent/replay/?position={self.memory}",
            f"{beta}/core/rawevent/replay/?position={self.memory}&fragment=1",
            f"{beta}/core/rawevent/as-of/?position={self.memory}",
            f"{beta}/core/rawevent/",
            f"{beta}/core/rawevent/{self.memory}/change/",
        ):
            self.assertNotIn("tank nine", browser.status(path)[1], path)


def first_id(text: str) -> int:
    found = re.search(r"#(\d+)", text)
    assert found, text
    return int(found[1])


DIGEST = "4b1d" + hashlib.sha256(b"a key of ClickHouse begins so").hexdigest()[4:]
UUID = "4b1d0c1e-8f3a-4b6d-9a27-5c1f0e9d7b42"
EVERYTHING = "\n".join(TEXTS.values())
SHORT = [text for text in TEXTS.values() if len(text) <= 150]
"""Those that fit where a title fits."""
BARE = [SECRETS[name][0] for name in ("aws", "github", "gitlab", "stripe", "google")]
"""Those that say by themselves what they are, and fit where a word fits."""


@tag("process")
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
                texts = {"title": f"{number} {text}", "content": f"so: {text}", "author": text, "source": text}
                self.assertIn("redacted", self.say(server, "memory_write", **texts))
            for number, secret in enumerate(BARE):
                words: dict[str, Any] = {"tags": [secret, f"t-{number}"], "topic_key": f"topic {secret}"}
                words["resource_links"] = [{"uri": f"https://example.org/?key={secret}", "type": "related"}]
                self.say(server, "memory_write", title=f"word {number}", content=f"{number} of {len(BARE)}", **words)
                self.say(server, "tag_create", name=secret[:64], category=secret[:64], description=secret)
                self.say(server, "memory_search", query=secret, tags=[secret[:64]])
            answer = self.say(server, "memory_write", title="long", content=EVERYTHING)
            changes = {"content": f"new {EVERYTHING}", "change_reason": EVERYTHING}
            self.say(server, "memory_update", id=first_id(answer), **changes)
            examples = {"good": [EVERYTHING], "bad": [TEXTS["url"]]}
            parameters = {"type": "object", "description": EVERYTHING}
            for kind, attributes in (
                ("guideline", {"rationale": EVERYTHING, "examples": examples}),
                ("tool", {"parameters": parameters, "constraints": EVERYTHING}),
            ):
                texts = {"kind": kind, "title": f"a {kind}", "content": EVERYTHING}
                self.say(server, "memory_write", **texts, attributes=attributes)

    def write_the_rest_through_mcp(self) -> None:
        tool_use = {"tool": "db", "input": {"password": SECRETS["password"][0], **TEXTS}, "output": [TEXTS]}
        payloads: dict[str, dict[str, Any]] = {
            "message.user": {"content": EVERYTHING},
            "message.tool": tool_use,
            "file.edited": {"path": f"config/{BARE[0]}.env", "change": EVERYTHING},
            "command.run": {"command": EVERYTHING, "output": EVERYTHING, "directory": SHORT[0]},
        }
        with self.mcp("alpha") as server:
            self.say(server, "session_start", purpose="; ".join(SHORT), directory=SHORT[0], session_id="s-1")
            token = server.call("turn_begin", format="json")["structuredContent"]["ack_token"]
            for name, payload in payloads.items():
                self.say(server, "event_append", type=name, payload=payload, ack_token=token)
            self.say(server, "turn_end", summary=EVERYTHING, ack_token=token)
            iteration = self.say(server, "iteration_start", command="feature", description=EVERYTHING)
            self.say(server, "iteration_advance", phase="two", artifacts=[BARE[0]])
            self.say(server, "iteration_complete", id=first_id(iteration), outcome=EVERYTHING)
            for number, text in enumerate(SHORT):
                texts: dict[str, Any] = {"title": f"{number} {text}", "context": text, "chosen": f"so: {text}"}
                texts |= {"alternatives": [{"option": f"or: {text}", "why_not": text}], "rationale": text}
                texts |= {"notes": [f"see {text}"], "validations": [f"ran {text}"], "files": [f"config/{BARE[0]}"]}
                self.say(server, "decision_record", **texts)
            details = {"description": EVERYTHING, "metadata": {"n": TEXTS}, "if_exists": "update"}
            self.say(server, "project_create", id="alpha", **details)
            self.say(server, "org_create", id="acme", name=BARE[0], description=EVERYTHING)
            self.say(server, "memory_context", query=EVERYTHING[:1900])
            self.say(server, "session_end", summary=EVERYTHING)

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
        documents, records = Repository(self.folder / "documents"), self.folder / "records"
        documents.write(f"{BARE[1]}.md", f"# Notes\n\n{EVERYTHING}\n\n## {BARE[0]}\n\nmore\n".encode())
        documents.write(
            "front.md", f"---\ntitle: {BARE[2]}\ntags: [{', '.join(BARE)}]\n---\n\nText {BARE[3]}.\n".encode()
        )
        documents.commit(f"Add {EVERYTHING}")
        records.mkdir()
        record = f"# {BARE[0]}\n\n## Context\n\n{EVERYTHING}\n\n## Decision\n\n{EVERYTHING}\n"
        (records / "0001-it.md").write_text(record)
        for kind, folder in (("markdown", documents.folder), ("git", documents.folder), ("adr", records)):
            self.command("import", kind, str(folder), "--project", "alpha")

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


ROOT = Path(__file__).parents[1]
ASK = """
import django, json, sys
from pathlib import Path
django.setup()
from tests.test_doors import ask_the_doors
print(json.dumps(ask_the_doors(Path(sys.argv[1]))))
"""
WITHOUT_OVERRIDE = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]


@tag("process")
class ReadOnlyTests(SimpleTestCase):
    def test_mcp_and_rest_refuse_the_write_and_go_on_reading(self):
        with temporary_home() as home:
            wrapper = WITHOUT_OVERRIDE if os.geteuid() == 0 else []
            command = [*wrapper, sys.executable, "-c", ASK, str(home)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        self.assertRegex(found["mcp_write"], "^unavailable: memory database unavailable: .*readonly")
        self.assertIn("kept before", found["mcp_read"])
        self.assertEqual(found["rest_write"][0], 503)
        self.assertRegex(found["rest_write"][1], "^memory database unavailable: .*readonly")
        self.assertEqual(found["rest_read"], 200)
        self.assertRegex(found["mcp_later"], "created|has this text already")


def ask_the_doors(home: Path) -> dict[str, Any]:
    """Write, take the right to write away, ask both doors, give it back, write again."""
    found: dict[str, Any] = {}
    with serving("--no-worker", home=home) as server:
        mcp = McpServer(home, "--project", "alpha", MEMORY_HUB_TEST_TOOLS="")
        try:
            mcp.initialize()
            mcp.say("memory_write", title="first", content="kept before")
            files = list((home / "projects" / "alpha").glob("events.db*"))
            for path in files:
                path.chmod(0o400)
            fresh = McpServer(home, "--project", "alpha", MEMORY_HUB_TEST_TOOLS="")
            fresh.initialize()
            found["mcp_write"] = fresh.say("memory_write", title="second", content="refused")
            found["mcp_read"] = fresh.say("memory_search", query="what was kept before?")
            written = server.api("POST", "projects/alpha/memories", {"title": "third", "content": "refused"})
            found["rest_write"] = [written.status, written.json()["detail"]]
            found["rest_read"] = server.api("GET", "projects/alpha/memories").status
            for path in files:
                path.chmod(0o600)
            # The first call after the repair closes what was opened read-only; the next one opens it again.
            calls = [fresh.say("memory_write", title="fourth", content="kept after") for _ in range(2)]
            found["mcp_later"] = calls[-1]
            fresh.destroy()
        finally:
            mcp.destroy()
    return found


@tag("process")
class TeamTests(SimpleTestCase):
    hub: Server
    shell: Shell

    def setUp(self) -> None:
        self.hub = self.enterContext(serving("--no-worker"))
        self.shell = Shell(self.hub.home)
        self.addCleanup(self.shell.close)
        for project in ("shop", "other"):
            self.assertEqual(self.hub.api("POST", "projects", {"project_id": project}).status, 201)

    def run_command(self, *words: str) -> str:
        code, output = self.shell.run(*words)
        self.assertEqual(code, 0, output)
        return output

    def join(self, person: str, role: str) -> None:
        """Add a person to the shop."""
        self.run_command("signin", "--user", person, "--role", "member")
        self.run_command("member", "add", person, "--project", "shop", "--role", role)

    def token(self, person: str, name: str, *verbs: str) -> str:
        made = self.run_command("token", "create", "--person", person, "--name", name, "--verbs", *verbs)
        return made.split()[-1]

    def connect(self, token: str) -> HttpSession:
        return HttpSession(HubProject(self.hub, "shop", token))

    def api(self, token: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
        reply = self.hub.request(method, f"/api/v1/projects/{path}", body, Authorization=f"Bearer {token}")
        return reply.status, reply.json() if reply.body else None

    def found(self, token: str, path: str, name: str = "results") -> Any:
        status, answer = self.api(token, "GET", path)
        self.assertEqual(status, 200, answer)
        return answer[name]

    def number_in(self, answer: str) -> int:
        found = re.search(r"#(\d+)", answer)
        assert found, answer
        return int(found[1])

    def test_their_conflict_their_review_and_their_log(self) -> None:
        self.join("ann", "owner")
        self.join("ben", "reviewer")
        # Their agents write, and what needs a person's own right they do with another token.
        of_ann, of_ben = (self.connect(self.token(person, "laptop", "write")) for person in ("ann", "ben"))
        ann, ben = (self.token(person, "desk", "admin") for person in ("ann", "ben"))

        number = self.number_in(of_ann.say("memory_write", title="Queue", content="Orders wait in Redis."))
        self.assertIn("Queue", of_ben.say("memory_search", query="queue orders"))
        of_ann.say("memory_update", id=number, base_version=1, content="Orders wait in PostgreSQL.")
        answer = of_ben.say("memory_update", id=number, base_version=1, content="Orders wait in Kafka.")
        self.assertIn("conflict", answer)
        (conflict,) = self.found(ann, "shop/conflicts")
        resolution = {"resolution": "keep_b"}
        self.assertEqual(self.api(ben, "POST", f"shop/conflicts/{conflict['id']}/resolve", resolution)[0], 200)
        self.assertEqual(self.found(ann, "shop/conflicts"), [])
        self.assertIn("Kafka", of_ann.say("memory_get", ids=[number]))

        policy = {"settings": {"review_policy": "all"}}
        self.assertEqual(self.api(ben, "PATCH", "shop/settings", policy)[0], 403)
        self.assertEqual(self.api(ann, "PATCH", "shop/settings", policy)[0], 200)
        proposed = self.number_in(of_ann.say("memory_write", title="Retry", content="Wait a minute after a refusal."))
        verdict = {"verdict": "accepted"}
        laptop = self.token("ben", "other", "write")
        self.assertEqual(self.api(laptop, "POST", f"shop/memories/{proposed}/review", verdict)[0], 403)
        self.assertEqual(self.api(ben, "POST", f"shop/memories/{proposed}/review", verdict)[0], 200)
        self.assertIn("Retry", of_ann.say("memory_search", query="retry refusal"))

        expected = {
            ("memory.written", "ann/laptop"),
            ("memory.revised", "ann/laptop"),
            ("memory.revised", "ben/laptop"),
            ("conflict.resolved", "ben/desk"),
            ("project.configured", "ann/desk"),
            ("memory.reviewed", "ben/desk"),
        }
        for token in (ann, ben):
            actors = {(event["event_type"], event["actor"]) for event in self.found(token, "shop/events?limit=100")}
            self.assertLessEqual(expected, actors)
            self.assertIs(self.found(token, "shop/events/verify", "ok"), True)

        of_ben.say("memory_context")
        for token in (ann, ben):
            (pack,) = self.found(token, "shop/audit")
            self.assertEqual((pack["person"], pack["client"], pack["door"]), ("ben", "laptop", "mcp"))

    def test_a_membership_that_ends_ends_everywhere_at_the_next_request(self) -> None:
        self.join("ann", "reviewer")
        ann = self.token("ann", "laptop", "write")
        session = self.connect(ann)
        session.say("memory_write", title="Queue", content="Orders wait in Redis.")
        self.assertEqual(self.api(ann, "GET", "shop/memories")[0], 200)
        self.run_command("member", "remove", "ann", "--project", "shop")
        with session.begin("memory_search", query="queue") as refused:
            self.assertEqual(refused.status, 404)
            self.assertIn("there is no project 'shop' in this hub; known: none", refused.read().decode())
        self.assertEqual(self.api(ann, "GET", "shop/memories")[0], 404)
        self.assertEqual(self.api(ann, "GET", "never-was/memories")[0], 404)
