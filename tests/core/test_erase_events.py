from __future__ import annotations

from memories import selectors, services
from memories.models import MemoryCitation
from memories.schemas import MemorySearch, MemoryWrite
from memoryhub.core import log
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.models import RawEvent
from memoryhub.core.stores import rows
from sessions_app.schemas import EventAppend, SessionStart, TurnBegin
from sessions_app.services import start_session
from sessions_app.services.turns import append_event, begin_turn
from tests.support import HubTestCase


class EraseEventsTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="ada"))
        self.memory = services.write_memory(command=MemoryWrite(title="Use WAL", content="Readers never block.")).id
        start_session(command=SessionStart(session_id="s-1"))
        turn = begin_turn(command=TurnBegin(session_id="s-1", turn_id="t-1"))
        messages = [
            ("message.user", "What about marmalade?"),
            ("message.assistant", f"As #{self.memory} says, and the marmalade recipe."),
            ("message.assistant", f"Also #{self.memory}, with cardamom."),
            ("message.user", "Thanks for the porridge."),
        ]
        self.positions = [
            append_event(command=EventAppend(type=name, payload={"content": text}, ack_token=turn.ack_token)).position
            for name, text in messages
        ]

    def found(self, words: str) -> list[int]:
        return [hit["id"] for hit in selectors.search(command=MemorySearch(query=words)).results]

    def test_the_text_is_gone_and_its_neighbours_no_longer_have_its_words(self):
        self.assertIn(self.positions[3], self.found("cardamom"))
        log.erase_events([self.positions[2]], reason="too old")
        self.assertEqual(self.found("cardamom"), [])
        self.assertIn(self.positions[3], self.found("porridge"))

    def test_what_the_rest_of_the_stream_cites_is_still_cited(self):
        log.erase_events([self.positions[2]], reason="too old")
        self.assertEqual(MemoryCitation.objects.filter(memory_id=self.memory).count(), 1)
        log.erase_events([self.positions[1]], reason="too old")
        self.assertEqual(MemoryCitation.objects.filter(memory_id=self.memory).count(), 0)

    def test_chain_and_rebuild_hold(self):
        log.erase_events(self.positions[1:3], reason="too old")
        self.assertTrue(log.verify().ok)
        self.assertTrue(log.rebuild().identical)
        left = rows.fetch("SELECT count(*) FROM raw_events WHERE payload_json LIKE '%cardamom%'")
        self.assertEqual(left, [(0,)])

    def test_an_event_that_others_build_upon_is_refused(self):
        with self.assertRaisesRegex(Invalid, "memory.written cannot be erased by itself"):
            log.erase_events([self.memory, self.positions[0]], reason="too old")
        self.assertIsNotNone(RawEvent.objects.get(position=self.positions[0]).payload_json)

    def test_what_is_erased_already_is_not_found(self):
        log.erase_events(self.positions, reason="too old")
        with self.assertRaises(NotFound):
            log.erase_events(self.positions, reason="too old")
