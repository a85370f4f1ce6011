from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path
from unittest import TestCase, mock

from hypothesis import given
from hypothesis import strategies as st

from memoryhub.config.identity import bind_project, identify_project
from memoryhub.core.errors import Invalid
from memoryhub.core.slugs import project_slug
from tests.databases import sqlite_only

PERSON = {"NAME": "Ann", "EMAIL": "ann@example.org"}
GIT_ENVIRONMENT = {
    **os.environ,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in PERSON.items()},
}
CLONE = "https://host/acme/alpha.git"


def git(folder: Path, *arguments: str) -> None:
    command = ["git", "-c", "protocol.file.allow=always", "-C", str(folder), *arguments]
    subprocess.run(command, check=True, capture_output=True, env=GIT_ENVIRONMENT, timeout=120)


class IdentityTestCase(TestCase):
    def setUp(self) -> None:
        self.root = Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()
        self.home = self.folder("hub")
        self.enterContext(mock.patch.dict(os.environ, {"MEMORY_HUB_HOME": str(self.home)}))
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

    def assert_project(self, project: str, *folders: Path | str) -> None:
        for folder in folders:
            with self.subTest(folder=folder):
                self.assertEqual(identify_project(project=None, directory=self.root / folder), project)

    def refusal(self, folder: Path, project: str | None = None) -> Invalid:
        with self.assertRaises(Invalid) as caught:
            identify_project(project=project, directory=folder)
        return caught.exception


class ArgumentAndFileTest(IdentityTestCase):
    def test_the_argument_decides_and_is_refused_if_it_is_no_slug(self) -> None:
        folder = self.repository("beta", remote="https://host/x/gamma.git")
        self.assertEqual(identify_project(project="alpha", directory=folder), "alpha")
        for project in ("Alpha", "", "../alpha", "a/b", ".alpha", "a" * 65, "alpha\n", "älpha"):
            self.assertRegex(str(self.refusal(self.root, project)), "--project: .* is not a project id")

    def test_the_nearest_file_up_the_tree_decides_before_git(self) -> None:
        self.repository("work/beta", remote="https://host/x/gamma.git")
        self.folder("work/beta/src")
        (self.root / "work/.memory-hub.toml").write_text('project = "far"\n')
        self.assert_project("far", "work/beta")
        (self.root / "work/beta/.memory-hub.toml").write_text('project = "near"\n')
        self.assert_project("near", "work/beta/src")

    def test_a_file_without_a_project_leaves_it_to_git(self) -> None:
        (self.repository("beta") / ".memory-hub.toml").write_text("enabled = true\n")
        self.assert_project("beta", "beta")

    def test_a_broken_file_is_an_error_that_names_it(self) -> None:
        for content in (b"project = ", b"\xff\xfe", b"project = 'UPPER'", b"project = 7", b"identity = 'both'"):
            (self.root / ".memory-hub.toml").write_bytes(content)
            self.assertIn(str(self.root / ".memory-hub.toml"), str(self.refusal(self.root)))

    def test_the_file_of_the_main_worktree_counts_for_its_linked_worktrees(self) -> None:
        main = self.repository("main/beta")
        git(main, "worktree", "add", "-q", str(self.root / "elsewhere"))
        (main / ".memory-hub.toml").write_text('project = "alpha"\n')
        self.assert_project("alpha", "elsewhere")

    def test_the_home_folder_of_the_user_ends_the_search(self) -> None:
        folder = self.folder("ann/work")
        (self.root / "ann/.memory-hub.toml").write_text('project = "everything"\n')
        with mock.patch.dict(os.environ, {"HOME": str(self.root / "ann")}):
            self.assert_project("work", folder)


class RepositoryTest(IdentityTestCase):
    def test_folders_and_repositories_without_a_remote_go_by_their_name_from_any_subfolder(self) -> None:
        self.repository("Alpha Project")
        with mock.patch.dict(os.environ, {"PATH": ""}):  # git itself need not be installed
            self.assert_project("alpha-project", "Alpha Project", self.folder("Alpha Project/src/deep"))
        self.assert_project("my-notes", self.folder("My Notes"))
        (self.folder("alpha") / ".git").write_text("not a pointer")
        self.assert_project("alpha", "alpha")

    def test_a_clone_goes_by_its_remote_however_that_is_written(self) -> None:
        urls = (
            "https://host/acme/alpha.git https://ann:pw@host/acme/alpha git@host:acme/alpha.git "
            "ssh://git@host:22/acme/alpha.git/ /srv/git/alpha.git /srv/alpha/.git file:///srv/alpha.git host:alpha "
            "..\\git\\alpha.git https://host/acme/Alpha"
        )
        for number, url in enumerate(urls.split()):
            with self.subTest(url=url):
                self.assert_project("alpha", self.repository(f"clone{number}", remote=url))

    def test_linked_worktrees_share_the_project_of_their_repository(self) -> None:
        git(self.repository("alpha"), "worktree", "add", "-q", str(self.root / "fix-42"))
        self.assert_project("alpha", "fix-42", self.folder("fix-42/src"))

    def test_a_submodule_is_a_project_of_its_own_and_so_are_its_worktrees(self) -> None:
        library = self.repository("origins/library")
        main = self.repository("alpha")
        (main / ".memory-hub.toml").write_text('project = "alpha"\n')
        git(main, "submodule", "add", "-q", str(library), "vendor/library")
        git(main / "vendor/library", "worktree", "add", "-q", str(self.root / "other"))
        self.assert_project("alpha", main)
        self.assert_project("library", main / "vendor/library", "other")

    def test_bare_repositories_and_their_worktrees_go_by_their_name(self) -> None:
        source = self.repository("source")
        for path, project in (("alpha.git", "alpha"), ("beta/.bare", "beta")):
            git(self.root, "clone", "-q", "--bare", str(source), path)
            git(self.root / path, "remote", "remove", "origin")
            git(self.root / path, "worktree", "add", "-q", str(self.root / f"tree-of-{project}"))
            self.assert_project(project, path, f"tree-of-{project}")

    def test_a_separate_git_folder_is_found(self) -> None:
        git(self.folder("alpha"), "init", "-q", "--separate-git-dir", str(self.root / "elsewhere.git"))
        self.assert_project("alpha", "alpha")

    def test_remotes_are_read_from_a_config_with_quotes_and_comments(self) -> None:
        folder = self.repository("beta")
        with (folder / ".git/config").open("a") as config:
            config.write(f'[remote "origin"] # ours\n\tfetch = x\n\tURL = "{CLONE}" ; here\n[x]\nurl = no\n')
        self.assert_project("alpha", folder)


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
            *((name, "") for name in ("漢字", "プロジェクトx", "!!!", "")),
        ):
            self.assertEqual(project_slug(name), slug, name)

    @given(st.text())
    def test_a_slug_is_valid_or_empty(self, name: str) -> None:
        self.assertRegex(project_slug(name), re.compile(r"\A([a-z0-9][a-z0-9._-]{0,63})?\Z"))

    def test_a_folder_whose_name_is_in_another_script_has_an_id_that_stays(self) -> None:
        for name, project in (
            ("プロジェクト", "project-61bc332b"),
            ("Проект", "project-f45edf00"),
            ("漢字", "project-c6d29771"),
        ):
            self.assert_project(project, self.folder(name))
            self.assert_project(project, self.repository(f"repository/{name}"))
            self.assert_project(project, self.folder(f"decomposed/{unicodedata.normalize('NFD', name)}"))

    def test_a_folder_without_a_name_is_an_error(self) -> None:
        self.assertIn("--project", self.refusal(Path("/")).message)
        self.assert_project("alpha", self.repository("漢字2", remote=CLONE))


class LightnessTest(TestCase):
    def test_neither_django_nor_anything_outside_the_standard_library_is_imported(self) -> None:
        code = (
            "import sys; from pathlib import Path; from memoryhub.config.identity import identify_project;"
            "identify_project(project=None, directory=Path.cwd());"
            "print(sorted(m for m in sys.modules if m.split('.')[0] in ('django', 'pydantic', 'subprocess', 'mcp')))"
        )
        command = [sys.executable, "-c", code]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        with tempfile.TemporaryDirectory(prefix="alpha") as folder:
            done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder, env=environment)
        self.assertEqual((done.stdout.strip(), done.stderr), ("[]", ""))


class AmbiguityTest(IdentityTestCase):
    def test_stores_named_after_folder_and_remote_are_ambiguous_until_a_setting_decides(self) -> None:
        folder = self.repository("beta", remote=CLONE)
        self.assert_project("alpha", folder)
        self.store("alpha")
        self.store("beta")
        error = self.refusal(folder)
        self.assertEqual(error.data["choices"], ["alpha", "beta"])
        self.assertIn("--project", error.message)
        self.assertIn(".memory-hub.toml", error.message)
        with mock.patch.dict(os.environ, {"MEMORY_HUB_IDENTITY": "folder"}):
            self.assert_project("beta", folder)
            (folder / ".memory-hub.toml").write_text('identity = "remote"\n')
            self.assert_project("alpha", folder)
        (folder / ".memory-hub.toml").unlink()
        with mock.patch.dict(os.environ, {"MEMORY_HUB_IDENTITY": "name"}):
            self.assertIn("MEMORY_HUB_IDENTITY", self.refusal(folder).message)

    def test_a_store_bound_to_the_repository_is_the_one_that_is_meant(self) -> None:
        folder = self.repository("beta")
        self.store("beta", of=folder)
        git(folder, "remote", "add", "origin", CLONE)
        self.assert_project("beta", folder)
        self.store("alpha")
        self.assert_project("beta", folder)

    def test_two_repositories_or_folders_of_one_name_are_told_apart(self) -> None:
        self.store("app", of=self.repository("one/app"))
        error = self.refusal(self.repository("two/app"))
        self.assertEqual(error.data["choices"], ["app", "two-app"])
        self.assertIn(str(self.root / "one/app/.git"), error.message)
        self.assert_project("app", "one/app")
        bind_project("app", self.root / "two/app")  # as chosen for both
        self.assert_project("app", "one/app", "two/app")
        self.store("notes", of=self.folder("one/notes"))
        self.assert_project("notes", "one/notes")
        self.assertEqual(self.refusal(self.folder("two/notes")).data["choices"], ["notes", "two-notes"])

    def test_two_remotes_of_one_name_are_told_apart_by_their_owner(self) -> None:
        self.store("app", of=self.repository("one/app", remote="https://host/acme/app.git"))
        error = self.refusal(self.repository("two/app", remote="https://host/other/app.git"))
        self.assertEqual(error.data["choices"], ["app", "other-app"])

    def test_two_clones_of_one_remote_share(self) -> None:
        self.store("alpha", of=self.repository("one/alpha", remote=CLONE))
        self.assert_project("alpha", self.repository("two/alpha", remote="git@host:acme/alpha.git"))
        self.assert_project("alpha", self.repository("three/copy", remote=CLONE))

    def test_a_repository_that_was_moved_keeps_its_project(self) -> None:
        folder = self.repository("one/alpha")
        self.store("alpha", of=folder)
        folder.rename(self.folder("two") / "alpha")
        self.assert_project("alpha", "two/alpha")

    def test_several_remotes_without_origin_are_ambiguous_unless_the_folder_names_one(self) -> None:
        folder = self.repository("beta", remote=CLONE, name="upstream")
        self.assert_project("alpha", folder)
        git(folder, "remote", "add", "fork", "https://host/ann/gamma.git")
        self.assertEqual(self.refusal(folder).data["choices"], ["alpha", "gamma", "beta"])
        folder.rename(self.root / "gamma")
        self.assert_project("gamma", "gamma")


class BindTest(IdentityTestCase):
    def test_the_note_is_private_without_credentials_and_written_again_for_a_new_remote_alone(self) -> None:
        folder = self.repository("alpha")
        self.store("alpha", of=folder)
        note = self.home / "projects/alpha/origin.json"
        self.assertEqual(stat.S_IMODE(note.stat().st_mode), 0o600)
        before = note.stat().st_mtime_ns
        bind_project("alpha", folder)
        self.assertEqual(note.stat().st_mtime_ns, before)
        git(folder, "remote", "add", "origin", "https://ann:s3cret@host/acme/alpha.git")
        bind_project("alpha", folder)
        origins = [{"common_dir": str(folder / ".git"), "remote": "host/acme/alpha"}]
        self.assertEqual(json.loads(note.read_text()), {"origins": origins})

    @sqlite_only("in a database, a store has no folder before something is noted in it")
    def test_nothing_is_created_without_a_store(self) -> None:
        bind_project("alpha", self.repository("alpha"))
        self.assertEqual(list(self.home.iterdir()), [])

    def test_a_broken_note_counts_as_missing(self) -> None:
        folder = self.repository("alpha")
        self.store("alpha")
        for content in ("", "{", "[]", '{"origins": 7}', '{"origins": [7]}'):
            (self.home / "projects/alpha/origin.json").write_text(content)
            self.assert_project("alpha", folder)
