"""Random writes by clean and rolled-back callers, rolled back and that undone, against a reference model.

``MEMORY_HUB_TEST_ROLLBACKS=2000`` makes it a long run.
"""

from __future__ import annotations

import os
from random import Random
from typing import Any

from decisions.schemas import DecisionList
from decisions.selectors import list_decisions
from governance.models import Affirmation, RollbackAction
from governance.rollback.undone import void_positions
from memories.models import Memory, Relation
from memories.schemas import MemoryList, MemorySearch
from memories.schemas.links import RelationList, TagList
from memories.schemas.query import ConflictList
from memories.selectors import list_memories, search
from memories.selectors.conflicts import list_conflicts
from memories.selectors.relations import list_relations
from memories.selectors.tags import list_tags
from memoryhub.config.current_settings import project_settings
from memoryhub.core.events.rollback import Left
from memoryhub.core.log.quarantine import outside_quarantine
from sessions_app.models import Setting
from sessions_app.selectors import profile
from tests.governance.rollback_actions import DeedTestCase, Step, random_steps
from tests.governance.rollback_model import Happened, Model, Shown, events_of

SEEDS = int(os.environ.get("MEMORY_HUB_TEST_ROLLBACKS", "12"))


def read_everything() -> dict[str, Any]:
    memories = list_memories(command=MemoryList(limit=100)).results
    decisions = list_decisions(command=DecisionList(limit=100)).results
    relations = list_relations(command=RelationList(limit=100)).results
    found = search(command=MemorySearch(query="alpha beta gamma delta says", limit=100)).results
    return {
        "memories": sorted(
            (memory["id"], memory["title"], memory["content"], memory["topic_key"] or "") for memory in memories
        ),
        "decisions": [
            (
                decision["id"],
                decision["status"],
                str(decision["edges"]),
                str(decision["superseded_by"]),
                str(decision["artifacts"]),
            )
            for decision in decisions
        ],
        "relations": sorted(
            (relation["source"]["id"], relation["relation"], relation["target"]["id"]) for relation in relations
        ),
        "tags": [(tag["name"], tag["category"]) for tag in list_tags(command=TagList(limit=100)).results],
        "settings": project_settings().model_dump(),
        "profile": profile().model_dump(exclude={"updated_at"}),
        "found": sorted(item["id"] for item in found),
        **shown(),
    }


def shown() -> Shown:
    memories = outside_quarantine(Memory.objects.all())
    decisions = list_decisions(command=DecisionList(limit=100)).results
    said = profile().model_dump(exclude={"updated_at"})
    return {
        "memories": {memory.id: _memory(memory) for memory in memories},
        "conflicts": sorted(conflict["id"] for conflict in list_conflicts(command=ConflictList(limit=100)).results),
        "decisions": {
            decision["id"]: (
                decision["status"],
                sorted((edge["relation"], edge["to"]) for edge in decision["edges"]),
                sorted(note["value"] for note in decision["artifacts"]),
            )
            for decision in decisions
        },
        "relations": sorted(
            (row[0], *(sorted(row[1:]) if row[0] == "related_to" else row[1:]))
            for row in Relation.objects.values_list("relation", "source_id", "target_id")
        ),
        "tags": sorted(tag["name"] for tag in list_tags(command=TagList(limit=100)).results if tag["id"]),
        "settings": dict(Setting.objects.values_list("name", "value")),
        "profile": {"description": said["description"]} if said["description"] else {},
        "affirmed": dict(Affirmation.objects.values_list("entity_id", "event")),
    }


def _memory(memory: Memory) -> Shown:
    state = {name: getattr(memory, name) for name in ("title", "content", "scope", "tags", "review")}
    return {**state, "deleted": memory.deleted_at is not None}


class RandomTests(DeedTestCase):
    def test_a_roll_back_does_what_the_model_says_and_its_undo_leaves_everything_as_it_was(self) -> None:
        for seed in range(SEEDS):
            with self.subTest(seed=seed):
                self.check(seed)

    def check(self, seed: int) -> None:
        chance = Random(seed)
        bias = chance.choice((0.2, 0.4, 0.6))
        deeds = [(chance.random() < bias, step) for step in random_steps(chance, 30)]
        action, reviewed = chance.choice(list(RollbackAction)), chance.random() < 0.4
        include = chance.choice(([], [], ["changed_since"]))
        self.check_story(f"random-{seed}", deeds, random_steps(chance, 12), action, include, reviewed=reviewed)

    def check_story(
        self,
        project: str,
        deeds: list[tuple[bool, Step]],
        later: list[Step],
        action: RollbackAction,
        include: list[str],
        *,
        reviewed: bool,
    ) -> None:
        with self.store(project, actor="ada", session_id="s-good", source="rest"):
            self.prepare(deeds, reviewed=reviewed)
            events, before = events_of("mallory"), read_everything()
            self.assertEqual(Model(events).shown(), shown())
            fields = {"session_id": "", "actor": "mallory", "action": action, "include": include}
            if not self.preview(**fields).counts:
                self.assert_as_modelled(self.preview(**fields).left, self.model(events, fields), before)
                return
            self.check_leaving(fields)
            made = self.roll_back(**fields)
            self.assert_as_modelled(made.left, self.model(events, fields), before)
            self.assert_rebuilds()
            self.undo(made.id)
            self.assertEqual(before, read_everything())
            self.assertEqual(Model(events_of("mallory", void_positions())).shown(), shown())
            self.assert_rebuilds()
            again = self.roll_back(**fields)
            self.assertEqual(made.counts, again.counts)
            self.check_second({**fields, "actor": "ada"})
            for step in later:
                self.act(step)
            self.undo(again.id)
            self.assert_rebuilds()

    def check_second(self, fields: dict[str, Any]) -> None:
        if self.preview(**fields).counts:
            before = read_everything()
            second = self.roll_back(**fields)
            self.assert_rebuilds()
            self.undo(second.id)
            self.assertEqual(before, read_everything())

    def check_leaving(self, fields: dict[str, Any]) -> None:
        things = [thing.id for group in self.preview(**fields).trace.direct for thing in group.shown]
        for item in sorted(set(things))[::3]:
            shown = self.preview(**fields, leave=[item])
            self.assertNotIn(item, [step.id for step in shown.steps])
            self.assertEqual(["excluded by the request"], [left.why for left in shown.left if left.id == item])

    def model(self, events: list[Happened], fields: dict[str, Any]) -> Model:
        return Model(events, action=fields["action"], include_changed=bool(fields["include"]))

    def assert_as_modelled(self, left: list[Left], model: Model, before: Shown) -> None:
        wanted = model.shown()
        for item in left:
            if "topic or title now" in item.why:
                wanted["memories"][item.id] = before["memories"][item.id]
        self.assertEqual(wanted, shown())
