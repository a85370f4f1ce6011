"""What a member sees of a real hub: the streams of pages, and a membership that ends."""

from __future__ import annotations

import http.client
import re
from contextlib import ExitStack, closing
from typing import Any

from django.test import SimpleTestCase

from tests.permissions.world import NOWHERE, OTHER, OWN
from tests.web.server import DEADLINE_SECONDS, Reply, Server, Shell, serving

_DATA = re.compile(rb"data: (\S+)")


class HttpMatrix(SimpleTestCase):
    server: Server
    shell: Shell
    cookie: str

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
        code, link = cls.shell.run("signin", "--user", "ann", "--role", "member")
        assert code == 0, link
        given = cls.server.request("GET", link.strip().removeprefix(cls.server.address)).headers
        cls.cookie = "; ".join(cookie.partition(";")[0] for cookie in given.get_all("Set-Cookie") or [])

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
        connection = http.client.HTTPConnection(*self.server.place, timeout=DEADLINE_SECONDS)
        with closing(connection):
            connection.request("GET", f"/p/{OWN}/admin/live/", headers={"Cookie": self.cookie})
            stream = connection.getresponse()
            self.assertEqual((stream.status, stream.headers["Content-Type"][:17]), (200, "text/event-stream"))
            self.next_of(stream)
            self.write(OTHER, "unseen")
            self.write(OWN, "seen")
            heard = self.next_of(stream)
        self.assertEqual(int(heard.partition("-")[0]), self.position())

    def test_pages_and_lists_of_a_hub_have_one_project(self) -> None:
        self.write(OTHER, "elsewhere")
        for path in ("/", "/find?q=elsewhere", "/api/v1/projects", "/api/v1/health", "/jobs", f"/p/{OWN}/admin/"):
            answer = self.get(path)
            self.assertEqual(answer.status, 200, path)
            self.assertNotIn(OTHER.encode(), answer.body, path)
        self.assertIn(OWN.encode(), self.get("/").body)

    def test_what_ends_is_gone_at_the_next_request(self) -> None:
        self.assertEqual(self.get(f"/p/{OWN}/admin/").status, 200)
        self.assertLess(self.server.api("DELETE", f"projects/{OWN}/members/ann").status, 300)
        for path in ("", "live/", "memories/memory/", "memories/memory/export.jsonl"):
            self.assert_is_nowhere(f"/p/{OWN}/admin/{path}", OWN)
        self.assertNotIn(OWN.encode(), self.get("/").body)

    def test_a_stream_ends_with_the_membership_instead_of_its_next_message(self) -> None:
        connection = http.client.HTTPConnection(*self.server.place, timeout=DEADLINE_SECONDS)
        with closing(connection):
            connection.request("GET", f"/p/{OWN}/admin/live/", headers={"Cookie": self.cookie})
            stream = connection.getresponse()
            self.write(OWN, "during the membership")
            position = self.position()
            while int(self.next_of(stream).partition("-")[0]) < position:
                pass
            self.assertLess(self.server.api("DELETE", f"projects/{OWN}/members/ann").status, 300)
            self.write(OWN, "after the membership")
            last = stream.read()
        self.assertNotIn(f"data: {position + 1}".encode(), last)

    def next_of(self, stream: Any) -> str:
        """Return the data of the next message of a stream."""
        while line := stream.readline():
            if found := _DATA.match(line):
                return found[1].decode()
        raise AssertionError("the stream has ended")
