from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.contrib.admin.models import LogEntry

from memories.schemas import MemoryTouch, MemoryUpdate
from memories.services import delete_memory, restore_memory, update_memory
from memoryhub.core import clock
from memoryhub.core.models import RawEvent
from tests.admin.base import AdminTestCase, text_of

SECRET = "AKIA" + "Q3EGRTVJK2LWXZ7N"


class ListTests(AdminTestCase):
    def test_shows_what_was_written_last_changed_first(self) -> None:
        first = self.write("Keep one file a project", tags=["storage"], type="decision")
        second = self.write("Measure the first search", "other text")
        self.assertEqual(self.memories(), [second, first])
        with self.store():
            update_memory(command=MemoryUpdate(id=first, content="a newer text"))
        self.assertEqual(self.memories(), [first, second])
        row = text_of(self.page("memories/memory/"))
        for text in ("Keep one file a project", f"#{first}", "Decision", "storage", "v2", "agent", "just now"):
            self.assertIn(text, row)

    def test_hides_deleted_memories_until_they_are_asked_for(self) -> None:
        kept, deleted = self.write("kept", "one"), self.write("gone", "two")
        with self.store():
            delete_memory(command=MemoryTouch(id=deleted))
        self.assertEqual(self.memories(), [kept])
        self.assertEqual(self.memories(state="deleted"), [deleted])
        self.assertEqual(set(self.memories(state="all")), {kept, deleted})

    def test_filters_by_type_tag_session_and_time(self) -> None:
        with clock.frozen(datetime(2020, 1, 1, tzinfo=UTC)):
            old = self.write("old", "one", type="task", tags=["db"], session="s-1")
        new = self.write("new", "two", tags=["ui", "db"])
        self.assertEqual(self.memories(type="task"), [old])
        self.assertEqual(self.memories(tag="ui"), [new])
        self.assertEqual(self.memories(tag="db"), [new, old])
        self.assertEqual(self.memories(session="s-1"), [old])
        self.assertEqual(self.memories(since="7"), [new])

    def test_an_empty_list_says_what_to_do(self) -> None:
        self.assertIn("Write the first one", self.page("memories/memory/"))
        self.assertIn("No results", self.page("memories/memory/", q="nowhere"))


class SearchTests(AdminTestCase):
    def test_the_best_answer_comes_first(self) -> None:
        weak = self.write("Notes of a walk", "Anchors were seen in the harbour, and a log of wood, " * 5)
        best = self.write("The anchor of the log", "The head of the log is anchored outside the store.")
        self.write("Something else", "no word in common")
        self.assertEqual(self.memories(q="how is the log anchored"), [best, weak])
        self.assertIn(
            "<mark>anchored</mark> outside the store", self.page("memories/memory/", q="how is the log anchored")
        )

    def test_another_order_can_be_chosen(self) -> None:
        second = self.write("b log", "the log, the log")
        first = self.write("a", "one log among many other words that are of no interest")
        self.assertEqual(self.memories(q="log", o="2"), [first, second])

    def test_filters_hold_while_searching(self) -> None:
        self.write("a log", "a log", type="note")
        task = self.write("the log again", "another log", type="task", tags=["x"])
        self.assertEqual(self.memories(q="log", type="task"), [task])
        self.assertEqual(self.memories(q="log", tag="x"), [task])

    def test_a_deleted_memory_is_found_only_where_deleted_ones_are_shown(self) -> None:
        gone = self.write("a log", "of old times")
        with self.store():
            delete_memory(command=MemoryTouch(id=gone))
        self.assertEqual(self.memories(q="log"), [])
        self.assertEqual(self.memories(q="log", state="deleted"), [gone])

    def test_any_input_is_a_question(self) -> None:
        self.write("a log", "of old times")
        for question in ('"', "AND OR NOT", "log*) --", "x" * 5_000, "' ; DROP TABLE x", "\u0000"):
            with self.subTest(question[:20]):
                self.page("memories/memory/", q=question)


class DetailTests(AdminTestCase):
    def test_shows_the_text_and_its_evidence(self) -> None:
        memory_id = self.write("A choice", "**Why**: because", source="docs/x.md", session="s-9", topic_key="choice")
        page = self.page(f"memories/memory/{memory_id}/change/")
        self.assertIn("<strong>Why</strong>: because", page)
        with self.store():
            event_id = RawEvent.objects.get(position=memory_id).event_id
        for text in ("agent", "mcp", "s-9", "docs/x.md", "choice", event_id, f"#{memory_id}"):
            self.assertIn(text, text_of(page))

    def test_versions_show_what_changed_word_by_word(self) -> None:
        memory_id = self.write("A choice", "Take the red one.", tags=["x"])
        with self.store(actor="bob"):
            update_memory(
                command=MemoryUpdate(id=memory_id, content="Take the blue one.", change_reason="it is faster")
            )
            update_memory(command=MemoryUpdate(id=memory_id, tags=["y"]))
        page = self.page(f"memories/memory/{memory_id}/versions/")
        self.assertIn("[removed: red ] [added: blue ]", text_of(page))
        self.assertIn("it is faster", page)
        self.assertIn("Tags: [removed: x ] [added: y ]", text_of(page))

    def test_many_versions_come_ten_to_a_page(self) -> None:
        memory_id = self.write("A choice", "text 1")
        with self.store():
            for number in range(2, 14):
                update_memory(command=MemoryUpdate(id=memory_id, content=f"text {number}"))
        first = self.page(f"memories/memory/{memory_id}/versions/")
        self.assertIn("?before=4", first)
        older = self.page(f"memories/memory/{memory_id}/versions/", before="4")
        self.assertIn("Version 1", older)
        self.assertNotIn("Version 4", older)

    def test_history_is_its_events_and_the_admin_log_stays_empty(self) -> None:
        memory_id = self.write("A choice")
        other = self.write("Another", "another text")
        self.post(f"memories/memory/{memory_id}/delete/", reason="said better elsewhere")
        page = text_of(self.page(f"memories/memory/{memory_id}/history/"))
        self.assertIn("memory.written", page)
        self.assertIn("said better elsewhere", page)
        self.assertNotIn(f"#{other} ", page)
        self.assertEqual(LogEntry.objects.count(), 0)


class WritingTests(AdminTestCase):
    def form(self, **fields: str) -> dict[str, str]:
        return {
            "title": "A new one",
            "content": "Its text",
            "type": "note",
            "tags": "",
            "source": "",
            "links": "",
            **fields,
        }

    def test_a_person_writes_a_memory_and_the_event_says_so(self) -> None:
        links = "https://example.org/a\nfile:///b spec"
        page = self.post("memories/memory/add/", **self.form(tags="Storage, db ,", links=links, topic_key="the-topic"))
        self.assertIn("Created #1.", page)
        memory = self.memory(1)
        self.assertEqual(memory.tags, ["db", "storage"])
        self.assertEqual(memory.topic_key, "the-topic")
        self.assertEqual(
            memory.resource_links,
            [{"uri": "https://example.org/a", "type": "related"}, {"uri": "file:///b", "type": "spec"}],
        )
        with self.store():
            event = RawEvent.objects.get(position=1)
        self.assertEqual((event.source, event.actor), ("admin", "owner"))

    def test_what_the_rules_refuse_is_shown_beside_its_field_and_nothing_typed_is_lost(self) -> None:
        page = self.post("memories/memory/add/", **self.form(title="x" * 201, content="a text worth keeping"))
        self.assertIn("'title' must have at most 200 characters", page)
        self.assertIn("a text worth keeping", page)
        self.assertEqual(self.memories(state="all"), [])

    def test_a_taken_title_is_said_and_nothing_is_written(self) -> None:
        taken = self.write("A new one", "other text")
        page = self.post("memories/memory/add/", **self.form())
        self.assertIn(f"exists as #{taken}", page)
        self.assertNotIn("if_exists", page)
        self.assertEqual(self.memories(), [taken])

    def test_a_secret_is_taken_out_and_the_page_says_so(self) -> None:
        page = self.post("memories/memory/add/", **self.form(content=f"the key is {SECRET}."))
        self.assertIn("masked before saving", page)
        self.assertNotIn(SECRET, page)
        self.assertIn('<mark class="redacted">', page)

    def test_line_ends_of_a_browser_make_no_difference(self) -> None:
        memory_id = self.write("Two lines", "one\ntwo")
        page = self.post(
            f"memories/memory/{memory_id}/edit/", **self.form(title="Two lines", content="one\r\ntwo", base_version="1")
        )
        self.assertIn("Nothing changed", page)
        self.assertEqual(self.memory(memory_id).version, 1)

    def test_an_edit_makes_a_version_with_its_reason(self) -> None:
        memory_id = self.write("A choice", "red", tags=["x"], source="here")
        fields = self.form(
            title="A choice", content="blue", tags="x", source="", base_version="1", change_reason="faster"
        )
        self.assertIn("Saved version 2.", self.post(f"memories/memory/{memory_id}/edit/", **fields))
        memory = self.memory(memory_id)
        self.assertEqual((memory.version, memory.content, memory.source), (2, "blue", ""))
        self.assertIn("faster", self.page(f"memories/memory/{memory_id}/versions/"))

    def test_an_edit_of_an_older_version_changes_nothing_and_loses_nothing(self) -> None:
        memory_id = self.write("A choice", "red or green")
        with self.store(actor="somebody else"):
            update_memory(command=MemoryUpdate(id=memory_id, content="red or blue"))
        fields = self.form(title="A choice", content="my long text", base_version="1", change_reason="mine")
        page = self.post(f"memories/memory/{memory_id}/edit/", **fields)
        self.assertIn("Version 2 was saved while you edited version 1", page)
        self.assertIn("somebody else", page)
        self.assertIn("my long text", page)
        self.assertIn("red or blue", page)
        self.assertIn("[removed: green ] [added: blue ]", text_of(page))
        self.assertEqual(self.memory(memory_id).content, "red or blue")
        self.assertIn('name="base_version" value="2"', page)

        self.assertIn(
            "Saved version 3.", self.post(f"memories/memory/{memory_id}/edit/", **{**fields, "base_version": "2"})
        )
        self.assertEqual(self.memory(memory_id).content, "my long text")

    def test_an_edit_of_what_was_deleted_meanwhile_keeps_what_was_typed(self) -> None:
        memory_id = self.write("A choice", "red")
        with self.store():
            delete_memory(command=MemoryTouch(id=memory_id))
        page = self.post(f"memories/memory/{memory_id}/edit/", **self.form(content="my text", base_version="1"))
        self.assertIn("restore it first", page)
        self.assertIn("my text", page)


class DeletingTests(AdminTestCase):
    def test_deleting_asks_first_and_says_that_it_can_be_restored(self) -> None:
        memory_id = self.write("A choice")
        self.assertIn("can restore it", self.page(f"memories/memory/{memory_id}/delete/"))
        self.assertIsNone(self.memory(memory_id).deleted_at)
        self.assertIn(f"Deleted #{memory_id}.", self.post(f"memories/memory/{memory_id}/delete/"))
        self.assertIsNotNone(self.memory(memory_id).deleted_at)

    def test_restoring_takes_a_post(self) -> None:
        memory_id = self.write("A choice")
        self.post(f"memories/memory/{memory_id}/delete/")
        self.page(f"memories/memory/{memory_id}/restore/", status=405)
        self.assertIn(f"Restored #{memory_id}.", self.post(f"memories/memory/{memory_id}/restore/"))
        self.assertIsNone(self.memory(memory_id).deleted_at)

    def test_a_second_deletion_is_told_apart(self) -> None:
        memory_id = self.write("A choice")
        self.post(f"memories/memory/{memory_id}/delete/")
        self.assertIn("restore it first", self.post(f"memories/memory/{memory_id}/delete/"))

    def test_a_restored_title_that_is_taken_now_is_said(self) -> None:
        memory_id = self.write("A choice")
        self.post(f"memories/memory/{memory_id}/delete/")
        rival = self.write("A choice", "another text")
        self.assertIn(f"#{rival} has taken the topic or title", self.post(f"memories/memory/{memory_id}/restore/"))

    def test_the_chosen_are_deleted_and_restored_at_once(self) -> None:
        chosen = [self.write("one", "1"), self.write("two", "2")]
        kept = self.write("three", "3")
        action: dict[str, Any] = {"action": "delete_chosen", "_selected_action": chosen, "index": "0"}
        self.assertIn("2 memories deleted", self.post("memories/memory/", **action))
        self.assertEqual(self.memories(), [kept])
        action["action"] = "restore_chosen"
        self.assertIn("2 memories restored", self.post("memories/memory/?state=deleted", **action))
        self.assertEqual(len(self.memories()), 3)
        with self.store(), self.assertRaisesMessage(Exception, "is not deleted"):
            restore_memory(command=MemoryTouch(id=chosen[0]))

    def test_djangos_own_deletion_is_not_offered(self) -> None:
        memory_id = self.write("one", "1")
        self.post("memories/memory/", action="delete_selected", _selected_action=[memory_id], index="0", post="yes")
        self.assertEqual(self.memories(), [memory_id])
        self.assertIsNone(self.memory(memory_id).deleted_at)

    def test_more_than_200_at_a_time_are_refused_whole(self) -> None:
        with self.store():
            from memories.schemas import MemoryWrite
            from memories.services import write_memories

            write_memories(commands=[MemoryWrite(title=f"m{n}", content=f"text {n}") for n in range(201)])
        fields: dict[str, Any] = {
            "action": "delete_chosen",
            "_selected_action": ["1"],
            "index": "0",
            "select_across": "1",
        }
        self.assertIn("at most 200", self.post("memories/memory/", **fields))
        self.assertEqual(len(self.memories()), 50)
        self.assertIn("201 memories", self.page("memories/memory/"))
