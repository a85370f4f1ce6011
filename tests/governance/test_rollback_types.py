from __future__ import annotations

from typing import Any
from unittest import mock

from django.core.exceptions import ImproperlyConfigured

from governance.staleness.schemas import Affirm
from governance.staleness.services import affirm
from memories.pack import pack_context
from memories.schemas import MemoryGet, MemorySearch
from memories.schemas.query import ContextPackRequest
from memories.selectors import get_memories, search
from memories.uses.drain import count_uses
from memoryhub.core import log
from memoryhub.core.events import event_types as registry
from memoryhub.core.events import rollback
from memoryhub.core.events.event_types import (
    EventGroup,
    Retention,
    define_event,
    event_type,
    event_types,
    require_effects,
    types_that_change_streams,
)
from memoryhub.core.events.rollback import Effect, Values, reverses, sets_aside, stays
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.core.schemas import Payload
from memoryhub.core.stores import rows
from tests.governance.rollback_case import ROLLED_BACK, RollbackTestCase

# Protection is read from the headers of events, so that the payload does not matter.
_COPY = """
INSERT INTO raw_events (position, event_id, project_id, session_id, turn_id, stream_id, stream_seq, event_type,
    event_version, occurred_at, actor, source, payload_json, payload_digest, chain_digest, salt, trace_id)
SELECT (SELECT max(position) + 1 FROM raw_events), 'id-of-' || %s, project_id, 's-good', turn_id, stream_id,
    (SELECT max(stream_seq) + 1 FROM raw_events r WHERE r.stream_id = e.stream_id), %s,
    event_version, occurred_at, 'ada', source, NULL, payload_digest, chain_digest, NULL, trace_id
FROM raw_events e WHERE position = %s
"""


class Invented(Payload):
    memory_id: int = 0


# What a type must declare, for the tests to leave one part out.
COMPLETE = {
    "label": "Invented",
    "group": EventGroup("invented", "Invented", 1_000),
    "retention": Retention.KEPT,
    "rollback": stays("it only counts"),
    "changes_stream": False,
}
invent: Any = define_event


def product_types() -> list[str]:
    return [known.name for known in event_types() if not known.schema.__module__.startswith("tests.")]


class DeclarationTests(RollbackTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(mock.patch.dict(registry._types))
        rollback.effects()  # imports the product's, which must outlive this test
        self.enterContext(mock.patch.dict(rollback._effects))

    def assert_refused(self, *parts: str, **declared: Any) -> None:
        with self.assertRaises(ImproperlyConfigured) as refused:
            invent("invented.one", Invented, **declared)
        for part in ("invented.one", *parts):
            self.assertIn(part, str(refused.exception))
        self.assertIsNone(event_type("invented.one"))

    def test_a_type_that_leaves_something_undeclared_is_refused_by_name(self) -> None:
        for name in COMPLETE:
            self.assert_refused(repr(name), **{key: value for key, value in COMPLETE.items() if key != name})
        self.assert_refused(*map(repr, COMPLETE))
        self.assert_refused("'nouns'", **{**COMPLETE, "retention": Retention.CAPTURED})
        invent("invented.one", Invented, **COMPLETE)

    def test_a_group_of_roll_back_is_declared_once(self) -> None:
        self.assert_refused(
            "'tag.created'", "'tags'", **{**COMPLETE, "rollback": sets_aside("tags", "Others", order=1)}
        )
        with self.assertRaisesMessage(ImproperlyConfigured, "'strange' does not declare its title"):
            sets_aside("strange", "", order=1)
        with self.assertRaisesMessage(ImproperlyConfigured, "needs a reason"):
            stays("")

    def test_a_type_whose_effect_is_not_defined_is_named(self) -> None:
        require_effects()
        for named in ("turn_over", "unrelate"):
            rule = reverses(f"by {named}", "Turned", order=1, by=named)
            invent("invented.turned", Invented, **{**COMPLETE, "rollback": rule})
            with self.assertRaisesMessage(ImproperlyConfigured, f"'invented.turned' names '{named}'"):
                require_effects()

    def test_an_effect_that_leaves_something_undeclared_is_named(self) -> None:
        with self.assertRaisesMessage(ImproperlyConfigured, "effect 'turn_over' does not declare apply, undo, words"):
            Effect("turn_over", 1, "")
        with self.assertRaisesMessage(ImproperlyConfigured, "effect 'turn_over' does not declare apply"):
            Effect("turn_over", 1, "turned over", Values(read=lambda _position, payload: payload))
        with self.assertRaisesMessage(ImproperlyConfigured, "does not declare the effect"):
            reverses("turned", "Turned", order=1)

    def test_what_stays_in_force_is_named_with_its_reason_and_an_unknown_type_too(self) -> None:
        harmless = invent("invented.harmless", Invented, **COMPLETE)
        unknown = invent("invented.unknown", Invented, **COMPLETE)
        self.write("Bad", rolled_back=True)
        with use_origin(**ROLLED_BACK), log.transaction():
            for kind in (unknown, harmless):
                log.append(log.prepare(kind, Invented()), stream="invented")
        del registry._types["invented.unknown"]
        left = {left.title: left.why for left in self.preview().left}
        self.assertEqual(
            {
                "1 × invented.unknown": "this version can't roll back events of this type; they stay in force",
                "1 × invented.harmless": "it only counts",
            },
            left,
        )


class ShieldTests(RollbackTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(mock.patch.dict(registry._types))

    def is_set_aside(self, thing: int) -> bool:
        return thing in {step.id for step in self.preview().steps}

    def protects(self, thing: int, name: str) -> bool:
        self.assertTrue(self.is_set_aside(thing))
        with log.transaction():
            rows.execute("SAVEPOINT later")
            rows.execute(_COPY, [name, name, thing])
            kept = not self.is_set_aside(thing)
            rows.execute("ROLLBACK TO later")
        return kept

    def test_only_the_types_that_say_so_protect_a_memory_or_a_decision(self) -> None:
        invent("memory.cited", Invented, **COMPLETE)
        changing = set(types_that_change_streams())
        for thing in (self.write("Bad", rolled_back=True), self.decide("Bad", rolled_back=True)):
            found = {known.name for known in event_types() if self.protects(thing, known.name)}
            self.assertEqual(changing, found)

    def test_these_are_the_types_that_protect(self) -> None:
        self.assertEqual(
            "conflict.resolved decision.marked decision.recorded memory.deleted memory.restored memory.reviewed "
            "memory.revised memory.written".split(),
            [name for name in types_that_change_streams() if name in product_types()],
        )

    def test_using_citing_packing_affirming_and_writing_it_again_protects_nothing(self) -> None:
        bad = self.write("Bad", rolled_back=True)
        self.write("Bad")
        search(command=MemorySearch(query="bad"))
        get_memories(command=MemoryGet(ids=[bad]))
        pack_context(command=ContextPackRequest(session_id="s-good"))
        count_uses()
        self.write("Citing", tags=["c"], author=f"as #{bad} says")
        affirm(command=Affirm(id=bad))
        names = set(RawEvent.objects.filter(actor="ada").values_list("event_type", flat=True))
        self.assertLessEqual({"memory.seen", "memories.used", "context.packed", "thing.affirmed"}, names)
        self.assertTrue(self.is_set_aside(bad))
