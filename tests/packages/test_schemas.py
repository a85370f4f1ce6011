"""The packages, read by linters that have the published schemas with them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from django.test import SimpleTestCase

from deploy.build_packages import build_formula, read_release
from tests.packages.test_contents import PackagesTestCase
from tests.programs import ROOT, needs, path_of


def run(*command: str, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOME": str(home), "PYTHONPATH": "", "NO_COLOR": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)


@needs("skillsaw")
class SkillsawTests(PackagesTestCase):
    """Skillsaw has the schemas of Agent Plugins and the MCP registry, and rules for Claude Code, Codex and Cursor."""

    def lint(self, folder: Path, *types: str) -> str:
        command = [path_of("skillsaw"), "-m", "skillsaw", "lint", "--no-custom-rules", str(folder)]
        done = run(*command, home=self.folder)
        scanned = done.stdout.partition("Repo type:")[2].partition("\n")[0]
        for name in types:
            self.assertIn(name, scanned)
        return "" if done.returncode == 0 else done.stdout + done.stderr

    def test_the_marketplaces_and_their_plugins_are_valid(self):
        types = ("marketplace", "codex-marketplace", "codex-plugin", "cursor-marketplace", "cursor-plugin")
        self.assertEqual(self.lint(self.folder / "plugins", *types), "")

    def test_the_portable_plugin_is_valid(self):
        self.assertEqual(self.lint(self.folder / "plugins" / "agent-plugins", "agent-plugin", "agentskills"), "")

    def test_the_registrys_file_is_valid_and_a_wrong_one_is_not(self):
        folder = Path(tempfile.mkdtemp(dir=self.folder.parent))
        self.addCleanup(shutil.rmtree, folder)
        server = self.read("server.json")
        (folder / "server.json").write_text(json.dumps(server))
        self.assertEqual(self.lint(folder, "mcp-registry"), "")
        del server["packages"][0]["transport"]
        (folder / "server.json").write_text(json.dumps(server))
        self.assertIn("'transport' is a required property", self.lint(folder, "mcp-registry"))


@needs("check-jsonschema")
class GitHubTests(SimpleTestCase):
    def check(self, schema: str, *paths: Path) -> None:
        command = [path_of("check-jsonschema"), "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
        self.assertTrue(paths)
        done = run(*command, *map(str, paths), home=ROOT)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_workflows_are_valid_and_call_what_ci_runs(self):
        workflows = [*(ROOT / ".github" / "workflows").glob("*.yml")]
        self.check("github-workflows", *workflows)
        self.assertTrue(any("run: .ci/run\n" in workflow.read_text() for workflow in workflows))

    def test_the_issue_forms_are_valid(self):
        self.check("github-issue-forms", *(ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


@needs("ruby")
class FormulaTests(PackagesTestCase):
    def test_ruby_loads_it_and_it_declares_what_a_formula_needs(self):
        source = self.folder / "django_memory_hub.tar.gz"
        source.write_bytes(b"source")
        formula = build_formula(read_release(), self.folder, source)
        checked = run(path_of("ruby"), "-wc", str(formula), home=self.folder)
        self.assertEqual((checked.stdout, checked.stderr), ("Syntax OK\n", ""))
        loaded = run(path_of("ruby"), str(Path(__file__).with_name("formula.rb")), str(formula), home=self.folder)
        declared = json.loads(loaded.stdout or "{}")
        self.assertEqual(declared.pop("license"), {"all_of": ["MIT", "Apache-2.0"]}, loaded.stderr)
        self.assertTrue(declared.pop("url").endswith("/django-memory-hub/django_memory_hub.tar.gz"))
        self.assertEqual(len(declared.pop("sha256")), 64)
        self.assertTrue(declared.pop("homepage").startswith("https://"))
        self.assertLess(len(declared.pop("desc")), 80)
        self.assertRegex(declared.pop("depends_on"), r"^python@3\.\d+$")
        self.assertEqual(declared, {"service": True, "test": True, "install": True})
