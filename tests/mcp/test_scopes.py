from __future__ import annotations

from typing import Any

from memoryhub.core.stores.store import list_projects
from tests.databases import at_home
from tests.mcp.client import McpTestCase, Server


class ScopeToolsTests(McpTestCase):
    """A server bound to alpha; beta belongs to another organisation."""

    server: Server

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        beta = cls.share_server("--project", "beta")
        beta.say("org_create", id="umbrella", name="Umbrella")
        beta.say("memory_write", title="Fish", content="zebrafish are kept in tank nine")
        metadata = {"goals": "breed zebrafish"}
        beta.say("project_create", id="beta", name="Beta", org_id="umbrella", metadata=metadata, description="Pets.")
        beta.end()
        cls.server = cls.share_server()

    def refused(self, tool: str, **arguments: Any) -> str:
        result = self.server.call(tool, **arguments)
        self.assertTrue(result["isError"], result)
        return str(result["content"][0]["text"])

    def data(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = self.server.call(tool, **arguments, format="json")
        self.assertFalse(result["isError"], result)
        found: dict[str, Any] = result["structuredContent"]
        return found

    def test_a_project_describes_itself_and_joins_an_organisation(self) -> None:
        self.assertIn("organisation acme (Acme)", self.server.say("memory_org_create", id="acme", name="Acme"))
        self.assertIn("exists already; send if_exists=update", self.refused("org_create", id="acme"))
        described = self.server.say(
            "memory_project_create",
            id="alpha",
            org_id="acme",
            name="Alpha",
            description="An aquarium.",
            root_path="/src/alpha",
            metadata={"goals": ["ship"]},
        )
        for line in (
            "project alpha (Alpha)",
            "organisation: acme",
            "folder: /src/alpha",
            'metadata: {"goals": ["ship"]}',
        ):
            self.assertIn(line, described)
        self.assertIn("exists already; send if_exists=update", self.refused("project_create", id="alpha", name="A"))
        changed = self.data("project_create", id="alpha", tags=["ops"], if_exists="update")
        self.assertEqual((changed["name"], changed["tags"], changed["org_id"]), ("Alpha", ["ops"], "acme"))
        self.assertEqual(self.data("memory_project_get"), {**changed, "redacted": []})
        updated = self.server.say("org_create", id="acme", description="Makes everything.", if_exists="update")
        self.assertIn("projects: alpha", updated)

    def test_another_project_shows_only_its_card(self) -> None:
        card = "beta (Beta) of umbrella: Pets."
        self.assertEqual(self.server.say("memory_project_get", id="beta"), card)
        self.assertIn(card, self.server.say("memory_project_list"))
        for tool, arguments in (
            ("project_get", {"id": "beta"}),
            ("project_list", {}),
            ("project_list", {"org_id": "umbrella"}),
        ):
            output = str(self.data(tool, **arguments))
            self.assertIn("'beta'", output)
            for hidden in ("zebrafish", "metadata", "memories", "last_activity"):
                self.assertNotIn(hidden, output)
        self.assertIn("not_found", self.refused("project_get", id="gamma"))

    def test_another_project_can_be_created_but_not_changed(self) -> None:
        self.assertEqual(self.server.say("project_create", id="delta", name="Delta"), "delta (Delta)")
        again = self.refused("project_create", id="delta", name="Other", if_exists="update")
        self.assertIn("forbidden: project 'delta' can be described only from inside it", again)
        self.assertIn("forbidden", self.refused("org_create", id="umbrella", name="x", if_exists="update"))
        self.assertIn("no organisation 'nobody'", self.refused("project_create", id="epsilon", org_id="nobody"))
        self.assertIn("must match", self.refused("project_create", id="../epsilon"))
        with at_home(self.home):
            self.assertEqual(list_projects(), ["alpha", "beta", "delta"])

    def test_lists_accept_the_common_arguments(self) -> None:
        self.assertIn("umbrella (Umbrella)", self.server.say("memory_org_list"))
        page = self.server.say("project_list", limit=1, compact=True)
        self.assertRegex(page, r"\(1 of \d; more: cursor=\S+\)$")
        self.assertEqual(len(self.data("project_list", limit=1)["results"]), 1)
        self.assertEqual(self.server.say("project_list", org_id="nobody"), "no project matches")

    def test_hub_db_is_neither_needed_nor_created(self) -> None:
        self.server.say("project_get")
        self.assertFalse((self.home / "hub.db").exists())
