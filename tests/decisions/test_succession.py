"""Which decisions supersede others: heirs of every status, and random histories."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar

from django.test import tag
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from decisions import edges, selectors, services
from decisions.models import LINEAGE, Decision, DecisionEdge, EdgeRelation
from decisions.schemas import (
    DecisionLink,
    DecisionMark,
    DecisionRecord,
    DecisionResult,
    DecisionSupersede,
    DecisionUnlink,
)
from decisions.services import record_decision
from memories.pack import pack_context
from memories.schemas import MemorySearch
from memories.schemas.query import ContextPackRequest
from memories.selectors import search
from memoryhub.core import log
from memoryhub.core.errors import ConflictError, Invalid
from memoryhub.core.stores import rows
from tests.decisions.base import DecisionsTestCase


class ProposalTests(DecisionsTestCase):
    def test_a_decision_without_a_choice_is_proposed_and_not_accepted_as_it_is(self):
        earlier = self.record("JSON").id
        result = record_decision(command=DecisionRecord.model_validate({"title": "XML?", "supersedes": [earlier]}))
        view = self.get(result.id)
        self.assertEqual((view["status"], view["chosen"]), ("proposed", ""))
        self.assertEqual(self.get(earlier)["status"], "accepted")
        self.assertRegex(pack_context(command=ContextPackRequest()).body.text, r"decided proposed \S+ XML\?\n")
        with self.assertRaisesRegex(ConflictError, f"#{result.id} names no choice; supersede it"):
            services.mark_decision(command=DecisionMark(id=result.id, status="accepted"))
        with self.assertRaisesRegex(ValueError, "status accepted needs a choice"):
            DecisionRecord.model_validate({"title": "XML?", "status": "accepted"})
        command = DecisionSupersede.model_validate({"id": result.id, "chosen": "XML"})
        chosen = services.supersede_decision(command=command).id
        statuses = [self.get(number)["status"] for number in (earlier, result.id, chosen)]
        self.assertEqual(statuses, ["superseded", "superseded", "accepted"])
        self.assert_rebuilds()


class SupersedeTests(DecisionsTestCase):
    def supersede(self, decision_id: int, chosen: str, **fields: object) -> int:
        command = DecisionSupersede.model_validate({"id": decision_id, "chosen": chosen, **fields})
        return services.supersede_decision(command=command).id

    def test_the_earlier_decision_names_its_head_and_its_text_never_changes(self):
        first = self.record("Port", topic="net", impact="high").id
        before = Decision.objects.filter(id=first).values("title", "chosen", "context").get()
        second = self.supersede(first, "9000", title="Another")
        with self.assertRaisesRegex(ConflictError, f"#{first} is already superseded and #{second} is in force"):
            self.supersede(first, "7000")
        third = self.supersede(second, "7000")
        view = self.get(first)
        state = (view["status"], view["superseded_by"], view["heads"])
        self.assertEqual(state, ("superseded", [second], [third]))
        latest = self.get(third)
        self.assertEqual((latest["title"], latest["topic"], latest["impact"]), ("Another", "net", "high"))
        self.assertEqual(Decision.objects.filter(id=first).values("title", "chosen", "context").get(), before)


class HeirTests(DecisionsTestCase):
    """A decision is retired by one that is accepted, never by one that is only proposed or was rejected."""

    def heir(self, status: str, **fields: Any) -> tuple[int, int]:
        earlier = self.record("JSON").id
        return earlier, self.record("XML", status=status, supersedes=[earlier], **fields).id

    def mark(self, decision_id: int, status: str) -> DecisionResult:
        return services.mark_decision(command=DecisionMark.model_validate({"id": decision_id, "status": status}))

    def state(self, decision_id: int) -> tuple[str, list[int], list[int]]:
        view = self.get(decision_id)
        return view["status"], view["superseded_by"], view["heads"]

    def test_only_an_accepted_heir_retires_an_accepted_decision(self):
        for status in ("proposed", "rejected", "deprecated"):
            with self.subTest(status):
                earlier, heir = self.heir(status)
                self.assertEqual(self.state(earlier), ("accepted", [], []))
                self.assertEqual(edges.heads([earlier]), {earlier: [earlier]})
                self.assertEqual(selectors.lineage_of(earlier)["heads"][0]["id"], earlier)
                self.assertEqual(self.get(heir)["edges"][0]["to"], earlier)
        earlier, heir = self.heir("accepted")
        self.assertEqual(self.state(earlier), ("superseded", [heir], [heir]))
        self.assert_rebuilds()

    @tag("backend")
    def test_what_a_proposal_retired_in_an_earlier_version_is_in_force_again(self):
        retired, _ = self.heir("proposed")
        replaced, _ = self.heir("accepted")
        rows.execute("UPDATE decisions_decision SET status = 'superseded' WHERE id = %s", [retired])
        migration = import_module("decisions.migrations.0002_only_accepted_heirs_retire").Migration
        rows.execute(migration.operations[0].sql.replace("%", "%%"), [])
        self.assertEqual([self.state(decision)[0] for decision in (retired, replaced)], ["accepted", "superseded"])
        self.assert_rebuilds()

    def test_the_acceptance_of_the_heir_retires_it_and_its_rejection_does_not(self):
        earlier, heir = self.heir("proposed")
        self.assertEqual(self.mark(heir, "rejected").superseded, [])
        self.assertEqual(self.state(earlier)[0], "accepted")
        self.assertEqual(self.mark(heir, "accepted").superseded, [earlier])
        self.assertEqual(self.state(earlier), ("superseded", [heir], [heir]))
        self.assertEqual(self.mark(heir, "deprecated").superseded, [])
        self.assertEqual(self.state(earlier), ("superseded", [heir], [heir]))
        self.mark(heir, "rejected")
        self.assertEqual(self.state(earlier), ("accepted", [], []))
        self.assert_rebuilds()

    def test_the_same_holds_for_links_and_for_supersede(self):
        earlier = self.record("JSON").id
        command = DecisionSupersede.model_validate({"id": earlier, "chosen": "XML", "status": "proposed"})
        result = services.supersede_decision(command=command)
        self.assertEqual((result.superseded, result.supersedes_once_accepted), ([], [earlier]))
        other = self.record("YAML", status="rejected").id
        linked = services.link_decisions(command=DecisionLink(id=other, relation="supersedes", to=earlier))
        self.assertEqual((linked.superseded, self.state(earlier)[0]), ([], "accepted"))
        again = self.record("TOML", supersedes=[earlier])
        self.assertEqual(again.superseded, [earlier])
        self.assertEqual(self.state(earlier), ("superseded", [again.id], [again.id]))

    def test_a_proposal_gives_way_to_another_and_both_to_the_accepted_one(self):
        earlier, first = self.heir("proposed")
        second = self.record("XML 2", status="proposed", supersedes=[first]).id
        self.assertEqual(self.state(first), ("superseded", [second], [second]))
        self.assertEqual(self.state(earlier)[0], "accepted")
        self.mark(second, "accepted")
        self.assertEqual(self.state(earlier), ("superseded", [first], [second]))
        self.mark(second, "rejected")
        self.assertEqual([self.state(number)[0] for number in (earlier, first)], ["accepted", "proposed"])
        self.assert_rebuilds()

    def test_packs_and_searches_give_the_decision_in_force_beside_the_proposal(self):
        earlier, heir = self.heir("proposed")
        pack = pack_context(command=ContextPackRequest()).body.text
        self.assertRegex(pack, rf"#{earlier} decided \d")
        self.assertRegex(pack, rf"#{heir} decided proposed")
        notes = {hit["id"]: hit["note"] for hit in search(command=MemorySearch(query="JSON")).results}
        self.assertTrue(notes[earlier].startswith("accepted"), notes)
        self.assertNotIn("now", notes[earlier])


Edge = tuple[int, str, int]
PICK = st.integers(0, 20)
RELATION = st.sampled_from(["supersedes", *map(str, EdgeRelation)])
STATUS = st.sampled_from(["proposed", "accepted", "deprecated", "rejected"])
OPEN = ("proposed", "accepted")


class Reference:
    def __init__(self) -> None:
        self.marks: dict[int, str] = {}
        # Accepted now, or until they were deprecated
        self.effective: dict[int, bool] = {}
        self.edges: set[Edge] = set()

    def record(self, number: int, status: str, edges: set[Edge]) -> None:
        self.mark(number, status)
        self.edges |= edges

    def mark(self, number: int, status: str) -> None:
        self.marks[number] = status
        self.effective[number] = status == "accepted" or (status == "deprecated" and self.effective.get(number, False))

    @property
    def status(self) -> dict[int, str]:
        return {
            number: "superseded" if status in OPEN and self.heads(number) != {number} else status
            for number, status in self.marks.items()
        }

    def superseding(self, number: int) -> set[int]:
        """Return the decisions by which a decision is superseded now."""
        return self.heads(number) - {number}

    def heads(self, number: int) -> set[int]:
        return (
            self.above(number, lambda node: self.effective[node])
            or (self.marks[number] == "proposed" and self.above(number, lambda node: self.marks[node] == "proposed"))
            or {number}
        )

    def has_branches(self) -> bool:
        replaced = [end for _, relation, end in self.edges if relation == "supersedes"]
        return len(set(replaced)) < len(replaced)

    def above(self, number: int, counts: Callable[[int], bool]) -> set[int]:
        heirs = [start for start, relation, end in self.edges if relation == "supersedes" and end == number]
        found = {heir: self.above(heir, counts) or ({heir} if counts(heir) else set()) for heir in heirs}
        return set().union(*found.values())

    def walk(self, number: int, relations: tuple[str, ...], *, up: bool) -> set[tuple[int, int]]:
        """Return what can be reached, each with the least number of steps to it."""
        depths, queue = {number: 0}, deque([number])
        while queue:
            here = queue.popleft()
            for start, relation, end in self.edges:
                near, far = (end, start) if up else (start, end)
                if near == here and relation in relations and far not in depths:
                    depths[far] = depths[here] + 1
                    queue.append(far)
        return {(node, depth) for node, depth in depths.items() if depth}


class History(RuleBasedStateMachine):
    case: ClassVar[DecisionsTestCase]
    count: ClassVar = iter(range(10**6))

    def __init__(self) -> None:
        super().__init__()
        self.reference = Reference()
        self.ids: list[int] = []
        self.stored = self.case.store(f"graph-{next(self.count)}")
        self.stored.__enter__()
        for _ in range(3):
            self.add(DecisionRecord.model_validate({"title": "T", "chosen": "C"}), set())

    def teardown(self) -> None:
        try:
            self.case.assert_rebuilds()
            self.edges_and_statuses_are_those_of_the_reference()
        finally:
            self.stored.__exit__(None, None, None)

    def pick(self, number: int) -> int:
        return self.ids[number % len(self.ids)]

    @rule(named=st.lists(st.tuples(RELATION, PICK), max_size=3), status=STATUS, branch=st.booleans())
    def record(self, named: list[tuple[str, int]], status: str, *, branch: bool) -> None:
        wanted = {(relation, self.pick(number)) for relation, number in named}
        fields: dict[str, Any] = {}
        for relation, to in sorted(wanted):
            fields.setdefault(relation, []).append(to)
        gone = [to for to in fields.get("supersedes", []) if self.reference.superseding(to)]
        command = DecisionRecord.model_validate(
            {"title": "T", "chosen": "C", "status": status, "branch": branch, **fields}
        )
        if gone and not branch:
            self.refused(lambda: services.record_decision(command=command), gone)
            return
        self.add(command, wanted)

    def add(self, command: DecisionRecord, wanted: set[tuple[str, int]]) -> None:
        number = services.record_decision(command=command).id
        self.ids.append(number)
        self.reference.record(number, command.status, {(number, relation, to) for relation, to in wanted})

    @rule(earlier=PICK, branch=st.booleans())
    def supersede(self, earlier: int, *, branch: bool) -> None:
        before = self.pick(earlier)
        command = DecisionSupersede.model_validate({"id": before, "chosen": "C", "branch": branch})
        gone = [before] if self.reference.superseding(before) else []
        if gone and not branch:
            self.refused(lambda: services.supersede_decision(command=command), gone)
            return
        number = services.supersede_decision(command=command).id
        self.ids.append(number)
        self.reference.record(number, "accepted", {(number, "supersedes", before)})

    @rule(start=PICK, relation=RELATION, end=PICK, branch=st.booleans())
    def link(self, start: int, relation: str, end: int, *, branch: bool) -> None:
        near, far = self.pick(start), self.pick(end)
        edge = (near, relation, far)
        command = DecisionLink.model_validate({"id": near, "relation": relation, "to": far, "branch": branch})
        is_circle = relation in LINEAGE and near in {
            node for node, _ in self.reference.walk(far, tuple(LINEAGE), up=False)
        }
        is_second = relation == "supersedes" and self.reference.superseding(far) and not branch
        if near == far:
            with self.case.assertRaises(Invalid):
                services.link_decisions(command=command)
        elif edge not in self.reference.edges and (is_circle or is_second):
            with self.case.assertRaisesRegex(ConflictError, "would close a cycle|is already superseded"):
                services.link_decisions(command=command)
        else:
            services.link_decisions(command=command)
            self.reference.edges.add(edge)

    @rule(number=PICK)
    def unlink(self, number: int) -> None:
        if self.reference.edges:
            edge = sorted(self.reference.edges)[number % len(self.reference.edges)]
            command = DecisionUnlink.model_validate(dict(zip(("id", "relation", "to"), edge, strict=True)))
            services.unlink_decisions(command=command)
            self.reference.edges.remove(edge)

    @rule(number=PICK, status=STATUS)
    def mark(self, number: int, status: str) -> None:
        decision = self.pick(number)
        command = DecisionMark.model_validate({"id": decision, "status": status})
        if self.reference.superseding(decision):
            with self.case.assertRaisesRegex(ConflictError, "is superseded; mark the decision"):
                services.mark_decision(command=command)
        else:
            services.mark_decision(command=command)
            self.reference.mark(decision, status)

    def refused(self, act: Any, gone: list[int]) -> None:
        before = log.head()
        with self.case.assertRaisesRegex(ConflictError, "is already superseded") as caught:
            act()
        named = caught.exception.data
        self.case.assertIn(named["id"], gone)
        self.case.assertEqual(set(named["heads"]), self.reference.heads(named["id"]))
        self.case.assertEqual(log.head(), before)

    @invariant()
    def edges_and_statuses_are_those_of_the_reference(self) -> None:
        edges = set(DecisionEdge.objects.values_list("from_id", "relation", "to_id"))
        self.case.assertEqual(edges, self.reference.edges)
        self.case.assertEqual(dict(Decision.objects.values_list("id", "status")), self.reference.status)

    @invariant()
    def lineages_are_those_of_the_reference(self) -> None:
        for number in self.ids[-3:] + self.ids[:3]:
            before, after = edges.ancestors(number), edges.descendants(number)
            steps = [{(step.id, step.depth) for step in side} for side in (before, after)]
            wanted = [self.reference.walk(number, tuple(LINEAGE), up=up) for up in (False, True)]
            self.case.assertEqual(steps, wanted)
            self.case.assertNotIn(number, {step.id for step in before})

    @invariant()
    def a_chain_has_one_head_unless_it_was_branched(self) -> None:
        found = edges.heads(self.ids)
        for number in self.ids:
            self.case.assertEqual(set(found[number]), self.reference.heads(number))
        if not self.reference.has_branches():
            self.case.assertEqual({len(heads) for heads in found.values()} - {1}, set())


class GraphTests(DecisionsTestCase):
    def test_any_history_keeps_its_lineage_its_heads_and_its_statuses(self):
        History.case = self
        run_state_machine_as_test(History, settings=settings(max_examples=30, stateful_step_count=25, deadline=None))
