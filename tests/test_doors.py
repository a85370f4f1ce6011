"""Every door at once, as real processes on one home: what no door may keep, and what no door may show."""

from __future__ import annotations

import contextlib
import http.cookiejar
import re
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.test import SimpleTestCase

from tests.home import contents
from tests.mcp.client import Server as McpServer
from tests.web.server import DEADLINE_SECONDS, Server, run, serving

SECRETS = {
    "database password": "postgres://app:Tr0ub4dor-and-3@db.example.org:5432/prod",
    "AWS key": "AKIA" + "Q3EGRTVJK2LWXZ7N",
    "GitHub token": "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",
    "private block": "<private>the cat of the house is called Mirabelle Quux</private>",
}
NEEDLES = ["Tr0ub4dor-and-3", SECRETS["AWS key"], SECRETS["GitHub token"], "Mirabelle Quux"]
ALPHAS_OWN = "zebrafish are kept in tank nine"


class Browser:
    """A signed-in person, by her cookies and forms."""

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
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="memory-hub-doors-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.home = self.folder / "home"

    @contextlib.contextmanager
    def mcp(self, project: str) -> Iterator[McpServer]:
        server = McpServer(self.home, "--project", project, MEMORY_HUB_TEST_TOOLS="")
        try:
            server.initialize()
            yield server
        finally:
            server.destroy()

    def command(self, *arguments: str) -> str:
        code, output = run(*arguments, home=self.home)
        self.assertEqual(code, 0, output)
        return output


class SecretsTests(DoorsTestCase):
    def test_no_secret_written_through_any_door_is_in_any_file(self):
        text = " and ".join(SECRETS.values())
        with serving(home=self.home) as server:
            server.api("POST", "projects", {"project_id": "alpha"})
            self.write_through_mcp(text)
            self.write_through_rest(server, text)
            self.write_through_the_admin(server, text)
            self.write_through_imports(text)
            self.search_the_bytes("while it runs")
            self.assertIn("[REDACTED:", server.api("GET", "projects/alpha/events?limit=100").body.decode())
        self.search_the_bytes("after it ended")

    def write_through_mcp(self, text: str) -> None:
        with self.mcp("alpha") as server:
            said = server.say("memory_write", title=f"mcp {text}"[:200], content=text, tags=["ops"], source=text[:900])
            self.assertIn("redacted", said)
            server.say("memory_write", title="mcp two", content="plain", topic_key="t")
            server.say("memory_update", id=first_id(said), content=f"new {text}", change_reason=text)
            server.say("session_start", purpose=text, directory=text[:900])
            server.say("session_end", summary=text)
            server.say("project_create", id="alpha", description=text, metadata={"note": text}, if_exists="update")
            server.say("org_create", id="acme", name=SECRETS["AWS key"], description=text)
            server.say("memory_search", query=text)

    def write_through_rest(self, server: Server, text: str) -> None:
        answer = server.api("POST", "projects/alpha/memories", {"title": "rest", "content": text, "author": text[:190]})
        self.assertEqual(answer.status, 201, answer.body)
        memory = answer.json()["id"]
        patched = server.api("PATCH", f"projects/alpha/memories/{memory}", {"title": f"r {SECRETS['AWS key']}"})
        self.assertEqual(patched.status, 200, patched.body)
        commit = {"sha": "a" * 40, "message": text, "author": text[:290], "committed_at": "2026-11-20T08:00:00Z"}
        commit["files"] = [{"path": f"config/{SECRETS['AWS key']}.env"}]  # type: ignore[assignment]
        recorded = server.api("POST", "projects/alpha/commits", [commit])
        self.assertLess(recorded.status, 300, recorded.body)

    def write_through_the_admin(self, server: Server, text: str) -> None:
        browser = Browser(server)
        page = browser.post("/p/alpha/admin/memories/memory/add/", title="admin", content=text, type="note")
        self.assertIn("REDACTED", page)

    def write_through_imports(self, text: str) -> None:
        documents = self.folder / "documents"
        documents.mkdir()
        (documents / "notes.md").write_text(f"# Notes\n\n{text}\n\n## {SECRETS['GitHub token']}\n\nmore\n")
        self.command("import", "markdown", str(documents), "--project", "alpha")
        git(documents, "init", "-q")
        git(documents, "add", ".")
        git(documents, "-c", "user.name=ada", "-c", "user.email=ada@example.org", "commit", "-q", "-m", f"Add {text}")
        self.command("import", "git", str(documents), "--project", "alpha")

    def search_the_bytes(self, when: str) -> None:
        files = contents(self.home)
        self.assertTrue(any(path.name == "events.db" for path in files))
        for path, content in files.items():
            for needle in NEEDLES:
                for encoded in (needle.encode(), needle.encode("utf-16-le"), needle.lower().encode()):
                    self.assertNotIn(encoded, content, f"{needle} is in {path.relative_to(self.home)} {when}")


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
        paths = ["memories", "search?query=zebrafish", "timeline", "events", "sessions", "stats", "commits"]
        paths += [f"memories/{self.memory}", f"memories/{self.memory}/versions", "sessions/alphas-session"]
        for path in paths:
            self.assertIn("zebrafish", "".join(self.rest(server, "alpha", path)) + self.known_empty(path), path)
            self.assertNotIn("zebrafish tank", self.rest(server, "beta", path))
            self.assertNotIn("tank nine", self.rest(server, "beta", path), path)
        for name in ("..%2Falpha", "beta%2F..%2Falpha", "ALPHA", "alpha%00"):
            self.assertGreaterEqual(server.api("GET", f"projects/{name}/memories").status, 400, name)

    def rest(self, server: Server, project: str, path: str) -> str:
        return server.api("GET", f"projects/{project}/{path}").body.decode()

    def known_empty(self, path: str) -> str:
        """Stands in for the routes that do not show the text in alpha either."""
        return "zebrafish" if path in ("stats", "commits") else ""

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
    """The first id that a line names."""
    found = re.search(r"#(\d+)", text)
    assert found, text
    return int(found[1])


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True)
