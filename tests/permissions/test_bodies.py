"""A valid request of every route that writes, changed in one field: nothing is changed when it is refused."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from memoryhub.rest.api import api
from tests.permissions import rest_requests as rest
from tests.permissions.callers import Caller
from tests.permissions.matrix import Reply
from tests.permissions.rest_requests import Ask
from tests.permissions.rest_writes import MEMORIES, WRITES
from tests.permissions.test_matrix import RestMatrix
from tests.permissions.world import OTHER, OWN, OWN_ORG, SISTER
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


@cache
def _schema() -> dict[str, Any]:
    return dict(api.get_openapi_schema())


@cache
def fields_of(route: str) -> frozenset[str]:
    """Return the fields of a route's body; none if it takes no body, or any object."""
    method, path = route.split()
    body = _schema()["paths"][f"{rest.PREFIX}{path}"][method].get("requestBody")
    return _fields(body["content"]["application/json"]["schema"]) if body else frozenset()


def _fields(schema: dict[str, Any]) -> frozenset[str]:
    if "$ref" in schema:
        return _fields(_schema()["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    parts = [schema["items"]] if "items" in schema else schema.get("anyOf", [])
    return frozenset(schema.get("properties", {})).union(*map(_fields, parts))


def changed(body: Any, name: str, value: Any) -> Any:
    if isinstance(body, list):
        return [changed(body[0], name, value)]
    return {**(body or {}), name: value}


class BodyMatrix(RestMatrix):
    def writes(self) -> Iterator[Ask]:
        """Yield a valid request of each route with a body, the reads among them too."""
        asks = itertools.chain(
            (rest.project_write(self.world, route) for route in WRITES),
            (rest.hub_ask(self.world, route) for route in rest.OF_HUB),
            (rest.people_ask(self.world, route) for route in rest.OF_PEOPLE),
            rest.project_asks(self.world),
        )
        return (ask for ask in asks if fields_of(ask.label))

    def caller(self, name: str) -> Caller:
        return next(caller for caller in self.callers if caller.name == f"token {name}")

    def send_text(self, ask: Ask, caller: Caller, text: str) -> tuple[Reply, list[str]]:
        """Send a body; return the answer and what has changed, which is nothing if it was refused."""
        headers = {"host": "localhost", "authorization": f"Bearer {caller.token}"}
        before = self.folder.state()
        answer = caller.client.generic(ask.method, ask.address, text, "application/json", headers=headers)
        reply, changes = Reply.of(answer), self.changed_since(before)
        self.assertLess(reply.status, 500, reply.text[:600])
        if reply.status >= 400:
            self.assertEqual(changes, [], reply.text[:600])
        return reply, changes

    def test_values_that_are_odd_are_refused_in_a_sentence_or_taken(self) -> None:
        owner, turn = self.caller("hub-admin"), itertools.cycle(HOSTILE)
        for ask in self.writes():
            for name in sorted(fields_of(ask.label)):
                for label in HOSTILE if is_long() else [next(turn)]:
                    with self.subTest(request=ask.label, field=name, value=label):
                        text = json.dumps(changed(ask.body, name, _MARK)).replace(f'"{_MARK}"', HOSTILE[label])
                        reply, _ = self.send_text(ask, owner, text)
                        self.assertTrue(reply.status < 400 or 0 < len(json.loads(reply.text)["detail"]) < 1_000)

    def test_a_field_that_the_hub_decides_itself_is_refused(self) -> None:
        owner = self.caller("hub-admin")
        for ask in self.writes():
            for name in RESERVED.keys() - fields_of(ask.label):
                with self.subTest(request=ask.label, field=name):
                    self.assert_is_unknown(ask, owner, name)
        # The check would notice a route that takes such a field.
        note = rest.project_write(self.world, f"post {MEMORIES}")
        with self.assertRaises(AssertionError):
            self.assert_is_unknown(note, owner, "author")

    def assert_is_unknown(self, ask: Ask, caller: Caller, name: str) -> None:
        reply, _ = self.send_text(ask, caller, json.dumps(changed(ask.body, name, RESERVED[name])))
        self.assertEqual(reply.status, 422, reply.text[:600])
        self.assertIn(f"{name}' is not known", reply.text)

    def test_what_a_body_says_of_its_author_is_not_who_wrote_it(self) -> None:
        owner = self.caller("own-admin")
        for ask in self.writes():
            for name in fields_of(ask.label) & {"author", "source"}:
                last = max(event["position"] for event in self.events())
                reply, _ = self.send_text(ask, owner, json.dumps(changed(ask.body, name, "owner")))
                for event in self.events():
                    if reply.status < 400 and event["position"] > last:
                        with self.subTest(request=ask.label, field=name):
                            self.assertEqual((event["actor"], event["source"]), ("token:own-admin", "rest"))

    def events(self) -> list[dict[str, Any]]:
        return list(self.world.send("GET", f"projects/{OWN}/events?limit=20")["results"])

    def test_an_id_of_another_place_reaches_nothing_there(self) -> None:
        ids = self.world.ids[OTHER]
        qualified = [f"{OTHER}#1", f"{SISTER}#1", f"org#{2**40}", f"project:{OTHER}", f"../{OTHER}", OTHER]
        values = [*qualified, *(ids.values() if is_long() else (ids["session_id"], ids["sha"], 2**40))]
        for caller in map(self.caller, ("own-admin", "own-write")):
            for ask in self.writes():
                for name, value in itertools.product(sorted(fields_of(ask.label) & IDS), values):
                    with self.subTest(request=ask.label, caller=caller.name, field=name, value=value):
                        reply, changes = self.send_text(ask, caller, json.dumps(changed(ask.body, name, value)))
                        self.assert_keeps(reply, caller, asked=f"{ask.address} {value}")
                        elsewhere = [change for change in changes if any(map(change.count, (OTHER, SISTER, "global")))]
                        self.assertEqual(elsewhere, [])
