from __future__ import annotations

import json
from typing import Any
from unittest import mock

from django.db import DatabaseError
from django.test import tag

from memories import selectors, services
from memories.models import Memory, MemoryCitation
from memories.schemas import MemoryGet, MemorySearch, MemoryUpdate, MemoryWrite
from memoryhub.core import log
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.log.anchor import read_anchor
from memoryhub.core.log.chain import check_links
from memoryhub.core.log.copy import StoreDraft
from memoryhub.core.log.erase import wipe_free_space
from memoryhub.core.models import RawEvent
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import current_store
from sessions_app.schemas import EventAppend, SessionStart, TurnBegin
from sessions_app.services import start_session
from sessions_app.services.turns import append_event, begin_turn
from tests import tampering
from tests.support import HubTestCase

WORD = "quicksilverish"


def payloads_without(word: str) -> dict[int, dict[str, Any]]:
    """Return the payloads that have the word, by position, with a placeholder in its place."""
    events = RawEvent.objects.filter(payload_json__contains=word).values_list("position", "payload_json")
    return {position: json.loads(text.replace(word, "[REDACTED:word]")) for position, text in events}


@tag("backend")
class RedactTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="ada"))
        self.memory_id = services.write_memory(
            command=MemoryWrite(
                title=f"The {WORD} tank", content=f"It was {WORD}, and it held 400 litres.", tags=["tank"]
            )
        ).id
        services.update_memory(command=MemoryUpdate(id=self.memory_id, content=f"Still {WORD}, now 500 litres."))
        services.write_memory(command=MemoryWrite(title="Another", content="It stays as it is."))

    def redact(self) -> int:
        return log.redact_payloads(payloads_without(WORD), what="a word", reason="asked for").position

    def test_the_text_is_nowhere_and_the_rest_is_as_it_was(self):
        self.redact()
        wipe_free_space()
        self.assertEqual(tampering.places_with(current_store(), WORD[:9]), [])
        memory = Memory.objects.get(id=self.memory_id)
        self.assertEqual(memory.title, "The [REDACTED:word] tank")
        self.assertEqual((memory.content, memory.version), ("Still [REDACTED:word], now 500 litres.", 2))
        (shown,) = selectors.get_memories(command=MemoryGet(ids=[self.memory_id], versions=True))
        self.assertIn("it held 400 litres", json.dumps(shown))
        self.assertEqual(selectors.search(command=MemorySearch(query=WORD)).results, [])
        self.assertEqual(selectors.search(command=MemorySearch(query="litres tank")).results[0]["id"], self.memory_id)

    def test_chain_anchor_and_rebuild_hold_also_after_another_redaction_and_an_erasure(self):
        position = self.redact()
        self.assert_sound()
        self.assertEqual(set(check_links(first=1, last=position).values()), {""})
        anchor = read_anchor(current_store())
        self.assertEqual((anchor.position, anchor.digest) if anchor else None, log.head())
        log.redact_payloads(payloads_without("litres"), what="another word")
        self.assert_sound()
        log.erase_streams([f"memory:{self.memory_id}"], reason="all of it")
        self.assert_sound()

    def test_a_failed_second_comparison_does_not_undo_the_redaction(self):
        rows.execute("INSERT INTO projection_offsets (projector, position) VALUES ('embeddings-1', 3)")
        failure = mock.patch.object(StoreDraft, "settle", side_effect=DatabaseError("database is locked"))
        with failure, self.assertLogs("memoryhub.core.log.erase", "WARNING") as logs:
            self.redact()
        self.assertIn("run rebuild", logs.output[0])
        self.assertEqual(payloads_without(WORD), {})
        self.assertEqual(rows.fetch("SELECT position FROM projection_offsets"), [(0,)])

    def test_a_redacted_payload_that_was_changed_by_hand_breaks_the_chain(self):
        self.redact()
        rows.execute(
            "UPDATE raw_events SET payload_json = replace(payload_json, '500', '900'), salt = %s WHERE position = 2",
            ["ab" * 16],
        )
        verification = log.verify()
        self.assertEqual((verification.ok, verification.broken_position), (False, 2))

    def test_an_erased_payload_does_not_come_back(self):
        payloads = payloads_without(WORD)
        log.erase_streams([f"memory:{self.memory_id}"], reason="all of it")
        with self.assertRaisesRegex(Invalid, "event #1 has no text to redact"):
            log.redact_payloads(payloads, what="a word")
        self.assertTrue(log.verify().ok)

    def test_what_no_longer_fits_its_schema_changes_nothing(self):
        before = log.head()
        payload = json.loads(RawEvent.objects.get(position=1).payload_json)
        for payloads in ({1: {**payload, "title": ""}}, {}):
            with self.assertRaises(Invalid):
                log.redact_payloads(payloads, what="a title")
        self.assertEqual(log.head(), before)
        self.assert_rebuilds()


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

    def hits(self, words: str) -> list[int]:
        return [hit["id"] for hit in selectors.search(command=MemorySearch(query=words)).results]

    @tag("backend")
    def test_the_text_is_gone_and_its_neighbours_no_longer_have_its_words(self):
        self.assertEqual(self.hits("cardamom"), [self.positions[2]])
        log.erase_events(self.positions[1:3], reason="too old")
        self.assertEqual(self.hits("cardamom"), [])
        self.assertIn(self.positions[3], self.hits("porridge"))
        self.assertFalse(RawEvent.objects.filter(payload_json__contains="cardamom").exists())
        self.assert_sound()
        with self.assertRaises(NotFound):
            log.erase_events(self.positions[1:3], reason="too old")

    def test_what_the_rest_of_the_stream_cites_is_still_cited(self):
        for position, citations in ((self.positions[2], 1), (self.positions[1], 0)):
            log.erase_events([position], reason="too old")
            self.assertEqual(MemoryCitation.objects.filter(memory_id=self.memory).count(), citations)

    def test_an_event_that_others_build_upon_is_refused(self):
        with self.assertRaisesRegex(Invalid, "memory.written cannot be erased by itself"):
            log.erase_events([self.memory, self.positions[0]], reason="too old")
        self.assertIsNotNone(RawEvent.objects.get(position=self.positions[0]).payload_json)
