from __future__ import annotations

import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from sessions_app.git import read_commit
from sessions_app.models import Commit
from sessions_app.schemas import ProjectDescribe, SessionStart
from sessions_app.services import record_commits, start_session
from sessions_app.services.profile import describe
from tests.decisions.base import NOON
from tests.governance.staleness import StalenessTestCase
from tests.sessions_app.test_git import Repository


class DiffTests(StalenessTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.repository = Repository(Path(tempfile.mkdtemp(prefix="repository-")))
        self.addCleanup(shutil.rmtree, self.repository.folder)
        self.repository.hours = int((NOON - datetime.fromtimestamp(1_700_000_000, UTC)).total_seconds() // 3600) + 1
        describe(command=ProjectDescribe(root_path=str(self.repository.folder)))
        self.guideline = self.guide("Validate", "src/")

    def committed(self, message: str, **files: bytes) -> Commit:
        named = {name.replace("__", "/") + ".py": content for name, content in files.items()}
        sha = self.repository.commit(message, **named)
        made = read_commit(self.repository.folder, sha)
        assert made is not None
        record_commits(commits=[made])
        commit: Commit = Commit.objects.get(sha=sha)
        return commit

    def diff(self) -> str:
        (found,) = self.stale(diff=True)
        return str(found["commits"][0]["diff"])

    def test_the_diff_shows_the_governed_files_alone(self):
        self.committed("Begin", src__auth=b"a = 1\nb = 2\n", docs__auth=b"words = 1\n")
        self.affirm(self.guideline)
        self.pass_time(hours=4)
        self.repository.hours += 4
        self.committed("Change", src__auth=b"a = 1\nb = 3\n", docs__auth=b"words = 2\n")
        diff = self.diff()
        self.assertIn("+++ b/src/auth.py", diff)
        self.assertIn("-b = 2\n+b = 3", diff)
        self.assertNotIn("words", diff)

    def test_what_someone_set_in_git_changes_nothing(self):
        for name, value in (("diff.noprefix", "true"), ("diff.mnemonicPrefix", "true"), ("color.ui", "always"),
                            ("diff.external", "/bin/false"), ("log.showSignature", "true")):  # fmt: skip
            self.repository.git("config", name, value)
        self.repository.write(".gitattributes", b"*.py diff=loud\n")
        self.repository.git("config", "diff.loud.textconv", "/bin/false")
        self.committed("Ümlaut", src__ärger=b"a = 1\n")
        self.assertRegex(self.diff(), r"\Adiff --git a/src/ärger.py b/src/ärger.py\nnew file")

    def test_a_secret_in_a_diff_is_not_shown(self):
        self.committed("Careless", src__auth=b'TOKEN = "ghp_' + b"a1B2" * 9 + b'"\n')
        self.assertIn("[REDACTED:github-token:", self.diff())
        self.assertNotIn("a1B2", self.diff())

    def test_a_long_diff_is_cut_and_says_so(self):
        self.committed("Long", src__long=b"".join(b"line %d\n" % number for number in range(5_000)))
        diff = self.diff()
        self.assertLess(len(diff), 25_000)
        self.assertRegex(diff, r"… \d+ more lines\Z")

    def test_a_file_that_is_too_big_or_binary_is_named_only(self):
        self.committed("Big", src__big=b"x" * 79 + b"\n" * 600_000, src__binary=b"\0\1\2")
        self.assertIn("Binary files /dev/null and b/src/big.py differ", self.diff())
        self.assertLess(len(self.diff()), 1_000)

    def test_a_commit_that_the_repository_does_not_know_has_its_numbers_alone(self):
        self.committed("Known", src__auth=b"a = 1\n")
        self.commit_now("Unknown", "src/auth.py", hours=3)
        unknown, known = self.stale(diff=True)[0]["commits"]
        self.assertEqual((unknown["subject"], unknown["diff"], unknown["files"][0]["insertions"]), ("Unknown", None, 3))
        self.assertIn("+a = 1", known["diff"])

    def test_where_there_is_no_repository_there_are_the_numbers(self):
        self.committed("Known", src__auth=b"a = 1\n")
        describe(command=ProjectDescribe(root_path="/nowhere/at/all"))
        self.assertIsNone(self.stale(diff=True)[0]["commits"][0]["diff"])

    def test_the_folder_where_a_session_works_will_do(self):
        describe(command=ProjectDescribe(root_path=""))
        start_session(command=SessionStart(directory=str(self.repository.folder / "src"), session_id="s-1"))
        self.committed("Known", src__auth=b"a = 1\n")
        self.assertIn("+a = 1", self.diff())
