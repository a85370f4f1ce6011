from __future__ import annotations

from memories.models import Memory
from memories.schemas import MemorySearch, MemoryTouch, MemoryWrite
from memories.selectors import search
from memories.services import restore_memory, write_memory
from memoryhub.core import log
from memoryhub.core.errors import Conflict, Invalid
from memoryhub.core.origin import use_origin
from sessions_app import services
from sessions_app.models import SessionMode
from sessions_app.schemas import SessionEnd, SessionStart, SessionTouch
from tests.support import HubTestCase


class ScratchTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="ada"))
        self.lasting = self.write("Lasting", session="")
        services.start_session(command=SessionStart(session_id="s1", mode=SessionMode.SCRATCH))
        self.first, self.second = self.write("First"), self.write("Second")

    def write(self, title: str, session: str = "s1") -> int:
        with use_origin(session_id=session):
            return write_memory(command=MemoryWrite(title=title, content=f"kettle text of {title}")).id

    def end(self, **fields: object) -> None:
        services.end_session(command=SessionEnd(session_id="s1", **fields))

    def found(self) -> set[int]:
        return {hit["id"] for hit in search(command=MemorySearch(query="kettle")).results}

    def test_entries_are_ephemeral_while_the_session_lasts(self) -> None:
        marked = set(Memory.objects.filter(ephemeral=True).values_list("id", flat=True))
        self.assertEqual(marked, {self.first, self.second})

    def test_entries_are_promoted_when_the_session_ends(self) -> None:
        self.end(summary="worth keeping")
        self.assertFalse(Memory.objects.filter(ephemeral=True).exists())
        self.assertEqual(self.found(), {self.lasting, self.first, self.second})
        self.assertTrue(log.rebuild().identical)

    def test_discarded_entries_can_be_restored_and_kept_ones_stay(self) -> None:
        self.end(discard=True, keep=[self.second])
        self.assertEqual(self.found(), {self.lasting, self.second})
        self.assertTrue(log.rebuild().identical)
        self.assertEqual(self.found(), {self.lasting, self.second})
        restore_memory(command=MemoryTouch(id=self.first))
        self.assertEqual(self.found(), {self.lasting, self.first, self.second})

    def test_keeping_and_discarding_are_for_scratch_sessions(self) -> None:
        services.start_session(command=SessionStart(session_id="s2"))
        head = log.head()
        for fields in ({"discard": True}, {"keep": [1]}):
            with self.subTest(fields=fields), self.assertRaises(Invalid):
                services.end_session(command=SessionEnd(session_id="s2", **fields))
        self.assertEqual(log.head(), head)

    def test_only_an_active_session_is_paused_and_only_a_paused_one_resumed(self) -> None:
        services.pause_session(command=SessionTouch(session_id="s1"))
        with self.assertRaises(Conflict):
            services.pause_session(command=SessionTouch(session_id="s1"))
        self.assertEqual(services.resume_session(command=SessionTouch(session_id="s1")).status, "active")
        with self.assertRaises(Conflict):
            services.resume_session(command=SessionTouch(session_id="s1"))
