"""The skill follows the specification of Agent Skills (agentskills.io/specification), and names tools that exist."""

from __future__ import annotations

import re

import yaml
from django.test import SimpleTestCase

from memoryhub.client.setup.agent_files import SKILL_FILE
from memoryhub.core.paging import estimate_tokens
from memoryhub.mcp.listing import listed_name, listed_tools, load_tools
from memoryhub.mcp.options import PROFILES

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
