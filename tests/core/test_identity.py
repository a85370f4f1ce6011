from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import TestCase, mock

from hypothesis import given
from hypothesis import strategies as st

from memoryhub.config.identity import bind_project, identify_project
from memoryhub.core.errors import Invalid
from memoryhub.core.slugs import project_slug
from tests.databases import sqlite_only

GIT_ENVIRONMENT = {
    **os.environ,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ann",
    "GIT_AUTHOR_EMAIL": "ann@example.org",
    "GIT_COMMITTER_NAME": "Ann",
    "GIT_COMMITTER_EMAIL": "ann@example.org",
}


def git(folder: Path, *arguments: str) -> None:
    command = ["git", "-c", "protocol.file.allow=always", "-C", str(folder), *arguments]
    subprocess.run(command, check=True, capture_output=True, env=GIT_ENVIRONMENT, timeout=120)


class IdentityTestCase(TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()
        self.home = self.root / "hub"
        self.home.mkdir()
        patch = mock.patch.dict(os.environ, {"MEMORY_HUB_HOME": str(self.home)})
        patch.start()
        self.addCleanup(patch.stop)
        os.environ.pop("MEMORY_HUB_IDENTITY", None)

    def folder(self, path: str) -> Path:
        folder = self.root / path
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def repository(self, path: str, *, remote: str | None = None, name: str = "origin") -> Path:
        folder = self.folder(path)
        git(folder, "init", "-q")
        git(folder, "commit", "-q", "--allow-empty", "-m", "first")
        if remote:
            git(folder, "remote", "add", name, remote)
        return folder

    def store(self, project: str, *, of: Path | None = None) -> None:
        (self.home / "projects" / project).mkdir(parents=True)
        if of:
            bind_project(project, of)

    def project_of(self, folder: Path) -> str:
        return identify_project(project=None, directory=folder)

    def refusal(self, folder: Path) -> Invalid:
        with self.assertRaises(Invalid) as caught:
            self.project_of(folder)
        return caught.exception


class ArgumentTest(IdentityTestCase):
    def test_the_argument_decides(self) -> None:
        folder = self.repository("beta", remote="https://host/x/gamma.git")
        self.assertEqual(identify_project(project="alpha", directory=folder), "alpha")

    def test_an_argument_that_is_no_slug_is_refused_not_changed(self) -> None:
        for project in ("Alpha", "", "../alpha", "a/b", ".alpha", "a" * 65, "alpha\n", "älpha"):
            with self.assertRaisesRegex(Invalid, "--project: .* is not a project id"):
                identify_project(project=project, directory=self.root)


class SettingsFileTest(IdentityTestCase):
    def test_a_file_up_the_tree_decides_before_git(self) -> None:
        folder = self.repository("work/beta", remote="https://host/x/gamma.git")
        (self.root / "work/.memory-hub.toml").write_text('project = "alpha"\n')
        self.assertEqual(self.project_of(folder), "alpha")

    def test_the_nearest_file_decides(self) -> None:
        deep = self.folder("a/b/c")
        (self.root / "a/.memory-hub.toml").write_text('project = "far"\n')
        (self.root / "a/b/.memory-hub.toml").write_text('project = "near"\n')
        self.assertEqual(self.project_of(deep), "near")

    def test_a_file_without_a_project_leaves_it_to_git(self) -> None:
        folder = self.repository("beta")
        (folder / ".memory-hub.toml").write_text("enabled = true\n")
        self.assertEqual(self.project_of(folder), "beta")

    def test_a_broken_file_is_an_error_that_names_it(self) -> None:
        for content in (b"project = ", b"\xff\xfe", b"project = 'UPPER'", b"project = 7", b"identity = 'both'"):
            (self.root / ".memory-hub.toml").write_bytes(content)
            self.assertIn(str(self.root / ".memory-hub.toml"), str(self.refusal(self.root)))

    def test_the_file_of_the_main_worktree_counts_for_its_linked_worktrees(self) -> None:
        main = self.repository("main/beta")
        git(main, "worktree", "add", "-q", str(self.root / "elsewhere"))
        (main / ".memory-hub.toml").write_text('project = "alpha"\n')
        self.assertEqual(self.project_of(self.root / "elsewhere"), "alpha")

    def test_the_home_folder_of_the_user_ends_the_search(self) -> None:
        folder = self.folder("ann/work")
        (self.root / "ann/.memory-hub.toml").write_text('project = "everything"\n')
        with mock.patch.dict(os.environ, {"HOME": str(self.root / "ann")}):
            self.assertEqual(self.project_of(folder), "work")


class RepositoryTest(IdentityTestCase):
    def test_a_repository_without_a_remote_goes_by_its_folder_from_any_subfolder(self) -> None:
        folder = self.repository("Alpha Project")
        self.assertEqual(self.project_of(folder), "alpha-project")
        self.assertEqual(self.project_of(self.folder("Alpha Project/src/deep")), "alpha-project")

    def test_a_clone_goes_by_its_remote_however_that_is_written(self) -> None:
        urls = (
            "https://host/acme/alpha.git https://ann:pw@host/acme/alpha git@host:acme/alpha.git "
            "ssh://git@host:22/acme/alpha.git/ /srv/git/alpha.git /srv/alpha/.git file:///srv/alpha.git host:alpha "
            "..\\git\\alpha.git https://host/acme/Alpha"
        )
        for number, url in enumerate(urls.split()):
            with self.subTest(url=url):
                self.assertEqual(self.project_of(self.repository(f"clone{number}", remote=url)), "alpha")

    def test_linked_worktrees_share_the_project_of_their_repository(self) -> None:
        main = self.repository("alpha")
        git(main, "worktree", "add", "-q", str(self.root / "fix-42"))
        self.assertEqual(self.project_of(self.root / "fix-42"), "alpha")
        self.assertEqual(self.project_of(self.folder("fix-42/src")), "alpha")

    def test_a_submodule_is_a_project_of_its_own_and_so_are_its_worktrees(self) -> None:
        library = self.repository("origins/library")
        main = self.repository("alpha")
        (main / ".memory-hub.toml").write_text('project = "alpha"\n')
        git(main, "submodule", "add", "-q", str(library), "vendor/library")
        self.assertEqual(self.project_of(main), "alpha")
        self.assertEqual(self.project_of(main / "vendor/library"), "library")
        git(main / "vendor/library", "worktree", "add", "-q", str(self.root / "other"))
        self.assertEqual(self.project_of(self.root / "other"), "library")

    def test_bare_repositories_and_their_worktrees_go_by_their_name(self) -> None:
        source = self.repository("source")
        for path in ("alpha.git", "beta/.bare"):
            git(self.root, "clone", "-q", "--bare", str(source), path)
            git(self.root / path, "remote", "remove", "origin")
            git(self.root / path, "worktree", "add", "-q", str(self.root / f"tree-of-{path.replace('/', '-')}"))
        self.assertEqual(self.project_of(self.root / "alpha.git"), "alpha")
        self.assertEqual(self.project_of(self.root / "tree-of-alpha.git"), "alpha")
        self.assertEqual(self.project_of(self.root / "beta/.bare"), "beta")
        self.assertEqual(self.project_of(self.root / "tree-of-beta-.bare"), "beta")

    def test_a_separate_git_folder_is_found(self) -> None:
        folder = self.folder("alpha")
        git(folder, "init", "-q", "--separate-git-dir", str(self.root / "elsewhere.git"))
        self.assertEqual(self.project_of(folder), "alpha")

    def test_remotes_are_read_from_a_config_with_quotes_and_comments(self) -> None:
        folder = self.repository("beta")
        with (folder / ".git/config").open("a") as config:
            config.write(
                '[remote "origin"] # ours\n\tfetch = x\n\tURL = "https://host/acme/alpha.git" ; here\n[x]\nurl = no\n'
            )
        self.assertEqual(self.project_of(folder), "alpha")

    def test_a_folder_outside_git_goes_by_its_name(self) -> None:
        self.assertEqual(self.project_of(self.folder("My Notes")), "my-notes")

    def test_a_folder_that_is_named_git_but_is_none_is_ignored(self) -> None:
        (self.folder("alpha") / ".git").write_text("not a pointer")
        self.assertEqual(self.project_of(self.root / "alpha"), "alpha")

    def test_git_itself_need_not_be_installed(self) -> None:
        folder = self.repository("alpha")
        with mock.patch.dict(os.environ, {"PATH": ""}):
            self.assertEqual(self.project_of(folder), "alpha")


class SlugTest(IdentityTestCase):
    def test_odd_names_become_sensible_slugs(self) -> None:
        for name, slug in (
            ("Crème Brûlée", "creme-brulee"),
            ("Straße", "strasse"),
            ("my_app.v2", "my_app.v2"),
            ("--x--", "x"),
            (".dotfiles", "dotfiles"),
            ("a  b", "a-b"),
            ("x" * 80, "x" * 64),
            ("C++ (2024)", "c-2024"),
            ("漢字", ""),
            ("プロジェクトx", ""),
            ("!!!", ""),
            ("", ""),
        ):
            self.assertEqual(project_slug(name), slug, name)

    @given(st.text())
    def test_a_slug_is_valid_or_empty(self, name: str) -> None:
        self.assertRegex(project_slug(name), re.compile(r"\A([a-z0-9][a-z0-9._-]{0,63})?\Z"))

    def test_a_folder_whose_name_makes_no_slug_is_an_error(self) -> None:
        self.assertIn("漢字", self.refusal(self.folder("漢字")).message)
        self.assertIn("--project", self.refusal(Path("/")).message)
        self.assertEqual(self.project_of(self.repository("漢字2", remote="https://host/acme/alpha.git")), "alpha")


class LightnessTest(TestCase):
    def test_neither_django_nor_anything_outside_the_standard_library_is_imported(self) -> None:
        code = (
            "import sys; from pathlib import Path; from memoryhub.config.identity import identify_project;"
            "identify_project(project=None, directory=Path.cwd());"
            "print(sorted(m for m in sys.modules if m.split('.')[0] in ('django', 'pydantic', 'subprocess', 'mcp')))"
        )
        with tempfile.TemporaryDirectory(prefix="alpha") as folder:
            environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
            done = subprocess.run(
                [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=folder, env=environment
            )
        self.assertEqual((done.stdout.strip(), done.stderr), ("[]", ""))


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
