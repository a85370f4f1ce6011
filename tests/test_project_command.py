from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path
from unittest import mock

from django.core.management import CommandError, call_command

from memoryhub.config.identity import bind_project
from tests.home import run_home
from tests.support import HubTestCase


class ProjectCommandTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.work = run_home() / f"work-{self.id().rpartition('.')[2][:60]}"
        self.work.mkdir()
        self.addCleanup(shutil.rmtree, self.work)

    def project(self, *arguments: str, folder: Path | None = None) -> str:
        out = io.StringIO()
        with mock.patch.object(Path, "cwd", return_value=folder or self.work):
            call_command("project", *arguments, stdout=out)
        return out.getvalue()

    def refused(self, code: int, words: str, *arguments: str) -> None:
        with self.assertRaisesRegex(CommandError, words) as caught:
            self.project(*arguments)
        self.assertEqual(caught.exception.returncode, code)

    def repository(self, name: str, remote: str = "") -> Path:
        folder = self.work / name
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
        if remote:
            subprocess.run(["git", "-C", str(folder), "remote", "add", "origin", remote], check=True)
        return folder

    def test_it_says_which_project_a_folder_belongs_to_and_why(self):
        plain = self.work / "alpha" / "deep"
        plain.mkdir(parents=True)
        self.assertRegex(self.project("show", folder=plain), r"^deep\n  because   the folder is named deep")
        (self.work / "alpha/.memory-hub.toml").write_text('project = "alpha"\n')
        self.assertRegex(self.project("show", folder=plain), r"^alpha\n  because   .*/alpha/\.memory-hub\.toml says so")
        said = self.project("show", folder=self.repository("gamma", "git@github.com:acme/delta.git"))
        self.assertRegex(
            said, r"^delta\n  because   the git remote origin is github\.com/acme/delta\n  status    does not exist"
        )
        said = self.project("show", folder=self.repository("gamma2"))
        self.assertRegex(said, r"^gamma2\n  because   the git repository is in /.*/gamma2\n")

    def test_a_repository_that_was_used_before_it_had_a_remote_stays_what_it_was(self):
        folder = self.repository("alpha")
        self.project("create", "alpha", "--title", "Alpha")
        bind_project("alpha", folder)
        subprocess.run(["git", "-C", str(folder), "remote", "add", "origin", "https://x.org/beta"], check=True)
        self.assertRegex(
            self.project("show", folder=folder), rf"^alpha\n  because   the git repository is in {folder}\n"
        )
        self.assertRegex(self.project("list"), rf"alpha +Alpha +1 .* {folder}\n")

    def test_projects_are_made_listed_and_told_of(self):
        self.assertIn("no projects yet", self.project("list"))
        said = self.project("create", "alpha", "--title", "Alpha the first", "--description", "Weather reports")
        self.assertIn('created alpha; to bind a folder to it, put project = "alpha"', said)
        self.project("create", "beta")
        (self.home / "projects/beta/events.db").write_bytes(b"no database at all")
        listed = self.project("list").splitlines()
        self.assertRegex(listed[0], "^ID +NAME +EVENTS +SIZE +LAST WRITE +FOLDER$")
        self.assertRegex(listed[1], r"^alpha +Alpha the first +1 +\d.* KB +\d{4}-\d\d-\d\d \d\d:\d\d$")
        self.assertRegex(listed[2], r"^beta .*memory database unavailable")
        said = self.project("show", "alpha")
        self.assertIn("Weather reports", said)
        self.assertNotIn("because", said)

    def test_what_was_decided_is_shown_with_who_decided_it(self):
        self.project("create", "alpha")
        call_command("settings", "retention_days", "30", "--project", "alpha", stdout=io.StringIO())
        self.assertRegex(self.project("show", "alpha"), r"setting   retention_days = 30, by the project")

    def test_bad_words_are_one_sentence_and_an_exit_code(self):
        self.project("create", "alpha")
        self.refused(5, "project 'alpha' exists already", "create", "alpha")
        self.refused(2, "ID: 'Bad Id' is not a project id", "create", "Bad Id")
        self.refused(3, "there is no project 'beta'.*one of: alpha", "show", "beta")
        self.assertFalse((self.home / "projects/beta").exists())
