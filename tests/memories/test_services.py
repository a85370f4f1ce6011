from __future__ import annotations

from datetime import timedelta

from memories import selectors, services
from memories.models import Memory
from memories.schemas import IfExists, MemoryGet, MemoryTouch, MemoryUpdate, MemoryWrite, WriteResult, WriteStatus
from memoryhub.core import clock, log
from memoryhub.core.errors import Conflict, Gone, HubError, NotFound, PreconditionFailed
from tests.support import HubTestCase


def write(title: str = "Use WAL", content: str = "Readers never block.", **fields: object) -> WriteResult:
    return services.write_memory(command=MemoryWrite(title=title, content=content, **fields))


class MemoriesTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="ada"))

    def refuses(self, error: type[HubError], pattern: str, call) -> HubError:
        before = log.head()
        with self.assertRaisesRegex(error, pattern) as caught:
            call()
        self.assertEqual(log.head(), before)
        return caught.exception


class WriteTests(MemoriesTestCase):
    def test_a_new_memory_is_created_at_version_one(self):
        result = write(tags=["SQLite", "wal ", "wal"])
        memory = Memory.objects.get(id=result.id)
        self.assertEqual((result.status, memory.version, memory.tags), (WriteStatus.CREATED, 1, ["sqlite", "wal"]))
        self.assertEqual(memory.author, "ada")

    def test_identical_content_is_counted(self):
        first = write("One", "the  same\ntext")
        again = write("Two", "the same text")
        self.assertEqual((again.id, again.status), (first.id, WriteStatus.SEEN))
        self.assertEqual(Memory.objects.get().seen_count, 2)

    def test_a_taken_title_is_a_conflict_that_names_the_memory(self):
        first = write()
        error = self.refuses(Conflict, "exists as #1; update it", lambda: write(content="other"))
        self.assertEqual(error.data["id"], first.id)

    def test_if_exists_update_makes_a_version(self):
        write(tags=["a"])
        result = write(content="other", if_exists=IfExists.UPDATE)
        memory = Memory.objects.get()
        self.assertEqual((result.status, result.version, memory.content), (WriteStatus.UPDATED, 2, "other"))
        self.assertEqual(memory.tags, ["a"], "what was not said stays")

    def test_if_exists_keep_changes_nothing(self):
        write()
        result = write(content="other", if_exists=IfExists.KEEP)
        self.assertEqual((result.status, Memory.objects.get().content), (WriteStatus.KEPT, "Readers never block."))
        self.assertEqual(log.head()[0], 1)

    def test_a_topic_is_one_memory_that_is_revised(self):
        first = write("Plan", "first", topic_key="plan")
        second = write("Plan, new", "second", topic_key="plan")
        same = write("Plan, new", "second", topic_key="plan")
        self.assertEqual((second.id, second.status), (first.id, WriteStatus.UPDATED))
        self.assertEqual(same.status, WriteStatus.UNCHANGED)
        self.assertEqual(log.head()[0], 2)

    def test_topics_with_the_same_text_stay_apart(self):
        first, second = write("A", "same", topic_key="a"), write("B", "same", topic_key="b")
        self.assertNotEqual(first.id, second.id)

    def test_a_batch_detects_its_own_duplicates(self):
        commands = [MemoryWrite(title="T", content=text, topic_key="t") for text in ("one", "two", "two")]
        results = services.write_memories(commands=commands)
        statuses = [result.status for result in results]
        self.assertEqual(statuses, [WriteStatus.CREATED, WriteStatus.UPDATED, WriteStatus.UNCHANGED])

    def test_a_batch_costs_few_queries(self):
        commands = [MemoryWrite(title=f"T{number}", content=f"text {number}") for number in range(50)]
        with self.assertNumQueries(2, using="store:project:alpha"):  # BEGIN and its end; the rest goes past Django
            services.write_memories(commands=commands)

    def test_a_deleted_memory_frees_its_title(self):
        first = write()
        services.delete_memory(command=MemoryTouch(id=first.id))
        self.assertEqual(write().status, WriteStatus.CREATED)


class UpdateTests(MemoriesTestCase):
    def test_only_given_fields_change_and_the_history_is_complete(self):
        memory = write(tags=["a"])
        services.update_memory(command=MemoryUpdate(id=memory.id, content="Writers do.", change_reason="measured"))
        (found,) = selectors.get_memories(command=MemoryGet(ids=[memory.id], versions=True))
        self.assertEqual((found["title"], found["content"], found["tags"]), ("Use WAL", "Writers do.", ["a"]))
        contents = [version["content"] for version in found["versions"]]
        self.assertEqual(contents, ["Writers do.", "Readers never block."])
        self.assertEqual([version["reason"] for version in found["versions"]], ["measured", ""])

    def test_an_old_base_is_refused_and_the_present_version_named(self):
        memory = write()
        services.update_memory(command=MemoryUpdate(id=memory.id, base_version=1, content="two"))
        stale = MemoryUpdate(id=memory.id, base_version=1, content="three")
        with clock.frozen(clock.now() + timedelta(seconds=6)):
            error = self.refuses(PreconditionFailed, "version 2, but you read version 1", lambda: self.update(stale))
        self.assertEqual(error.data["version"], 2)

    def update(self, command: MemoryUpdate) -> WriteResult:
        return services.update_memory(command=command)

    def test_a_change_that_changes_nothing_makes_no_version(self):
        memory = write()
        result = self.update(MemoryUpdate(id=memory.id, content="Readers never block."))
        self.assertEqual((result.status, log.head()[0]), (WriteStatus.UNCHANGED, 1))

    def test_tags_can_be_emptied(self):
        memory = write(tags=["a"])
        self.update(MemoryUpdate(id=memory.id, tags=[]))
        self.assertEqual(Memory.objects.get().tags, [])
        self.assertFalse(Memory.objects.all().tagged("a").exists())

    def test_a_title_of_another_memory_is_refused(self):
        write("Taken", "1")
        memory = write("Mine", "2")
        self.refuses(Conflict, "exists as #1", lambda: self.update(MemoryUpdate(id=memory.id, title="Taken")))

    def test_an_unknown_or_deleted_memory_is_refused(self):
        self.refuses(NotFound, "no memory #9", lambda: self.update(MemoryUpdate(id=9, content="x")))
        memory = write()
        services.delete_memory(command=MemoryTouch(id=memory.id))
        self.refuses(Gone, "restore it first", lambda: self.update(MemoryUpdate(id=memory.id, content="x")))


class DeleteAndRestoreTests(MemoriesTestCase):
    def test_deleted_memories_leave_lists_and_come_back(self):
        memory = write()
        services.delete_memory(command=MemoryTouch(id=memory.id, reason="wrong"))
        self.assertFalse(Memory.objects.live().exists())
        self.refuses(Gone, "restore", lambda: selectors.get_memories(command=MemoryGet(ids=[memory.id])))
        services.restore_memory(command=MemoryTouch(id=memory.id))
        self.assertTrue(Memory.objects.live().exists())

    def test_deleting_twice_is_refused(self):
        memory = write()
        services.delete_memory(command=MemoryTouch(id=memory.id))
        self.refuses(Gone, "deleted", lambda: services.delete_memory(command=MemoryTouch(id=memory.id)))

    def test_restoring_a_live_memory_or_a_taken_title_is_refused(self):
        memory = write(topic_key="t")
        self.refuses(Conflict, "not deleted", lambda: services.restore_memory(command=MemoryTouch(id=memory.id)))
        services.delete_memory(command=MemoryTouch(id=memory.id))
        rival = write("Other", "text", topic_key="t")
        error = self.refuses(
            Conflict, "has taken the topic", lambda: services.restore_memory(command=MemoryTouch(id=memory.id))
        )
        self.assertEqual(error.data["id"], rival.id)
