from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from decisions.exporting import chosen_decisions
from decisions.schemas import DecisionGet, DecisionList, DecisionSupersede
from decisions.selectors import count_by_status, get_decisions, list_decisions, suggest_decisions
from decisions.services import supersede_decision
from memories.pack import pack_context
from memories.query import query
from memories.schemas import MemoryGet, MemoryList, MemoryQuery, MemorySearch, MemoryUpdate, Timeline
from memories.schemas.links import RelationCreate, RelationList, TagCreate, TagList
from memories.schemas.query import ContextPackRequest
from memories.selectors import count_by_type, get_memories, list_memories, search
from memories.selectors.relations import list_relations
from memories.selectors.tags import list_tags, suggest_ids, suggest_tags
from memories.services import update_memory
from memories.services.relations import create_relation
from memories.services.tags import create_tag
from memories.timeline import timeline
from memoryhub.core.errors import Gone
from memoryhub.core.origin import use_origin
from memoryhub.core.schemas import Paging
from sessions_app.schemas import (
    CommitRecord,
    EventAppend,
    IterationList,
    IterationStart,
    SessionList,
    SessionStart,
    TurnBegin,
    TurnList,
)
from sessions_app.selectors import list_commits, list_iterations, list_sessions, list_turns
from sessions_app.services import record_commits, start_session
from sessions_app.services.iterations import start_iteration
from sessions_app.services.turns import append_event, begin_turn
from tests.governance.rollback_case import ROLLED_BACK, RollbackTestCase

WORD = "zanzibar"


class SilenceTests(RollbackTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.clean = self.write("Clean", tags=["calm"])
        self.first = self.decide("SQLite", topic="store")
        with use_origin(**ROLLED_BACK):
            self.poison()

    def poison(self) -> None:
        start_session(command=SessionStart(session_id="s-bad", purpose=f"to {WORD}"))
        begun = begin_turn(command=TurnBegin(session_id="s-bad"))
        append_event(
            command=EventAppend(ack_token=begun.ack_token, type="message.user", payload={"content": f"Go to {WORD}"})
        )
        start_iteration(command=IterationStart(command=WORD, description=f"all of {WORD}"))
        self.memory_id = self.write(f"The {WORD} way", tags=[WORD], kind="guideline", type=WORD)
        self.decision_id = self.decide(WORD, supersedes=[self.first], topic="store", files=["store.py"])
        create_tag(command=TagCreate(name=f"{WORD}-tag", category="c"))
        create_relation(
            command=RelationCreate(source=str(self.memory_id), relation="related_to", target=str(self.clean))
        )
        commit = {"sha": "ab" * 20, "message": f"Sail to {WORD}", "author": "M", "committed_at": datetime.now(UTC)}
        record_commits(commits=[CommitRecord.model_validate({**commit, "files": []})])

    def everything_given(self) -> str:
        given: list[Any] = [
            list_memories(command=MemoryList(include_deleted=True)).results,
            search(command=MemorySearch(query=f"{WORD} clean sqlite")).results,
            search(command=MemorySearch(query=WORD), mode="basic").results,
            query(command=MemoryQuery(search=WORD, include_inactive=True)).results,
            query(command=MemoryQuery()).results,
            pack_context(command=ContextPackRequest(session_id="s-new", query=WORD)).body.text,
            timeline(command=Timeline(before=50)),
            list_decisions(command=DecisionList()).results,
            get_decisions(command=DecisionGet(topic="store", lineage=True)),
            get_decisions(command=DecisionGet(ids=[self.first], lineage=True)),
            chosen_decisions(),
            list_relations(command=RelationList(include_deleted=True)).results,
            get_memories(command=MemoryGet(ids=[self.clean], relations=True)),
            list_tags(command=TagList(limit=100)).results,
            list_sessions(command=SessionList()).results,
            list_turns(command=TurnList()).results,
            list_iterations(command=IterationList()).results,
            list_commits(command=Paging()).results,
            suggest_tags("z"),
            suggest_ids(str(self.memory_id)),
            suggest_decisions(str(self.decision_id)),
            count_by_type(),
        ]
        return json.dumps(given, default=str)

    def test_nothing_tells_of_what_a_session_left(self) -> None:
        self.assertIn(WORD, self.everything_given())
        self.assertIn(str(self.memory_id), suggest_ids(str(self.memory_id)))
        made = self.roll_back()
        given = self.everything_given()
        self.assertNotIn(WORD, given)
        self.assertEqual([], suggest_ids(str(self.memory_id)))
        self.assertEqual([], suggest_decisions(str(self.decision_id)))
        self.assertEqual({"accepted": 1}, count_by_status())
        shown = get_decisions(command=DecisionGet(ids=[self.decision_id]))[0]
        self.assertEqual(f"in quarantine since #{made.id + 1}: roll-back #{made.id}", shown["quarantine"])
        self.assert_rebuilds()
        self.undo(made.id)
        self.assertIn(WORD, self.everything_given())
        self.assert_rebuilds()

    def test_another_decision_may_supersede_what_stands_again(self) -> None:
        made = self.roll_back()
        third = supersede_decision(command=DecisionSupersede(id=self.first, chosen="A file")).id
        self.assertEqual([third], get_decisions(command=DecisionGet(ids=[self.first]))[0]["heads"])
        self.undo(made.id)
        heads = get_decisions(command=DecisionGet(ids=[self.first]))[0]["heads"]
        self.assertEqual([third, self.decision_id], heads)
        self.assert_rebuilds()

    def test_what_superseded_it_goes_on_to_stand(self) -> None:
        third = supersede_decision(command=DecisionSupersede(id=self.decision_id, chosen="A file")).id
        self.roll_back()
        view = get_decisions(command=DecisionGet(ids=[self.first]))[0]
        self.assertEqual(("superseded", [third]), (view["status"], view["heads"]))
        self.assert_rebuilds()


class NamesTests(RollbackTestCase):
    def test_a_title_a_topic_and_a_text_can_be_had_by_others_meanwhile(self) -> None:
        bad = self.write("Build", rolled_back=True, topic_key="build/command")
        worse = self.write("Deploy", rolled_back=True)
        made = self.roll_back()
        good = self.write("Build", topic_key="build/command")
        fine = self.write("Deploy")
        self.assertEqual(4, len({bad, worse, good, fine}))
        self.undo(made.id)
        topics = {memory["id"]: memory["topic_key"] for memory in list_memories(command=MemoryList()).results}
        self.assertEqual({bad: None, worse: None, good: "build/command", fine: None}, topics)
        self.assert_rebuilds()

    def test_a_relation_and_a_tag_can_be_made_again_meanwhile(self) -> None:
        one, other = self.write("One"), self.write("Other")
        relation = RelationCreate(source=str(one), relation="related_to", target=str(other))
        with use_origin(**ROLLED_BACK):
            create_relation(command=relation)
            create_tag(command=TagCreate(name="release", category="bad"))
        made = self.roll_back()
        again = create_relation(command=relation)
        create_tag(command=TagCreate(name="release", category="good"))
        self.undo(made.id)
        self.assertEqual([again.id], [relation["id"] for relation in list_relations(command=RelationList()).results])
        tags = {tag["name"]: tag["category"] for tag in list_tags(command=TagList(limit=100)).results}
        self.assertEqual("good", tags["release"])
        self.assert_rebuilds()

    def test_it_cannot_be_changed_until_it_is_let_out(self) -> None:
        bad = self.write("Bad", rolled_back=True)
        self.roll_back()
        with self.assertRaisesMessage(Gone, "in quarantine since #"):
            update_memory(command=MemoryUpdate(id=bad, content="Better"))
