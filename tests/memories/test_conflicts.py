from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

from memories import selectors, services
from memories.models import Conflict, Memory, MemoryVersion
from memories.schemas import (
    ConflictResolve,
    ConflictResult,
    MemoryGet,
    MemoryList,
    MemoryRestore,
    MemorySearch,
    MemoryTouch,
    MemoryUpdate,
    MemoryWrite,
    WriteResult,
    WriteStatus,
)
from memoryhub.core import clock, errors, log
from memoryhub.core.origin import use_origin
from tests.support import HubTestCase

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


class ConflictsTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="ada"))
        self.now = NOON
        written = services.write_memory(command=MemoryWrite(title="Port", content="The hub listens on 8321."))
        self.memory_id = written.id

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def update(self, actor: str, content: str, base: int | None = 1, **fields: object) -> WriteResult:
        command = MemoryUpdate(id=self.memory_id, base_version=base, content=content, **fields)
        with clock.frozen(self.now), use_origin(actor=actor):
            return services.update_memory(command=command)

    def at_once(self) -> int:
        self.update("ada", "It listens on 9000.")
        self.later(1)
        result = self.update("bob", "It listens on 7000.")
        assert result.conflict is not None
        return result.conflict

    def memory(self) -> dict:
        return selectors.get_memories(command=MemoryGet(ids=[self.memory_id], versions=True))[0]

    def settle(self, conflict: int, resolution: str, **fields: Any) -> ConflictResult:
        command = ConflictResolve.model_validate({"id": conflict, "resolution": resolution, **fields})
        with use_origin(actor="eve"):
            return services.resolve_conflict(command=command)


class DetectionTests(ConflictsTestCase):
    def test_both_versions_are_kept_and_the_later_is_flagged(self):
        conflict = self.at_once()
        versions = MemoryVersion.objects.order_by("version").values_list("version", "base_version", "conflicts_with")
        self.assertEqual(list(versions), [(1, None, None), (2, 1, None), (3, 1, 2)])
        found = Conflict.objects.get()
        self.assertEqual((found.id, found.version_a, found.version_b, found.resolution), (conflict, 2, 3, ""))
        self.assertEqual(self.memory()["content"], "It listens on 7000.")

    def test_the_later_writer_is_informed(self):
        self.update("ada", "It listens on 9000.")
        result = self.update("bob", "It listens on 7000.")
        self.assertEqual((result.status, result.version), (WriteStatus.CONFLICT, 3))

    def test_after_the_window_the_later_write_is_refused(self):
        self.update("ada", "It listens on 9000.")
        self.later(5)
        with self.assertRaisesRegex(errors.PreconditionFailed, "at version 2, but you read version 1"):
            self.update("bob", "It listens on 7000.")
        self.assertFalse(Conflict.objects.exists())

    def test_the_window_is_a_setting(self):
        self.update("ada", "It listens on 9000.")
        self.later(20)
        with mock.patch.dict("os.environ", MEMORY_HUB_CONFLICT_WINDOW_SECONDS="30"):
            self.assertEqual(self.update("bob", "It listens on 7000.").status, WriteStatus.CONFLICT)

    def test_a_write_that_requires_the_current_version_is_refused(self):
        self.update("ada", "It listens on 9000.")
        with self.assertRaises(errors.PreconditionFailed):
            self.update("bob", "It listens on 7000.", must_be_current=True)

    def test_a_write_from_the_current_or_no_version_makes_no_conflict(self):
        self.update("ada", "It listens on 9000.")
        self.assertEqual(self.update("bob", "It listens on 7000.", base=2).status, WriteStatus.UPDATED)
        self.assertEqual(self.update("bob", "It listens on 6000.", base=None).status, WriteStatus.UPDATED)

    def test_each_unaware_writer_opens_one_conflict(self):
        self.at_once()
        self.update("cyd", "It listens on 5000.")
        pairs = Conflict.objects.order_by("id").values_list("version_a", "version_b")
        self.assertEqual(list(pairs), [(2, 3), (3, 4)])

    def test_fields_that_the_later_writer_left_alone_are_as_they_were_read(self):
        self.update("ada", "It listens on 9000.", tags=["net"])
        self.update("bob", "It listens on 7000.")
        self.assertEqual(self.memory()["tags"], [])

    def test_equal_writes_make_no_conflict(self):
        self.update("ada", "It listens on 9000.")
        self.assertEqual(self.update("bob", "It listens on 9000.").status, WriteStatus.UNCHANGED)

    def test_every_answer_with_the_memory_names_the_conflict_until_it_is_resolved(self):
        conflict = self.at_once()

        def shown() -> list[list[int]]:
            hit = selectors.search(command=MemorySearch(query="port")).results[0]
            listed = selectors.list_memories(command=MemoryList()).results[0]
            return [self.memory()["conflicts"], hit["conflicts"], listed["conflicts"]]

        self.assertEqual(shown(), [[conflict]] * 3)
        self.settle(conflict, "keep_b")
        self.assertEqual(shown(), [[]] * 3)


class ResolutionTests(ConflictsTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.conflict = self.at_once()

    def test_keeping_the_earlier_makes_it_a_new_version(self):
        result = self.settle(self.conflict, "keep_a", reason="Ada measured it")
        self.assertEqual((result.version, self.memory()["content"]), (4, "It listens on 9000."))
        found = Conflict.objects.get()
        self.assertEqual((found.resolution, found.resolved_by, found.reason), ("keep_a", "eve", "Ada measured it"))

    def test_keeping_the_later_leaves_it_as_it_is(self):
        result = self.settle(self.conflict, "keep_b")
        self.assertEqual((result.version, self.memory()["content"]), (3, "It listens on 7000."))

    def test_merging_uses_the_given_text(self):
        result = self.settle(self.conflict, "merge", content="It listens on 9000, behind 7000.")
        self.assertEqual((result.version, self.memory()["content"]), (4, "It listens on 9000, behind 7000."))

    def test_keeping_both_makes_the_earlier_a_memory_of_its_own(self):
        result = self.settle(self.conflict, "both")
        split = Memory.objects.get(id=result.split_id)
        self.assertEqual(
            (split.title, split.content), (f"Port (version 2 of #{self.memory_id})", "It listens on 9000.")
        )
        self.assertEqual(self.memory()["content"], "It listens on 7000.")

    def test_a_conflict_is_resolved_once(self):
        self.settle(self.conflict, "keep_b")
        with self.assertRaisesRegex(errors.Conflict, "was resolved with keep_b by eve"):
            self.settle(self.conflict, "keep_a")

    def test_a_repeated_key_returns_the_first_answer(self):
        first = self.settle(self.conflict, "both", idempotency_key="k-1")
        self.assertEqual(self.settle(self.conflict, "both", idempotency_key="k-1"), first)

    def test_bad_calls_are_refused_and_change_nothing(self):
        before = log.head()[0]
        refused: list[tuple[type[Exception], str, dict[str, Any]]] = [
            (errors.Invalid, "needs 'content'", {"resolution": "merge"}),
            (errors.Invalid, "is for resolution merge", {"resolution": "keep_a", "content": "x"}),
            (errors.NotFound, "there is no conflict #999", {"conflict": 999, "resolution": "keep_a"}),
        ]
        for error, sentence, fields in refused:
            with self.subTest(sentence), self.assertRaisesRegex(error, sentence):
                self.settle(**{"conflict": self.conflict, **fields})
        self.assertEqual(log.head()[0], before)

    def test_conflicts_of_a_deleted_memory_cannot_be_resolved(self):
        services.delete_memory(command=MemoryTouch(id=self.memory_id))
        with self.assertRaisesRegex(errors.Gone, "restore it first"):
            self.settle(self.conflict, "keep_a")

    def test_a_rebuild_gives_the_same_rows(self):
        self.settle(self.conflict, "both")
        self.assertTrue(log.rebuild().identical)


class VersionTests(ConflictsTestCase):
    def test_any_version_can_be_restored(self):
        self.update("ada", "It listens on 9000.", change_reason="moved")
        result = services.restore_memory(command=MemoryRestore(id=self.memory_id, version=1))
        self.assertEqual((result.version, self.memory()["content"]), (3, "The hub listens on 8321."))
        reasons = [version["reason"] for version in self.memory()["versions"]]
        self.assertEqual(reasons, ["version 1 restored", "moved", ""])

    def test_restoring_the_current_version_changes_nothing(self):
        result = services.restore_memory(command=MemoryRestore(id=self.memory_id, version=1))
        self.assertEqual((result.status, result.version), (WriteStatus.UNCHANGED, 1))

    def test_an_unknown_version_is_refused(self):
        with self.assertRaisesRegex(errors.NotFound, f"#{self.memory_id} has no version 9"):
            services.restore_memory(command=MemoryRestore(id=self.memory_id, version=9))

    def test_the_history_shows_who_when_why_and_what_changed(self):
        self.update("bob", "The hub listens on 9000.", change_reason="moved")
        newest = self.memory()["versions"][0]
        self.assertEqual((newest["actor"], newest["reason"], newest["base_version"]), ("bob", "moved", 1))
        self.assertEqual(newest["diff"], "The hub listens on [-8321-]{+9000+}.")
        self.assertEqual(newest["created_at"], "2026-11-20T12:00:00Z")
