from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from memories.schemas import MemoryTouch, MemoryUpdate
from memories.services import delete_memory, update_memory
from memoryhub.core import clock
from tests.admin.base import AdminTestCase, text_of

SCHEMA = {"type": "object", "properties": {"day": {"type": "string", "description": "in UTC"}}, "required": ["day"]}


class KindTestCase(AdminTestCase):
    def form(self, **fields: Any) -> dict[str, Any]:
        empty = dict.fromkeys(("tags", "source", "links", "topic_key"), "")
        return {"title": "A new one", "content": "Its text", **empty, **fields}

    def attributes(self, memory_id: int) -> dict[str, Any]:
        found: dict[str, Any] = self.memory(memory_id).attributes
        return found


class KindListTests(KindTestCase):
    def test_each_kind_has_its_list_and_all_are_in_the_list_of_all(self) -> None:
        ids = {
            kind: self.write(f"A {kind}", kind, kind=kind) for kind in ("observation", "guideline", "tool", "knowledge")
        }
        for kind, memory_id in ids.items():
            self.assertEqual(self.listed(f"memories/{kind}/"), [memory_id], kind)
            self.assertEqual(self.memories(kind=kind), [memory_id], kind)
        self.assertEqual(set(self.memories()), set(ids.values()))
        page = self.page("memories/tool/")
        self.assertRegex(page, r'/memories/memory/" class="here"><svg[^>]*><use[^>]*/></svg>Knowledge')
        self.assertIn('/memories/tool/" aria-current="page">Tools</a>', page)

    def test_guidelines_come_by_priority_and_filter_by_any_category_in_use(self) -> None:
        low = self.write("low", "1", kind="guideline", type="naming", attributes={"priority": 5})
        high = self.write("high", "2", kind="guideline", attributes={"priority": 95})
        usual = self.write("usual", "3", kind="guideline")
        self.assertEqual(self.listed("memories/guideline/"), [high, usual, low])
        self.assertEqual(self.listed("memories/guideline/", type="naming"), [low])
        page = self.page("memories/guideline/")
        self.assertIn("?type=naming", page)
        self.assertIn('class="gauge-number">95<', page)

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
        self.assertIn("badge-conflict", self.page("memories/observation/"))
        with self.store():
            delete_memory(command=MemoryTouch(id=disputed))
        self.assertEqual(self.listed("memories/observation/", state="deleted"), [disputed])

    def test_a_search_in_a_list_finds_its_kind_alone(self) -> None:
        self.write("The log's anchor", "an anchor of the log")
        tool = self.write("anchor-log", "anchors the log", kind="tool")
        self.assertEqual(self.listed("memories/tool/", q="anchor of the log"), [tool])

    def test_what_is_of_another_kind_has_no_page_there(self) -> None:
        tool = self.write("a tool", kind="tool")
        self.page(f"memories/guideline/{tool}/change/", status=404)
        answer = self.client.get(self.address(f"memories/tool/{tool}/change/"))
        self.assertRedirects(answer, self.address(f"memories/memory/{tool}/change/"))


class KindFormTests(KindTestCase):
    def test_a_guideline_with_all_that_it_has(self) -> None:
        fields = self.form(
            type="naming",
            priority="80",
            rationale="Names are read more often than written.",
            examples__good=["amount = 1\r\ntotal = 2", "", "customer"],
            examples__bad=["amt"],
        )
        self.assertIn("Created #1.", self.post("memories/guideline/add/", **fields))
        memory = self.memory(1)
        self.assertEqual((memory.kind, memory.type, memory.priority), ("guideline", "naming", 80))
        examples = {"good": ["amount = 1\ntotal = 2", "customer"], "bad": ["amt"]}
        self.assertEqual(memory.attributes["examples"], examples)
        page = self.page("memories/memory/1/change/")
        shown = text_of(page)
        for text in ("Names are read more often", "Good", "Bad", "amt", "of 100"):
            self.assertIn(text, shown)

    def test_a_tool_shows_what_it_takes(self) -> None:
        examples = ["replay 1", '{"day": 1}']
        fields = self.form(type="cli", parameters=json.dumps(SCHEMA), examples=examples, constraints="x")
        self.assertIn("Created #1.", self.post("memories/tool/add/", **fields))
        expected = {"parameters": SCHEMA, "examples": ["replay 1", {"day": 1}], "constraints": "x"}
        self.assertEqual(self.attributes(1), expected)
        self.assertIn("day required string in UTC", text_of(self.page("memories/memory/1/change/")))

    def test_knowledge_holds_until_a_time_in_utc(self) -> None:
        fields = self.form(type="fact", confidence="0.25", valid_until="2031-02-03T04:05")
        self.assertIn("Created #1.", self.post("memories/knowledge/add/", **fields))
        self.assertEqual(self.attributes(1), {"confidence": 0.25, "valid_until": "2031-02-03T04:05:00Z"})
        self.assertIn('value="2031-02-03T04:05:00"', self.page("memories/memory/1/edit/"))

    def test_a_time_is_shown_and_read_in_the_viewers_zone(self) -> None:
        self.client.cookies["hub_time_zone"] = "Asia/Tokyo"
        fields = self.form(type="fact", confidence="1", valid_until="2031-02-03T04:05")
        self.post("memories/knowledge/add/", **fields)
        self.assertEqual(self.attributes(1)["valid_until"], "2031-02-02T19:05:00Z")
        self.assertIn('value="2031-02-03T04:05:00"', self.page("memories/memory/1/edit/"))
        self.assertIn('title="2031-02-02 19:05:00 UTC">2031-02-03</time>', self.page("memories/knowledge/"))

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
                self.assertIn("worth keeping", page)
                errors = page.partition(f'id="id_{field}_error">')[2].partition("</p>")[0]
                self.assertIn(message, errors)
        self.assertEqual(self.memories(), [])

    def test_all_that_is_wrong_is_said_at_once(self) -> None:
        page = self.post("memories/guideline/add/", **self.form(title="", priority="-1"))
        self.assertIn('id="id_title_error"', page)
        self.assertIn('id="id_priority_error"', page)

    def test_each_area_of_a_list_is_described_by_what_is_wrong_with_it(self) -> None:
        page = self.post("memories/guideline/add/", **self.form(examples__bad=["x" * 10_001]))
        area = page.partition('<textarea name="examples__bad"')[2].partition(">")[0]
        self.assertIn('aria-invalid="true"', area)
        self.assertIn("id_examples__bad_error", area)

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
                self.assertIn("Nothing changed", self.post(f"memories/memory/{memory_id}/edit/", **fields))
                self.assertEqual(self.attributes(memory_id), attributes)

    def test_an_edit_sends_only_the_attributes_that_differ_and_an_emptied_one_goes(self) -> None:
        kept = {"priority": 80, "rationale": "why", "examples": {"good": ["a"], "bad": ["b"]}}
        memory_id = self.write("A rule", kind="guideline", attributes=kept)
        fields = {**self.shown(memory_id), "rationale": "", "priority": "10"}
        self.assertIn("Saved version 2.", self.post(f"memories/memory/{memory_id}/edit/", **fields))
        self.assertEqual(self.attributes(memory_id), {"priority": 10, "examples": kept["examples"]})
        history = text_of(self.page(f"memories/memory/{memory_id}/versions/"))
        self.assertIn("Priority: [removed: 80 ] [added: 10 ]", history)
        self.assertNotIn("Examples:", history)

    def test_an_edit_that_came_too_late_shows_which_attributes_changed_meanwhile(self) -> None:
        memory_id = self.write("A rule", kind="guideline", attributes={"priority": 80})
        fields = self.shown(memory_id)
        with self.store(actor="bob"):
            update_memory(command=MemoryUpdate(id=memory_id, attributes={"priority": 95}))
        page = text_of(self.post(f"memories/memory/{memory_id}/edit/", **{**fields, "rationale": "mine"}))
        self.assertIn("Version 2 was saved while you edited version 1", page)
        self.assertIn("Priority: [removed: 80 ] [added: 95 ] The text did not change.", page)
        self.assertEqual(self.attributes(memory_id), {"priority": 95})

    def shown(self, memory_id: int) -> dict[str, Any]:
        answer = self.client.get(self.address(f"memories/memory/{memory_id}/edit/"))
        form = answer.context["form"]
        values = {name: form[name].value() for name in form.fields}
        return {name: "" if value is None else value for name, value in values.items()}


class PromoteTests(KindTestCase):
    def test_what_was_for_one_session_is_made_to_hold_for_the_project(self) -> None:
        memory_id = self.write("Only here", session="s-1", scope="session")
        self.assertIn("Promote to the project", self.page(f"memories/memory/{memory_id}/change/"))
        self.page(f"memories/memory/{memory_id}/promote/", status=405)
        page = self.post(f"memories/memory/{memory_id}/promote/")
        self.assertIn("Promoted to the project, as version 2.", page)
        self.assertNotIn("Promote to the project", page)
        self.assertEqual(self.memory(memory_id).scope, "project")

    def test_a_title_that_the_project_has_already_is_said(self) -> None:
        taken = self.write("The same", "one")
        memory_id = self.write("The same", "two", session="s-1", scope="session")
        self.assertIn(f"exists as #{taken}", self.post(f"memories/memory/{memory_id}/promote/"))
        self.assertEqual(self.memory(memory_id).scope, "session")

    def test_what_holds_for_the_project_is_not_promoted(self) -> None:
        memory_id = self.write("For all")
        page = self.post(f"memories/memory/{memory_id}/promote/")
        self.assertIn("Promote is for memories in scope session", page)
        self.assertNotIn("memory_write", page)


class OtherStoreTests(KindTestCase):
    def test_what_is_written_in_the_global_store_is_of_its_scope(self) -> None:
        address = "/global/admin/memories/guideline/"
        answer = self.client.post(f"{address}add/", self.form(type="general", priority="70"), follow=True)
        page = text_of(answer.content.decode())
        self.assertIn("Created #1.", page)
        self.assertRegex(page, r"Scope Global")
        self.assertNotIn("Promote", page)
        listed = self.client.get(address).content.decode()
        self.assertIn("A new one", listed)
        self.assertNotIn("?scope=", listed)
        self.assertEqual(self.listed("memories/guideline/"), [])
