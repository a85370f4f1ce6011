"""What a working tree has checked out, read from git's own files."""

import os
import tempfile
from pathlib import Path
from unittest import mock

from memoryhub.config.current_settings import FolderSettings, use_folder
from memoryhub.core.permissions import MEMBER_ROLES, Grant, use_grant
from sessions_app.git import process, worktree
from sessions_app.git.worktree import WorkingTree, working_tree_at
from sessions_app.schemas import ProjectDescribe, SessionStart
from sessions_app.selectors import caller_tree
from sessions_app.services import start_session
from sessions_app.services.profile import describe
from tests.sessions_app.test_git import GitTestCase, Repository
from tests.support import HubTestCase


class WorkingTreeTests(GitTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.folder = self.repository.folder
        # Only where refs are in tables, or too many to read, is git asked
        refused = mock.patch.object(worktree, "run", side_effect=AssertionError("a process was started"))
        self.asked = self.enterContext(refused)

    def assert_tree(self, folder: Path, head: str, branch: str, *, top: Path | None = None) -> None:
        for _ in range(2):  # the second answer is cached
            tree = working_tree_at(folder)
            self.assertEqual(tree, WorkingTree(top or self.folder, self.folder / ".git", head, branch))

    def test_a_commit_a_switch_and_a_detached_head_are_noticed(self) -> None:
        self.assert_tree(self.folder, "", "main")
        one = self.repository.commit("one", **{"docs/a": b"1\n"})
        self.assert_tree(self.folder, one, "main")
        self.repository.git("switch", "-q", "-c", "feature/ä/b")
        self.assert_tree(self.folder / "docs", one, "feature/ä/b")
        two = self.repository.commit("two")
        self.assert_tree(self.folder / "docs", two, "feature/ä/b")
        self.repository.git("checkout", "-q", "--detach", one)
        self.assert_tree(self.folder, one, "")
        self.repository.git("switch", "-q", "--orphan", "empty")
        self.assert_tree(self.folder, "", "empty")

    def test_packed_refs_are_read_and_a_newer_loose_one_wins(self) -> None:
        one = self.repository.commit("one")
        self.repository.git("branch", "main-2")
        self.assert_tree(self.folder, one, "main")
        self.repository.git("pack-refs", "--all")
        self.assert_tree(self.folder, one, "main")
        two = self.repository.commit("two")
        self.assert_tree(self.folder, two, "main")
        self.repository.git("pack-refs", "--all")
        self.assert_tree(self.folder, two, "main")

    def test_a_linked_working_tree_has_its_own_head(self) -> None:
        one = self.repository.commit("one")
        linked = self.folder.parent / "linked"
        self.repository.git("worktree", "add", "-q", "-b", "side", str(linked))
        self.assert_tree(linked, one, "side", top=linked)
        self.assert_tree(self.folder, one, "main")
        (linked / "sub").mkdir()
        link = self.folder.parent / "link"
        link.symlink_to(linked / "sub")
        self.assert_tree(link, one, "side", top=linked)
        link.unlink()
        link.symlink_to(self.folder)
        self.assert_tree(link, one, "main")

    def test_a_repository_that_comes_later_or_goes_is_noticed(self) -> None:
        one = self.repository.commit("one")
        inner = self.folder / "inner"
        inner.mkdir()
        self.assert_tree(inner, one, "main")
        (inner / ".git").mkdir()
        self.assert_tree(inner, one, "main")
        nested = Repository(inner)
        two = nested.commit("two")
        self.assertEqual(working_tree_at(inner), WorkingTree(inner, inner / ".git", two, "main"))
        (inner / ".git").rename(self.folder.parent / "elsewhere")
        self.assert_tree(inner, one, "main")

    def test_there_is_none_outside_git_and_in_a_bare_repository(self) -> None:
        self.repository.commit("one", a=b"1\n")
        bare = self.folder.parent / "bare.git"
        self.repository.git("clone", "-q", "--bare", str(self.folder), str(bare))
        hidden = self.folder.parent / "hidden"
        hidden.mkdir()
        (hidden / ".git").write_text("gitdir: ../bare.git\n")
        places = (bare, hidden, self.folder.parent, self.folder / "none", self.folder / "a", Path("/x\0y"))
        for folder in (*places, Path("/" + "x" * 5_000)):
            self.assertIsNone(working_tree_at(folder))
            self.assertIsNone(working_tree_at(folder))
        linked = self.folder.parent / "linked"
        self.repository.git("-C", str(bare), "worktree", "add", "-q", str(linked))
        tree = working_tree_at(linked)
        assert tree is not None
        self.assertEqual((tree.top, tree.common_dir, tree.branch), (linked, bare, "linked"))

    def test_hostile_files_of_git_are_refused(self) -> None:
        one = self.repository.commit("one")
        git_dir = self.folder / ".git"
        secret = self.folder.parent / "secret"
        secret.write_text("0" * 40)
        for head in ("ref: refs/../../../secret", f"ref: {secret}", "ref: refs//heads/main", "ref: refs/heads/\0", "?"):
            (git_dir / "HEAD").write_text(head)
            self.assert_tree(self.folder, "", "")
        (git_dir / "HEAD").write_text("ref: refs/heads/" + "x" * 5_000)
        self.assertIsNone(working_tree_at(self.folder))
        for target in ("ref: refs/heads/main", "ref: refs/heads/none", "?", "x" * 5_000):
            (git_dir / "HEAD").write_text("ref: refs/heads/main")
            (git_dir / "refs/heads/main").write_text(target)
            self.assert_tree(self.folder, "", "main")
        (git_dir / "refs/heads/main").write_text("ref: refs/heads/side")
        (git_dir / "refs/heads/side").write_text(f"{one}\n")
        self.assert_tree(self.folder, one, "main")
        (git_dir / "refs/heads/main").unlink()
        os.mkfifo(git_dir / "refs/heads/main")
        self.assert_tree(self.folder, "", "main")
        (git_dir / "HEAD").unlink()
        os.mkfifo(git_dir / "HEAD")
        self.assertIsNone(working_tree_at(self.folder))

    def test_git_is_asked_once_where_its_files_do_not_tell(self) -> None:
        one = self.repository.commit("one")
        self.repository.git("pack-refs", "--all")
        self.asked.side_effect = process.run
        with mock.patch.object(worktree, "_PACKED_BYTES", 10):
            self.assert_tree(self.folder, one, "main")
        self.assertEqual(self.asked.call_count, 2)


class CallerTreeTests(HubTestCase):
    """The folder that a caller works in."""

    def setUp(self) -> None:
        super().setUp()
        root = Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()
        self.alpha, self.beta, self.plain = Repository(root / "alpha"), Repository(root / "beta"), root / "plain"
        self.plain.mkdir()

    def top(self, session_id: str = "") -> Path | None:
        with self.store(session_id=session_id):
            tree = caller_tree()
        return tree.top if tree else None

    def test_it_is_the_calls_then_the_sessions_then_the_projects(self) -> None:
        self.assertIsNone(self.top())
        with self.store():
            describe(command=ProjectDescribe(root_path=str(self.alpha.folder)))
            start_session(command=SessionStart(session_id="s1", directory=str(self.beta.folder)))
            start_session(command=SessionStart(session_id="s2"))
            start_session(command=SessionStart(session_id="s3", directory=str(self.plain)))
        self.assertEqual(self.top(), self.alpha.folder)
        self.assertEqual(self.top("s1"), self.beta.folder)
        self.assertEqual(self.top("s2"), self.alpha.folder)
        self.assertEqual(self.top("none"), self.alpha.folder)
        self.assertIsNone(self.top("s3"))
        with use_folder(FolderSettings(directory=str(self.alpha.folder))):
            self.assertEqual(self.top("s1"), self.alpha.folder)
        with use_folder(FolderSettings(directory=str(self.plain))):
            self.assertIsNone(self.top("s1"))

    def test_a_folder_that_a_caller_names_is_read_for_administrators_and_inside_the_projects(self) -> None:
        with self.store():
            describe(command=ProjectDescribe(root_path=str(self.alpha.folder)))
            start_session(command=SessionStart(session_id="s1", directory=str(self.beta.folder)))
            start_session(command=SessionStart(session_id="s2", directory=f"ann/laptop:{self.beta.folder}"))
            start_session(command=SessionStart(session_id="s3", directory=str(self.alpha.folder)))
        with use_grant(Grant(MEMBER_ROLES["owner"])):
            self.assertIsNone(self.top("s1"))
            self.assertEqual(self.top("s3"), self.alpha.folder)
            self.assertEqual(self.top(), self.alpha.folder)
        self.assertIsNone(self.top("s2"))
