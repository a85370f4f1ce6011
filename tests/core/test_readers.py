from __future__ import annotations

from django.test import tag

from memories import services
from memories.events import MEMORY_REVISED, MEMORY_WRITTEN
from memories.models import Memory
from memories.schemas import MemoryUpdate, MemoryWrite
from memoryhub.core import log
from memoryhub.core.log import event_column, events
from memoryhub.core.origin import use_origin
from tests.support import HubTestCase


@tag("backend")
class ReaderTest(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store())
        with use_origin(session_id="reading", turn_id="turn-1"):
            self.memory_id = services.write_memory(command=MemoryWrite(title="Use WAL", content="Readers go on.")).id
        with use_origin(session_id="other"):
            services.update_memory(command=MemoryUpdate(id=self.memory_id, content="Readers never block."))
        self.stream = events().of_stream(f"memory:{self.memory_id}")

    def test_events_come_in_the_order_of_the_log_and_the_last_is_the_newest(self):
        positions = events().positions()
        self.assertEqual(positions, [*range(1, log.head()[0] + 1)])
        self.assertEqual(events().last(), events().get(position=positions[-1]))

    def test_events_are_read_by_stream_session_turn_and_type(self):
        first, second = self.stream
        self.assertEqual([first.event_type, second.event_type], [MEMORY_WRITTEN.name, MEMORY_REVISED.name])
        self.assertIn(first, events().of_turn("reading", "turn-1"))
        self.assertNotIn(second, events().of_turn("reading", "turn-1"))
        self.assertEqual([*self.stream.of_session("reading")], [first])
        self.assertEqual([*self.stream.of_session("reading", "other")], [first, second])
        self.assertEqual([*self.stream.of_type(MEMORY_REVISED)], [second])
        self.assertEqual([*self.stream.of_type(MEMORY_WRITTEN, MEMORY_REVISED.name)], [first, second])
        self.assertEqual([*self.stream.of_type()], [])

    def test_a_window_excludes_the_position_it_is_after_and_the_time_until_which_it_lasts(self):
        first, second = self.stream
        self.assertEqual([*self.stream.window(after=first.position)], [second])
        self.assertEqual([*self.stream.window(up_to=first.position)], [first])
        self.assertEqual([*self.stream.window(since=first.occurred_at)], [first, second])
        self.assertEqual([*self.stream.window(until=first.occurred_at)], [])

    def test_more_positions_than_a_statement_has_parameters_are_one_parameter(self):
        positions = range(1, 300_000)
        self.assertEqual(events().at(positions).count(), events().count())

    def test_payloads_are_json_by_position_without_erased_ones(self):
        first, second = self.stream
        contents = {position: payload["content"] for position, payload in self.stream.payloads().items()}
        self.assertEqual(contents, {first.position: "Readers go on.", second.position: "Readers never block."})
        log.erase_streams([f"memory:{self.memory_id}"], reason="a test")
        self.assertEqual(self.stream.payloads(), {})

    def test_types_are_counted(self):
        self.assertEqual(self.stream.count_by_type(), {MEMORY_REVISED.name: 1, MEMORY_WRITTEN.name: 1})

    def test_a_model_is_annotated_with_a_column_of_the_event_of_its_id(self):
        memories = Memory.objects.annotate(session=event_column("session_id"))
        self.assertEqual(memories.get(pk=self.memory_id).session, "reading")
