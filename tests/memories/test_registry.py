from __future__ import annotations

from typing import Any

from django.test import tag

from memories.kind_tools import KIND_TOOLS, VERBS
from memories.models import Memory
from memoryhub.core.errors import ConflictError, Gone, HubError, Invalid, NotFound, PreconditionFailed
from memoryhub.core.models import RawEvent
from memoryhub.core.stores.store import GLOBAL_STORE, use_store
from memoryhub.core.tools import Answer, find_tool
from memoryhub.mcp.listing import input_schema, load_tools
from tests.memories.base import AcmeTestCase


class RegistryTestCase(AcmeTestCase):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        load_tools()

    def ask(self, name: str, /, **arguments: Any) -> Answer:
        tool = find_tool(name)
        assert tool
        return tool.handler(tool.input.model_validate(arguments))

    def data(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        return self.ask(name, **arguments).data

    def refused(self, error: type[HubError], pattern: str, name: str, /, **arguments: Any) -> HubError:
        with self.refuses(error, pattern) as refused:
            self.ask(name, **arguments)
        exception: HubError = refused.exception
        return exception


class TableTests(RegistryTestCase):
    def test_every_kind_takes_its_own_attributes_flat_and_by_old_names(self):
        for entries in KIND_TOOLS:
            fields = {name for name, shape in entries.declared.shapes.items() if not shape.is_unlisted}
            fields |= {entries.words.name, entries.words.text}
            for verb in VERBS:
                tool = find_tool(f"{entries.kind}_{verb.name}")
                assert tool
                with self.subTest(tool.name):
                    self.assertEqual(tool.full_name, f"memory_{tool.name}")
                    self.assertLessEqual(set(tool.renamed.values()), set(tool.input.model_fields))
                    self.assertFalse(set(tool.renamed) & set(tool.input.model_fields))
                    listed = set(input_schema(tool.input)["properties"])
                    self.assertNotIn("attributes", listed)
                    if verb.name in ("add", "update"):
                        self.assertLessEqual(fields | {"category", "tags", "scope"}, listed)


class AddTests(RegistryTestCase):
    def test_a_tool_is_stored_with_all_its_attributes(self):
        attributes = {
            "parameters": {"type": "object", "properties": {"message": {"type": "string"}}},
            "examples": ["git commit -m 'Fix it'", {"message": "Fix it"}],
            "constraints": "Only when the tests pass.",
        }
        fields = {"name": "git_commit", "description": "Makes a commit.", "category": "cli", "tags": ["git"]}
        answer = self.ask("tool_add", **fields, **attributes, author="grace")
        self.assertEqual(answer.text, f"created #{answer.data['id']} git_commit")
        memory = Memory.objects.get()
        self.assertEqual((memory.kind, memory.type, memory.title), ("tool", "cli", "git_commit"))
        self.assertEqual((memory.content, memory.tags, memory.author), ("Makes a commit.", ["git"], "grace"))
        self.assertEqual(memory.attributes, attributes)
        self.assertEqual(RawEvent.objects.get(position=memory.id).actor, "grace")

    def test_knowledge_keeps_its_source_confidence_and_expiry(self):
        attributes = {"confidence": 0.5, "valid_until": "2020-01-01T00:00:00Z"}
        self.ask("knowledge_add", title="Host", content="The host is db1.", source="https://wiki.test/db", **attributes)
        answer = self.ask("knowledge_get", title="Host")
        self.assertIn("(expired, ", answer.text)
        self.assertEqual((answer.data["source"], answer.data["type"]), ("https://wiki.test/db", "fact"))
        self.assertEqual(answer.data["attributes"], attributes)

    def test_a_name_is_unique_per_kind_and_scope_and_a_text_is_not(self):
        first = self.data("guideline_add", name="Short", content="Keep it short.")
        for content in ("Keep it short.", "Keep it very short."):
            sentence = rf"'Short' of scope project exists as #{first['id']}; update it"
            error = self.refused(ConflictError, sentence, "guideline_add", name="Short", content=content)
            self.assertEqual(error.data["id"], first["id"])
        self.data("tool_add", name="Short", description="A tool.")
        self.assertIn("(scope global)", self.ask("tool_add", name="Short", description="Wider.", scope="global").text)
        self.assertEqual(self.data("tool_add", name="Same text", description="A tool.")["status"], "created")

    def test_unknown_attributes_are_refused(self):
        self.refused(Invalid, "'type' must be one of mcp, cli", "tool_add", name="A", description="b", category="x")
        self.refused(Invalid, "not a valid JSON schema", "tool_add", name="A", description="b", parameters={"type": 5})
        with self.assertRaisesRegex(ValueError, "less than or equal to 100"):
            self.ask("guideline_add", name="A", content="b", priority=101)

    def test_a_scope_id_must_be_the_one_bound_here(self):
        self.ask("guideline_add", name="Org's", content="x", scope="org", scope_id="acme")
        self.ask("guideline_add", name="Session's", content="x", scope="session", scope_id="s-1")
        for scope, scope_id, message in (
            ("org", "umbrella", "bound to org acme"),
            ("project", "beta", "bound to project alpha"),
            ("session", "s-2", "session is s-1"),
        ):
            for name, text in (("guideline_add", {"content": "x"}), ("guideline_get", {})):
                self.refused(Invalid, message, name, name="N", scope=scope, scope_id=scope_id, **text)


class NearestTests(RegistryTestCase):
    def setUp(self) -> None:
        super().setUp()
        for scope in ("global", "org", "project", "session"):
            self.ask("guideline_add", name="Style", content=f"As the {scope} has it.", scope=scope)
        self.ask("guideline_add", name="Only global", content="For all.", scope="global")

    def content(self, **arguments: Any) -> str:
        found: str = self.data("guideline_get", **arguments)["content"]
        return found

    def test_a_name_means_the_nearest_entry(self):
        self.assertEqual(self.content(name="Style"), "As the session has it.")
        self.assertEqual(self.content(name="Style", scope="org"), "As the org has it.")
        self.assertEqual(self.content(name="Only global"), "For all.")
        self.refused(NotFound, "no guideline 'Only global'", "guideline_get", name="Only global", inherit=False)
        wide = self.data("guideline_get", name="Only global")
        self.assertEqual(self.content(id=wide["id"], scope="global"), "For all.")
        self.refused(Invalid, "give the id or the name of the guideline", "guideline_get")

    def test_an_update_or_deactivation_by_name_changes_the_nearest_and_names_it(self):
        answer = self.ask("guideline_update", name="Style", content="New.", change_reason="clearer")
        self.assertIn("(scope session)", answer.text)
        answer = self.ask("guideline_update", name="Only global", priority=80)
        self.assertIn("to v2 Only global (scope global)", answer.text)
        with use_store(GLOBAL_STORE):
            self.assertEqual(Memory.objects.get(title="Only global").priority, 80)
        self.assertIn("(scope session)", self.ask("guideline_deactivate", name="Style", reason="gone").text)
        self.assertEqual(self.content(name="Style"), "As the project has it.")


class ListTests(RegistryTestCase):
    def setUp(self) -> None:
        super().setUp()
        for name, scope, priority in (
            ("Style", "global", 90),
            ("Style", "project", 40),
            ("Safety", "global", 80),
            ("Speed", "session", 60),
        ):
            own = {"category": scope, "tags": [scope, "all"], "priority": priority}
            self.ask("guideline_add", name=name, content=f"{name} of {scope}.", scope=scope, **own)

    def listed(self, **arguments: Any) -> list[tuple[str, str]]:
        found = self.data("guideline_list", **arguments)["results"]
        return [(entry["scope"], entry["title"]) for entry in found]

    @tag("backend")
    def test_lists_show_the_nearest_of_each_name_by_priority_or_by_name(self):
        everything = [("global", "Safety"), ("session", "Speed"), ("project", "Style")]
        for arguments, entries in (
            ({}, everything),
            ({"scope": "global"}, [("global", "Style"), ("global", "Safety")]),
            ({"scope": "project", "inherit": False}, [("project", "Style")]),
            ({"scope": "session", "scope_id": "s-1", "inherit": False}, [("session", "Speed")]),
            ({"category": "session"}, [("session", "Speed")]),
            ({"tags": ["all", "project"]}, [("project", "Style")]),
        ):
            with self.subTest(arguments):
                self.assertEqual(self.listed(**arguments), entries)
        text = self.ask("guideline_list").text
        entry = r"global#\d+ guideline/global [\d-]+ Safety of global\. \[all, global\] priority 80"
        self.assertRegex(text, rf"(?m)^{entry}$")
        self.assertTrue(text.endswith("(3 of 3)"), text)
        self.refused(Invalid, "bound to project alpha", "guideline_list", scope="project", scope_id="beta")
        first = self.data("guideline_list", limit=2, compact=True)
        self.assertEqual((len(first["results"]), first["meta"]["total_count"]), (2, 3))
        self.assertNotIn("content", first["results"][0])
        cursor = first["meta"]["next_cursor"]
        self.assertEqual(self.listed(limit=2, compact=True, cursor=cursor), [("project", "Style")])
        self.ask("guideline_deactivate", name="Speed")
        self.assertEqual(self.listed(), [everything[0], everything[2]])
        self.assertEqual(self.listed(include_deleted=True), everything)
        for name in ("b", "C", "a"):
            self.ask("tool_add", name=name, description=f"Tool {name} " + "does much " * 12)
        self.assertEqual([entry["title"] for entry in self.data("tool_list")["results"]], ["a", "b", "C"])
        self.assertEqual(self.ask("knowledge_list").text, "no fact here matches")
        self.assertTrue(self.data("tool_list", max_tokens=50)["meta"]["truncated"])


class ChangeTests(RegistryTestCase):
    def setUp(self) -> None:
        super().setUp()
        own = {"parameters": {"type": "object"}, "constraints": "Never on Friday."}
        self.deploy = self.data("tool_add", name="deploy", description="Deploys.", category="cli", **own)["id"]

    def test_what_is_left_out_or_null_stays_and_a_name_beside_an_id_is_the_new_name(self):
        self.data("tool_update", id=self.deploy, description="Deploys it.", constraints=None)
        memory = Memory.objects.get()
        self.assertEqual((memory.title, memory.content, memory.type), ("deploy", "Deploys it.", "cli"))
        self.assertEqual(memory.attributes, {"parameters": {"type": "object"}, "constraints": "Never on Friday."})
        self.data("tool_update", name="deploy", constraints="Never at night.")
        self.assertEqual(Memory.objects.get().attributes["constraints"], "Never at night.")
        self.data("tool_update", id=self.deploy, name="ship", base_version=3)
        self.assertEqual(Memory.objects.get().title, "ship")
        self.refused(NotFound, "no tool 'deploy' here; tool_list shows all", "tool_get", name="deploy")
        future = {"id": self.deploy, "base_version": 9, "description": "x"}
        self.refused(PreconditionFailed, "is at version 4", "tool_update", **future)

    def test_an_id_of_another_kind_is_refused(self):
        sentence = f"#{self.deploy} is of kind tool, not guideline"
        for verb, more in (("get", {}), ("update", {"content": "x"}), ("deactivate", {}), ("history", {})):
            self.refused(NotFound, sentence, f"guideline_{verb}", id=self.deploy, **more)

    def test_the_history_shows_who_when_why_and_what(self):
        self.data("tool_update", id=self.deploy, description="Deploys twice.", change_reason="twice", author="grace")
        self.data("tool_update", id=self.deploy, description="Deploys thrice.", change_reason="thrice")
        answer = self.ask("tool_history", name="deploy")
        for part in ("v3 ", "by ada", ": thrice", "v2 ", "by grace", ": twice", "{+thrice+}", "[-twice-]", "(3 of 3)"):
            self.assertIn(part, answer.text)
        first = self.data("tool_history", id=self.deploy, limit=2)
        rest = self.data("tool_history", id=self.deploy, limit=2, cursor=first["meta"]["next_cursor"])
        self.assertEqual([item["version"] for item in (*first["results"], *rest["results"])], [3, 2, 1])
        self.assertNotIn("thrice+", self.ask("tool_history", id=self.deploy, compact=True).text)

    def test_deactivated_entries_free_their_name_and_keep_their_history(self):
        answer = self.ask("tool_deactivate", name="deploy", reason="replaced", author="grace")
        self.assertRegex(answer.text, rf"^deleted #{self.deploy} deploy at 20\S+Z; memory_restore brings it back$")
        self.refused(NotFound, "no tool 'deploy'", "tool_get", name="deploy")
        self.refused(Gone, "is deleted", "tool_get", id=self.deploy)
        self.refused(Gone, "is deleted", "tool_deactivate", id=self.deploy)
        self.assertIn("(deleted)", self.ask("tool_get", name="deploy", include_deleted=True).text)
        self.assertEqual(self.data("tool_history", name="deploy")["results"][0]["id"], self.deploy)
        again = self.data("tool_add", name="deploy", description="Anew.")
        self.assertEqual(self.data("tool_history", name="deploy")["results"][0]["id"], again["id"])
