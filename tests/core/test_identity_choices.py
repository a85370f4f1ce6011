import json
import os
import stat
from unittest import mock

from memoryhub.config.identity import bind_project
from tests.core.test_identity import IdentityTestCase, git
from tests.databases import sqlite_only


class AmbiguityTest(IdentityTestCase):
    CLONE = "https://host/acme/alpha.git"

    def test_a_clone_in_a_folder_of_another_name_goes_by_its_remote(self) -> None:
        self.assertEqual(self.project_of(self.repository("beta", remote=self.CLONE)), "alpha")

    def test_stores_of_both_names_make_it_ambiguous(self) -> None:
        self.store("alpha")
        self.store("beta")
        error = self.refusal(self.repository("beta", remote=self.CLONE))
        self.assertEqual(error.data["choices"], ["alpha", "beta"])
        self.assertIn("--project", error.message)
        self.assertIn(".memory-hub.toml", error.message)

    def test_the_setting_decides_in_the_file_and_in_the_environment(self) -> None:
        self.store("alpha")
        self.store("beta")
        folder = self.repository("beta", remote=self.CLONE)
        with mock.patch.dict(os.environ, {"MEMORY_HUB_IDENTITY": "folder"}):
            self.assertEqual(self.project_of(folder), "beta")
            (folder / ".memory-hub.toml").write_text('identity = "remote"\n')
            self.assertEqual(self.project_of(folder), "alpha")
        with mock.patch.dict(os.environ, {"MEMORY_HUB_IDENTITY": "name"}):
            (folder / ".memory-hub.toml").unlink()
            self.assertIn("MEMORY_HUB_IDENTITY", self.refusal(folder).message)

    def test_a_store_bound_to_the_repository_is_the_one_that_is_meant(self) -> None:
        folder = self.repository("beta")
        self.store("beta", of=folder)
        git(folder, "remote", "add", "origin", self.CLONE)
        self.assertEqual(self.project_of(folder), "beta")
        self.store("alpha")
        self.assertEqual(self.project_of(folder), "beta")

    def test_two_repositories_of_one_name_are_told_apart(self) -> None:
        self.store("app", of=self.repository("one/app"))
        error = self.refusal(self.repository("two/app"))
        self.assertEqual(error.data["choices"], ["app", "two-app"])
        self.assertIn(str(self.root / "one/app/.git"), error.message)
        self.assertEqual(self.project_of(self.root / "one/app"), "app")

    def test_two_remotes_of_one_name_are_told_apart_by_their_owner(self) -> None:
        self.store("app", of=self.repository("one/app", remote="https://host/acme/app.git"))
        error = self.refusal(self.repository("two/app", remote="https://host/other/app.git"))
        self.assertEqual(error.data["choices"], ["app", "other-app"])

    def test_two_clones_of_one_remote_share(self) -> None:
        self.store("alpha", of=self.repository("one/alpha", remote=self.CLONE))
        self.assertEqual(self.project_of(self.repository("two/alpha", remote="git@host:acme/alpha.git")), "alpha")
        self.assertEqual(self.project_of(self.repository("three/copy", remote=self.CLONE)), "alpha")

    def test_a_repository_that_was_moved_keeps_its_project(self) -> None:
        folder = self.repository("one/alpha")
        self.store("alpha", of=folder)
        folder.rename(self.folder("two") / "alpha")
        self.assertEqual(self.project_of(self.root / "two/alpha"), "alpha")

    def test_two_plain_folders_of_one_name_are_told_apart(self) -> None:
        self.store("notes", of=self.folder("one/notes"))
        self.assertEqual(self.project_of(self.root / "one/notes"), "notes")
        self.assertEqual(self.refusal(self.folder("two/notes")).data["choices"], ["notes", "two-notes"])

    def test_a_project_that_was_chosen_for_both_serves_both(self) -> None:
        one, two = self.repository("one/app"), self.repository("two/app")
        self.store("app", of=one)
        bind_project("app", two)
        self.assertEqual([self.project_of(one), self.project_of(two)], ["app", "app"])

    def test_several_remotes_without_origin_are_ambiguous_unless_the_folder_says_which(self) -> None:
        folder = self.repository("beta", remote="https://host/acme/alpha.git", name="upstream")
        git(folder, "remote", "add", "fork", "https://host/ann/gamma.git")
        self.assertEqual(self.refusal(folder).data["choices"], ["alpha", "gamma", "beta"])
        folder.rename(self.root / "gamma")
        self.assertEqual(self.project_of(self.root / "gamma"), "gamma")

    def test_a_single_remote_of_another_name_counts_as_origin(self) -> None:
        self.assertEqual(self.project_of(self.repository("beta", remote=self.CLONE, name="upstream")), "alpha")


class BindTest(IdentityTestCase):
    def test_the_note_is_private_and_holds_no_credentials(self) -> None:
        folder = self.repository("alpha", remote="https://ann:s3cret@host/acme/alpha.git")
        self.store("alpha", of=folder)
        note = self.home / "projects/alpha/origin.json"
        self.assertEqual(
            json.loads(note.read_text()),
            {"origins": [{"common_dir": str(folder / ".git"), "remote": "host/acme/alpha"}]},
        )
        self.assertEqual(stat.S_IMODE(note.stat().st_mode), 0o600)

    def test_binding_again_changes_nothing_and_a_new_remote_is_noted(self) -> None:
        folder = self.repository("alpha")
        self.store("alpha", of=folder)
        note = self.home / "projects/alpha/origin.json"
        before = note.stat().st_mtime_ns
        bind_project("alpha", folder)
        self.assertEqual(note.stat().st_mtime_ns, before)
        git(folder, "remote", "add", "origin", "https://host/acme/alpha.git")
        bind_project("alpha", folder)
        self.assertEqual(len(json.loads(note.read_text())["origins"]), 1)
        self.assertIn("acme", note.read_text())

    @sqlite_only("in a database, a store has no folder before something is noted in it")
    def test_nothing_is_created_without_a_store(self) -> None:
        bind_project("alpha", self.repository("alpha"))
        self.assertEqual(list(self.home.iterdir()), [])

    def test_a_broken_note_counts_as_missing(self) -> None:
        folder = self.repository("alpha")
        self.store("alpha")
        for content in ("", "{", "[]", '{"origins": 7}', '{"origins": [7]}'):
            (self.home / "projects/alpha/origin.json").write_text(content)
            self.assertEqual(self.project_of(folder), "alpha")
