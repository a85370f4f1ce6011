"""Permanent deletion: asked twice, and nothing of the text left."""

from __future__ import annotations

from pathlib import Path

from memories import selectors, services
from memories.models import Memory
from memories.schemas import MemoryDelete, MemoryGet, MemorySearch, MemoryTouch, MemoryUpdate, MemoryWrite, WriteStatus
from memoryhub.core import log, rows
from memoryhub.core.errors import ConfirmationRequired, NotFound, PreconditionFailed
from memoryhub.core.stores import current_store
from tests.support import HubTestCase

WORDS = ["quicksilverish", "xylophonist", "zanzibarian", "kumquatly"]


class EraseTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="ada"))
        for number in range(40):
            text = f"Note {number} on caches and locks. " * 40
            services.write_memory(command=MemoryWrite(title=f"Note {number}", content=text))
        title, first, second, reason = WORDS
        written = services.write_memory(command=MemoryWrite(title=title, content=f"It was {first}. " * 400))
        change = MemoryUpdate(id=written.id, content=f"It became {second}.", change_reason=reason)
        services.update_memory(command=change)
        self.memory_id = written.id

    def delete(self, **fields: object) -> WriteStatus:
        return services.delete_memory(command=MemoryDelete(id=self.memory_id, **fields)).status

    def token(self) -> str:
        with self.assertRaises(ConfirmationRequired) as caught:
            self.delete(permanent=True)
        return str(caught.exception.data["confirm_token"])

    def erase(self) -> None:
        self.delete()
        self.assertEqual(self.delete(permanent=True, confirm_token=self.token()), WriteStatus.ERASED)

    def files_with(self, word: str) -> list[str]:
        folder: Path = current_store().path.parent
        files = [path for path in folder.rglob("*") if path.is_file()]
        return [path.name for path in files if word.encode() in path.read_bytes().lower()]

    def test_no_byte_of_it_is_left_in_the_stores_files(self):
        before = {word: self.files_with(word) for word in WORDS}
        self.assertTrue(all(before.values()), before)
        self.erase()
        for word in WORDS:  # their beginnings: the index keeps stems
            self.assertEqual(self.files_with(word[:7]), [], word)

    def test_the_chain_still_verifies_and_a_rebuild_comes_out_the_same(self):
        self.erase()
        self.assertTrue(log.verify().ok)
        self.assertTrue(log.rebuild().identical)
        self.assertFalse(Memory.objects.filter(id=self.memory_id).exists())

    def test_the_others_are_still_found(self):
        self.erase()
        found = selectors.search(command=MemorySearch(query="note 7 caches")).results
        self.assertEqual(found[0]["title"], "Note 7")
        with self.assertRaises(NotFound):
            selectors.get_memories(command=MemoryGet(ids=[self.memory_id]))

    def test_one_that_is_not_deleted_is_refused(self):
        with self.assertRaisesRegex(PreconditionFailed, "delete it without permanent first"):
            self.delete(permanent=True)

    def test_the_question_names_the_memory_and_nothing_is_gone_yet(self):
        self.delete()
        with self.assertRaisesRegex(
            ConfirmationRequired, f"permanently delete #{self.memory_id} '{WORDS[0]}' with its 2"
        ):
            self.delete(permanent=True)
        with self.assertRaises(ConfirmationRequired):
            self.delete(permanent=True, confirm_token="0" * 16)
        self.assertTrue(Memory.objects.filter(id=self.memory_id).exists())

    def test_a_token_is_of_the_memory_as_it_stood(self):
        self.delete()
        token = self.token()
        services.restore_memory(command=MemoryTouch(id=self.memory_id))
        self.delete()
        with self.assertRaises(ConfirmationRequired):
            self.delete(permanent=True, confirm_token=token)

    def test_its_events_stay_without_their_text(self):
        self.erase()
        found = rows.fetch(
            "SELECT count(*), count(payload_json), count(salt) FROM raw_events WHERE stream_id = %s",
            [f"memory:{self.memory_id}"],
        )
        self.assertEqual(found, [(3, 0, 0)])
