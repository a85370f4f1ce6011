from __future__ import annotations

from typing import Any

from django.test import tag

from governance.retention.schemas import HoldPlace
from governance.retention.selectors import place_hold
from memories.models import ContextPack, Memory
from memories.pack.service import pack_context
from memories.schemas import WriteStatus
from memories.schemas.query import ContextPackRequest
from memoryhub.core import log, spool
from memoryhub.core.errors import ConfirmationRequired, Gone, HubError, PreconditionFailed
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import current_store
from tests import tampering
from tests.memories.base import MemoriesTestCase

WORDS = ["quicksilverish", "xylophonist", "zanzibarian", "kumquatly"]


class EraseTests(MemoriesTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.write_all({f"Note {number}": f"Note {number} on caches and locks. " * 40 for number in range(40)})
        title, first, second, reason = WORDS
        self.memory_id = self.write(title, f"It was {first}. " * 400)
        self.update(self.memory_id, content=f"It became {second}.", change_reason=reason)

    def remove(self, **fields: object) -> WriteStatus:
        return self.delete(self.memory_id, **fields).status

    def token(self) -> str:
        with self.assertRaises(ConfirmationRequired) as caught:
            self.remove(permanent=True)
        return str(caught.exception.data["confirm_token"])

    def erase_now(self) -> None:
        self.assertEqual(self.remove(permanent=True, confirm_token=self.token()), WriteStatus.ERASED)

    def files_with(self, word: str) -> list[str]:
        return tampering.places_with(current_store(), word)

    @tag("backend")
    def test_no_byte_is_left_in_the_files_of_the_store_and_only_that_memory_is_gone(self):
        before = {word: self.files_with(word) for word in WORDS}
        self.assertTrue(all(before.values()), before)
        self.remove()
        self.erase_now()
        for word in WORDS:  # their beginnings: the index keeps stems
            self.assertEqual(self.files_with(word[:7]), [], word)
        self.assertTrue(log.verify().ok)
        self.assert_rebuilds()
        counts = "SELECT count(*), count(payload_json), count(salt) FROM raw_events WHERE stream_id = %s"
        self.assertEqual(rows.fetch(counts, [f"memory:{self.memory_id}"]), [(3, 0, 0)])
        self.assertFalse(Memory.objects.filter(id=self.memory_id).exists())
        self.assertEqual(self.titles("note 7 caches")[0], "Note 7")
        with self.assertRaises(Gone):
            self.get(self.memory_id)

    def test_only_a_deleted_memory_is_erased_with_a_token_of_its_present_state(self):
        with self.assertRaisesRegex(PreconditionFailed, "delete it first"):
            self.remove(permanent=True)
        self.remove()
        question = f"permanently delete #{self.memory_id} '{WORDS[0]}' with its 2"
        with self.assertRaisesRegex(ConfirmationRequired, question):
            self.remove(permanent=True)
        token = self.token()
        self.restore(self.memory_id)
        self.remove()
        for wrong in ("0" * 16, token):
            with self.assertRaises(ConfirmationRequired):
                self.remove(permanent=True, confirm_token=wrong)
        self.assertTrue(Memory.objects.filter(id=self.memory_id).exists())

    def ask(self, query: str) -> int:
        pack_context(command=ContextPackRequest(query=query))
        return int(ContextPack.objects.order_by("-id")[0].id)

    def keep(self, prompt: str, **payload: object) -> None:
        hook = {"session_id": "s-1", "prompt": prompt, **payload}
        fields: dict[str, Any] = {"client": "claude-code", "event": "PostToolUse", "project": "alpha", "payload": hook}
        spool.append(spool.SpooledEvent(id=f"hook-{prompt[:20]}", at=1, **fields))

    @tag("backend")
    def test_packs_whose_question_quotes_the_text_are_erased_and_no_others(self):
        for question in (f"what do we know of the {WORDS[1].upper()}", f"It became\n {WORDS[2]}", WORDS[0]):
            self.ask(question)
        others = {self.ask("caches and locks"), self.ask("a note on locks")}
        self.remove()
        with self.assertRaisesRegex(ConfirmationRequired, "2 versions, 3 context packs whose question quotes it[?]"):
            self.remove(permanent=True)
        self.erase_now()
        self.assertEqual(set(ContextPack.objects.values_list("id", flat=True)), others)
        for word in WORDS:
            self.assertEqual(self.files_with(word[:7]), [], word)
        self.assertTrue(log.verify().ok)
        self.assert_rebuilds()

    def test_the_text_is_removed_from_spooled_events(self):
        call = {"title": WORDS[0], "content": f"It was {WORDS[1]}. " * 15, "tags": []}
        self.keep("Quoted in part", tool_name="memory_write", tool_input=call)
        self.keep("Another, with caches and locks")
        before = sorted(spool.each_line())
        self.remove()
        with self.assertRaisesRegex(ConfirmationRequired, "and its text in 1 spooled event"):
            self.remove(permanent=True)
        self.assertEqual(sorted(spool.each_line()), before)
        self.erase_now()
        other, quoting = sorted(map(spool.parsed, spool.each_line()), key=lambda event: event.id)
        masked = {"title": "[REDACTED:erased]", "content": "[REDACTED:erased]. ", "tags": []}
        self.assertEqual(quoting.payload["tool_input"], masked)
        self.assertIn(spool.line_of(other), before)

    def test_a_hold_protects_spooled_events_too(self):
        self.keep(f"Remember that it was {WORDS[1]}. It was {WORDS[1]}.")
        self.remove()
        token = self.token()
        place_hold(command=HoldPlace(stream_id=f"memory:{self.memory_id}", reason="asked for by the court"))
        before = list(spool.each_line())
        with self.assertRaises(HubError):
            self.remove(permanent=True, confirm_token=token)
        self.assertEqual(list(spool.each_line()), before)

    @tag("backend")
    def test_erasing_from_the_global_scope_erases_packs_of_the_callers_project(self):
        memory = self.write("Wide", "Of the vorpalish blade.", scope="global")
        pack = self.ask("who has the vorpalish blade")
        self.erase(memory, scope="global")
        self.assertFalse(ContextPack.objects.filter(id=pack).exists())
        self.assertEqual(self.files_with("vorpalish"), [])
        self.assertTrue(log.verify().ok)
