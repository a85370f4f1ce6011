"""Random histories of decisions, held against a few lines of plain Python."""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from decisions import selectors, services
from decisions.models import LINEAGE, Decision, DecisionEdge, EdgeRelation
from decisions.schemas import DecisionLink, DecisionMark, DecisionRecord, DecisionSupersede
from memoryhub.core import log
from memoryhub.core.errors import Conflict, Invalid
from tests.decisions.base import DecisionsTestCase

Edge = tuple[int, str, int]
PICK = st.integers(0, 20)
RELATION = st.sampled_from(["supersedes", *map(str, EdgeRelation)])
STATUS = st.sampled_from(["proposed", "accepted", "deprecated", "rejected"])
OPEN = ("proposed", "accepted")


class Reference:
    def __init__(self) -> None:
        self.status: dict[int, str] = {}
        self.edges: set[Edge] = set()
        self.branched: set[int] = set()

    def record(self, number: int, status: str, edges: set[Edge]) -> None:
        self.status[number] = status
        for edge in edges:
            self.link(edge)

    def link(self, edge: Edge) -> None:
        self.edges.add(edge)
        if edge[1] == "supersedes" and self.status[edge[2]] in OPEN:
            self.status[edge[2]] = "superseded"

    def superseding(self, number: int) -> set[int]:
        return {start for start, relation, end in self.edges if relation == "supersedes" and end == number}

    def heads(self, number: int) -> set[int]:
        above = {step for step, _ in self.walk(number, ("supersedes",), up=True)} | {number}
        return {node for node in above if not self.superseding(node)}

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
            self.case.assertTrue(log.rebuild().identical)
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
        self.reference.branched.update(gone)
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
        self.reference.branched.update(gone)
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
            with self.case.assertRaisesRegex(Conflict, "would close a cycle|is already superseded"):
                services.link_decisions(command=command)
        else:
            if relation == "supersedes" and self.reference.superseding(far) - {near}:
                self.reference.branched.add(far)
            services.link_decisions(command=command)
            self.reference.link(edge)

    @rule(number=PICK, status=STATUS)
    def mark(self, number: int, status: str) -> None:
        decision = self.pick(number)
        command = DecisionMark.model_validate({"id": decision, "status": status})
        if self.reference.superseding(decision):
            with self.case.assertRaisesRegex(Conflict, "is superseded; mark the decision"):
                services.mark_decision(command=command)
        else:
            services.mark_decision(command=command)
            self.reference.status[decision] = status

    def refused(self, act: Any, gone: list[int]) -> None:
        before = log.head()
        with self.case.assertRaisesRegex(Conflict, "is already superseded") as caught:
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
            before, after = selectors.ancestors(number), selectors.descendants(number)
            steps = [{(step.id, step.depth) for step in side} for side in (before, after)]
            wanted = [self.reference.walk(number, tuple(LINEAGE), up=up) for up in (False, True)]
            self.case.assertEqual(steps, wanted)
            self.case.assertNotIn(number, {step.id for step in before})

    @invariant()
    def a_chain_has_one_head_unless_it_was_branched(self) -> None:
        found = selectors.heads(self.ids)
        for number in self.ids:
            self.case.assertEqual(set(found[number]), self.reference.heads(number))
        if not self.reference.branched:
            self.case.assertEqual({len(heads) for heads in found.values()} - {1}, set())


class GraphTests(DecisionsTestCase):
    def test_any_history_keeps_its_lineage_its_heads_and_its_statuses(self):
        History.case = self
        run_state_machine_as_test(History, settings=settings(max_examples=30, stateful_step_count=25, deadline=None))
