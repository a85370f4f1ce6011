"""Reading real repositories with the git binary."""

import os
import resource
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any
from unittest import TestCase, mock, skipUnless

from memoryhub.core.errors import Invalid, Unavailable
from sessions_app.events import FileChange
from sessions_app.git import (
    blame,
    count_commits,
    last_changes,
    list_files,
    path_in_worktree,
    process,
    read_commit,
    read_commits,
    top_of_worktree,
)
from sessions_app.git.commits import _tokens
from sessions_app.git.process import run
from sessions_app.schemas import CommitRecord


class Repository:
    """A repository in a folder of its own, with a clock that ticks an hour a commit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hours = 0
        folder.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str | bytes, **options: Any) -> str:
        when = f"{1_700_000_000 + 3600 * self.hours} +0530"
        environment = {
            **os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "Ann Ö",
            "GIT_AUTHOR_EMAIL": "ann@example.org", "GIT_COMMITTER_NAME": "Ann", "GIT_COMMITTER_EMAIL": "a@example.org",
            "GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when,
        }  # fmt: skip
        command = ["git", "-C", str(self.folder), *arguments]
        done = subprocess.run(command, check=True, capture_output=True, env=environment, timeout=120, **options)
        return str(done.stdout, "utf-8").strip()

    def write(self, path: str | bytes, content: bytes = b"x\n") -> None:
        file = self.folder / os.fsdecode(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    def commit(self, message: str | bytes, **files: bytes) -> str:
        for path, content in files.items():
            self.write(path, content)
        self.hours += 1
        self.git("add", "-A")
        raw = message if isinstance(message, bytes) else message.encode()
        self.git("commit", "-q", "--allow-empty", "--allow-empty-message", "-F", "-", input=raw)
        return self.git("rev-parse", "HEAD")


class GitTestCase(TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()
        self.repository = Repository(self.root / "alpha")

    def commits(self, **options: Any) -> list[CommitRecord]:
        commits = list(read_commits(self.repository.folder, **options))
        self.assertEqual(count_commits(self.repository.folder, **options), len(commits))
        return commits


class ReadCommitsTest(GitTestCase):
    def test_commits_come_oldest_first_with_all_that_git_knows(self) -> None:
        first = self.repository.commit("Begin\n\nWith a body.\n", a=b"1\n2\n")
        second = self.repository.commit("Change a", a=b"1\n3\n4\n", b=b"\x00\x01")
        one, two = self.commits()
        self.assertEqual((one.sha, one.message), (first, "Begin\n\nWith a body."))
        self.assertEqual(one.author, "Ann Ö <ann@example.org>")
        self.assertEqual(one.committed_at, datetime.fromtimestamp(1_700_003_600, UTC))
        self.assertEqual(two.sha, second)
        binary = FileChange(path="b", insertions=None, deletions=None)
        self.assertEqual(two.files, [FileChange(path="a", insertions=2, deletions=1), binary])

    def test_a_limit_takes_the_newest_and_a_date_the_later(self) -> None:
        self.repository.commit("one")
        two = self.repository.commit("two")
        three = self.repository.commit("three")
        self.assertEqual([commit.sha for commit in self.commits(limit=2)], [two, three])
        since = datetime.fromtimestamp(1_700_000_000 + 2 * 3600 + 1800, UTC).isoformat()
        self.assertEqual([commit.sha for commit in self.commits(since=since)], [three])

    def test_a_merge_is_recorded_once_and_without_the_files_of_its_commits(self) -> None:
        self.repository.commit("base", a=b"1\n")
        self.repository.git("switch", "-q", "-c", "side")
        self.repository.commit("side", b=b"1\n")
        self.repository.git("switch", "-q", "main")
        self.repository.commit("main", c=b"1\n")
        self.repository.git("merge", "-q", "--no-ff", "-m", "Merge side", "side")
        commits = self.commits()
        self.assertEqual(sorted(commit.message for commit in commits), ["Merge side", "base", "main", "side"])
        self.assertEqual(commits[-1].files, [])

    def test_a_renamed_file_goes_by_its_new_name(self) -> None:
        self.repository.commit("one", old=b"1\n2\n3\n4\n5\n")
        self.repository.git("mv", "old", "new")
        self.repository.commit("move")
        self.assertEqual(self.commits()[-1].files, [FileChange(path="new", insertions=0, deletions=0)])

    def test_messages_and_names_may_hold_any_bytes_in_any_encoding(self) -> None:
        self.assertEqual(self.commits(), [])
        for path in (b"caf\xe9\tx\n.txt", "漢字 \u202e.md", "commit"):
            self.repository.write(path)
        self.repository.commit(b"Caf\xe9 \xff\n\ncommit\n1\t2\tx\n\x1b[31mred")
        self.repository.commit("")
        self.repository.git("config", "i18n.commitEncoding", "iso-8859-15")
        self.repository.commit("100 €".encode("iso-8859-15"))
        first, empty, declared = self.commits()
        self.assertEqual(first.message, "Café ÿ\n\ncommit\n1\t2\tx\n\x1b[31mred")
        self.assertEqual({file.path for file in first.files}, {"café\tx\n.txt", "漢字 \u202e.md", "commit"})
        self.assertEqual((empty.message, empty.files, declared.message), ("", [], "100 €"))

    def test_the_users_own_settings_do_not_change_what_is_read(self) -> None:
        for key, value in (
            ("log.showSignature", "true"), ("color.ui", "always"), ("diff.noprefix", "true"), ("core.pager", "false"),
            ("log.decorate", "full"), ("diff.external", "false"), ("log.date", "relative"), ("diff.renames", "copies"),
            ("format.pretty", "oneline"), ("core.quotePath", "true"), ("log.diffMerges", "on"),
        ):  # fmt: skip
            self.repository.git("config", key, value)
        sha = self.repository.commit("one", é=b"1\n")
        [commit] = self.commits()
        self.assertEqual((commit.sha, [file.path for file in commit.files]), (sha, ["é"]))

    def test_linked_worktrees_and_bare_repositories_are_read(self) -> None:
        sha = self.repository.commit("one")
        self.repository.git("worktree", "add", "-q", str(self.root / "tree"))
        self.repository.git("clone", "-q", "--bare", ".", str(self.root / "bare.git"))
        for folder in (self.root / "tree", self.root / "bare.git"):
            self.assertEqual([commit.sha for commit in read_commits(folder)], [sha])

    def test_unreadable_repositories_raise_errors_with_the_reason(self) -> None:
        self.repository.commit("one")
        folder = self.repository.folder
        for place, options, reason in (
            (self.root, {}, "not in a git repository"), (self.root / "none", {}, "is not a folder"),
            (folder, {"since": "--output=x"}, "a date"), (folder, {"limit": 0}, "1 or more"),
        ):  # fmt: skip
            with self.assertRaisesRegex(Invalid, reason):
                list(read_commits(place, **options))
        with mock.patch.dict(os.environ, {"PATH": ""}), self.assertRaisesRegex(Unavailable, "not installed"):
            list(read_commits(self.repository.folder))

    def lose(self, revision: str) -> str:
        """Remove an object from the repository, and return its name."""
        lost = self.repository.git("rev-parse", revision)
        (self.repository.folder / ".git/objects" / lost[:2] / lost[2:]).unlink()
        return lost

    def test_a_commit_whose_contents_are_absent_has_its_files_and_gits_reason_is_named(self) -> None:
        self.repository.commit("one", **{f"file{number}": b"x" for number in range(5)})
        self.repository.commit("two", big=b"1\n")
        self.repository.commit("three", small=b"2\n")
        blob = self.lose("HEAD:big")
        reasons: list[str] = []
        one, two, three = read_commits(self.repository.folder, warn=reasons.append)
        self.assertRegex(reasons[0], f"^1 commit without line counts: .*unable to read {blob}")
        self.assertEqual(two.files, [FileChange(path="big", insertions=None, deletions=None)])
        self.assertEqual(three.files, [FileChange(path="small", insertions=1, deletions=0)])
        self.assertEqual([file.insertions for file in one.files], [1] * 5)
        self.assertEqual(read_commit(self.repository.folder, "HEAD~1"), two)
        self.lose("HEAD~2")
        with self.assertRaisesRegex(Unavailable, "git fsck"):
            list(read_commits(self.repository.folder))

    def test_a_partial_clone_fetches_nothing_and_its_lines_are_not_counted(self) -> None:
        self.repository.commit("one", old=b"1\n2\n")
        self.repository.git("mv", "old", "new")
        self.repository.commit("two", other=b"1\n")
        self.repository.git("config", "uploadpack.allowFilter", "true")
        origin, clone = f"file://{self.repository.folder}", str(self.root / "clone")
        self.repository.git("clone", "-q", "--no-checkout", "--filter=blob:none", origin, clone)
        commits = list(read_commits(Path(clone)))
        old, new, other = (FileChange(path=path, insertions=None, deletions=None) for path in ("old", "new", "other"))
        self.assertEqual([commit.files for commit in commits], [[old], [new, other]])
        self.assertEqual(read_commit(Path(clone), "HEAD"), commits[-1])
        # Contents that are there are counted
        (self.root / "clone/.git/objects").joinpath("info").mkdir(exist_ok=True)
        self.repository.commit("three", third=b"1\n")
        subprocess.run(["git", "-C", clone, "fetch", "-q", "--no-filter"], check=True, timeout=120)
        subprocess.run(["git", "-C", clone, "update-ref", "refs/heads/main", "origin/main"], check=True, timeout=120)
        subprocess.run(["git", "-C", clone, "cat-file", "blob", "main:third"], check=True, timeout=120)
        reasons: list[str] = []
        third = list(read_commits(Path(clone), warn=reasons.append))[-1]
        self.assertEqual(third.files, [FileChange(path="third", insertions=1, deletions=0)])
        self.assertRegex(reasons[0], "^2 commits without line counts: it is a partial clone, .*: could not fetch ")

    def test_each_file_has_the_time_of_its_last_commit(self) -> None:
        self.repository.commit("Begin", a=b"1\n", **{"docs/commit": b"1\n", "docs/caf\udce9.md": b"1\n"})
        self.repository.commit("Change", **{"docs/commit": b"2\n"})
        self.repository.write("docs/new.md")
        names = ["commit", "caf\udce9.md", "new.md", "gone.md"]
        hours = [datetime.fromtimestamp(1_700_000_000 + 3600 * hour, UTC) for hour in (2, 1)]
        times = last_changes(self.repository.folder / "docs", names)
        self.assertEqual(times, dict(zip(names[:2], hours, strict=True)))
        self.assertEqual(last_changes(self.root, names), {})
        self.repository.git("add", "docs/new.md")  # in no commit yet
        self.assertNotIn("new.md", last_changes(self.repository.folder / "docs", names))

    def test_stopping_early_leaves_no_process_behind(self) -> None:
        for number in range(3):
            self.repository.commit(str(number))
        commits = read_commits(self.repository.folder)
        self.assertEqual(next(commits).message, "0")
        commits.close()  # type: ignore[attr-defined]
        self.assertEqual(list(commits), [])


class ListFilesTest(GitTestCase):
    def test_ignored_files_are_left_out_and_untracked_ones_are_not(self) -> None:
        self.repository.write(".gitignore", b"*.log\n")
        self.repository.commit("one", a=b"1")
        self.repository.write("docs/é.md")
        self.repository.write("x.log")
        self.assertEqual(list_files(self.repository.folder), [".gitignore", "a", "docs/é.md"])
        self.assertEqual(list_files(self.repository.folder / "docs"), ["é.md"])
        self.assertEqual(path_in_worktree(self.repository.folder / "docs"), "docs/")
        self.assertIsNone(list_files(self.root))
        self.assertEqual(path_in_worktree(self.root), "")

    def test_a_folder_of_ignored_files_has_none_and_an_ignored_folder_is_not_git_s(self) -> None:
        self.repository.write(".gitignore", b"drafts/\n*.md\n")
        self.repository.write("notes/a.md")
        self.repository.write("drafts/b.md")
        self.assertEqual(list_files(self.repository.folder / "notes"), [])
        self.assertIsNone(list_files(self.repository.folder / "drafts"))

    def test_variables_of_another_repository_are_not_heeded(self) -> None:
        self.repository.write(".gitignore", b"*.log\n")
        self.repository.write("x.log")
        other = Repository(self.root / "beta")
        other.commit("Other", b=b"1")
        variables = {
            "GIT_DIR": str(other.folder / ".git"), "GIT_WORK_TREE": str(other.folder),
            "GIT_INDEX_FILE": str(other.folder / ".git/index"), "GIT_COMMON_DIR": str(other.folder / ".git"),
            "GIT_OBJECT_DIRECTORY": str(other.folder / ".git/objects"), "GIT_CEILING_DIRECTORIES": str(self.root),
            "GIT_PREFIX": "docs/",
        }  # fmt: skip
        with mock.patch.dict(os.environ, variables):
            self.assertEqual(list_files(self.repository.folder), [".gitignore"])
            self.repository.write("docs/a")
            self.assertEqual(path_in_worktree(self.repository.folder / "docs"), "docs/")
            self.assertEqual(top_of_worktree(self.repository.folder / "docs"), self.repository.folder)
            self.assertEqual(self.commits(), [])
            self.assertIsNone(read_commit(self.repository.folder, "HEAD"))


class RefusedRepositoryTest(GitTestCase):
    """What git cannot read is in a repository all the same, and its ignored files stay ignored."""

    def setUp(self) -> None:
        super().setUp()
        self.folder = self.repository.folder
        self.repository.commit("one", a=b"1")

    def refusals(self) -> list[str]:
        readers = (
            list_files,
            path_in_worktree,
            top_of_worktree,
            count_commits,
            lambda folder: read_commit(folder, "HEAD"),
        )
        sentences = []
        for reader in readers:
            with self.assertRaises(Unavailable) as refused:
                reader(self.folder)
            sentences.append(refused.exception.message)
        return sentences

    def test_a_bare_repository_has_no_working_tree(self) -> None:
        bare = self.root / "bare.git"
        self.repository.git("clone", "-q", "--bare", str(self.folder), str(bare))
        self.assertIsNone(list_files(bare))
        with self.assertRaisesRegex(Invalid, "in no working tree"):
            top_of_worktree(bare)

    def test_a_format_that_git_does_not_know(self) -> None:
        self.repository.git("config", "core.repositoryformatversion", "99")
        for sentence in self.refusals():
            self.assertIn("Expected git repo version <= 1, found 99", sentence)

    def test_a_pointer_to_a_git_folder_that_is_gone(self) -> None:
        (self.folder / ".git").rename(self.root / "gone")
        (self.folder / ".git").write_text("gitdir: ../nowhere\n")
        for sentence in self.refusals():
            self.assertIn("not a git repository", sentence)

    @skipUnless(os.geteuid() == 0, "only root can give files away")
    def test_a_repository_of_another_user(self) -> None:
        for path in (self.folder, self.folder / ".git"):
            os.chown(path, 1234, 1234)
        with mock.patch.dict(os.environ, {"HOME": str(self.root)}):
            for sentence in self.refusals():
                self.assertIn("dubious ownership", sentence)
                self.assertIn("safe.directory", sentence)

    def test_a_damaged_index(self) -> None:
        (self.folder / ".git/index").write_bytes(b"no index")
        with self.assertRaisesRegex(Unavailable, "index"):
            list_files(self.folder)

    def test_without_git_only_a_folder_in_no_repository_can_be_read(self) -> None:
        with mock.patch.dict(os.environ, {"PATH": "/nonexistent"}):
            for sentence in self.refusals():
                self.assertIn("git is not installed", sentence)
            self.assertIsNone(list_files(self.root))
            self.assertEqual(path_in_worktree(self.root), "")

    def test_the_inside_of_a_git_folder_is_no_folder_of_files(self) -> None:
        with self.assertRaisesRegex(Unavailable, "bare repository|work tree"):
            list_files(self.folder / ".git")


class BlameTest(GitTestCase):
    def test_the_working_file_is_blamed_as_git_does(self) -> None:
        random = Random(5)
        lines = [f"line {number} of {random.random()}" for number in range(40)]
        for _ in range(4):
            lines[random.randrange(len(lines))] = f"changed {random.random()}"
            lines.insert(random.randrange(len(lines)), f"new {random.random()}")
            self.repository.commit("next", code="\n".join(lines).encode() + b"\n")
        for _ in range(30):
            edited = lines.copy()
            for _ in range(random.randrange(6)):
                at = random.randrange(len(edited))
                edited[at : at + random.randrange(4)] = [f"edit {random.random()}" for _ in range(random.randrange(4))]
            content = "\n".join(edited).encode() + b"\n"
            self.repository.write("code", content)
            expected = [line.partition(" ")[0] for line in self.repository.git("blame", "-sl", "code").splitlines()]
            expected = ["" if set(sha) == {"0"} else sha.lstrip("^") for sha in expected]
            shas = [line.sha for line in blame(self.repository.folder, "code", content)]
            self.assertEqual([sha[:39] for sha in shas], [sha[:39] for sha in expected])
            first, last = sorted(random.choices(range(1, len(expected) + 1), k=2))
            part = blame(self.repository.folder, "code", content, first=first, last=last)
            self.assertEqual([line.sha for line in part], shas[first - 1 : last])
            self.assertEqual([line.text for line in part], edited[first - 1 : last])

    def test_lines_of_a_new_file_are_not_committed(self) -> None:
        self.repository.commit("one")
        self.repository.write("code", b"a\r\nb")
        with self.assertRaisesRegex(Invalid, "exists on disk, but not in 'HEAD'"):
            blame(self.repository.folder, "code", b"a\r\nb")
        self.repository.git("add", "code")
        lines = blame(self.repository.folder, "code", b"a\r\nb")
        self.assertEqual([(line.number, line.text, line.sha) for line in lines], [(1, "a", ""), (2, "b", "")])


class LimitsTest(GitTestCase):
    def test_an_answer_that_never_ends_is_cut_off(self) -> None:
        self.repository.commit("one", big=b"x\n" * 2**21)
        blob = ("cat-file", "blob", "HEAD:big")
        with self.assertRaisesRegex(Unavailable, "more than 1 MB"):
            run(self.repository.folder, *blob, max_output=2**20)
        self.assertEqual(len(run(self.repository.folder, *blob).stdout), 2**22)

    def test_git_that_does_not_answer_is_ended(self) -> None:
        self.repository.commit("one")
        config = self.repository.folder / ".git/config"
        config.unlink()
        os.mkfifo(config)
        with mock.patch.object(process, "SECONDS", 0.2), self.assertRaisesRegex(Unavailable, "in time"):
            run(self.repository.folder, "rev-parse", "HEAD")
        silence, stream = mock.patch.object(process, "SILENCE_SECONDS", 0.2), process.stream
        with silence, self.assertRaisesRegex(Unavailable, "in time"), stream(self.repository.folder, "log") as chunks:
            list(chunks)

    @skipUnless(hasattr(resource, "prlimit"), "this system limits no other process's memory")
    def test_git_may_not_take_the_machines_memory(self) -> None:
        self.repository.commit("one", a=b"1\n")
        # git reads attributes by lines, and this one has no end
        (self.repository.folder / ".git/info/attributes").symlink_to("/dev/zero")
        reasons: list[str] = []
        (commit,) = read_commits(self.repository.folder, warn=reasons.append)
        self.assertEqual(commit.files, [FileChange(path="a", insertions=None, deletions=None)])
        self.assertRegex(reasons[0], "out of memory|signal|code")
        kilobytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        self.assertLess(kilobytes, 2 * 2**20)


class TokensTest(TestCase):
    def test_a_message_of_any_size_is_cut(self) -> None:
        chunks = iter([b"m" * 2**16] * 200 + [b"\0end"])
        message, end = _tokens(chunks)
        self.assertLess(len(message), 2**21)
        self.assertEqual(end, b"end")

    def test_output_is_cut_at_nul_wherever_the_pieces_end(self) -> None:
        whole = b"commit\0abc\0\0x\ty\0"
        for size in range(1, len(whole)):
            pieces = iter([whole[start : start + size] for start in range(0, len(whole), size)])
            self.assertEqual(list(_tokens(pieces)), [b"commit", b"abc", b"", b"x\ty"])
