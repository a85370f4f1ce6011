"""``manage.py import``: once as a user runs it, in a process of its own, and else in this one."""

import os
import subprocess
import sys
import tempfile
from contextlib import chdir
from io import StringIO
from pathlib import Path

from django.core.management import CommandError, call_command

from memories.models import Memory
from sessions_app.models import Commit
from tests.sessions_app.test_git import Repository
from tests.support import HubTestCase

MANAGE = Path(__file__).parents[1] / "manage.py"


class ImportCommandTest(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.repository = Repository(Path(folder.name).resolve() / "alpha")
        self.repository.write("docs/a.md", b"# One\n\ntext\n")
        self.repository.commit("Say one")
        self.repository.commit("Say two", b=b"2\n")

    def run_import(self, *arguments: str) -> str:
        output = StringIO()
        with chdir(self.repository.folder):
            call_command("import", *arguments, stdout=output)
        return output.getvalue()

    def run_process(self, *arguments: str) -> tuple[int, str, str]:
        command = [sys.executable, str(MANAGE), "import", *arguments]
        environment = {**os.environ, "MEMORY_HUB_HOME": str(self.home)}
        environment.pop("DJANGO_SETTINGS_MODULE")
        folder = self.repository.folder
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=folder, env=environment, timeout=300, check=False
        )
        return done.returncode, done.stdout, done.stderr

    def test_commits_are_brought_in_once(self) -> None:
        code, output, errors = self.run_process("git")
        self.assertRegex(output, r"\Aimported 2 commits \(0 known already\) into alpha in \d+\.\d s\n\Z")
        self.assertEqual((code, errors), (0, ""))
        self.repository.commit("Say three")
        self.assertIn("imported 1 commit (2 known already) into alpha", self.run_import("git", "."))
        with self.store("alpha", create=False):
            messages = list(Commit.objects.order_by("id").values_list("message", flat=True))
        self.assertEqual(messages, ["Say one", "Say two", "Say three"])

    def test_documents_are_brought_in_into_the_project_that_is_named(self) -> None:
        output = self.run_import("markdown", "docs", "--project", "beta", "--tag", "x")
        self.assertIn("imported 1 section of 1 file (1 new, 0 revised, 0 unchanged, 0 removed) into beta", output)
        with self.store("beta", create=False):
            self.assertEqual([memory.title for memory in Memory.objects.all()], ["docs/a.md › One"])
        self.assertFalse((self.home / "projects/alpha").exists())

    def test_the_project_is_bound_to_its_repository(self) -> None:
        self.run_import("git")
        self.assertIn(str(self.repository.folder / ".git"), (self.home / "projects/alpha/origin.json").read_text())
        other = Repository(self.repository.folder.parent / "other/alpha")
        other.commit("Another")
        with self.assertRaisesRegex(CommandError, "other-alpha") as refused:
            self.run_import("git", str(other.folder))
        self.assertEqual(refused.exception.returncode, 2)

    def test_an_error_is_one_sentence_and_a_code(self) -> None:
        code, output, errors = self.run_process("git", "/", "--project", "alpha")
        self.assertEqual((code, output, len(errors.strip().splitlines())), (2, "", 1), errors)
        self.assertIn("no git repository", errors)

    def test_what_makes_no_sense_is_refused_in_one_sentence(self) -> None:
        for arguments, reason in (
            (("git", "--since", "soon"), "write a date"),
            (("git", "--limit", "0"), "1 or more"),
            (("markdown", "nowhere", "--project", "alpha"), "is no folder"),
            (("git", "--project", "Alpha"), "no project id"),
        ):
            with self.assertRaisesRegex(CommandError, reason) as refused:
                self.run_import(*arguments)
            self.assertEqual((refused.exception.returncode, len(str(refused.exception).splitlines())), (2, 1))
