"""Which work on branches is part of what a working tree has checked out."""

from pathlib import Path
from unittest import mock

from sessions_app.git import branches
from sessions_app.git.branches import BranchStatus, BranchWork, branch_states, dropped_commits, unchanged_files
from sessions_app.git.worktree import WorkingTree, working_tree_at
from tests.sessions_app.test_git import GitTestCase, Repository

MERGED, UNMERGED = BranchStatus.MERGED, BranchStatus.UNMERGED
UNKNOWN, UNCOMMITTED = BranchStatus.UNKNOWN, BranchStatus.UNCOMMITTED
BASE = b"".join(b"setting_%d = %d\n" % (number, number) for number in range(30))


def changed(*numbers: int, to: int = 1_000, text: bytes = BASE) -> bytes:
    for number in numbers:
        text = text.replace(b"setting_%d = %d\n" % (number, number), b"setting_%d = %d\n" % (number, to))
    return text


class BranchesTestCase(GitTestCase):
    def setUp(self) -> None:
        super().setUp()
        branches._states.clear()
        self.folder = self.repository.folder
        self.git = self.repository.git
        self.base = self.repository.commit("base", **{"code.py": BASE})

    def commit(self, message: str, **files: bytes) -> str:
        return self.repository.commit(message, **files)

    def branch(self, name: str = "side", **files: bytes) -> str:
        """Commit on a branch of its own, and go back to main."""
        self.git("switch", "-q", "-c", name)
        sha = self.commit(f"Work on {name}", **(files or {"code.py": changed(5)}))
        self.git("switch", "-q", "main")
        return sha

    def tree(self, folder: Path | None = None) -> WorkingTree:
        tree = working_tree_at(folder or self.folder)
        assert tree is not None
        return tree

    def status(self, sha: str, branch: str = "side", *, folder: Path | None = None, edited: bool = False) -> str:
        work = BranchWork(sha, branch, edited)
        tree = self.tree(folder)
        first = branch_states(tree, [work])[work]
        with mock.patch.object(branches, "run", side_effect=AssertionError("git was asked again")):
            self.assertEqual(branch_states(tree, [work])[work], first)
        return first


class AncestryTests(BranchesTestCase):
    def test_a_linear_history_and_merged_branches_are_merged(self) -> None:
        self.commit("next")
        self.assertEqual(self.status(self.base, "main"), MERGED)
        forwarded = self.branch("forwarded")
        self.git("merge", "-q", "--ff-only", "forwarded")
        self.assertEqual(self.status(forwarded, "forwarded"), MERGED)
        sha = self.branch("feature/a/b", other=b"a\n")
        self.commit("main")
        self.assertEqual(self.status(sha, "feature/a/b"), UNMERGED)
        self.git("merge", "-q", "--no-ff", "-m", "Merge", "feature/a/b")
        self.git("pack-refs", "--all")
        self.assertEqual(self.status(sha, "feature/a/b"), MERGED)

    def test_files_that_head_has_as_they_were_in_a_commit_are_unchanged(self) -> None:
        sha = self.branch("side", **{"code.py": changed(5), "ä b.txt": b"x\n"})
        self.commit("main", **{"ä b.txt": b"x\n"})
        files = [(sha, "ä b.txt"), (sha, "code.py"), (self.base, "code.py"), (sha, "none"), ("HEAD", "code.py")]
        unchanged = {(sha, "ä b.txt"), (self.base, "code.py")}
        self.assertEqual(unchanged_files(self.tree(), [*files, (sha, "x\ny"), (sha, "../x")]), unchanged)
        with mock.patch.object(branches, "run", side_effect=AssertionError("git was asked again")):
            self.assertEqual(unchanged_files(self.tree(), files), unchanged)

    def test_another_working_tree_and_a_detached_head_are_compared_with_their_own_commits(self) -> None:
        linked = self.root / "linked"
        self.git("worktree", "add", "-q", "-b", "side", str(linked))
        (linked / "code.py").write_bytes(changed(5))
        self.git("-C", str(linked), "commit", "-qam", "side")
        sha = self.git("rev-parse", "side")
        self.assertEqual(self.status(sha), UNMERGED)
        self.assertEqual(self.status(sha, folder=linked), MERGED)
        self.git("checkout", "-q", "--detach", "side")
        self.assertEqual(self.status(sha, ""), MERGED)
        self.git("checkout", "-q", "--detach", "main")
        self.assertEqual(self.status(sha, ""), UNMERGED)

    def test_what_git_does_not_know_is_not_known(self) -> None:
        elsewhere = Repository(self.root / "elsewhere").commit("elsewhere")
        for commit in (elsewhere, "0" * 40, "", "--all", "HEAD", self.base[:12], "x" * 40, "main\n"):
            self.assertEqual(self.status(commit, "main"), UNKNOWN)
        empty = Repository(self.root / "empty")
        self.assertEqual(self.status(self.base, folder=empty.folder), UNKNOWN)
        with mock.patch.object(branches, "_SECONDS", -1):
            self.assertEqual(self.status(self.branch()), UNKNOWN)

    def test_names_of_branches_are_data(self) -> None:
        sha = self.branch()
        for name in (
            "--all",
            "*",
            "a b",
            "x\ny",
            "../../HEAD",
            "ä",
            "side\0",
            "",
            "x" * 5_000,
            "[z-a]",
            "\\",
            "side/x",
        ):
            self.assertEqual(self.status(sha, name), UNMERGED)
            self.assertEqual(self.status(self.base, name, edited=True), MERGED)

    def test_one_commit_that_git_cannot_read_spoils_no_other(self) -> None:
        sha = self.branch()
        works = [BranchWork("1" * 40, "gone"), BranchWork(sha, "side"), BranchWork(self.base, "main")]
        self.commit("main")
        states = branch_states(self.tree(), works)
        self.assertEqual([states[work] for work in works], [UNKNOWN, UNMERGED, MERGED])


class RewrittenTests(BranchesTestCase):
    """Work that HEAD has by another commit."""

    def test_a_rebased_branch_is_merged(self) -> None:
        one = self.branch()
        self.git("switch", "-q", "side")
        two = self.commit("Second", other=b"some text of the second commit\n")
        self.git("switch", "-q", "main")
        self.commit("main", **{"code.py": changed(25)})
        self.git("rebase", "-q", "main", "side")
        self.git("switch", "-q", "main")
        self.assertEqual([self.status(one), self.status(two)], [UNMERGED, UNMERGED])
        self.git("merge", "-q", "--ff-only", "side")
        self.assertEqual([self.status(one), self.status(two)], [MERGED, MERGED])

    def test_a_cherry_picked_commit_is_merged_and_its_neighbours_are_not(self) -> None:
        one = self.branch()
        self.git("switch", "-q", "side")
        two = self.commit("Second", other=b"some text of the second commit\n")
        self.git("switch", "-q", "main")
        self.commit("main", **{"code.py": changed(25)})
        self.git("cherry-pick", two)
        self.assertEqual([self.status(one), self.status(two)], [UNMERGED, MERGED])

    def squash(self, branch: str) -> None:
        self.commit("main", **{"code.py": changed(25)})
        self.git("merge", "-q", "--squash", branch)
        self.commit("Work on side (#12)")

    def test_a_squashed_branch_is_merged_whether_it_is_kept_or_deleted(self) -> None:
        one = self.branch()
        self.git("switch", "-q", "side")
        two = self.commit("Second", **{"code.py": changed(7, text=changed(5)), "other": b"some more text\n"})
        # What the first commit added is not in the end
        three = self.commit("Third", **{"code.py": changed(7, text=changed(5, to=2_000))})
        self.git("switch", "-q", "main")
        self.squash("side")
        self.assertEqual([self.status(sha) for sha in (one, two, three)], [MERGED] * 3)
        self.git("branch", "-q", "-D", "side")
        branches._states.clear()
        self.assertEqual(self.status(three), MERGED)
        # A later commit of the branch that is known besides
        works = [BranchWork(one, "side"), BranchWork(three, "side")]
        branches._states.clear()
        self.assertEqual({*branch_states(self.tree(), works).values()}, {MERGED})

    def test_a_squashed_branch_that_went_on_and_was_deleted_is_found_by_its_lines(self) -> None:
        one = self.branch()
        self.git("switch", "-q", "side")
        self.commit("Second", other=b"some more text\n")
        self.git("switch", "-q", "main")
        self.squash("side")
        self.git("branch", "-q", "-D", "side")
        # What was merged is changed by now
        self.commit("Later", **{"code.py": changed(5, 25, to=3_000)})
        self.assertEqual(self.status(one), MERGED)

    def test_a_branch_that_goes_on_after_the_squash_is_merged_as_far_as_it_was(self) -> None:
        one = self.branch()
        self.squash("side")
        self.git("switch", "-q", "side")
        two = self.commit("Second", other=b"some more text\n")
        self.git("switch", "-q", "main")
        self.assertEqual([self.status(one), self.status(two)], [MERGED, UNMERGED])

    def test_a_branch_that_was_brought_up_to_date_before_the_squash_is_merged(self) -> None:
        one = self.branch()
        self.commit("main", **{"code.py": changed(25), "noise": b"text of main\n"})
        self.git("switch", "-q", "side")
        self.git("merge", "-q", "-m", "Update", "main")
        two = self.commit("Second", other=b"some more text\n")
        self.git("switch", "-q", "main")
        self.assertEqual([self.status(one), self.status(two)], [UNMERGED, UNMERGED])
        self.git("merge", "-q", "--squash", "side")
        self.commit("Work on side (#12)")
        self.assertEqual([self.status(one), self.status(two)], [MERGED, MERGED])

    def test_a_conflict_that_changed_a_line_of_many_leaves_the_branch_merged(self) -> None:
        sha = self.branch("side", **{"code.py": changed(*range(10)), "more": b"some more text\n"})
        self.commit("main", **{"code.py": changed(3, to=7)})
        self.assertEqual(self.status(sha), UNMERGED)
        squashed = changed(*range(10)).replace(b"setting_3 = 1000", b"setting_3 = 7")
        self.commit("Work on side (#12)", **{"code.py": squashed, "more": b"some more text\n"})
        self.assertEqual(self.status(sha), MERGED)

    def test_an_amended_commit_is_its_branches_and_a_reset_one_is_not(self) -> None:
        text = b"first line of text\nsecond line of text\nthird line of text\n"
        sha = self.commit("Add notes", notes=text)
        self.git("commit", "-q", "--amend", "-m", "Add the notes")
        self.assertEqual(self.status(sha, "main"), MERGED)
        again = self.git("rev-parse", "HEAD")
        self.repository.write("notes", text.replace(b"third", b"last"))
        self.git("commit", "-qa", "--amend", "--no-edit")
        self.assertEqual(self.status(again, "main"), MERGED)
        self.git("reset", "-q", "--hard", "HEAD~1")
        self.assertEqual(self.status(again, "main"), UNMERGED)

    def test_the_same_files_subject_and_time_are_not_the_same_change(self) -> None:
        sha = self.branch()
        self.repository.hours -= 1
        self.repository.write("code.py", changed(5, to=7))
        self.repository.commit("Work on side")
        self.assertEqual(self.status(sha), UNMERGED)

    def test_lines_that_prove_nothing_merge_nothing(self) -> None:
        for number, files in enumerate(({"x": b"}\n"}, {"x": b""}, {"code.py": BASE + b"setting_3 = 3\n"})):
            sha = self.branch(f"side{number}", **files)
            self.assertEqual(self.status(sha, f"side{number}"), UNMERGED)
        self.git("switch", "-q", "-c", "empty")
        sha = self.commit("Nothing")
        self.git("switch", "-q", "main")
        self.commit("Nothing here either")
        self.assertEqual(self.status(sha, "empty"), UNMERGED)

    def test_binary_files_renames_and_removals_are_compared(self) -> None:
        for number, files in enumerate(({"x": b"\0\1" * 90}, {"y": b"\0\2" * 90, "x": b"text in place of bytes\n"})):
            sha = self.branch(f"side{number}", **files)
            self.assertEqual(self.status(sha, f"side{number}"), UNMERGED)
            self.commit("main", **{f"noise{number}": b"n\n"})
            self.git("merge", "-q", "--squash", f"side{number}")
            self.commit("Squashed")
            self.assertEqual(self.status(sha, f"side{number}"), MERGED)
        self.git("switch", "-q", "-c", "removal")
        self.git("mv", "code.py", "moved.py")
        self.git("rm", "-q", "x")
        sha = self.commit("Move code")
        self.git("switch", "-q", "main")
        self.assertEqual(self.status(sha, "removal"), UNMERGED)
        self.commit("main", noise=b"n\n")
        self.git("merge", "-q", "--squash", "removal")
        self.commit("Squashed")
        self.assertEqual(self.status(sha, "removal"), MERGED)

    def test_a_history_that_shares_nothing_with_head_is_compared_by_its_commits(self) -> None:
        self.git("switch", "-q", "--orphan", "side")
        sha = self.commit("Unrelated", new=b"some text of another root\n")
        self.git("switch", "-q", "main")
        self.assertEqual(self.status(sha), UNMERGED)
        self.git("cherry-pick", sha)
        self.assertEqual(self.status(sha), MERGED)


class UncommittedTests(BranchesTestCase):
    """Files were edited at a commit that HEAD has, and the edits were committed later, if at all."""

    def test_edits_belong_to_their_branch_until_its_next_commit_is_merged(self) -> None:
        self.git("branch", "side")
        self.assertEqual(self.status(self.base, "main", edited=True), MERGED)
        self.assertEqual(self.status(self.base, edited=False), MERGED)
        self.assertEqual(self.status(self.base, edited=True), UNCOMMITTED)
        self.commit("main", noise=b"n\n")
        self.assertEqual(self.status(self.base, edited=True), UNCOMMITTED)
        self.git("switch", "-q", "side")
        self.assertEqual(self.status(self.base, edited=True), MERGED)
        self.commit("Work", **{"code.py": changed(5)})
        self.commit("More", **{"code.py": changed(5, 6)})
        self.assertEqual(self.status(self.base, edited=True), MERGED)
        self.git("switch", "-q", "main")
        self.assertEqual(self.status(self.base, edited=True), UNMERGED)
        self.git("merge", "-q", "-m", "Merge", "side~1")
        self.assertEqual(self.status(self.base, edited=True), UNKNOWN)
        self.git("merge", "-q", "-m", "Merge", "side")
        self.assertEqual(self.status(self.base, edited=True), MERGED)
        self.git("branch", "-q", "-D", "side")
        self.assertEqual(self.status(self.base, edited=True), MERGED)


class PartsOfHistoryTests(BranchesTestCase):
    """Clones that lack commits or contents."""

    def setUp(self) -> None:
        super().setUp()
        self.sha = self.branch()
        for number in range(3):
            self.commit(f"main {number}", **{"code.py": changed(*range(10, 11 + number))})

    def clone(self, *options: str) -> Path:
        folder = self.root / "clone"
        self.git("config", "uploadpack.allowFilter", "true")
        self.git("clone", "-q", "--no-single-branch", *options, f"file://{self.folder}", str(folder))
        return folder

    def test_a_shallow_clone_does_not_know_what_lies_before(self) -> None:
        clone = self.clone("--depth=1")
        self.assertEqual(self.status(self.sha, folder=clone), UNKNOWN)
        self.assertEqual(self.status(self.base, "main", folder=clone), UNKNOWN)
        self.assertEqual(self.status(self.git("rev-parse", "main"), "main", folder=clone), MERGED)
        deep = self.root / "deep"
        self.git("clone", "-q", "--no-single-branch", "--depth=4", f"file://{self.folder}", str(deep))
        self.assertEqual(self.status(self.sha, folder=deep), UNMERGED)

    def test_a_partial_clone_knows_what_needs_no_contents(self) -> None:
        self.git("merge", "-q", "--squash", "side")
        self.commit("Squashed")
        clone = self.clone("--filter=blob:none", "--no-checkout")
        self.assertEqual(self.status(self.sha, folder=clone), UNKNOWN)
        self.assertEqual(self.status(self.base, "main", folder=clone), MERGED)


class DroppedTests(BranchesTestCase):
    def test_a_commit_is_dropped_once_no_ref_and_no_working_tree_holds_it(self) -> None:
        sha = self.branch()
        self.git("tag", "kept", "side")
        self.git("branch", "-q", "-D", "side")
        commits = [sha, self.base, "1" * 40, "--all"]
        self.assertEqual(dropped_commits(self.tree(), commits), set())
        self.git("tag", "-d", "kept")
        self.assertEqual(dropped_commits(self.tree(), commits), {sha})
        self.git("worktree", "add", "-q", "--detach", str(self.root / "linked"), sha)
        self.assertEqual(dropped_commits(self.tree(), commits), set())
        self.assertEqual(dropped_commits(self.tree(), []), set())
