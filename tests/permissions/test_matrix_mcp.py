"""Every tool, resource, prompt and completion of MCP by every caller."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from tests.permissions import mcp_requests as mcp
from tests.permissions.callers import Caller, nobodies
from tests.permissions.matrix import MatrixTestCase, Reply
from tests.permissions.mcp_door import McpDoor
from tests.permissions.mcp_requests import Call
from tests.permissions.world import NOWHERE, OTHER, OWN, SISTER


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
                with self.changing():
                    self.assert_allowed(mine, caller)


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


# One of each kind: rights and sessions are checked for each request, so the other tokens differ in nothing here.
_WITH_SESSIONS = {f"token {name}" for name in ("hub-admin", "own-read", "own-write", "other-admin", "own-viewer/all")}


class McpSessionMatrix(McpMatrix):
    """The older revisions, whose clients begin a session with a handshake."""

    # By token and project
    sessions: ClassVar[dict[tuple[str, str], str]] = {}

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.sessions = {}
        cls.callers = [caller for caller in cls.callers if caller.name in _WITH_SESSIONS]
        assert len(cls.callers) == len(_WITH_SESSIONS)

    def send(self, call: Call, caller: Caller, project: str = OWN) -> Reply:
        if (caller.token, project) not in self.sessions:
            refusal, session = self.door.begin(project, caller.token)
            if not session:
                return refusal
            self.sessions[caller.token, project] = session
        return self.door.ask_in(self.sessions[caller.token, project], project, caller.token, call.method, call.params)

    def test_what_a_project_shows(self) -> None:
        for call in (*mcp.reads(self.world), *mcp.subscriptions(self.world)):
            for caller in self.callers:
                with self.subTest(request=call.label, caller=caller.name):
                    self.judge(call, caller)

    def test_what_tools_write(self) -> None:
        for name in mcp.WRITES:
            self.judge_write(partial(mcp.write, self.world, name))

    def test_what_tools_write_elsewhere(self) -> None:
        for number in range(len(mcp.SPECIAL)):
            self.judge_write(partial(mcp.special, self.world, number))

    def test_a_session_is_one_tokens_and_one_projects(self) -> None:
        owner = next(caller for caller in self.callers if caller.name == "token hub-admin")
        self.assertEqual(self.send(_LIST, owner).status, 200)
        session = self.sessions[owner.token, OWN]
        others = [(caller, OWN) for caller in self.callers if caller is not owner] + [(owner, SISTER)]
        for caller, project in others:
            for verb in ("POST", "GET", "DELETE"):
                with self.subTest(caller=caller.name, project=project, verb=verb):
                    use = partial(self.door.ask_in, project=project, token=caller.token, params={}, verb=verb)
                    reply, never = self.unchanged(
                        partial(use, session, method=_LIST.method), partial(use, "0" * 32, method=_LIST.method)
                    )
                    self.assertEqual((reply.status, reply), (404, never))
        self.assertEqual(self.send(_LIST, owner).status, 200)


_LIST = Call("tools/list", "tools/list", {})


class McpStreamMatrix(McpMatrix):
    """Streams of notifications: ``subscriptions/listen``, and those of sessions."""

    def test_a_stream_is_opened_by_those_who_see_the_project(self) -> None:
        call = mcp.listening()
        for caller in self.callers:
            with self.subTest(caller=caller.name):
                if not caller.acts(OWN):
                    self.judge(call, caller)
                    self.assertEqual(self.door.begin(OWN, caller.token)[1], "")
                    continue
                stream = self.door.listen(OWN, caller.token, call.params)
                self.assertEqual(stream.next()["method"], "notifications/subscriptions/acknowledged")
                stream.close()

    def test_who_is_not_known_opens_no_stream(self) -> None:
        call = mcp.listening()
        for caller in (Caller("no token"), *(caller for caller in nobodies() if caller.token)):
            [reply] = self.unchanged(partial(self.send, call, caller))
            self.assertEqual((reply.status, reply), (401, self.send(call, caller, NOWHERE[OWN])))
            self.assertEqual(self.door.begin(OWN, caller.token)[0].status, 401)

    def test_the_name_of_another_project_in_a_resource_is_no_way_round(self) -> None:
        methods = ("resources/read", "resources/subscribe", "subscriptions/listen")
        for caller in self.callers:
            if OTHER in caller.seen or not caller.acts(OWN):
                continue
            _, session = self.door.begin(OWN, caller.token)
            for method, uri in itertools.product(methods, mcp.URIS_NAMING):
                with self.subTest(method=method, uri=uri, caller=caller.name):
                    calls = [mcp.naming_resource(method, uri, name) for name in (OTHER, NOWHERE[OTHER])]
                    kept = session if method == "resources/subscribe" else ""
                    sends = [partial(self.ask, call, caller, kept) for call in calls]
                    reply, elsewhere = self.unchanged(*sends)
                    self.assertIn('"error":', reply.text)
                    self.assertEqual(reply.without(OTHER), elsewhere.without(NOWHERE[OTHER]))
                    self.assert_keeps(reply, caller, asked=f"{calls[0].params}")

    def ask(self, call: Call, caller: Caller, session: str) -> Reply:
        if session:
            return self.door.ask_in(session, OWN, caller.token, call.method, call.params)
        return self.send(call, caller)

    def test_nobody_is_notified_of_what_another_project_changed(self) -> None:
        reader = next(caller for caller in self.callers if caller.name == "token own-read")
        first, last = self.world.memory(), self.world.memory()
        elsewhere = self.world.memory(SISTER)
        while elsewhere < first:
            elsewhere = self.world.memory(SISTER)
        self.assertEqual(elsewhere, first)
        uris = [f"memories://get/{number}" for number in (first, last)]
        listening = self.door.listen(OWN, reader.token, mcp.listening(*uris).params)
        _, session = self.door.begin(OWN, reader.token)
        following = self.door.follow(session, OWN, reader.token)
        for uri in uris:
            reply = self.door.ask_in(session, OWN, reader.token, "resources/subscribe", {"uri": uri})
            self.assertNotIn('"error":', reply.text)
        self.assertEqual(listening.next()["method"], "notifications/subscriptions/acknowledged")
        # Of the first memory, only that of the other project changes.
        for project, number in ((SISTER, elsewhere), (OWN, last)):
            self.world.send("PATCH", f"projects/{project}/memories/{number}", {"content": f"{project} text, changed"})
        for stream in (listening, following):
            notification = stream.next()
            self.assertEqual(notification["method"], "notifications/resources/updated")
            self.assertEqual(notification["params"]["uri"], uris[1])
            stream.close()
