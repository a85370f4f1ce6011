"""Every request of every door by every caller: nothing is seen or changed without the right to it (decision 23)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from memoryhub.core.permissions import Act
from memoryhub.mcp.registry import load_tools
from tests.permissions import mcp_requests as mcp
from tests.permissions import page_requests as pages
from tests.permissions import rest_requests as rest
from tests.permissions.callers import Caller, nobodies
from tests.permissions.matrix import MatrixTestCase, Reply
from tests.permissions.mcp_door import McpDoor
from tests.permissions.mcp_requests import Call
from tests.permissions.page_requests import Form
from tests.permissions.rest_requests import Ask
from tests.permissions.world import GLOBAL, NOWHERE, OWN, OWN_ORG, PLACES


class RestMatrix(MatrixTestCase):
    def send(self, ask: Ask, caller: Caller) -> Reply:
        headers = {"host": "localhost"} | ({"authorization": f"Bearer {caller.token}"} if caller.token else {})
        content = "" if ask.body is None else json.dumps(ask.body)
        return Reply.of(caller.client.generic(ask.method, ask.address, content, "application/json", headers=headers))

    def judge(self, ask: Ask, caller: Caller) -> None:
        """Send a request and check what comes of it; a write is only sent by callers who may not make it."""
        if ask.is_for(caller):
            self.assertFalse(ask.writes)
            self.assert_allowed(ask, caller)
        elif ask.place and not caller.acts(ask.place):
            self.assert_hidden(ask, caller)
        else:
            self.assert_refused(ask, caller)

    def assert_allowed(self, ask: Ask, caller: Caller) -> None:
        reply = self.send(ask, caller)
        self.assertLess(reply.status, 400, f"{ask.address} {ask.body} {reply.text[:600]}")
        # Those who manage people see which places there are.
        self.assert_keeps(reply, caller, asked=f"{ask.address} {' '.join(PLACES)}" if ask.is_of_people else "")

    def assert_refused(self, ask: Ask, caller: Caller) -> None:
        [reply] = self.unchanged(partial(self.send, ask, caller))
        self.assertIn(reply.status, (403, 404), reply.text[:600])
        self.assert_keeps(reply, caller)

    def assert_hidden(self, ask: Ask, caller: Caller) -> None:
        """Check that a place that the caller may not see is answered as one that does not exist."""
        name, nowhere = ask.place, NOWHERE.get(ask.place, "")
        other = ask.to(nowhere) if nowhere else ask
        reply, elsewhere = self.unchanged(lambda: self.send(ask, caller), lambda: self.send(other, caller))
        self.assertIn(reply.status, (403, 404), reply.text[:600])
        self.assert_keeps(reply, caller, asked=ask.address)
        if nowhere:
            self.assertEqual(reply.without(name), elsewhere.without(nowhere))

    def judge_write(self, make: Callable[[], Ask]) -> None:
        """Judge a write by all callers, and check that those who may make it change something.

        The request that is refused to the others is then sent by the first who may, so it was a real one.
        """
        ask = make()
        may = [caller for caller in self.callers if ask.is_for(caller)]
        for caller in [caller for caller in self.callers if caller not in may]:
            with self.subTest(request=ask.label, caller=caller.name):
                self.judge(ask, caller)
        for number, caller in enumerate(may):
            with self.subTest(request=ask.label, caller=caller.name):
                mine = make() if number else ask
                before = self.folder.state()
                self.assert_allowed(mine, caller)
                self.assertNotEqual(self.folder.state(), before, "the request changed nothing")


class RestReadMatrix(RestMatrix):
    def test_what_a_project_shows(self) -> None:
        for ask in rest.project_asks(self.world):
            for caller in self.callers:
                with self.subTest(request=ask.label, caller=caller.name):
                    self.judge(ask, caller)

    def test_a_name_in_a_parameter_is_no_way_round(self) -> None:
        for number in range(len(rest.NAMING)):
            place = rest.NAMING[number][0]
            for caller in self.callers:
                if place in caller.seen:
                    continue
                ask, elsewhere = rest.naming_ask(number, place), rest.naming_ask(number, NOWHERE[place])
                with self.subTest(request=ask.label, caller=caller.name):
                    sends = (partial(self.send, ask, caller), partial(self.send, elsewhere, caller))
                    reply, other = self.unchanged(*sends)
                    self.assertEqual(reply.without(place), other.without(NOWHERE[place]))
                    self.assert_keeps(reply, caller, asked=f"{ask.address} {ask.body}")

    def test_lists_metrics_and_health_name_what_the_caller_sees(self) -> None:
        for route in (*rest.LISTS, *rest.OPEN, *rest.WHOLE_HUB):
            for caller in [*self.callers, *nobodies()]:
                ask = Ask(route, "GET", f"{rest.PREFIX}{route.split()[1].format(code='invalid')}", rest.Act.VIEW, "")
                with self.subTest(request=route, caller=caller.name):
                    [reply] = self.unchanged(partial(self.send, ask, caller))
                    self.assert_keeps(reply, caller)
                    may = caller.is_whole if route in rest.WHOLE_HUB else bool(caller.acts("")) or route in rest.OPEN
                    self.assertEqual(reply.status == 200, may or bool(caller.at and route == "get projects"))

    def test_who_is_not_known_gets_one_answer(self) -> None:
        asks = [*rest.project_asks(self.world), *(rest.hub_ask(self.world, route) for route in rest.OF_HUB)]
        for ask in asks:
            for caller in nobodies():
                with self.subTest(request=ask.label, caller=caller.name):
                    [reply] = self.unchanged(partial(self.send, ask, caller))
                    self.assertEqual(reply.status, 401, reply.text[:300])
                    self.assert_keeps(reply, caller, asked=ask.address)
                    elsewhere = self.send(ask.to(NOWHERE.get(ask.place, "")), caller)
                    self.assertEqual(reply, elsewhere)


class RestWriteMatrix(RestMatrix):
    def test_what_is_written_to_a_project(self) -> None:
        for route in rest.WRITES:
            self.judge_write(partial(rest.project_write, self.world, route))

    def test_what_is_written_elsewhere(self) -> None:
        for number in range(len(rest.SPECIAL)):
            self.judge_write(partial(rest.special_ask, self.world, number))

    def test_what_is_written_to_the_hub_and_its_organisations(self) -> None:
        for route in rest.OF_HUB:
            ask = rest.hub_ask(self.world, route)
            if ask.writes:
                self.judge_write(partial(rest.hub_ask, self.world, route))
                continue
            for caller in self.callers:
                with self.subTest(request=route, caller=caller.name):
                    self.judge(ask, caller)

    def test_members_are_managed_by_owners_and_by_those_who_manage_people(self) -> None:
        for route in rest.OF_PEOPLE:
            if route.startswith("get"):
                for caller in self.callers:
                    with self.subTest(request=route, caller=caller.name):
                        self.judge(rest.people_ask(self.world, route), caller)
            else:
                self.judge_write(partial(rest.people_ask, self.world, route))

    def test_who_is_not_known_writes_nothing(self) -> None:
        for route in rest.WRITES:
            ask = rest.project_write(self.world, route)
            for caller in nobodies():
                with self.subTest(request=ask.label, caller=caller.name):
                    [reply] = self.unchanged(partial(self.send, ask, caller))
                    self.assertEqual(reply.status, 401, reply.text[:300])
                    self.assert_keeps(reply, caller, asked=ask.address)


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


class PageMatrix(MatrixTestCase):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.callers = [*(caller for caller in cls.callers if caller.is_person), nobodies()[0]]

    def get(self, caller: Caller, address: str) -> Reply:
        return Reply.of(caller.client.get(address))

    def post(self, caller: Caller, address: str, fields: dict[str, Any]) -> Reply:
        return Reply.of(caller.client.post(address, fields))

    def listed(self, path: str, caller: Caller) -> str:
        """Return the names of places that a page may have: those who manage people see which places there are."""
        is_of_people = path.startswith(("people", "tokens")) and Act.ADMINISTER in caller.hub
        return " ".join(PLACES) if is_of_people else ""

    def assert_hidden(self, caller: Caller, address: str, name: str, send: Callable[[str], Reply]) -> None:
        """Check that a page of a place that the caller may not see is as that of one that does not exist."""
        nowhere = NOWHERE[name]
        reply, elsewhere = self.unchanged(lambda: send(address), lambda: send(address.replace(name, nowhere)))
        self.assertIn(reply.status, (200, 404) if address.endswith("/login/") else (302, 404), reply.text[:300])
        self.assert_keeps(reply, caller, asked=address)
        self.assertEqual(reply.without(name), elsewhere.without(nowhere))


class PageReadMatrix(PageMatrix):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        # Those that are left out see the same as one that is not, and hide nothing: the forms are sent by all.
        spare = {"hub reviewer", "hub owner", "viewer of org", "reviewer of org"}
        cls.callers = [caller for caller in cls.callers if caller.name not in spare]

    def test_the_pages_of_a_project(self) -> None:
        self.look_at(OWN, f"/p/{OWN}/")

    def test_the_pages_of_an_organisation(self) -> None:
        self.look_at(OWN_ORG, f"/o/{OWN_ORG}/")

    def look_at(self, name: str, before: str) -> None:
        shown = set()
        for page, path in pages.store_paths(self.world):
            for caller in self.callers:
                with self.subTest(request=path, caller=caller.name):
                    if caller.acts(name):
                        reply = self.get(caller, f"{before}{path}")
                        self.assertLess(reply.status, 500, reply.text[:600])
                        self.assert_keeps(reply, caller)
                        shown |= {page} if reply.status == 200 else set()
                    else:
                        send = partial(self.get, caller)
                        self.assert_hidden(caller, f"{before}{path}", name, send)
        self.assertGreater(len(shown), 40)

    def test_the_pages_of_the_global_scope(self) -> None:
        for _, path in pages.store_paths(self.world):
            for caller in self.callers:
                if not caller.acts(GLOBAL):
                    with self.subTest(request=path, caller=caller.name):
                        [reply] = self.unchanged(partial(self.get, caller, f"/global/{path}"))
                        self.assertIn(reply.status, (200, 404) if path.endswith("login/") else (302, 403, 404))
                        self.assert_keeps(reply, caller, asked=f"/global/{path} {GLOBAL}")

    def test_the_pages_of_the_hub(self) -> None:
        for path in pages.HUB_READS:
            for caller in self.callers:
                with self.subTest(request=path, caller=caller.name):
                    reply = self.get(caller, f"/{path}")
                    self.assertIn(reply.status, (200, 302, 403), reply.text[:300])
                    self.assert_keeps(reply, caller, asked=self.listed(path, caller))


class PageWriteMatrix(PageMatrix):
    def test_the_forms_of_a_project(self) -> None:
        for name in pages.FORMS:
            self.judge(partial(pages.form, self.world, name), OWN, f"/p/{OWN}/")

    def test_the_forms_of_the_hub(self) -> None:
        for name in pages.HUB_FORMS:
            self.judge(partial(pages.hub_form, self.world, name), "", "/")

    def test_those_who_manage_people_make_no_token_that_reads_more_than_they_do(self) -> None:
        caller = next(caller for caller in self.callers if caller.name == "administrator")
        for reach in ({"reach": "hub"}, {"reach": "some", "projects": [OWN]}, {"reach": "some", "orgs": [OWN_ORG]}):
            with self.subTest(reach=reach):
                self.unchanged(partial(self.post, caller, "/tokens", {**pages.TOKEN, **reach, "name": "a"}))

    def judge(self, make: Callable[[], Form], place: str, before: str) -> None:
        form = make()
        may = [caller for caller in self.callers if form.act in caller.acts(place)]
        for caller in [caller for caller in self.callers if caller not in may]:
            with self.subTest(request=form.name, caller=caller.name):
                address = f"{before}{form.path}"
                if place and not caller.acts(place):
                    send = partial(self.post, caller, fields=form.fields)
                    self.assert_hidden(caller, address, place, send)
                    continue
                [reply] = self.unchanged(partial(self.post, caller, address, form.fields))
                self.assertIn(reply.status, (200, 302, 403, 404), reply.text[:300])
                self.assert_keeps(reply, caller, asked=self.listed(form.path, caller))
        for number, caller in enumerate(may):
            with self.subTest(request=form.name, caller=caller.name):
                mine = make() if number else form
                state = self.folder.state()
                reply = self.post(caller, f"{before}{mine.path}", mine.fields)
                self.assertIn(reply.status, (200, 302), reply.text[:600])
                self.assertNotEqual(self.folder.state(), state, f"the form changed nothing: {_said(reply)}")


def _said(reply: Reply) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", reply.text.partition("<main")[2]).split())[:300]


class InventoryMatrix(MatrixTestCase):
    def test_every_route_is_asked_for(self) -> None:
        self.assertEqual(rest.uncovered(), [], "add them to rest_requests.py")

    def test_every_tool_and_resource_is_called(self) -> None:
        load_tools()
        self.assertEqual(mcp.uncovered(), [], "add them to mcp_requests.py")

    def test_every_page_is_looked_at(self) -> None:
        self.assertEqual(pages.uncovered() + pages.uncovered_of_hub(), [], "add them to page_requests.py")
