"""Every event type declares how roll-back treats it, and whether it protects the thing that it happened to."""

from __future__ import annotations

from unittest import mock

from governance.staleness.schemas import Affirm
from governance.staleness.services import affirm
from governance.taint.direct import GROUPS
from memories.pack import pack_context
from memories.schemas import MemoryGet, MemorySearch
from memories.schemas.pack import ContextPackRequest
from memories.selectors import get_memories, search
from memories.uses.drain import count_uses
from memoryhub.core import log, projection, rows
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.core.projection import (
    RollbackEffect,
    define_event,
    event_type,
    event_type_names,
    reverses,
    sets_aside,
    stays,
    types_that_change_streams,
)
from memoryhub.core.schemas import Payload
from tests.governance.taint import TAINTED, TaintTestCase

# Groups that are worked out from events of other groups, or hold those of none.
_WORKED_OUT = {"conflicts", "other"}
# What undo knows how to reverse.
_REVERSIBLE = {
    *("memories_revised", "memories_deleted", "memories_restored", "reviews"),
    *("relations_removed", "settings", "profile", "marks"),
}
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
    """The payload of types that exist in these tests only."""

    memory_id: int = 0


def product_types() -> list[str]:
    """Return the names of all types but those that tests define."""
    names = event_type_names()
    return [name for name in names if (known := event_type(name)) and not known.schema.__module__.startswith("tests.")]


def faults(names: list[str]) -> list[str]:
    """Return what the declarations of these types lack."""
    return [f"{name}: {fault}" for name in names if (fault := _fault(name))]


def _fault(name: str) -> str:
    known = event_type(name)
    if known is None or known.rollback is None:
        return "define_event() needs rollback="
    if known.changes_stream is None:
        return "define_event() needs changes_stream="
    rule = known.rollback
    grouped = rule.effect in (RollbackEffect.SET_ASIDE, RollbackEffect.REVERSED)
    if grouped and rule.group not in GROUPS:
        return f"its roll-back group {rule.group!r} is not one of GROUPS"
    if rule.effect is RollbackEffect.REVERSED and rule.group not in _REVERSIBLE:
        return f"undo does not reverse {rule.group!r}"
    return "stays() needs a reason" if rule.effect is RollbackEffect.STAYS and not rule.why else ""


class DeclarationTests(TaintTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(mock.patch.dict(projection._types))

    def test_every_type_declares_both(self) -> None:
        self.assertEqual([], faults(product_types()))

    def test_a_type_that_declares_too_little_is_named(self) -> None:
        define_event("invented.silent", Invented)
        define_event("invented.half", Invented, rollback=stays("nothing depends on this event"))
        define_event("invented.strange", Invented, rollback=sets_aside("strange"), changes_stream=False)
        define_event("invented.turned", Invented, rollback=reverses("tags"), changes_stream=False)
        found = faults([name for name in event_type_names() if name.startswith("invented.")])
        self.assertEqual(
            [
                "invented.half: define_event() needs changes_stream=",
                "invented.silent: define_event() needs rollback=",
                "invented.strange: its roll-back group 'strange' is not one of GROUPS",
                "invented.turned: undo does not reverse 'tags'",
            ],
            found,
        )

    def test_every_group_has_a_type(self) -> None:
        declared = {known.rollback.group for name in product_types() if (known := event_type(name)) and known.rollback}
        self.assertEqual(set(GROUPS) - _WORKED_OUT, declared - {""})

    def test_what_stays_in_force_is_named_with_its_reason(self) -> None:
        silent = define_event("invented.silent", Invented)
        harmless = define_event("invented.harmless", Invented, rollback=stays("it only counts"), changes_stream=False)
        self.write("Bad", tainted=True)
        with use_origin(**TAINTED), log.transaction():
            for each in (silent, harmless):
                log.append(log.prepare(each, Invented()), stream="invented")
        left = {each.title: each.why for each in self.preview().left}
        self.assertEqual(
            {
                "1 × invented.silent": "this version does not know how to roll back events of this type; they stay in "
                "force",
                "1 × invented.harmless": "it only counts",
            },
            left,
        )


class ShieldTests(TaintTestCase):
    """A later event by others protects a poisoned thing only if it changed that thing."""

    def setUp(self) -> None:
        super().setUp()
        self.enterContext(mock.patch.dict(projection._types))

    def is_set_aside(self, thing: int) -> bool:
        return thing in {step.id for step in self.preview().steps}

    def protects(self, thing: int, name: str) -> bool:
        """Whether a clean caller's event of this type, the last of the thing's stream, keeps the thing in force."""
        self.assertTrue(self.is_set_aside(thing))
        with log.transaction():
            rows.execute("SAVEPOINT later")
            rows.execute(_COPY, [name, name, thing])
            kept = not self.is_set_aside(thing)
            rows.execute("ROLLBACK TO later")
        return kept

    def test_only_the_types_that_say_so_protect_a_memory_or_a_decision(self) -> None:
        define_event("memory.cited", Invented, rollback=stays("it only counts"), changes_stream=False)
        define_event("memory.retrieved", Invented)
        changing = set(types_that_change_streams())
        for thing in (self.write("Bad", tainted=True), self.decide("Bad", tainted=True)):
            found = {name for name in event_type_names() if self.protects(thing, name)}
            self.assertEqual(changing, found)

    def test_these_are_the_types_that_protect(self) -> None:
        self.assertEqual(
            "conflict.resolved decision.marked decision.recorded memory.deleted memory.restored memory.reviewed "
            "memory.revised memory.written".split(),
            [name for name in types_that_change_streams() if name in product_types()],
        )

    def test_using_citing_packing_affirming_and_writing_it_again_protects_nothing(self) -> None:
        bad = self.write("Bad", tainted=True)
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
