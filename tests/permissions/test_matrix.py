"""Every request by every caller, at each door: nothing is seen or changed without the right to it (decision 71)."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, ClassVar
from unittest import mock

from django.test import SimpleTestCase, tag

from memoryhub.core.permissions import Act
from memoryhub.core.stores import store
from memoryhub.mcp.listing import load_tools
from tests.permissions import mcp_requests as mcp
from tests.permissions import page_requests as pages
from tests.permissions import rest_requests as rest
from tests.permissions.callers import Caller
from tests.permissions.matrix import MatrixTestCase, Reply, Request
from tests.permissions.mcp_door import McpDoor
from tests.permissions.world import GLOBAL, NOWHERE, OTHER, OWN, OWN_ORG, SISTER
from tests.torture.rounds import is_long

# JSON texts by what is odd about them
HOSTILE = {
    "not a number": "NaN",
    "infinity": "-Infinity",
    "minus zero": "-0",
    "too large for a float": "1e400",
    "65 bits": str(2**64),
    "5,000 digits": "9" * 5_000,
    "fraction": "0.5",
    "NUL": '"a\\u0000b"',
    "unpaired surrogate": '"a\\ud800b"',
    "a million characters": f'"{"x" * 1_000_000}"',
    "more than 2 MiB": f'"{"x" * (2 << 20)}"',
    "list of 1,000 levels": "[" * 1_000 + "]" * 1_000,
    "object of 100,000 levels": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "a name twice": '{"a": 1, "a": 2}',
    "100,000 items": "[" + ",".join(["1"] * 100_000) + "]",
    "null": "null",
    "empty text": '""',
    "text from right to left": '"\\u202egpj.exe"',
}
# What the hub decides itself
RESERVED: dict[str, Any] = {
    "actor": "owner",
    "project_id": OTHER,
    "org_id": OWN_ORG,
    "session_id": "elsewhere",
    "author": "owner",
    "source": "admin",
    "status": "approved",
    "occurred_at": "2001-01-01T00:00:00Z",
    "trace_id": "0" * 32,
    "position": 1,
    "store": f"project:{OTHER}",
    "grant": ["administer"],
    "is_superuser": True,
}
# Fields that name something by its id
IDS = {"id", "entry", "project_id", "session_id", "source", "stream_id", "supersedes", "target", "to"}
_MARK = "@value@"


class InventoryTests(SimpleTestCase):
    def test_every_page_has_a_form_or_a_reason_to_have_none(self) -> None:
        self.assertEqual(pages.uncovered(), [], "add them to page_requests.py")

    def test_every_resource_has_an_address(self) -> None:
        load_tools()
        self.assertEqual(mcp.uncovered(), [], "add them to mcp_requests.py")


class RestDoor(MatrixTestCase):
    def send(self, request: Request, caller: Caller) -> Reply:
        return self.send_text(request, caller, "" if request.body is None else json.dumps(request.body))

    def send_text(self, request: Request, caller: Caller, text: str) -> Reply:
        headers = {"host": "localhost"} | ({"authorization": f"Bearer {caller.token}"} if caller.token else {})
        return Reply.of(caller.client.generic(request.method, request.path, text, "application/json", headers=headers))

    def check_allowed(self, reply: Reply, request: Request, caller: Caller) -> None:
        self.assert_status(reply, 200, 201, 202, 204)

    def check_denied(self, reply: Reply, request: Request, caller: Caller) -> None:
        self.assert_status(reply, *((403, 404) if caller.is_known else (401,)))
        self.assertFalse(not caller.is_known and request.where in reply.text + reply.head and request.where, reply.text)


class RestMatrix(RestDoor):
    def test_every_route(self) -> None:
        for route in rest.routes():
            self.judge(partial(rest.request, self.world, route))

    def test_what_is_written_elsewhere(self) -> None:
        for number in range(len(rest.SPECIAL)):
            self.judge(partial(rest.special, self.world, number))

    def test_a_name_in_a_parameter_is_no_way_round(self) -> None:
        for number, (place, *_) in enumerate(rest.NAMING):
            request, other = (rest.naming(self.world, number, name) for name in (place, NOWHERE[place]))
            callers = [caller for caller in self.callers if caller.is_known and place not in caller.seen]
            self.judge_naming(request, place, other, callers)

    def test_a_missing_check_is_noticed(self) -> None:
        strangers = [caller for caller in self.callers if caller.at and not caller.acts(OWN)]
        with mock.patch.object(store, "_require_reach", _nothing), self.assertRaises(AssertionError):
            for request in rest.project_reads(self.world):
                self.assert_denied(request, strangers[0])
        # Of what a reviewer sees, only this is checked nowhere else.
        reviewer = self.caller("hub reviewer")
        request = rest.request(self.world, "post hooks/{client}/{event}")
        self.folder.changes()
        with mock.patch("memoryhub.rest.auth.demand", _nothing), self.assertRaises(AssertionError):
            self.assert_denied(request, reviewer)


class BodyMatrix(RestDoor):
    """A valid request of every route with a body, changed in one field: nothing is changed when it is refused."""

    @cached_property
    def requests(self) -> list[Request]:
        return [rest.request(self.world, route) for route in rest.routes() if rest.fields_of(route)]

    def send_changed(self, request: Request, caller: Caller, text: str) -> tuple[Reply, list[str]]:
        """Send a body; return the answer and what has changed, which is nothing if it was refused."""
        self.folder.changes()
        reply = self.send_text(request, caller, text)
        changes = self.folder.changes()
        if reply.status >= 500 or (reply.status >= 400 and changes):
            self.fail(f"{reply.status}, changed {changes}: {reply.text[:300]}")
        return reply, changes

    def test_values_that_are_odd_are_refused_in_a_sentence_or_taken(self) -> None:
        owner, turn = self.caller("token hub-admin"), itertools.cycle(HOSTILE)
        for request in self.requests:
            for name in sorted(rest.fields_of(request.label)):
                for label in HOSTILE if is_long() else [next(turn)]:
                    with self.subTest(request=request.label, field=name, value=label):
                        text = json.dumps(changed(request.body, name, _MARK)).replace(f'"{_MARK}"', HOSTILE[label])
                        reply, _ = self.send_changed(request, owner, text)
                        self.assertTrue(reply.status < 400 or 0 < len(json.loads(reply.text)["detail"]) < 1_000)

    def test_a_field_that_the_hub_decides_itself_is_refused(self) -> None:
        owner, turn = self.caller("token hub-admin"), itertools.count()
        for request in self.requests:
            names = sorted(RESERVED.keys() - rest.fields_of(request.label))
            for name in names if self.is_whole else [names[next(turn) % len(names)]]:
                with self.subTest(request=request.label, field=name):
                    self.assert_is_unknown(request, owner, name)
        # The check would notice a route that takes such a field.
        note = rest.request(self.world, f"post {rest.MEMORIES}")
        with self.assertRaises(AssertionError):
            self.assert_is_unknown(note, owner, "author")

    def assert_is_unknown(self, request: Request, caller: Caller, name: str) -> None:
        reply, _ = self.send_changed(request, caller, json.dumps(changed(request.body, name, RESERVED[name])))
        self.assert_status(reply, 422)
        self.assertIn(f"{name}' is not known", reply.text)

    def test_what_a_body_says_of_its_author_is_not_who_wrote_it(self) -> None:
        owner, seen = self.caller("token own-admin"), 0
        for route, name in itertools.product(rest.routes(), ("author", "source")):
            if name not in rest.fields_of(route) or not rest.writes(route):
                continue
            request = rest.request(self.world, route)
            last = self.world.send("GET", f"projects/{OWN}")["events"]
            self.send_changed(request, owner, json.dumps(changed(request.body, name, "owner")))
            for event in self.world.send("GET", f"projects/{OWN}/events?after={last}")["results"]:
                seen += 1
                with self.subTest(request=route, field=name):
                    self.assertEqual((event["actor"], event["source"]), ("token:own-admin", "rest"))
        self.assertGreater(seen, 0)

    def test_an_id_of_another_place_reaches_nothing_there(self) -> None:
        ids, turn = self.world.ids[OTHER], itertools.count()
        qualified = [f"{OTHER}#1", f"{SISTER}#1", f"org#{2**40}", f"project:{OTHER}", f"../{OTHER}", OTHER]
        values = [*qualified, *(ids.values() if is_long() else (ids["session_id"], ids["sha"], 2**40))]
        for caller, request in itertools.product(
            map(self.caller, ("token own-admin", "token own-write")), self.requests
        ):
            for name in sorted(rest.fields_of(request.label) & IDS):
                for value in values if self.is_whole else [values[next(turn) % len(values)]]:
                    with self.subTest(request=request.label, caller=caller.name, field=name, value=value):
                        text = json.dumps(changed(request.body, name, value))
                        reply, changes = self.send_changed(request, caller, text)
                        self.assert_keeps(reply, caller, f"{request.path} {value}")
                        elsewhere = [change for change in changes if any(map(change.count, (OTHER, SISTER, "global")))]
                        self.assertEqual(elsewhere, [])


class McpMatrix(MatrixTestCase):
    door: ClassVar[McpDoor]
    # Sessions of the older revisions, which begin with a handshake, by token and project
    sessions: ClassVar[dict[tuple[str, str], str]]
    in_session = False

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        load_tools()
        cls.callers = [Caller("no token"), *(caller for caller in cls.callers if caller.token)]
        cls.sessions = {}
        cls.door = McpDoor()
        cls.addClassCleanup(cls.door.close)

    def send(self, request: Request, caller: Caller) -> Reply:
        project = request.path.split("/")[2]
        if not self.in_session:
            return self.door.ask(project, caller.token, request.method, request.body)
        if (caller.token, project) not in self.sessions:
            refusal, session = self.door.begin(project, caller.token)
            if not session:
                return refusal
            self.sessions[caller.token, project] = session
        session = self.sessions[caller.token, project]
        return self.door.ask_in(session, project, caller.token, request.method, request.body)

    def check_allowed(self, reply: Reply, request: Request, caller: Caller) -> None:
        self.assert_status(reply, 200)
        if found := re.search('"isError":true|"error":', reply.text):
            self.fail(f"{request.body}: {reply.text[max(found.start() - 200, 0) :][:400]}")

    def check_denied(self, reply: Reply, request: Request, caller: Caller) -> None:
        if not caller.is_known:
            self.assert_status(reply, 401)
            self.assertNotIn(OWN, reply.text + reply.head)
        elif request.is_hidden_from(caller):
            self.assert_status(reply, 401, 403, 404)
        elif not re.search(r"forbidden: |not_found: ", reply.text):
            self.fail(f"it is not refused: {reply.status} {reply.text[:300]}")

    def judge(self, make: Callable[[], Request]) -> None:
        """Judge it in the newest revision and in a session of an older one; in the quick form by turns."""
        for in_session in (False, True) if self.is_whole else (self._turn % 2 == 1,):
            with mock.patch.object(self, "in_session", in_session):
                super().judge(make)

    def test_what_a_project_shows(self) -> None:
        for request in mcp.reads(self.world):
            self.judge(partial(_same, request))

    def test_what_a_session_follows(self) -> None:
        with mock.patch.object(self, "in_session", True):
            for request in mcp.subscriptions(self.world):
                super().judge(partial(_same, request))

    def test_what_tools_write(self) -> None:
        for tool in mcp.tools():
            if tool.writes:
                self.judge(partial(mcp.write, self.world, tool))

    def test_what_tools_write_elsewhere(self) -> None:
        for number in range(len(mcp.SPECIAL)):
            self.judge(partial(mcp.special, self.world, number))

    def test_a_name_in_an_argument_is_no_way_round(self) -> None:
        for number, (place, *_) in enumerate(mcp.NAMING):
            request, other = (mcp.naming(number, name) for name in (place, NOWHERE[place]))
            callers = [caller for caller in self.callers if caller.acts(OWN) and place not in caller.seen]
            self.judge_naming(request, place, other, callers)

    def test_the_name_of_another_project_in_a_resource_is_no_way_round(self) -> None:
        callers = [caller for caller in self.callers if caller.acts(OWN) and OTHER not in caller.seen]
        methods = ("resources/read", "resources/subscribe", "subscriptions/listen")
        for method, uri in itertools.product(methods, mcp.URIS_NAMING):
            request, other = (mcp.naming_resource(method, uri, name) for name in (OTHER, NOWHERE[OTHER]))
            with mock.patch.object(self, "in_session", method == "resources/subscribe"):
                for reply in self.judge_naming(request, OTHER, other, callers):
                    self.assertIn('"error":', reply.text, request.label)

    def test_a_session_is_one_tokens_and_one_projects(self) -> None:
        request, begin = mcp.method("tools/list", {}), partial(self.door.begin, OWN)
        owner = self.caller("token hub-admin")
        session = begin(owner.token)[1]
        others = [(caller, OWN) for caller in self.callers if caller.is_known and caller is not owner]
        for caller, project in [*others, (owner, SISTER)]:
            for verb in ("POST", "GET", "DELETE"):
                with self.subTest(caller=caller.name, project=project, verb=verb):
                    use = partial(self.door.ask_in, project=project, token=caller.token, params={}, verb=verb)
                    reply, never = (use(name, method=request.method) for name in (session, "0" * 32))
                    self.assert_unchanged(reply)
                    self.assertEqual((reply.status, reply), (404, never))
        self.assertEqual(self.door.ask_in(session, OWN, owner.token, request.method, {}).status, 200)

    def test_a_stream_is_opened_by_those_who_see_the_project(self) -> None:
        request = mcp.listening()
        for caller in self.callers:
            with self.subTest(caller=caller.name):
                if request.is_for(caller):
                    stream = self.door.listen(OWN, caller.token, request.body)
                    self.assertEqual(stream.next()["method"], "notifications/subscriptions/acknowledged")
                    stream.close()
                else:
                    self.assert_denied(request, caller)
                    refusal, session = self.door.begin(OWN, caller.token)
                    self.assertEqual((session, refusal.status == 401), ("", not caller.is_known))

    def test_nobody_is_notified_of_what_another_project_changed(self) -> None:
        reader = self.caller("token own-read")
        first, last = self.world.memory(), self.world.memory()
        elsewhere = self.world.memory(SISTER)
        while elsewhere < first:
            elsewhere = self.world.memory(SISTER)
        self.assertEqual(elsewhere, first)
        uris = [f"memories://get/{number}" for number in (first, last)]
        listening = self.door.listen(OWN, reader.token, mcp.listening(*uris).body)
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

    def test_a_missing_check_is_noticed(self) -> None:
        reader = next(caller for caller in self.callers if caller.acts(OWN) == {Act.VIEW})
        with mock.patch("memoryhub.core.log.append.demand", _nothing), self.assertRaises(AssertionError):
            for tool in mcp.tools():
                if tool.writes:
                    request = mcp.write(self.world, tool)
                    self.folder.changes()
                    self.assert_denied(request, reader)


class PageMatrix(MatrixTestCase):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.callers = [caller for caller in cls.callers if not caller.token]

    def send(self, request: Request, caller: Caller) -> Reply:
        if request.method == "GET":
            return Reply.of(caller.client.get(request.path))
        return Reply.of(caller.client.post(request.path, request.body))

    def check_allowed(self, reply: Reply, request: Request, caller: Caller) -> None:
        if request.writes:
            self.assert_status(reply, 200, 302)
        elif request.place:  # of a sample, there may be no such row or action
            self.assertLess(reply.status, 500, reply.text[:300])
            self.shown += [request.path] if reply.status == 200 else []
        else:
            self.assert_status(reply, 200)
        if GLOBAL not in caller.at:
            self.assertFalse("/global/" in reply.text and not request.place, "it links to the global scope")
        if request.method == "GET" and request.place and caller.acts(request.place) == {Act.VIEW}:
            self.assertEqual(_buttons(reply), [])

    def check_denied(self, reply: Reply, request: Request, caller: Caller) -> None:
        if request.path.endswith("/login/"):
            self.assert_status(reply, 200, 404)
        elif request.is_hidden_from(caller) and request.place != GLOBAL:
            self.assert_status(reply, 302, 404)
        elif request.method == "GET" and not request.place:
            self.assert_status(reply, 403 if caller.is_known else 302)
        else:
            self.assert_status(reply, *((302, 403, 404) if request.method == "GET" else (200, 302, 403, 404)))

    def test_the_pages_of_places(self) -> None:
        """Look at each page of a project; in the quick form, at some of other scopes."""
        self.shown: list[str] = []
        for number, (_, path) in enumerate(pages.store_paths(self.world)):
            wider = (OWN_ORG, GLOBAL) if self.is_whole else ((OWN_ORG, GLOBAL)[number % 8 :][:1])
            for place in (OWN, *wider):
                self.judge(partial(pages.page, path, place))
        self.assertGreater(len(self.shown), 40)

    def test_the_pages_of_the_hub(self) -> None:
        for path, act in pages.HUB_READS.items():
            self.judge(partial(pages.page, path, "", act))

    def test_the_forms_of_places(self) -> None:
        for place, names in ((OWN, pages.FORMS), (OWN_ORG, pages.OF_ORGANISATIONS), (GLOBAL, pages.IN_WIDER_SCOPES)):
            scope = {OWN: "project", OWN_ORG: "org", GLOBAL: "global"}[place]
            for name in names:
                with mock.patch.object(self.world, "scope", scope):
                    self.judge(partial(pages.form, self.world, name, place))

    def test_the_forms_of_the_hub(self) -> None:
        for name in pages.HUB_FORMS:
            self.judge(partial(pages.form, self.world, name, ""))

    def test_no_address_lets_a_viewer_change_anything(self) -> None:
        """Post to every page that no form here is for."""
        viewer = self.caller("hub viewer")
        fields = {"title": "t", "content": "c", "name": "n", "role": "owner", "reason": "r", "status": "rejected"}
        others = [path for name, path in pages.store_paths(self.world) if name not in {*pages.FORMS, "logout"}]
        for path in [*(f"{pages.BEFORE[OWN]}{path}" for path in others), *(f"/{path}" for path in pages.hub_paths())]:
            with self.subTest(path=path):
                reply = Reply.of(viewer.client.post(path, fields))
                self.assertLess(reply.status, 500)
                if path == "/tokens":  # everybody's own
                    self.folder.changes()
                self.assert_unchanged(reply)

    def test_those_who_manage_people_make_no_token_that_reads_more_than_they_do(self) -> None:
        caller = self.caller("administrator")
        for reach in ({"reach": "hub"}, {"reach": "some", "projects": [OWN]}, {"reach": "some", "orgs": [OWN_ORG]}):
            with self.subTest(reach=reach):
                fields = {**pages.TOKEN, **reach, "name": "a"}
                self.assert_unchanged(Reply.of(caller.client.post("/tokens", fields)))

    def test_a_missing_check_is_noticed(self) -> None:
        member = next(caller for caller in self.callers if caller.hub == {Act.VIEW})
        request = pages.form(self.world, "people", "")
        self.folder.changes()
        with mock.patch("memoryhub.web.pages.require", _nothing), self.assertRaises(AssertionError):
            self.assert_denied(request, member)


@tag("attack")
class WholeRestMatrix(RestMatrix):
    is_whole = True


@tag("attack")
class WholeBodyMatrix(BodyMatrix):
    is_whole = True


@tag("attack")
class WholeMcpMatrix(McpMatrix):
    is_whole = True


@tag("attack")
class WholePageMatrix(PageMatrix):
    is_whole = True


def changed(body: Any, name: str, value: Any) -> Any:
    if isinstance(body, list):
        return [changed(body[0], name, value)]
    return {**(body or {}), name: value}


def _buttons(reply: Reply) -> list[str]:
    """Return what a page has to change something with."""
    harmless = ("/signout", "changelist-form", 'class="stack secrets"')  # the last tries a text, no more
    forms = re.findall(r'<form\b[^>]*method="post"[^>]*>', reply.text, re.IGNORECASE)
    links = r'name="do" value="(?!try")|href="[^"]*/(?:add|edit|delete|erase|supersede|describe)/|name="action"'
    return [form for form in forms if not any(each in form for each in harmless)] + re.findall(links, reply.text)


def _same(request: Request) -> Request:
    return request


def _nothing(*_: Any, **__: Any) -> None:
    pass
