"""What the log has of requests that are refused: no long paths, and no sign-in links."""

from __future__ import annotations

import io
import logging
from unittest import TestCase

from memoryhub import logs
from tests.web.public_server import public_hub, send
from tests.web.server import poll


class RecordTests(TestCase):
    def line_of(self, name: str, message: str, *args: object) -> str:
        stream = io.StringIO()
        handler = logs.line_handler(stream)
        handler.handle(logging.LogRecord(name, logging.WARNING, "", 0, message, args, None))
        return stream.getvalue()

    def test_a_long_path_is_cut(self):
        for name, message, args in (
            ("django.request", "%s: %s", ("Not Found", "/" + "a" * 100_000)),
            ("django.request", "Method Not Allowed (%s): %s", ("PUT", "/" + "a" * 100_000)),
            ("django.security.csrf", "Forbidden (%s): %s", ("CSRF cookie not set.", "/" + "a" * 100_000)),
        ):
            line = self.line_of(name, message, *args)
            self.assertLess(len(line), 400)
            self.assertIn(str(args[0]), line)
            self.assertIn("/aaa", line)
        self.assertIn("b" * 1_000, self.line_of("memoryhub.jobs", "%s", "b" * 1_000))

    def test_a_sign_in_link_is_masked(self):
        for text in ("/signin/kT5-_x", "http://localhost/signin/kT5-_x?a=1", "'/signin/kT5-_x'"):
            line = self.line_of("django.request", "%s: %s", "Gone", text)
            self.assertNotIn("kT5-_x", line)
            self.assertIn("/signin/…", line)


class HubTests(TestCase):
    def test_a_link_is_not_in_the_log_before_it_is_used(self):
        with public_hub() as server:
            path = "/signin/" + "b" * 43
            for method in ("POST", "PUT", "OPTIONS", "GET"):
                send(server, method, path)
            poll(lambda: "Gone: /signin/…" in server.text, what="the line of the log")
            self.assertNotIn("b" * 43, server.text)
