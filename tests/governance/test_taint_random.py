"""Random writes by clean and tainted callers: rolled back, and that undone, everything is told as before."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decisions.schemas import DecisionEvidence, DecisionLink, DecisionList, DecisionMark
from decisions.selectors import list_decisions
from decisions.services import add_evidence, link_decisions, mark_decision
from governance.models.taint import RollbackAction
from memories.schemas import MemoryDelete, MemoryList, MemoryRestore, MemorySearch
from memories.schemas.links import RelationCreate, RelationDelete, RelationList, TagCreate, TagList
from memories.selectors import list_memories, search
from memories.selectors.relations import list_relations
from memories.selectors.tags import list_tags
from memories.services import delete_memory, restore_memory
from memories.services.relations import create_relation, delete_relation
from memories.services.tags import create_tag
from memoryhub.core.errors import HubError
from memoryhub.core.origin import use_origin
from sessions_app.profile import profile
from sessions_app.schemas import ProjectDescribe, SettingsChange
from sessions_app.services.profile import describe
from sessions_app.services.settings import change_settings
from sessions_app.settings import project_settings
from tests.governance.taint import TAINTED, TaintTestCase

WRITE, REVISE, DELETE, RESTORE, DECIDE, LINK, MARK, PROVE, RELATE, UNRELATE, TAG, SET, DESCRIBE = range(13)
SEED = ((WRITE, 0, 0), (WRITE, 1, 1), (WRITE, 2, 2), (DECIDE, 0, 3), (DECIDE, 1, 3), (RELATE, 0, 1), (DELETE, 2, 0))
"""What clean callers did before."""
ACTIONS = st.lists(
    st.tuples(st.integers(0, 12), st.booleans(), st.integers(0, 3), st.integers(0, 3)), min_size=6, max_size=16
)


def told() -> dict[str, Any]:
    """Return everything that is told of the store, without the numbers of versions, and times of changes."""
    memories = list_memories(command=MemoryList(limit=100)).results
    decisions = list_decisions(command=DecisionList(limit=100)).results
    relations = list_relations(command=RelationList(limit=100)).results
    found = search(command=MemorySearch(query="alpha beta gamma delta says", limit=100)).results
    return {
        "memories": sorted((each["id"], each["title"], each["content"], each["topic_key"] or "") for each in memories),
        "decisions": [
            (each["id"], each["status"], str(each["edges"]), str(each["superseded_by"]), str(each["artifacts"]))
            for each in decisions
        ],
        "relations": sorted((each["source"]["id"], each["relation"], each["target"]["id"]) for each in relations),
        "tags": [(each["name"], each["category"]) for each in list_tags(command=TagList(limit=100)).results],
        "settings": project_settings().model_dump(),
        "profile": profile().model_dump(exclude={"updated_at"}),
        "found": sorted(each["id"] for each in found),
    }


class RandomTests(TaintTestCase):
    projects = 0
    memories: list[int]
    decisions: list[int]
    relations: list[int]

    def test_a_roll_back_undone_leaves_everything_as_it_was(self) -> None:
        random = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
        random(
            given(ACTIONS, ACTIONS, st.sampled_from(RollbackAction), st.sampled_from([[], ["changed_since"]]))(
                self.check
            )
        )()

    def check(
        self,
        actions: list[tuple[int, bool, int, int]],
        later: list[tuple[int, bool, int, int]],
        action: RollbackAction,
        include: list[str],
    ) -> None:
        type(self).projects += 1
        with self.store(f"random-{self.projects}", actor="ada", session_id="s-good", source="rest"):
            self.memories, self.decisions, self.relations = [], [], []
            for kind, one, other in SEED:
                self.do(kind, one, other)
            for each in actions:
                self.act(each)
            before = told()
            fields = {"action": action, "include": include}
            if not self.preview(**fields).counts:
                return
            made = self.roll_back(**fields)
            self.assert_rebuilds()
            self.undo(made.id)
            self.assertEqual(before, told())
            self.assert_rebuilds()
            again = self.roll_back(**fields)
            self.assertEqual(made.counts, again.counts)
            for kind, _, one, other in later:
                self.act((kind, False, one, other))
            self.undo(again.id)
            self.assert_rebuilds()

    def act(self, action: tuple[int, bool, int, int]) -> None:
        """Do something, if it can be done."""
        kind, tainted, one, other = action
        with suppress(HubError), use_origin(**(TAINTED if tainted else {})):
            self.do(kind, one, other)

    def do(self, kind: int, one: int, other: int) -> None:
        name = ("alpha", "beta", "gamma", "delta")[one]
        if kind in (WRITE, REVISE, DELETE, RESTORE, RELATE, UNRELATE):
            self.do_to_memory(kind, name, one, other)
        elif kind in (DECIDE, LINK, MARK, PROVE):
            self.do_to_decision(kind, name, one, other)
        elif kind == TAG:
            create_tag(command=TagCreate(name=f"tag-{name}", category="c"))
        elif kind == SET:
            change_settings(command=SettingsChange(settings={"ack_token_minutes": 10 + other}))
        else:
            describe(command=ProjectDescribe(description=f"{name} {other}"))

    def do_to_memory(self, kind: int, name: str, one: int, other: int) -> None:
        memory, second = picked(self.memories, one), picked(self.memories, other)
        if kind == WRITE:
            topic: dict[str, Any] = {"topic_key": f"t/{name}"} if other == 0 else {}
            self.memories.append(self.write(f"{name} {other}", **topic))
        elif kind == REVISE:
            self.revise(memory, f"{name} was revised, it says, {len(self.memories)} {other}")
        elif kind == DELETE:
            delete_memory(command=MemoryDelete(id=memory))
        elif kind == RESTORE:
            restore_memory(command=MemoryRestore(id=memory))
        elif kind == RELATE:
            command = RelationCreate(source=str(memory), relation="related_to", target=str(second))
            self.relations.append(create_relation(command=command).id)
        else:
            delete_relation(command=RelationDelete(id=picked(self.relations, one)))

    def do_to_decision(self, kind: int, name: str, one: int, other: int) -> None:
        decision, earlier = picked(self.decisions, one), picked(self.decisions, other)
        relation = ("supersedes", "refines", "depends_on", "relates_to")[other]
        if kind == DECIDE:
            edges: dict[str, Any] = {relation: [decision]} if self.decisions else {}
            self.decisions.append(self.decide(name, **edges, branch=True))
        elif kind == LINK:
            link_decisions(command=DecisionLink(id=decision, relation=relation, to=earlier, branch=True))
        elif kind == MARK:
            status = ("accepted", "rejected", "deprecated", "proposed")[other]
            mark_decision(command=DecisionMark(id=decision, status=status))
        else:
            add_evidence(command=DecisionEvidence(id=decision, notes=[f"note {other}"]))


def picked(ids: list[int], index: int) -> int:
    """Return one of the ids; one that names nothing where there are none."""
    return ids[index % len(ids)] if ids else 10**9
