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
from sessions_app.selectors import view_session
from tests.support import HubTestCase


class ScratchTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="ada"))
        self.lasting = self.write("Lasting", session="")
        services.start_session(command=SessionStart(session_id="s1", mode=SessionMode.SCRATCH))
        self.first, self.second = self.write("First"), self.write("Second")

    def write(self, title: str, session: str = "s1", **fields: str) -> int:
        with use_origin(session_id=session):
            content = f"kettle text of {title} in {session or 'no session'}"
            return write_memory(command=MemoryWrite(title=title, content=content, **fields)).id

    def end(self, **fields: object) -> None:
        services.end_session(command=SessionEnd(session_id="s1", **fields))

    def found(self) -> set[int]:
        return {hit["id"] for hit in search(command=MemorySearch(query="kettle")).results}

    def test_entries_are_ephemeral_while_the_session_lasts(self) -> None:
        marked = set(Memory.objects.filter(ephemeral=True).values_list("id", flat=True))
        self.assertEqual(marked, {self.first, self.second})

    def test_entries_are_promoted_when_the_session_ends(self) -> None:
        with self.assertRaisesRegex(Invalid, "2 entries; ask the user, then end it with promote=true") as asked:
            self.end(summary="worth keeping")
        self.assertEqual(asked.exception.data["entries"], [f"#{self.first} First", f"#{self.second} Second"])
        self.end(summary="worth keeping", promote=True)
        self.assertFalse(Memory.objects.filter(ephemeral=True).exists())
        self.assertEqual(self.found(), {self.lasting, self.first, self.second})
        self.assertTrue(log.rebuild().identical)

    def test_promoted_entries_of_the_session_become_the_projects_and_are_found(self) -> None:
        third = self.write("Third", scope="session", topic_key="third")
        same = self.write("Lasting", scope="session")
        self.assertEqual(self.found(), {self.lasting, self.first, self.second})
        self.end(promote=True)
        self.assertEqual(self.found(), {self.lasting, self.first, self.second, third, same})
        titles = dict(Memory.objects.filter(id__in=[third, same]).values_list("title", "scope"))
        self.assertEqual(titles, {"Third": "project", f"Lasting (#{same})": "project"})
        self.assertTrue(log.rebuild().identical)

    def test_a_kept_entry_of_the_session_becomes_the_projects_and_is_found(self) -> None:
        third, fourth = self.write("Third", scope="session"), self.write("Fourth", scope="session")
        self.end(discard=True, keep=[third])
        self.assertEqual(self.found(), {self.lasting, third})
        self.assertIsNotNone(Memory.objects.get(id=fourth).deleted_at)
        self.assertTrue(log.rebuild().identical)

    def test_a_session_with_auto_promote_does_not_ask(self) -> None:
        metadata = {"mode": "scratch", "auto_promote": True, "ephemeral_entries": ["a"], "notes": {"a": 1}}
        services.start_session(command=SessionStart(session_id="s3", metadata=metadata))
        third = self.write("Third", session="s3", scope="session")
        ended = services.end_session(command=SessionEnd(session_id="s3"))
        self.assertEqual((ended.status, view_session(ended)["metadata"]), ("completed", metadata))
        self.assertIn(third, self.found())

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
        for fields in ({"discard": True}, {"keep": [1]}, {"promote": True, "discard": True}):
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
