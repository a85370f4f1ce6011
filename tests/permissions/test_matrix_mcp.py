"""Every tool, resource, prompt and completion of MCP by every caller."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from tests.permissions import mcp_requests as mcp
from tests.permissions.callers import Caller, nobodies
from tests.permissions.matrix import MatrixTestCase, Reply
from tests.permissions.mcp_door import McpDoor
from tests.permissions.mcp_requests import Call
from tests.permissions.world import NOWHERE, OWN


class McpMatrix(MatrixTestCase):
    door: ClassVar[McpDoor]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.callers = [caller for caller in cls.callers if caller.token]
        cls.door = McpDoor()
        cls.addClassCleanup(cls.door.close)

    def send(self, call: Call, caller: Caller, project: str = OWN) -> Reply:
        return self.door.ask(project, caller.token, call.method, call.params)

    def judge(self, call: Call, caller: Caller) -> None:
        if not caller.acts(OWN):
            sends = (partial(self.send, call, caller), partial(self.send, call, caller, NOWHERE[OWN]))
            reply, elsewhere = self.unchanged(*sends)
            self.assertGreaterEqual(reply.status, 401)
            self.assertEqual(reply.without(OWN), elsewhere.without(NOWHERE[OWN]))
            self.assert_keeps(reply, caller, asked=OWN)
        elif call.act not in caller.acts(call.place):
            [reply] = self.unchanged(partial(self.send, call, caller))
            self.assertRegex(reply.text, r"forbidden: |not_found: ")
            self.assert_keeps(reply, caller)
        else:
            self.assertFalse(call.writes)
            self.assert_allowed(call, caller)

    def assert_allowed(self, call: Call, caller: Caller) -> None:
        reply = self.send(call, caller)
        self.assertEqual(reply.status, 200, reply.text[:600])
        self.assertNotRegex(reply.text, '"isError":true|"error":', f"{call.params} {reply.text[:600]}")
        self.assert_keeps(reply, caller)

    def judge_write(self, make: Callable[[], Call]) -> None:
        call = make()
        may = [caller for caller in self.callers if caller.acts(OWN) and call.act in caller.acts(call.place)]
        for caller in [caller for caller in self.callers if caller not in may]:
            with self.subTest(request=call.label, caller=caller.name):
                self.judge(call, caller)
        for number, caller in enumerate(may):
            with self.subTest(request=call.label, caller=caller.name):
                mine = make() if number else call
                before = self.folder.state()
                self.assert_allowed(mine, caller)
                self.assertNotEqual(self.folder.state(), before, "the request changed nothing")


class McpReadMatrix(McpMatrix):
    def test_what_a_project_shows(self) -> None:
        for call in mcp.reads(self.world):
            for caller in self.callers:
                with self.subTest(request=call.label, caller=caller.name):
                    self.judge(call, caller)

    def test_a_name_in_an_argument_is_no_way_round(self) -> None:
        for number in range(len(mcp.NAMING)):
            place = mcp.NAMING[number][0]
            call, elsewhere = mcp.naming(number, place), mcp.naming(number, NOWHERE[place])
            for caller in self.callers:
                if caller.acts(OWN) and place not in caller.seen:
                    with self.subTest(request=call.label, caller=caller.name):
                        sends = (partial(self.send, call, caller), partial(self.send, elsewhere, caller))
                        reply, other = self.unchanged(*sends)
                        self.assertEqual(reply.without(place), other.without(NOWHERE[place]))
                        self.assert_keeps(reply, caller, asked=f"{call.params}")

    def test_who_is_not_known_gets_one_answer(self) -> None:
        for call in mcp.reads(self.world):
            for caller in (Caller("no token"), *(caller for caller in nobodies() if caller.token)):
                with self.subTest(request=call.label, caller=caller.name):
                    [reply] = self.unchanged(partial(self.send, call, caller))
                    self.assertEqual(reply.status, 401, reply.text[:300])
                    self.assertEqual(reply, self.send(call, caller, NOWHERE[OWN]))


class McpWriteMatrix(McpMatrix):
    def test_what_tools_write(self) -> None:
        for name in mcp.WRITES:
            self.judge_write(partial(mcp.write, self.world, name))

    def test_what_tools_write_elsewhere(self) -> None:
        for number in range(len(mcp.SPECIAL)):
            self.judge_write(partial(mcp.special, self.world, number))
