"""Every door at once, as real processes on one home: what no door may show."""

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

from tests.mcp.client import Process as McpServer
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
    found = re.search(r"#(\d+)", text)
    assert found, text
    return int(found[1])


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True)
