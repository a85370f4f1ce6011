"""The skill follows the specification of Agent Skills (agentskills.io/specification), and names tools that exist."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from django.test import SimpleTestCase

from memoryhub.client.setup.agent_files import SKILL_FILE
from memoryhub.client.setup.clients import file_of
from memoryhub.config.clients import find_client
from memoryhub.core.paging import estimate_tokens
from memoryhub.mcp.listing import listed_name, listed_tools, load_tools
from memoryhub.mcp.options import PROFILES
from tests.setup.test_setup import SetupTestCase, written_clients

FIELDS = {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}


class SkillTests(SimpleTestCase):
    def setUp(self) -> None:
        self.text = SKILL_FILE.read_text("utf-8")
        head, _, self.body = self.text.removeprefix("---\n").partition("\n---\n")
        self.fields = yaml.safe_load(head)

    def test_it_is_short(self) -> None:
        self.assertLess(estimate_tokens(self.text), 500)

    def test_its_front_matter_is_as_specified(self) -> None:
        self.assertLessEqual(set(self.fields), FIELDS)
        name = self.fields["name"]
        self.assertRegex(name, r"\A[a-z0-9]+(-[a-z0-9]+)*\Z")
        self.assertLessEqual(len(name), 64)
        self.assertEqual(name, SKILL_FILE.parent.name)
        self.assertTrue(0 < len(self.fields["description"].strip()) <= 1024)
        self.assertLessEqual(len(self.fields.get("compatibility", "-")), 500)

    def test_its_body_names_tools_that_are_listed_by_default(self) -> None:
        load_tools()
        listed = {listed_name(tool, PROFILES[0]) for tool in listed_tools(PROFILES[0])}
        named = set(re.findall(r"`((?:memory|decision|session)_\w+)`", self.body))
        self.assertLessEqual({"memory_search", "memory_write", "decision_record", "session_end"}, named)
        self.assertLessEqual(named, listed)


class InstalledSkillTests(SetupTestCase):
    def skill(self, client: str) -> Path:
        path = file_of(find_client(client).skill, None)
        assert path
        return path

    def test_it_is_installed_as_it_is_and_removed_with_the_client(self) -> None:
        for client in written_clients():
            path = file_of(client.skill, None)
            if path is None:
                continue
            with self.subTest(client=client.id):
                self.assertEqual((path.name, path.parent.name), ("SKILL.md", "memory-hub"))
                self.assertIn(f"{path}: written", self.set_up(client))
                mark, _, rest = path.read_text().removeprefix("---\n").partition("\n")
                self.assertTrue(mark.startswith("# From `memory-hub setup`, "))
                self.assertEqual(f"---\n{rest}", SKILL_FILE.read_text())
                self.run_setup(client.id, "--remove", "--yes")
                self.assertFalse(path.exists())

    def test_one_that_the_user_changed_stays(self) -> None:
        path = self.skill("claude-code")
        self.set_up(find_client("claude-code"))
        changed = path.read_text() + "Write in French.\n"
        path.write_text(changed)
        self.assertIn(f"{path} is your own and stays as it is", self.set_up(find_client("claude-code")))
        self.run_setup("claude-code", "--remove", "--yes")
        self.assertEqual(path.read_text(), changed)

    def test_a_file_that_two_clients_read_goes_with_the_last_of_them(self) -> None:
        for first, second in (("codex", "zed"), ("vscode", "copilot-cli")):
            path = self.skill(first)
            self.assertEqual(path, self.skill(second))
            self.set_up(find_client(first))
            self.assertNotIn(str(path), self.set_up(find_client(second)))
            self.run_setup(first, "--remove", "--yes")
            self.assertTrue(path.exists())
            self.run_setup(second, "--remove", "--yes")
            self.assertFalse(path.exists())
        top = self.repository()
        shared = top / ".agents/skills/memory-hub/SKILL.md"
        with self.in_folder(top):
            for client in ("codex", "amp"):
                self.set_up(find_client(client), "--repository")
            self.run_setup("amp", "--repository", "--remove", "--yes")
            self.assertTrue(shared.exists())
            self.run_setup("codex", "--repository", "--remove", "--yes")
        self.assertFalse(shared.exists())


class PastedTests(SetupTestCase):
    """A client whose file is YAML: the entry is shown, found and tried, but not written."""

    def test_the_entry_is_shown_and_what_was_pasted_counts(self) -> None:
        file = self.file(".config/goose/config.yaml", "# mine\nGOOSE_MODEL: m\n")
        shown = self.refused(2, "is YAML, which this command does not change; change it by hand", "goose", "--yes")
        entry = yaml.safe_load(shown)["extensions"]["memory-hub"]
        self.assertEqual((entry["type"], entry["enabled"], entry["args"]), ("stdio", True, ["mcp"]))
        self.assertIn("cmd", entry)
        self.assertEqual(file.read_text(), "# mine\nGOOSE_MODEL: m\n")
        file.write_text(file.read_text() + shown)
        self.assertIn("goose           installed  set up", self.run_setup())
        self.assertIn("nothing to do", self.run_setup("goose", "--yes"))
        self.refused(2, "change it by hand", "goose", "--yes", "--remove")

    def test_a_file_with_aliases_or_without_a_mapping_is_refused(self) -> None:
        for text, words in (("a: &x [1]\nb: *x\n", "is not valid YAML: it has an alias"), ("- 1\n", "a mapping")):
            self.file(".config/goose/config.yaml", text)
            self.refused(2, words, "goose", "--yes")
