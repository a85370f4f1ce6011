"""Every route of REST by every caller: nothing is seen or changed without the right to it (decision 71)."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from memoryhub.core.permissions import Act
from memoryhub.mcp.registry import load_tools
from tests.permissions import hub_page_requests as hub_pages
from tests.permissions import mcp_requests as mcp
from tests.permissions import page_requests as pages
from tests.permissions import rest_requests as rest
from tests.permissions.callers import Caller, nobodies
from tests.permissions.matrix import MatrixTestCase, Reply
from tests.permissions.rest_requests import Ask
from tests.permissions.rest_writes import WRITES
from tests.permissions.world import NOWHERE, PLACES


class InventoryMatrix(MatrixTestCase):
    def test_every_route_is_asked_for(self) -> None:
        self.assertEqual(rest.uncovered(), [], "add them to rest_writes.py or rest_requests.py")

    def test_every_tool_and_resource_is_called(self) -> None:
        load_tools()
        self.assertEqual(mcp.uncovered(), [], "add them to mcp_requests.py")

    def test_every_page_is_looked_at(self) -> None:
        self.assertEqual(pages.uncovered(), [], "add them to page_requests.py")
        self.assertEqual(hub_pages.uncovered(), [], "add them to hub_page_requests.py")


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
                with self.changing():
                    self.assert_allowed(mine, caller)


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
                ask = Ask(route, "GET", f"{rest.PREFIX}{route.split()[1].format(code='invalid')}", Act.VIEW, "")
                with self.subTest(request=route, caller=caller.name):
                    [reply] = self.unchanged(partial(self.send, ask, caller))
                    self.assert_keeps(reply, caller)
                    may = caller.is_whole if route in rest.WHOLE_HUB else bool(caller.acts("")) or route in rest.OPEN
                    self.assertEqual(reply.status == 200, may or bool(caller.at and route in rest.LISTS))

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
        for route in WRITES:
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
        for route in WRITES:
            ask = rest.project_write(self.world, route)
            for caller in nobodies():
                with self.subTest(request=ask.label, caller=caller.name):
                    [reply] = self.unchanged(partial(self.send, ask, caller))
                    self.assertEqual(reply.status, 401, reply.text[:300])
                    self.assert_keeps(reply, caller, asked=ask.address)
