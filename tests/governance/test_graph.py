"""The graph around an item: what is in it, and what is not."""

from __future__ import annotations

from typing import Any

from django.db import connections
from django.test.utils import CaptureQueriesContext

from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from governance.graph import NodeType, graph_around
from memories.schemas import MemoryTouch
from memories.schemas.links import RelationCreate
from memories.services import delete_memory
from memories.services.relations import create_relation
from memoryhub.core.errors import NotFound
from memoryhub.core.stores.store import project_store
from sessions_app.schemas import SessionStart
from sessions_app.services import start_session
from tests.admin.base import AdminTestCase, text_of
from tests.governance.rollback_case import quarantine


class GraphTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        with self.store(actor="claude", source="mcp"):
            start_session(command=SessionStart(session_id="work", purpose="measure the pump"))
        self.memory_id = self.write("The pump is slow", session="work")
        with self.store(session_id="work"):
            command = DecisionRecord(title="Buy a pump", chosen="the blue one", files=["src/pump.py"])
            self.decision = record_decision(command=command).id
            self.relate(self.memory_id, "applies_to", self.decision)

    def relate(self, source: int, relation: str, target: int) -> None:
        create_relation(command=RelationCreate(source=source, relation=relation, target=target))

    def around(self, entity_id: int, **options: Any) -> list[tuple[str, str]]:
        with self.store():
            graph = graph_around(entity_id, **options)
        return sorted((node.type.value, node.title) for node in graph.nodes.values())

    def test_neighbours_of_all_types_are_shown_unless_they_are_left_out(self) -> None:
        memory, file, session = ("memory", "The pump is slow"), ("file", "src/pump.py"), ("session", "measure the pump")
        decision = ("decision", "Buy a pump")
        self.assertEqual(self.around(self.decision), [decision, file, memory, session])
        self.assertEqual(self.around(self.decision, types=[NodeType.MEMORY]), [decision, memory])
        self.assertNotIn(file, self.around(self.memory_id))
        self.assertIn(file, self.around(self.memory_id, depth=2))
        with self.store():
            graph = graph_around(self.decision)
        columns = {graph.nodes[number].type: column for number, column in graph.columns.items()}
        self.assertEqual([columns[kind] for kind in (NodeType.SESSION, NodeType.MEMORY, NodeType.FILE)], [-1, 1, 1])

    def test_quarantined_items_are_not_in_it_and_deleted_ones_are_marked(self) -> None:
        with self.store():
            delete_memory(command=MemoryTouch(id=self.memory_id))
        self.assertIn("deleted", text_of(self.page(f"graph/{self.decision}/")))
        with self.store():
            quarantine(self.memory_id)
            with self.assertRaises(NotFound):
                graph_around(self.memory_id)
        self.assertNotIn(("memory", "The pump is slow"), self.around(self.decision))

    def test_many_neighbours_are_counted_and_take_no_more_queries(self) -> None:
        before = self.queries_around(self.decision)
        with self.store():
            for number in range(20):
                self.relate(self.write(f"Note {number}", f"What note {number} says."), "applies_to", self.decision)
        self.assertEqual(self.queries_around(self.decision), before)
        self.assertEqual(self.memories_around(self.decision), (12, 9))
        self.assertEqual(sum(self.memories_around(self.decision, depth=2)), 21)
        self.assertIn("and 9 more", text_of(self.page(f"graph/{self.decision}/")))

    def memories_around(self, entity_id: int, **options: Any) -> tuple[int, int]:
        """Return how many memories are shown, and how many hidden."""
        with self.store():
            graph = graph_around(entity_id, **options)
        shown = [node for node in graph.nodes.values() if node.type is NodeType.MEMORY]
        return len(shown), graph.hidden[NodeType.MEMORY]

    def queries_around(self, entity_id: int) -> int:
        with self.store(), CaptureQueriesContext(connections[project_store("alpha").alias]) as queries:
            graph_around(entity_id)
        return len(queries)

    def test_the_page_lists_what_it_draws(self) -> None:
        self.assertIn("applies to Buy a pump", text_of(self.page(f"graph/{self.memory_id}/")))
        self.assertIn(self.address(f"graph/{self.memory_id}/"), self.page(f"memories/memory/{self.memory_id}/change/"))
        alone, hint = f"graph/{self.write('Far away', 'another text')}/", "of the types that are shown"
        self.assert_shows(self.page(alone), "No neighbours", lacks=[hint])
        self.assertIn(hint, self.page(alone, type="file"))
        self.page("graph/999999/", status=404)
        self.page(f"graph/{self.memory_id}/", type="nonsense", depth="x")
