"""Memories in the admin: lists, pages, forms, versions, deletion and the forms of each kind."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from django.test import Client, tag

from memories.models import Memory, Relation
from memories.schemas import MemoryUpdate, MemoryWrite
from memories.services import update_memory, write_memories
from memories.validity.check_runs import parse_check
from memories.validity.events import CHECK_ALLOWED
from memoryhub.core import clock, log
from memoryhub.core.kinds import KINDS
from memoryhub.core.models import RawEvent
from memoryhub.registry.people import PersonAdd, add_person
from memoryhub.web.signin import ensure_owner
from tests.admin.base import AdminTestCase, DecidingTestCase, text_of

SECRET = "AKIA" + "Q3EGRTVJK2LWXZ7N"


class MemoryListTests(AdminTestCase):
    def test_shows_what_was_written_last_changed_first(self) -> None:
        self.assert_shows(self.page("memories/memory/"), "Write the first one")
        first = self.write("Keep one file a project", tags=["storage"], type="decision")
        second = self.write("Measure the first search", "other text")
        self.assertEqual(self.memories(), [second, first])
        self.update(first, content="a newer text")
        self.assertEqual(self.memories(), [first, second])
        row = text_of(self.page("memories/memory/"))
        self.assert_shows(row, "Keep one file a project", f"#{first}", "Decision", "storage", "v2", "agent", "just now")
        self.assert_shows(self.page("memories/memory/", q="nowhere"), "No results")

    def test_filters_by_type_tag_session_time_and_deletion(self) -> None:
        with clock.frozen(datetime(2020, 1, 1, tzinfo=UTC)):
            old = self.write("old", "one", type="task", tags=["db"], session="s-1")
        new = self.write("new", "two", tags=["ui", "db"])
        deleted = self.write("deleted", "three")
        self.delete(deleted)
        for query, ids in (
            ({"type": "task"}, [old]),
            ({"tag": "ui"}, [new]),
            ({"tag": "db"}, [new, old]),
            ({"session": "s-1"}, [old]),
            ({"since": "7"}, [new]),
            ({"state": "deleted"}, [deleted]),
        ):
            with self.subTest(query):
                self.assertEqual(self.memories(**query), ids)
        self.assertEqual(self.memories(), [new, old])
        self.assertEqual(set(self.memories(state="all")), {old, new, deleted})


class MemorySearchTests(AdminTestCase):
    @tag("backend")
    def test_the_best_answer_comes_first(self) -> None:
        weak = self.write("Notes of a walk", "Anchors were seen in the harbour, and a log of wood, " * 5)
        best = self.write("The anchor of the log", "The head of the log is anchored outside the store.")
        self.write("Something else", "no word in common")
        question = "how is the log anchored"
        self.assertEqual(self.memories(q=question), [best, weak])
        self.assert_shows(self.page("memories/memory/", q=question), "<mark>anchored</mark> outside the store")

    def test_order_filters_and_deletion_hold_while_searching(self) -> None:
        second = self.write("b log", "the log, the log")
        first = self.write("a", "one log among many other words that are of no interest", type="task", tags=["x"])
        deleted = self.write("an older log", "of old times")
        self.delete(deleted)
        for query, ids in (
            ({"o": "2"}, [first, second]),
            ({"type": "task"}, [first]),
            ({"tag": "x"}, [first]),
            ({"state": "deleted"}, [deleted]),
        ):
            with self.subTest(query):
                self.assertEqual(self.memories(q="log", **query), ids)

    def test_any_input_is_a_question(self) -> None:
        self.write("a log", "of old times")
        for question in ('"', "AND OR NOT", "log*) --", "x" * 5_000, "' ; DROP TABLE x", "\u0000"):
            with self.subTest(question[:20]):
                self.page("memories/memory/", q=question)


class MemoryPageTests(AdminTestCase):
    def test_shows_the_text_its_evidence_and_its_events(self) -> None:
        other = self.write("Another", "another text")
        memory_id = self.write("A choice", "**Why**: because", source="docs/x.md", session="s-9", topic_key="choice")
        page = self.page_of(memory_id)
        self.assert_shows(page, "<strong>Why</strong>: because")
        with self.store():
            event_id = RawEvent.objects.get(position=memory_id).event_id
        self.assert_shows(text_of(page), "agent", "mcp", "s-9", "docs/x.md", "choice", event_id, f"#{memory_id}")
        self.act(memory_id, "delete", reason="said better elsewhere")
        history = text_of(self.page_of(memory_id, "history"))
        self.assert_shows(history, "memory.written", "said better elsewhere", lacks=(f"#{other} ",))

    def test_versions_show_what_changed_word_by_word_ten_to_a_page(self) -> None:
        memory_id = self.write("A choice", "Take the red one.", tags=["x"])
        self.update(memory_id, content="Take the blue one.", change_reason="it is faster")
        self.update(memory_id, tags=["y"])
        page = self.page_of(memory_id, "versions")
        self.assert_shows(page, "it is faster")
        self.assert_shows(text_of(page), "[removed: red ] [added: blue ]", "Tags: [removed: x ] [added: y ]")
        for number in range(4, 14):
            self.update(memory_id, content=f"text {number}")
        self.assert_shows(self.page_of(memory_id, "versions"), "?before=4")
        older = self.page(f"memories/memory/{memory_id}/versions/", before="4")
        self.assert_shows(older, "Version 1", lacks=("Version 4",))


class FormTestCase(AdminTestCase):
    def form(self, **fields: Any) -> dict[str, Any]:
        empty = dict.fromkeys(("tags", "source", "links", "topic_key"), "")
        return {"title": "A new one", "content": "Its text", **empty, **fields}

    def attributes(self, memory_id: int) -> dict[str, Any]:
        attributes: dict[str, Any] = self.memory(memory_id).attributes
        return attributes


class WritingTests(FormTestCase):
    def form(self, **fields: Any) -> dict[str, Any]:
        return super().form(type="note", **fields)

    def test_a_person_writes_a_memory_and_the_event_says_so(self) -> None:
        links = "https://example.org/a\nfile:///b spec"
        page = self.post("memories/memory/add/", **self.form(tags="Storage, db ,", links=links, topic_key="the-topic"))
        self.assert_shows(page, "Created #1.")
        memory = self.memory(1)
        self.assertEqual((memory.tags, memory.topic_key), (["db", "storage"], "the-topic"))
        expected = [{"uri": "https://example.org/a", "type": "related"}, {"uri": "file:///b", "type": "spec"}]
        self.assertEqual(memory.resource_links, expected)
        with self.store():
            event = RawEvent.objects.get(position=1)
        self.assertEqual((event.source, event.actor), ("admin", "owner"))

    def test_what_the_rules_refuse_is_shown_beside_its_field_and_nothing_is_lost_or_written(self) -> None:
        page = self.post("memories/memory/add/", **self.form(title="x" * 201, content="a text worth keeping"))
        self.assert_shows(page, "'title' must have at most 200 characters", "a text worth keeping")
        self.assertEqual(self.memories(state="all"), [])
        taken = self.write("A new one", "other text")
        self.assert_shows(self.post("memories/memory/add/", **self.form()), f"exists as #{taken}", lacks=("if_exists",))
        self.assertEqual(self.memories(), [taken])

    def test_a_secret_is_taken_out_and_the_page_says_so(self) -> None:
        page = self.post("memories/memory/add/", **self.form(content=f"the key is {SECRET}."))
        self.assert_shows(page, "masked before saving", '<mark class="redacted">', lacks=(SECRET,))

    def test_an_edit_makes_a_version_with_its_reason_and_line_ends_make_none(self) -> None:
        memory_id = self.write("A choice", "red\nor blue", tags=["x"], source="here")
        fields = self.form(title="A choice", content="red\r\nor blue", tags="x", source="here", base_version="1")
        self.assert_shows(self.act(memory_id, "edit", **fields), "Nothing changed")
        fields |= {"content": "blue", "source": "", "change_reason": "faster"}
        self.assert_shows(self.act(memory_id, "edit", **fields), "Saved version 2.")
        memory = self.memory(memory_id)
        self.assertEqual((memory.version, memory.content, memory.source), (2, "blue", ""))
        self.assert_shows(self.page_of(memory_id, "versions"), "faster")

    def test_an_edit_of_an_older_version_changes_nothing_and_loses_nothing(self) -> None:
        memory_id = self.write("A choice", "red or green")
        self.update(memory_id, content="red or blue", actor="somebody else")
        fields = self.form(title="A choice", content="my long text", base_version="1", change_reason="mine")
        page = self.act(memory_id, "edit", **fields)
        message = "Version 2 was saved while you edited version 1"
        self.assert_shows(page, message, "somebody else", "my long text", 'name="base_version" value="2"')
        self.assert_shows(text_of(page), "[removed: green ] [added: blue ]")
        self.assertEqual(self.memory(memory_id).content, "red or blue")
        self.assert_shows(self.act(memory_id, "edit", **{**fields, "base_version": "2"}), "Saved version 3.")
        self.assertEqual(self.memory(memory_id).content, "my long text")
        self.delete(memory_id)
        page = self.act(memory_id, "edit", **self.form(content="another text", base_version="3"))
        self.assert_shows(page, "restore it first", "another text")


class DeletingTests(AdminTestCase):
    def test_deleting_asks_first_and_restoring_takes_a_post(self) -> None:
        memory_id = self.write("A choice")
        self.assert_shows(self.page_of(memory_id, "delete"), "can restore it")
        self.assertIsNone(self.memory(memory_id).deleted_at)
        self.assert_shows(self.act(memory_id, "delete"), f"Deleted #{memory_id}.")
        self.assertIsNotNone(self.memory(memory_id).deleted_at)
        self.assert_shows(self.act(memory_id, "delete"), "restore it first")
        self.page(f"memories/memory/{memory_id}/restore/", status=405)
        self.assert_shows(self.act(memory_id, "restore"), f"Restored #{memory_id}.")
        self.assertIsNone(self.memory(memory_id).deleted_at)
        self.act(memory_id, "delete")
        rival = self.write("A choice", "another text")
        self.assert_shows(self.act(memory_id, "restore"), f"#{rival} has taken the topic or title")

    def test_the_chosen_are_deleted_and_restored_at_once(self) -> None:
        chosen = [self.write("one", "1"), self.write("two", "2")]
        third = self.write("three", "3")
        action: dict[str, Any] = {"action": "delete_selected", "_selected_action": chosen, "index": "0", "post": "yes"}
        self.post("memories/memory/", **action)  # Django's own deletion is not offered
        self.assertEqual(len(self.memories()), 3)
        self.assert_shows(self.post("memories/memory/", **action | {"action": "delete_chosen"}), "2 memories deleted")
        self.assertEqual(self.memories(), [third])
        action["action"] = "restore_chosen"
        self.assert_shows(self.post("memories/memory/?state=deleted", **action), "2 memories restored")
        self.assertEqual(len(self.memories()), 3)

    def test_more_than_200_at_a_time_are_refused_whole(self) -> None:
        with self.store():
            write_memories(commands=[MemoryWrite(title=f"m{n}", content=f"text {n}") for n in range(201)])
        fields = {"action": "delete_chosen", "_selected_action": "1", "index": "0", "select_across": "1"}
        self.assert_shows(self.post("memories/memory/", **fields), "at most 200")
        self.assertEqual(len(self.memories()), 50)
        self.assert_shows(self.page("memories/memory/"), "201 memories")


SCHEMA = {"type": "object", "properties": {"day": {"type": "string", "description": "in UTC"}}, "required": ["day"]}


class KindListTests(FormTestCase):
    def test_each_kind_has_its_list_and_all_are_in_the_list_of_all(self) -> None:
        ids = {kind: self.write(f"A {kind}", kind, kind=kind) for kind in KINDS}
        for kind, memory_id in ids.items():
            self.assertEqual(self.listed(f"memories/{kind}/"), [memory_id], kind)
            self.assertEqual(self.memories(kind=kind), [memory_id], kind)
            page = self.page(f"memories/{kind}/")
            self.assert_shows(page, f'/memories/{kind}/" aria-current="page">{KINDS[kind].plural}</a>')
            self.assertRegex(page, r'/memories/memory/" class="here"><svg[^>]*><use[^>]*/></svg>Memories')
        self.assertEqual(set(self.memories()), set(ids.values()))

    def test_guidelines_come_by_priority_and_filter_by_any_category_in_use(self) -> None:
        low = self.write("low", "1", kind="guideline", type="naming", attributes={"priority": 5})
        high = self.write("high", "2", kind="guideline", attributes={"priority": 95})
        usual = self.write("usual", "3", kind="guideline")
        self.assertEqual(self.listed("memories/guideline/"), [high, usual, low])
        self.assertEqual(self.listed("memories/guideline/", type="naming"), [low])
        self.assert_shows(self.page("memories/guideline/"), "?type=naming", 'class="gauge-number">95<')

    def test_knowledge_is_marked_and_filtered_by_its_validity(self) -> None:
        now = clock.now()
        past = self.write("past", "1", kind="knowledge", attributes={"valid_until": str(now - timedelta(days=1))})
        future = self.write("future", "2", kind="knowledge", attributes={"valid_until": str(now + timedelta(days=1))})
        always = self.write("always", "3", kind="knowledge", attributes={"confidence": 0.4})
        self.assertEqual(self.listed("memories/knowledge/", validity="expired"), [past])
        self.assertEqual(self.listed("memories/knowledge/", validity="valid"), [always, future])
        self.assertEqual(self.page("memories/knowledge/").count("badge-expired"), 1)
        self.assertEqual(self.page("memories/memory/").count("badge-expired"), 1)

    def test_filters_by_scope_conflict_and_deletion(self) -> None:
        own = self.write("own", "1", session="s-1", scope="session")
        disputed = self.write("disputed", "2")
        with self.store():
            for text in ("3", "4"):
                update_memory(command=MemoryUpdate(id=disputed, base_version=1, content=text))
        self.assertEqual(self.listed("memories/observation/", scope="session"), [own])
        self.assertEqual(self.listed("memories/observation/", conflicts="open"), [disputed])
        self.assert_shows(self.page("memories/observation/"), "badge-conflict")
        self.delete(disputed)
        self.assertEqual(self.listed("memories/observation/", state="deleted"), [disputed])

    def test_what_is_of_another_kind_is_not_found_and_has_no_page_there(self) -> None:
        self.write("The log's anchor", "an anchor of the log")
        tool = self.write("anchor-log", "anchors the log", kind="tool")
        self.assertEqual(self.listed("memories/tool/", q="anchor of the log"), [tool])
        self.page(f"memories/guideline/{tool}/change/", status=404)
        answer = self.client.get(self.address(f"memories/tool/{tool}/change/"))
        self.assertRedirects(answer, self.address(f"memories/memory/{tool}/change/"))


class KindFormTests(FormTestCase):
    def test_a_guideline_with_all_that_it_has(self) -> None:
        fields = self.form(
            type="naming",
            priority="80",
            rationale="Names are read more often than written.",
            examples__good=["amount = 1\r\ntotal = 2", "", "customer"],
            examples__bad=["amt"],
        )
        self.assert_shows(self.post("memories/guideline/add/", **fields), "Created #1.")
        memory = self.memory(1)
        self.assertEqual((memory.kind, memory.type, memory.priority), ("guideline", "naming", 80))
        examples = {"good": ["amount = 1\ntotal = 2", "customer"], "bad": ["amt"]}
        self.assertEqual(memory.attributes["examples"], examples)
        page = self.page("memories/memory/1/change/")
        self.assert_shows(text_of(page), "Names are read more often", "Good", "Bad", "amt", "of 100")

    def test_a_tool_shows_what_it_takes(self) -> None:
        examples = ["replay 1", '{"day": 1}']
        fields = self.form(type="cli", parameters=json.dumps(SCHEMA), examples=examples, constraints="x")
        self.assert_shows(self.post("memories/tool/add/", **fields), "Created #1.")
        expected = {"parameters": SCHEMA, "examples": ["replay 1", {"day": 1}], "constraints": "x"}
        self.assertEqual(self.attributes(1), expected)
        self.assert_shows(text_of(self.page("memories/memory/1/change/")), "day required string in UTC")

    def test_a_time_is_read_and_shown_in_utc_or_in_the_viewers_zone(self) -> None:
        fields = self.form(type="fact", confidence="0.25", valid_until="2031-02-03T04:05")
        self.assert_shows(self.post("memories/knowledge/add/", **fields), "Created #1.")
        self.assertEqual(self.attributes(1), {"confidence": 0.25, "valid_until": "2031-02-03T04:05:00Z"})
        self.assert_shows(self.page("memories/memory/1/edit/"), 'value="2031-02-03T04:05:00"')
        self.client.cookies["hub_time_zone"] = "Asia/Tokyo"
        self.post("memories/knowledge/add/", **fields | {"title": "In Tokyo", "content": "another text"})
        self.assertEqual(self.attributes(2)["valid_until"], "2031-02-02T19:05:00Z")
        self.assert_shows(self.page("memories/memory/2/edit/"), 'value="2031-02-03T04:05:00"')
        self.assert_shows(self.page("memories/knowledge/"), 'title="2031-02-02 19:05:00 UTC">2031-02-03</time>')

    def test_what_the_schema_says_stands_beside_the_field_and_nothing_typed_is_lost(self) -> None:
        cases = (
            ("guideline", "priority", {"priority": "101"}, "'priority' must be at most 100, not '101'"),
            ("guideline", "priority", {"priority": "much"}, "'priority' must be a whole number"),
            ("guideline", "examples__bad", {"examples__bad": ["x" * 10_001]}, "at most 10000 characters"),
            ("knowledge", "confidence", {"confidence": "2"}, "'confidence' must be at most 1"),
            ("knowledge", "valid_until", {"valid_until": "soon"}, "'valid_until' must be an ISO 8601 time"),
            ("tool", "parameters", {"parameters": '{"type": "objet"}'}, "is not a valid JSON schema at type"),
            ("tool", "parameters", {"parameters": "{'a'"}, "Enter valid JSON"),
            ("tool", "parameters", {"parameters": "[" * 20_000}, "This JSON is nested too deeply"),
        )
        for kind, field, typed, message in cases:
            with self.subTest(kind, typed=str(typed)[:40]):
                known = {"guideline": "general", "knowledge": "fact", "tool": "cli"}[kind]
                page = self.post(f"memories/{kind}/add/", **self.form(type=known, content="worth keeping", **typed))
                self.assert_shows(page, "worth keeping")
                errors = page.partition(f'id="id_{field}_error">')[2].partition("</p>")[0]
                self.assertIn(message, errors)
        self.assertEqual(self.memories(), [])

    def test_all_that_is_wrong_is_said_at_once_and_describes_its_own_area(self) -> None:
        page = self.post("memories/guideline/add/", **self.form(title="", priority="-1"))
        self.assert_shows(page, 'id="id_title_error"', 'id="id_priority_error"')
        page = self.post("memories/guideline/add/", **self.form(examples__bad=["x" * 10_001]))
        area = page.partition('<textarea name="examples__bad"')[2].partition(">")[0]
        self.assert_shows(area, 'aria-invalid="true"', "id_examples__bad_error")

    def test_saving_an_untouched_form_changes_nothing(self) -> None:
        kept: dict[str, dict[str, Any]] = {
            "guideline": {"priority": 80, "rationale": "why", "examples": {"good": ["a\nb"], "bad": []}},
            "tool": {"parameters": SCHEMA, "examples": ["12", 12, {"a": [1]}, "text"], "constraints": "c"},
            "knowledge": {"confidence": 0.5, "valid_until": "2031-02-03T04:05:00Z"},
            "observation": {"related_chunks": ["a.py::f"]},
        }
        for kind, attributes in kept.items():
            with self.subTest(kind):
                memory_id = self.write(f"A {kind}", kind, kind=kind, attributes=attributes)
                fields = self.shown(memory_id)
                self.assert_shows(self.act(memory_id, "edit", **fields), "Nothing changed")
                self.assertEqual(self.attributes(memory_id), attributes)

    def test_an_edit_sends_only_the_attributes_that_differ_and_an_emptied_one_goes(self) -> None:
        examples = {"good": ["a"], "bad": ["b"]}
        attributes = {"priority": 80, "rationale": "why", "examples": examples}
        memory_id = self.write("A rule", kind="guideline", attributes=attributes)
        fields = {**self.shown(memory_id), "rationale": "", "priority": "10"}
        self.assert_shows(self.act(memory_id, "edit", **fields), "Saved version 2.")
        self.assertEqual(self.attributes(memory_id), {"priority": 10, "examples": examples})
        change = "Priority: [removed: 80 ] [added: 10 ]"
        self.assert_shows(text_of(self.page_of(memory_id, "versions")), change, lacks=("Examples:",))
        page = text_of(self.act(memory_id, "edit", **{**fields, "rationale": "mine"}))
        self.assert_shows(page, "Version 2 was saved while you edited version 1", change, "The text did not change.")
        self.assertEqual(self.attributes(memory_id), {"priority": 10, "examples": examples})

    def shown(self, memory_id: int) -> dict[str, Any]:
        answer = self.client.get(self.address(f"memories/memory/{memory_id}/edit/"))
        form = answer.context["form"]
        values = {name: form[name].value() for name in form.fields}
        return {name: "" if value is None else value for name, value in values.items()}


class PromoteTests(AdminTestCase):
    def test_what_was_for_one_session_is_made_to_hold_for_the_project(self) -> None:
        memory_id = self.write("Only here", session="s-1", scope="session")
        path = f"memories/memory/{memory_id}/promote/"
        self.assert_shows(self.page_of(memory_id), "Promote to the project")
        self.page(path, status=405)
        taken = self.write("Only here", "another text")
        self.assert_shows(self.post(path), f"exists as #{taken}")
        self.assertEqual(self.memory(memory_id).scope, "session")
        self.update(taken, title="Everywhere")
        self.assert_shows(self.post(path), "Promoted to the project, as version 2.", lacks=("Promote to the project",))
        self.assertEqual(self.memory(memory_id).scope, "project")
        self.assert_shows(self.post(path), "Promote is for memories in scope session", lacks=("memory_write",))


class OtherStoreTests(FormTestCase):
    def test_what_is_written_in_the_global_store_is_of_its_scope(self) -> None:
        address = "/global/admin/memories/guideline/"
        answer = self.client.post(f"{address}add/", self.form(type="general", priority="70"), follow=True)
        self.assert_shows(text_of(answer.content.decode()), "Created #1.", "Scope Global", lacks=("Promote",))
        self.assert_shows(self.client.get(address).content.decode(), "A new one", lacks=("?scope=",))
        self.assertEqual(self.listed("memories/guideline/"), [])


class VersionTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.memory_id = self.write("A choice", "Take the red one.", tags=["x"])
        self.one = f"memories/memory/{self.memory_id}/"
        for text in ("Take the blue one.", "Take the green one."):
            self.update(self.memory_id, content=text, actor="bob")

    def test_an_earlier_version_is_made_the_current_one_again_as_a_new_one(self) -> None:
        self.page(f"{self.one}versions/1/again/", status=405)
        self.assert_shows(self.post(f"{self.one}versions/9/again/"), f"#{self.memory_id} has no version 9")
        self.assert_shows(self.post(f"{self.one}versions/3/again/"), "Nothing changed")
        self.assertEqual(self.memory(self.memory_id).version, 3)
        self.assert_shows(self.post(f"{self.one}versions/1/again/"), "Restored version 1, as version 4.")
        memory = self.memory(self.memory_id)
        self.assertEqual((memory.version, memory.content), (4, "Take the red one."))

    def test_two_versions_are_compared_and_the_current_one_offers_no_button(self) -> None:
        self.assert_shows(self.page(f"{self.one}versions/"), "/versions/2/again/", lacks=("/versions/3/again/",))
        page = text_of(self.page(f"{self.one}compare/?from=1&to=3"))
        self.assert_shows(page, "Take the [removed: red ] one.", "Take the [added: green ] one.", lacks=("blue",))
        self.assert_shows(text_of(self.page(f"{self.one}compare/")), "[removed: blue ]", "[added: green ]")
        self.assert_shows(self.page(f"{self.one}compare/?from=1&to=7", status=404), "has no version 7; it has 1 to 3")
        self.assert_shows(self.page_of(self.write("Alone", "text"), "compare"), "Both sides show version 1")


class ErasingTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.memory_id = self.write("An address", "Zebrastrasse 12")
        self.one = f"memories/memory/{self.memory_id}/"
        self.assert_lacks(self.page(f"{self.one}change/"), "Delete permanently")
        answer = self.client.get(self.address(f"{self.one}erase/"), follow=True)
        self.assert_shows(answer.content.decode(), "Delete the memory first")
        self.delete(self.memory_id)

    def token(self) -> str:
        return str(re.findall(r'name="confirm_token" value="(\w+)"', self.page(f"{self.one}erase/"))[0])

    def is_there(self) -> bool:
        with self.store():
            return bool(Memory.objects.filter(id=self.memory_id).exists())

    def test_with_its_number_it_is_gone_and_the_event_says_who_and_why(self) -> None:
        self.assert_shows(self.page(f"{self.one}change/"), "Delete permanently")
        texts = ("Will be deleted", "Will be kept", "digests", "older backups and exports")
        self.assert_shows(self.page(f"{self.one}erase/"), *texts, f"Type <code>{self.memory_id}</code> to confirm")
        self.assertTrue(self.is_there())
        fields = {"number": f"#{self.memory_id}", "confirm_token": self.token(), "reason": "asked for"}
        self.assert_shows(self.post(f"{self.one}erase/", **fields), f"Deleted #{self.memory_id} permanently.")
        self.assertFalse(self.is_there())
        self.page(f"{self.one}change/", status=404)
        with self.store():
            self.assertIsNone(RawEvent.objects.get(position=self.memory_id).payload_json)
            erasure = RawEvent.objects.order_by("-position")[0]
        self.assertEqual((erasure.event_type, erasure.actor), ("payload.erased", "owner"))
        self.assert_shows(erasure.payload_json, "asked for")

    def test_without_its_number_or_after_a_change_nothing_goes(self) -> None:
        token = self.token()
        for typed in ("", "yes", str(self.memory_id + 1)):
            page = self.post(f"{self.one}erase/", number=typed, confirm_token=token)
            self.assert_shows(page, f"Type {self.memory_id}, the number", where=typed)
        self.post(f"{self.one}erase/", "beta", number=str(self.memory_id), confirm_token=token)
        self.assertTrue(self.is_there())
        self.restore(self.memory_id)
        self.delete(self.memory_id)
        page = self.post(f"{self.one}erase/", number=str(self.memory_id), confirm_token=token)
        self.assert_shows(page, "The memory has changed since you opened this page")
        self.assertTrue(self.is_there())


class RelationTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.rule = self.write("No SQL in doors", "1", kind="guideline")
        self.tool = self.write("ledger_balance", "2", kind="tool")

    def relate(self, relation: str, target: str, source: int | None = None) -> str:
        return self.post(f"memories/memory/{source or self.rule}/relate/", relation=relation, target=target)

    def relations(self) -> list[Relation]:
        with self.store():
            return list(Relation.objects.order_by("id"))

    def shown(self, memory_id: int) -> str:
        page = text_of(self.page_of(memory_id))
        return page.partition("Relations ")[2].partition(" This memory ")[0]

    def test_a_relation_is_added_shown_both_ways_and_removed(self) -> None:
        self.assert_shows(self.relate("applies_to", f"#{self.tool}"), f"Added: applies to #{self.tool} ledger_balance.")
        self.assertRegex(self.shown(self.rule), r"^applies to ledger_balance Tool")
        self.assertRegex(self.shown(self.tool), r"^subject of No SQL in doors Guideline")
        self.assert_shows(self.relate("applies_to", str(self.tool)), "This relation already exists")
        (relation,) = self.relations()
        address = f"memories/memory/{self.rule}/relations/{relation.id}/remove/"
        self.page(address, status=405)
        self.assert_shows(self.post(address), f"Removed: #{self.rule} applies to #{self.tool}.")
        self.assertEqual(self.relations(), [])
        self.assert_shows(self.post(address).lower(), "there is no relation")
        self.assert_shows(self.relate("applies_to", "project"), "Added: applies to alpha.")
        self.assertRegex(self.shown(self.rule), r"^applies to alpha Project")

    def test_what_the_rules_refuse_is_said_and_nothing_is_written(self) -> None:
        self.relate("depends_on", str(self.tool))
        gone = self.write("gone", "3")
        self.delete(gone)
        cases = (
            ("depends_on", "999", "there is no"),
            ("depends_on", "", "'target' must not be empty"),
            ("depends_on", str(self.rule), "are the same"),
            ("related_to", str(gone), "is deleted"),
            ("loves", str(self.tool), "'relation' must be one of"),
        )
        for relation, target, message in cases:
            self.assert_shows(self.relate(relation, target), message, where=(relation, target))
        self.assert_shows(self.relate("depends_on", str(self.rule), self.tool), "would create a cycle")
        self.assertEqual(len(self.relations()), 1)

    def test_the_title_of_a_number_of_this_project_is_looked_up(self) -> None:
        address = self.address(f"memories/memory/{self.rule}/lookup/")
        answer = self.client.get(address, {"target": f"#{self.tool}"})
        self.assertEqual((answer["X-Found"], answer.content.decode()), ("yes", "Tool: ledger_balance"))
        missing = self.client.get(address, {"target": "999"})
        self.assertEqual(missing["X-Found"], "no")
        self.assert_shows(missing.content.decode(), "#999")
        betas = self.address(f"memories/memory/{self.write('of beta', project='beta')}/lookup/", "beta")
        self.assert_lacks(self.client.get(betas, {"target": str(self.tool)}).content.decode(), "ledger_balance")


class CheckPageTests(DecidingTestCase):
    def test_a_person_allows_the_command_that_the_page_shows(self) -> None:
        memory_id = self.write("Tests pass", attributes={"check": "`make test`"})
        decision_id = self.record("Use make", checks=["`make <b>`", "Makefile matches `^test:`"])
        commands = {f"memories/memory/{memory_id}": "make test", f"decisions/decision/{decision_id}": "make <b>"}
        for path, command in commands.items():
            with self.subTest(path):
                page = self.page(f"{path}/change/")
                self.assert_shows(
                    page, f"<code>`{command}` exits 0</code>", "It has not run yet.", "Allow this command"
                )
                digest = re.findall(r'name="digest" value="(\w+)"', page)
                self.assertEqual(len(digest), 1)
                self.assert_shows(self.post(f"{path}/allow/", digest="0" * 64), "The check has changed since")
                page = self.post(f"{path}/allow/", digest=digest[0])
                self.assert_shows(page, "Allowed by", lacks=["Allow this command"])
                self.assert_shows(self.post(f"{path}/allow/", digest=digest[0]), "is allowed already")
        self.assertEqual(self.client.get(self.address(f"memories/memory/{memory_id}/allow/")).status_code, 405)
        self.update(memory_id, check="`make other`")
        self.assert_shows(self.page_of(memory_id), "Allow this command", lacks=["Allowed by"])

    def test_only_owners_allow_and_every_form_has_a_token(self) -> None:
        memory_id = self.write("Tests pass", attributes={"check": "`make test`"})
        address = self.address(f"memories/memory/{memory_id}/allow/")
        digest = parse_check("`make test`").digest
        strict = Client(enforce_csrf_checks=True)
        strict.force_login(ensure_owner())
        self.assertEqual(strict.post(address, {"digest": digest}).status_code, 403)
        self.client.force_login(add_person(command=PersonAdd(name="rita", role="reviewer")))
        self.assert_lacks(self.page_of(memory_id), "Allow this command")
        self.assertEqual(self.client.post(address, {"digest": digest}).status_code, 403)
        with self.store():
            self.assertFalse(log.events().of_type(CHECK_ALLOWED).exists())
