from __future__ import annotations

from typing import Any
from unittest import mock

from django.db import connections

from memories import services
from memories.schemas import MemoryTouch, MemoryWrite
from memoryhub.core.entities import Entity, entity_types, find_entities
from memoryhub.core.log import head
from sessions_app.schemas import ProjectDescribe, SessionStart
from sessions_app.services import start_session
from sessions_app.services.profile import describe
from tests.support import HubTestCase


class EntityTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha"))

    def test_an_id_names_one_thing_whatever_it_is(self) -> None:
        session = start_session(command=SessionStart(session_id="s-1"))
        rule = services.write_memory(command=MemoryWrite(title="Rule", content="x", kind="guideline")).id
        gone = services.write_memory(command=MemoryWrite(title="Gone", content="y")).id
        services.delete_memory(command=MemoryTouch(id=gone))
        describe(command=ProjectDescribe(name="Alpha"))
        wanted = [
            Entity("project", 0, "Alpha"),
            Entity("session", session.id, "s-1"),
            Entity("memory", rule, "Rule", "guideline"),
            Entity("memory", gone, "Gone", "observation", deleted=True),
        ]
        found = find_entities(range(head()[0] + 100))
        self.assertEqual(list(found.items()), [(entity.id, entity) for entity in wanted])
        self.assertEqual(find_entities([]), {})

    def test_every_number_of_ids_is_one_statement(self) -> None:
        ids = [services.write_memory(command=MemoryWrite(title=f"T{n}", content=f"{n}")).id for n in range(3)]
        connection: Any = connections["store:project:alpha"]
        with mock.patch.object(connection, "run", wraps=connection.run) as run:
            self.assertEqual(sorted(find_entities([*ids, *range(1_000, 101_000)])), ids)
        self.assertEqual(run.call_count, 1)

    def test_what_apps_declare_is_known(self) -> None:
        self.assertLessEqual({"project", "session", "commit", "memory", "decision"}, set(entity_types()))
