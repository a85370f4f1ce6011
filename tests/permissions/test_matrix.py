"""Every request of every door by every caller: nothing is seen or changed without the right to it (decision 23)."""

from __future__ import annotations

import json

from django.test import Client

from tests.permissions import rest_requests as rest
from tests.permissions.matrix import MatrixTestCase, Reply, nobodies, nowhere
from tests.permissions.rest_requests import Ask
from tests.permissions.world import ORG_OF, OWN, PLACES, Caller


class RestMatrix(MatrixTestCase):
    def send(self, ask: Ask, caller: Caller) -> Reply:
        headers = {"host": "localhost"} | ({"authorization": f"Bearer {caller.token}"} if caller.token else {})
        client = caller.browser or Client(raise_request_exception=False)
        content = "" if ask.body is None else json.dumps(ask.body)
        address = ask.address
        return Reply.of(client.generic(ask.method, address, content, "application/json", headers=headers))

    def judge(self, ask: Ask, caller: Caller) -> None:
        """Send a request that the caller may not make, or a read, and check what comes of it."""
        if ask.place in PLACES and not caller.acts(ask.place):
            self.assert_hidden(ask, caller)
        elif ask.act not in caller.acts(ask.place):
            reply = self.unchanged(lambda: self.send(ask, caller))
            self.assertEqual(reply.status, 403, reply.text[:600])
            self.assert_keeps(reply, caller)
        else:
            reply = self.send(ask, caller)
            self.assertLess(reply.status, 400, f"{ask.address} {ask.body} {reply.text[:600]}")
            self.assert_keeps(reply, caller)

    def assert_hidden(self, ask: Ask, caller: Caller) -> None:
        reply = self.unchanged(lambda: self.send(ask, caller))
        self.assertIn(reply.status, (403, 404), reply.text[:600])
        self.assert_keeps(reply, caller, asked=ask.address)


class RestReadMatrix(RestMatrix):
    def test_reads(self) -> None:
        for ask in rest.project_asks(self.world):
            for caller in self.callers:
                with self.subTest(request=ask.label, caller=caller.name):
                    self.judge(ask, caller)


class RestWriteMatrix(RestMatrix):
    def test_writes(self) -> None:
        for route in rest.WRITES:
            ask = rest.project_writes(self.world, route)
            lacking = [caller for caller in self.callers if ask.act not in caller.acts(OWN)]
            for caller in lacking:
                with self.subTest(request=route, caller=caller.name):
                    self.judge(ask, caller)
            for number, caller in enumerate(caller for caller in self.callers if ask.act in caller.acts(OWN)):
                with self.subTest(request=route, caller=caller.name):
                    if number:
                        ask = rest.project_writes(self.world, route)
                    before = self.folder.state()
                    reply = self.send(ask, caller)
                    self.assertLess(reply.status, 400, f"{ask.address} {ask.body} {reply.text[:600]}")
                    self.assertNotEqual(self.folder.state(), before)
                    self.assert_keeps(reply, caller)
