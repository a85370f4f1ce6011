"""Random writes by clean and rolled-back callers, rolled back and that undone, against a reference model.

``MEMORY_HUB_TEST_ROLLBACKS=2000`` makes it a long run. The model works out from the log alone, event by event, what a
store shows. It is slow and plain on purpose, and shares no code with the product: where both agree on thousands of
random logs, an error would have to be in both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from decisions.schemas import DecisionList
from decisions.selectors import list_decisions
from governance.models import Affirmation, RollbackAction
from governance.rollback.selectors import cancelled_positions
from memories.models import Memory, Relation
from memories.schemas import MemoryList, MemorySearch
from memories.schemas.links import RelationList, TagList
from memories.schemas.query import ConflictList
from memories.selectors import list_memories, search
from memories.selectors.memories import list_tags
from memories.selectors.relations import list_relations
from memories.selectors.versions import list_conflicts
from memoryhub.config.current_settings import project_settings
from memoryhub.core.events.rollback import Left
from memoryhub.core.log.quarantine import outside_quarantine
from memoryhub.core.models import RawEvent
from sessions_app.models import Setting
from sessions_app.selectors import profile
from tests.governance.rollback_case import DeedTestCase, random_steps

Shown = dict[Any, Any]
_CHANGING = "written revised deleted restored reviewed".split()
_ACCEPTED: Shown = {}
_SYMMETRIC = ("related_to", "conflicts_with")


@dataclass
class Happened:
    position: int
    type: str
    stream: str
    rolled_back: bool
    data: dict[str, Any]
    session: str

    @property
    def entity(self) -> int:
        return int(self.stream.partition(":")[2])


@dataclass
class Values:
    given: list[tuple[Happened, Any]] = field(default_factory=list)

    def last(self, counts: Callable[[Happened], bool], default: Any = None) -> Any:
        return next((value for event, value in reversed(self.given) if counts(event)), default)


@dataclass
class Thing:
    written: Happened
    text: Values = field(default_factory=Values)
    deleted: Values = field(default_factory=Values)
    review: Values = field(default_factory=Values)
    changes: list[Happened] = field(default_factory=list)
    """Those that protect it from the roll-back of earlier ones."""
    ends: list[Happened] = field(default_factory=list)
    """Ends of scratch sessions that deleted it."""
    scratch: bool = False

    @property
    def touched(self) -> list[Happened]:
        touching = [event for event in [*self.changes, *self.ends] if event.rolled_back]
        return sorted(touching, key=lambda event: event.position)

    @property
    def changed(self) -> bool:
        return bool(self.touched) and self.changes[-1].position > self.touched[-1].position


def events_of(actor: str, void: Collection[int] = ()) -> list[Happened]:
    return [
        Happened(
            event.position,
            event.event_type,
            event.stream_id,
            event.actor == actor,
            json.loads(event.payload_json or "{}"),
            event.session_id,
        )
        for event in RawEvent.objects.order_by("position")
        if event.position not in void and (event.payload_json or event.event_type.startswith("memory."))
    ]


class Model:
    """What a store shows as it is, or once the rolled-back events are rolled back."""

    def __init__(self, events: Iterable[Happened], *, action: str = "", include_changed: bool = False) -> None:
        self.undo, self.acts, self.include = action == "undo", bool(action), include_changed
        self.events = list(events)
        self.things: dict[int, Thing] = {}
        self.scratch: set[str] = set()
        self.erased: set[int] = set()
        for event in self.events:
            self._take_in(event)
        for position in self.erased:
            self.things.pop(position, None)

    def shown(self) -> Shown:
        return {
            "memories": {item: shown for item in self.things if (shown := self._memory(self.things[item]))},
            "conflicts": self._conflicts(),
            "decisions": self._decisions(),
            "relations": self._relations(),
            "tags": sorted(event.data["name"] for event in self._of("tag.created") if not self._set_aside(event)),
            "settings": self._register("project.configured", lambda data: data["settings"]),
            "profile": self._register("project.described", lambda data: data),
            "affirmed": {
                event.entity: event.position
                for event in self._of("thing.affirmed")
                if not self._set_aside(event)
                if event.entity not in self.erased
            },
        }

    def _of(self, *types: str) -> list[Happened]:
        return [event for event in self.events if event.type in types]

    def _set_aside(self, event: Happened) -> bool:
        return self.acts and event.rolled_back

    def _take_in(self, event: Happened) -> None:
        name, data = event.type, event.data
        if name == "payload.erased":
            self.erased |= {int(item.partition(":")[2]) for item in data["streams"]}
        elif name == "session.started" and data.get("mode") == "scratch":
            self.scratch.add(data["session_id"])
        elif name == "session.ended":
            self._end(event)
        elif name == "memory.written":
            self.things[event.position] = Thing(event, scratch=event.session in self.scratch)
        if name == "conflict.resolved" or (name.partition(".")[2] in _CHANGING and name.startswith("memory.")):
            self._change(self.things[event.entity], event)

    def _change(self, thing: Thing, event: Happened) -> None:
        kind, data = event.type.partition(".")[2], event.data
        thing.changes.append(event)
        if kind in ("written", "revised"):
            text = {"title": data.get("title"), "content": data.get("content"), "scope": data.get("scope", "project")}
            thing.text.given.append((event, {**text, "tags": sorted(set(data.get("tags", [])))}))
            thing.review.given.append((event, data.get("review") or _ACCEPTED))
        elif kind == "reviewed" and data:
            thing.review.given.append((event, data["after"]))
        elif kind in ("deleted", "restored"):
            thing.deleted.given.append((event, kind == "deleted"))

    def _end(self, event: Happened) -> None:
        for position, thing in self.things.items():
            if thing.written.session == event.data["session_id"] and thing.scratch:
                is_live = not thing.deleted.last(lambda _: True, False)
                if event.data.get("entries") == "discard" and is_live and position not in event.data.get("kept", []):
                    thing.deleted.given.append((event, True))
                    thing.ends.append(event)
                thing.scratch = False

    def _reached(self, thing: Thing) -> bool:
        return self.acts and bool(thing.touched) and (self.include or not thing.changed)

    def _counts(self, thing: Thing) -> Callable[[Happened], bool]:
        if not (self.undo and self._reached(thing)):
            return lambda _: True
        limit = thing.touched[0].position if thing.changed else 2**60
        return lambda event: not event.rolled_back and event.position < limit

    def _is_hidden(self, thing: Thing) -> bool:
        texts = any(event.rolled_back for event, _ in thing.text.given)
        return not self.undo and self._reached(thing) and texts

    def _memory(self, thing: Thing) -> Shown | None:
        if self._is_hidden(thing):
            return None
        counts = self._counts(thing)
        if self.undo and self._reached(thing) and thing.written.rolled_back:
            text, review = thing.text.given[-1][1], thing.review.given[-1][1]
            return {**text, "deleted": True, "review": review.get("state", "accepted")}
        text, review = thing.text.last(counts), thing.review.last(counts, _ACCEPTED)
        return {**text, "deleted": thing.deleted.last(counts, False), "review": review.get("state", "accepted")}

    def _conflicts(self) -> list[int]:
        found = []
        for opened in self._of("memory.revised"):
            thing = self.things.get(opened.entity)
            if thing is None or opened.data.get("conflicts_with") is None or self._is_hidden(thing):
                continue
            resolved = [
                event
                for event in self._of("conflict.resolved")
                if event.data["conflict_id"] == opened.position and not (event.rolled_back and self._reached(thing))
            ]
            if not resolved and not (self.undo and self._reached(thing) and self._is_undone(thing, opened)):
                found.append(opened.position)
        return found

    def _is_undone(self, thing: Thing, event: Happened) -> bool:
        return event.rolled_back or (thing.changed and event.position > thing.touched[0].position)

    def _decisions(self) -> dict[int, Any]:
        recorded = {event.position: event for event in self._of("decision.recorded")}
        shown = {number: self._status(number) for number, event in recorded.items() if not self._is_gone(event)}
        edges = self._edges(recorded)
        return {
            decision_id: (
                "superseded"
                if status in ("accepted", "proposed") and self._heads(decision_id, recorded) != {decision_id}
                else status,
                sorted((relation, to) for start, relation, to in edges if start == decision_id),
                sorted(self._notes(decision_id)),
            )
            for decision_id, status in shown.items()
        }

    def _marks(self, decision: int) -> list[Happened]:
        return [event for event in self._of("decision.marked") if event.entity == decision]

    def _is_gone(self, recorded: Happened) -> bool:
        marks = self._marks(recorded.position)
        kept = bool(marks) and not marks[-1].rolled_back and not self.include
        return self._set_aside(recorded) and not kept

    def _stated(self, decision: int) -> list[tuple[Happened, str]]:
        events = [event for event in self._of("decision.recorded", "decision.marked") if event.entity == decision]
        return [(event, event.data.get("status") or "accepted") for event in events if self._says_status(event)]

    def _status(self, decision: int) -> str:
        stated = self._stated(decision)
        if not self.undo or stated[0][0].rolled_back or not any(event.rolled_back for event, _ in stated):
            return stated[-1][1]
        return str(self._clean(stated))

    def _says_status(self, event: Happened) -> bool:
        return event.type == "decision.recorded" or bool(event.data.get("status"))

    def _clean(self, given: list[tuple[Happened, Any]], default: Any = None) -> Any:
        """Return what undo makes of something that is simply set, again and again."""
        changed = not given[-1][0].rolled_back
        if changed and not self.include:
            return given[-1][1]
        first = next(event.position for event, _ in given if event.rolled_back)
        limit = first if changed else 2**60
        return Values(given).last(lambda event: not event.rolled_back and event.position < limit, default)

    def _said_edges(self, recorded: dict[int, Happened]) -> list[tuple[int, str, int, Happened]]:
        found = [
            (event.position, edge["relation"], edge["to"], event)
            for event in recorded.values()
            for edge in event.data.get("edges", [])
        ]
        for event in self._of("decision.linked"):
            edge = event.data["edge"]
            found.append((event.entity, edge["relation"], edge["to"], event))
        return found

    def _edges(self, recorded: dict[int, Happened]) -> set[tuple[int, str, int]]:
        gone = {decision_id for decision_id, event in recorded.items() if self._is_gone(event)}
        return {
            (start, relation, to)
            for start, relation, to, event in self._said_edges(recorded)
            if start not in gone and to not in gone and not (event.type == "decision.linked" and self._set_aside(event))
        }

    def _heads(self, decision: int, recorded: dict[int, Happened]) -> set[int]:
        """Return the decisions that apply instead of one: itself if there are none."""
        heads = self._above(decision, recorded, self._takes_effect)
        if not heads and self._status(decision) == "proposed":
            heads = self._above(decision, recorded, lambda heir: self._status(heir) == "proposed")
        return heads or {decision}

    # One that does not count, or is gone, leads on to what superseded it
    def _above(self, decision: int, recorded: dict[int, Happened], counts: Callable[[int], bool]) -> set[int]:
        heads = set()
        for start, relation, to, event in self._said_edges(recorded):
            is_undone = event.type == "decision.linked" and self._set_aside(event)
            if to == decision and relation == "supersedes" and not is_undone:
                stands = counts(start) and not self._is_gone(recorded[start])
                heads |= self._above(start, recorded, counts) or ({start} if stands else set())
        return heads

    def _takes_effect(self, decision: int) -> bool:
        status = self._status(decision)
        if status == "deprecated":
            earlier = [status for _, status in self._stated(decision) if status != "deprecated"]
            status = earlier[-1]
        return status == "accepted"

    def _notes(self, decision: int) -> set[str]:
        evidence = [event for event in self._of("decision.evidenced") if event.entity == decision]
        return {note["value"] for event in evidence if not self._set_aside(event) for note in event.data["artifacts"]}

    def _relations(self) -> list[tuple[Any, ...]]:
        histories: dict[tuple[Any, ...], list[tuple[Happened, bool]]] = {}
        names: dict[int, tuple[Any, ...]] = {}
        for event in self._of("relation.created", "relation.deleted"):
            if event.type == "relation.created":
                names[event.position] = _statement(event.data)
            is_made = event.type == "relation.created"
            histories.setdefault(names[event.entity], []).append((event, is_made))
        return sorted(name for name, given in histories.items() if self._is_related(name, given))

    def _is_related(self, name: tuple[Any, ...], given: list[tuple[Happened, bool]]) -> bool:
        if set(name[1:]) & self.erased:
            return False
        event, is_made = given[-1]
        now = is_made and not self._set_aside(event)
        removed = any(item.rolled_back and not made for item, made in given)
        return bool(self._clean(given, False)) if self.undo and removed and not now else now

    def _register(self, event_type: str, values: Callable[[Shown], Shown]) -> Shown:
        given: dict[str, list[tuple[Happened, Any]]] = {}
        for event in self._of(event_type):
            for name, value in values(event.data).items():
                given.setdefault(name, []).append((event, value))
        found = {
            name: self._clean(every) if self.undo and any(event.rolled_back for event, _ in every) else every[-1][1]
            for name, every in given.items()
        }
        return {name: value for name, value in found.items() if value is not None}


def _statement(data: Shown) -> tuple[Any, ...]:
    ends = (data["source_id"], data["target_id"])
    return (data["relation"], *(sorted(ends) if data["relation"] in _SYMMETRIC else ends))


SEEDS = int(os.environ.get("MEMORY_HUB_TEST_ROLLBACKS", "12"))


def read_everything() -> Shown:
    """Return what the model works out, and what else lists and searches show."""
    memories = list_memories(command=MemoryList(limit=100)).results
    decisions = list_decisions(command=DecisionList(limit=100)).results
    relations = list_relations(command=RelationList(limit=100)).results
    hits = search(command=MemorySearch(query="alpha beta gamma delta says", limit=100)).results
    return {
        **shown_by_store(),
        "topics": {memory["id"]: memory["topic_key"] for memory in memories},
        "listed decisions": [(item["id"], str(item["superseded_by"]), str(item["artifacts"])) for item in decisions],
        "listed relations": sorted((item["source"]["id"], item["target"]["id"]) for item in relations),
        "categories": {tag["name"]: tag["category"] for tag in list_tags(command=TagList(limit=100)).results},
        "settings in force": project_settings().model_dump(),
        "whole profile": profile().model_dump(exclude={"updated_at"}),
        "found": sorted(hit["id"] for hit in hits),
    }


def shown_by_store() -> Shown:
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
    def test_a_roll_back_does_what_the_model_computes_and_its_undo_leaves_everything_as_it_was(self) -> None:
        for seed in range(SEEDS):
            with self.subTest(seed=seed):
                self.check(seed)

    def check(self, seed: int) -> None:
        chance = Random(seed)
        bias = chance.choice((0.2, 0.4, 0.6))
        deeds = [(chance.random() < bias, step) for step in random_steps(chance, 30)]
        action, reviewed = chance.choice(list(RollbackAction)), chance.random() < 0.4
        include = chance.choice(([], [], ["changed_since"]))
        later = random_steps(chance, 12)
        with self.store(f"random-{seed}", actor="ada", session_id="s-good", source="rest"):
            self.prepare(deeds, reviewed=reviewed)
            events, before = events_of("mallory"), read_everything()
            self.assertEqual(Model(events).shown(), shown_by_store())
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
            self.assertEqual(Model(events_of("mallory", cancelled_positions())).shown(), shown_by_store())
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
            preview = self.preview(**fields, leave=[item])
            self.assertNotIn(item, [step.id for step in preview.steps])
            self.assertEqual(["excluded by the request"], [left.why for left in preview.left if left.id == item])

    def model(self, events: list[Happened], fields: dict[str, Any]) -> Model:
        return Model(events, action=fields["action"], include_changed=bool(fields["include"]))

    def assert_as_modelled(self, left: list[Left], model: Model, before: Shown) -> None:
        wanted = model.shown()
        for item in left:
            if "topic or title now" in item.why:
                wanted["memories"][item.id] = before["memories"][item.id]
        self.assertEqual(wanted, shown_by_store())
