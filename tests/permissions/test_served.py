"""Rights at a hub that serves: tokens in other processes, a membership that ends, and the pages in a browser."""

from __future__ import annotations

import http.client
import json
import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from django.test import SimpleTestCase, tag
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from memoryhub.config.clients import all_clients
from tests.admin.browser import BrowserTestCase
from tests.mcp.client import HANDSHAKE
from tests.mcp.http_server import HttpServer, HttpSession, hello, text_of
from tests.permissions.world import NOWHERE, OTHER, OWN
from tests.web.server import DEADLINE_SECONDS, Reply, Server, Shell, poll, serving

_DATA = re.compile(rb"data: (\S+)")


class ServedTestCase(SimpleTestCase):
    server: Server
    shell: Shell

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        with ExitStack() as stack:
            cls.server = stack.enter_context(serving("--no-worker"))
            for project in (OWN, OTHER):
                assert cls.server.api("POST", "projects", {"project_id": project}).status == 201
            cls.shell = Shell(cls.server.home)
            stack.callback(cls.shell.close)
            cls.addClassCleanup(stack.pop_all().close)

    def run_command(self, *arguments: str) -> str:
        code, output = self.shell.run(*arguments)
        self.assertEqual(code, 0, output)
        return output

    def sign_in(self, name: str, role: str) -> str:
        """Create a person, and return the cookies of their browser."""
        link = self.run_command("signin", "--user", name, "--role", role).strip()
        headers = self.server.request("GET", link.removeprefix(self.server.address)).headers
        return "; ".join(cookie.partition(";")[0] for cookie in headers.get_all("Set-Cookie") or [])


@tag("process")
class TokenTests(ServedTestCase):
    """Tokens at ``memory-hub mcp --http``, and commands that manage them, each a process of its own."""

    mcp: HttpServer

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.mcp = HttpServer(cls.server.home, "--project", OWN)
        cls.addClassCleanup(cls.mcp.destroy)

    def make(self, name: str, verbs: str, *options: str) -> str:
        output = self.run_command("token", "create", "--name", name, "--verbs", verbs, "--days", "30", *options)
        return output.split()[-1]

    def rest(self, token: str, path: str) -> Reply:
        return self.server.request("GET", f"/api/v1/{path}", Authorization=f"Bearer {token}")

    def session(self, token: str) -> HttpSession:
        return HttpSession(_As(self.mcp, token))  # type: ignore[arg-type]

    def test_a_token_has_its_rights_and_its_name_over_mcp(self) -> None:
        reader = self.session(self.make("reader", "read", "--project", OWN))
        self.assertNotIn("forbidden", reader.say("memory_search", query="anything"))
        self.assertIn("forbidden: this caller may not", reader.say("memory_write", title="No", content="no"))
        writer = self.session(self.make("writer", "read,write", "--project", OWN))
        self.assertIn("created", writer.say("memory_write", title="M", content="by MCP"))
        (event,) = self.server.api("GET", f"projects/{OWN}/events?type=memory.written").json()["results"]
        self.assertEqual((event["source"], event["actor"]), ("mcp", "token:writer"))
        foreign = _As(self.mcp, self.make("foreign", "admin", "--project", OTHER))
        with foreign.send("POST", hello(), **foreign.authorization) as response:
            problem = json.loads(response.read())
        self.assertEqual((response.status, problem["code"]), (403, "forbidden"))
        self.assertNotIn(OWN, problem["detail"])

    def test_a_session_is_its_own_tokens(self) -> None:
        mine = self.session(self.make("mine", "read"))
        theirs = self.session(self.make("theirs", "read"))
        theirs._headers["MCP-Session-Id"] = mine._headers["MCP-Session-Id"]
        for response in (theirs.begin("memory_search", query="x"), theirs.send("DELETE")):
            with response:
                self.assertEqual(response.status, 404)
        self.assertNotIn("error", mine.say("memory_search", query="x"))

    def test_a_revocation_counts_at_once_in_every_process(self) -> None:
        text = self.make("short", "read", "--project", OWN)
        session = self.session(text)
        self.assertEqual(self.rest(text, f"projects/{OWN}/stats").status, 200)
        self.assertIn("revoked on", self.run_command("token", "revoke", "short"))
        refusal = self.rest(text, f"projects/{OWN}/stats")
        self.assertEqual(refusal.status, 401)
        self.assertIn("the token 'short' was revoked on", refusal.json()["detail"])
        with session.begin("memory_search", query="x") as response:
            self.assertEqual(response.status, 401)
            self.assertIn(b"was revoked on", response.read())

    def test_its_last_use_is_shown_and_its_text_is_nowhere(self) -> None:
        text = self.make("shown", "read")
        listed = self.run_command("token", "list")
        self.assertRegex(listed, rf"{text[:11]}…  shown may read in the whole hub until .+; never used")
        with self.session(text).begin("memory_search", query="x") as response:
            text_of(response)
        used = re.compile(r" shown .*used last")
        poll(lambda: used.search(self.run_command("token", "list")), what="the note of its use")
        self.rest(text, "projects/nowhere/stats")
        secret = text[12:].encode()
        kept = [path for path in self.server.home.rglob("*") if path.is_file() and secret in path.read_bytes()]
        self.assertEqual(kept, [])
        self.assertNotIn(secret.decode(), self.server.text)

    def test_people_are_let_in_from_the_command_line(self) -> None:
        cookie = self.sign_in("ann", "viewer")
        for path, status in ((f"/p/{OWN}/admin/", 200), ("/people", 403)):
            self.assertEqual(self.server.request("GET", path, Cookie=cookie).status, status)
        for arguments, sentence in (
            (("--user", "bob"), "add --role to create them"),
            (("--user", "Bob", "--role", "viewer"), "use 1 to 64 of a-z"),
            (("--role", "viewer"), "--role needs --user"),
            (("--user", "owner", "--role", "viewer"), "the last active owner"),
        ):
            code, output = self.shell.run("signin", *arguments)
            self.assertNotEqual(code, 0)
            self.assertIn(sentence, output)
        self.run_command("signin", "--user", "ann")


class _As:
    """The server as a client sees it that sends a token of its own."""

    def __init__(self, server: HttpServer, token: str) -> None:
        self._server = server
        self.authorization = {"Authorization": f"Bearer {token}", "MCP-Protocol-Version": HANDSHAKE[-1]}

    def send(self, method: str, body: Any = None, **headers: str) -> http.client.HTTPResponse:
        return self._server.send(method, body, **headers)


@tag("process")
class MembershipTests(ServedTestCase):
    """What a member sees of a real hub: the streams of pages, and a membership that ends."""

    cookie: str

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.cookie = cls().sign_in("ann", "member")

    def setUp(self) -> None:
        answer = self.server.api("PUT", f"projects/{OWN}/members/ann", {"role": "viewer"})
        self.assertEqual(answer.status, 200, answer.body)

    def get(self, path: str) -> Reply:
        return self.server.request("GET", path, Cookie=self.cookie)

    def write(self, project: str, title: str) -> None:
        body = {"title": f"{project} {title}", "content": f"{project} {title}"}
        self.assertEqual(self.server.api("POST", f"projects/{project}/memories", body).status, 201)

    def position(self) -> int:
        return int(self.server.api("GET", f"projects/{OWN}").json()["events"])

    def assert_is_nowhere(self, path: str, name: str) -> None:
        there, nowhere = self.get(path), self.get(path.replace(name, NOWHERE[name]))
        texts = [there.body.replace(name.encode(), b"-"), nowhere.body.replace(NOWHERE[name].encode(), b"-")]
        tokens = re.compile(rb'(csrfmiddlewaretoken" value=")\w+')
        self.assertEqual((there.status, tokens.sub(b"", texts[0])), (404, tokens.sub(b"", texts[1])))
        self.assertEqual(nowhere.status, 404)

    def test_a_stream_is_of_the_project_that_is_seen(self) -> None:
        self.assert_is_nowhere(f"/p/{OTHER}/admin/live/", OTHER)
        with self.stream() as stream:
            self.assertEqual((stream.status, stream.headers["Content-Type"][:17]), (200, "text/event-stream"))
            self.next_of(stream)
            self.write(OTHER, "unseen")
            self.write(OWN, "seen")
            heard = self.next_of(stream)
        self.assertEqual(int(heard.partition("-")[0]), self.position())

    def test_what_ends_is_gone_at_the_next_request(self) -> None:
        self.assertIn(OWN.encode(), self.get("/").body)
        self.assertLess(self.server.api("DELETE", f"projects/{OWN}/members/ann").status, 300)
        for path in ("", "live/", "memories/memory/", "memories/memory/export.jsonl"):
            self.assert_is_nowhere(f"/p/{OWN}/admin/{path}", OWN)
        self.assertNotIn(OWN.encode(), self.get("/").body)

    def test_a_stream_ends_with_the_membership_instead_of_its_next_message(self) -> None:
        with self.stream() as stream:
            self.write(OWN, "during the membership")
            position = self.position()
            while int(self.next_of(stream).partition("-")[0]) < position:
                pass
            self.assertLess(self.server.api("DELETE", f"projects/{OWN}/members/ann").status, 300)
            self.write(OWN, "after the membership")
            last = stream.read()
        self.assertNotIn(f"data: {position + 1}".encode(), last)

    @contextmanager
    def stream(self) -> Iterator[http.client.HTTPResponse]:
        """Open the stream of the pages of a project, as the member's browser."""
        connection = http.client.HTTPConnection(*self.server.place, timeout=DEADLINE_SECONDS)
        try:
            connection.request("GET", f"/p/{OWN}/admin/live/", headers={"Cookie": self.cookie})
            yield connection.getresponse()
        finally:
            connection.close()

    def next_of(self, stream: Any) -> str:
        """Return the data of the next message of a stream."""
        while line := stream.readline():
            if found := _DATA.match(line):
                return found[1].decode()
        raise AssertionError("the stream has ended")


class AccessPages(BrowserTestCase):
    has_own_server = True

    def open_page(self, name: str) -> None:
        self.browser.get(f"{self.server.address}/{name}")

    def press_on(self, text: str) -> None:
        with self.new_page():
            self.tab_to(text)
            self.press(Keys.ENTER)

    def click_summary(self, name: str) -> None:
        self.browser.find_element(By.XPATH, f"//summary[.='{name}']").click()

    def says_when_it_was_used(self) -> bool:
        self.open_page("tokens")
        return "last used" in self.find("body").text

    def test_a_token_is_made_copied_and_revoked(self) -> None:
        self.open_page("tokens")
        self.find("[name=name]").send_keys("nightly")
        box = self.find(f"[name=projects][value={self.project}]")
        self.script("document.querySelector('[name=reach][value=hub]').checked = true")
        box.send_keys(Keys.SPACE)
        self.assertTrue(self.script("return document.querySelector('[name=reach][value=some]').checked"))
        self.press_on("Create")
        text = self.find("#shown-once").get_attribute("value") or ""
        self.assertRegex(text, r"^mh_[a-z0-9]{8}_[A-Za-z0-9_-]{43}$")
        self.see(f"Read in {self.project}")
        self.tab_to("Copy")
        self.press(Keys.ENTER)
        self.wait(lambda: self.find("[data-copy]").text != "Copy", "what the button says then")
        for client in (client for client in all_clients().values() if client.http):
            if client.id != "claude-code":  # the first is open
                self.click_summary(client.name)
            self.see(f"memory-hub setup {client.id} --url {self.server.address}", within="main details[open]")
        self.click_summary("A script, with curl")
        curl = shlex.split(self.find("details[open] pre").text.splitlines()[1])
        path = curl[-1].removeprefix(self.server.address)
        self.assertEqual(curl[:3], ["curl", "-H", "Authorization: Bearer $MEMORY_HUB_TOKEN"])
        self.assertEqual(self.server.request("GET", path, Authorization=f"Bearer {text}").status, 200)
        self.open_page("tokens")
        self.assertNotIn(text, self.browser.page_source)
        self.wait(self.says_when_it_was_used, "when the token was used last: noted after the answer is sent")
        self.press_on("Revoke nightly")
        self.see("rejected from now on")
        self.press_on("Revoke")
        self.see("The token nightly is revoked.")
        self.assertEqual(self.server.request("GET", "/api/v1/projects", Authorization=f"Bearer {text}").status, 401)

    def test_a_person_is_let_in_changed_and_deactivated(self) -> None:
        self.open_page("people")
        self.find("[name=name]").send_keys("dora")
        self.press_on("Create sign-in link")
        self.assertIn("/signin/", self.find("#shown-once").get_attribute("value") or "")
        self.find("[aria-label='Role of dora']").send_keys("reviewer")
        self.press_on("Change role of dora")
        self.see("dora now has the role reviewer.")
        self.press_on("Deactivate dora")
        self.see("dora is deactivated and signed out everywhere.")

    def test_nothing_sticks_out_on_a_narrow_screen(self) -> None:
        self.narrow()
        for name in ("people", "tokens"):
            self.open_page(name)
            self.find("main h1")
            wide = self.script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
            self.assertLessEqual(wide, 0, name)
