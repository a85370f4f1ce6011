"""A tool, a setting or a client works everywhere once it is declared in one file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured
from django.test import SimpleTestCase, tag

from memoryhub.config import project_settings

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
# Existing tests must pass too: none may list tools, settings or clients by hand.
TESTS = (
    "tests.declarations.doors",
    "tests.admin.test_settings",
    "tests.sessions_app.test_settings",
    "tests.sessions_app.test_capture",
    "tests.setup.test_setup.SetupTests",
)


@tag("process")
class DeclarationTests(SimpleTestCase):
    def test_what_is_declared_in_one_file_works_everywhere(self) -> None:
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.declarations.invented",
            "MEMORY_HUB_TEST_TOOLS": "tests.declarations.invented_tool",
        }
        command = [sys.executable, "manage.py", "test", *TESTS]
        run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        self.assertRegex(
            run.stdout.rstrip().splitlines()[-1], "^[1-9][0-9]* passed, 0 failed, [0-9]+ skipped$", run.stderr
        )

    def test_a_setting_without_a_group_fails_by_name(self) -> None:
        with self.assertRaisesRegex(ImproperlyConfigured, "^setting 'colour' declares no group"):

            class Colourful(project_settings.ProjectSettings):
                colour: str = "red"

    def test_the_guide_shows_the_declarations(self) -> None:
        guide = (ROOT / "docs/internals/new-setting-or-client.md").read_text()
        settings = (HERE / "invented.py").read_text()
        fields = settings[settings.index("    keep_drafts") : settings.index("\n\nproject_settings")]
        client = (HERE / "quill.toml").read_text().partition("[quill.hooks.events.Asked]")[0]
        for declaration in (fields, client):
            self.assertIn(declaration.strip(), guide)
