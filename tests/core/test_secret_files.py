from __future__ import annotations

import os
import stat
import subprocess
import sys
from unittest import TestCase, mock

from memoryhub.core import secret_files
from memoryhub.core.errors import Unavailable
from memoryhub.core.secret_files import MIN_LENGTH, SECRET_FILES, read_or_create_secret, secret_matches
from tests.support import HubTestCase
from tests.web.server import ROOT

_ASK = "from memoryhub.core.secret_files import read_or_create_secret as ask; print(ask('token'))"
_ASK_WITHOUT_ROOM = f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
{_ASK}
"""


class SecretFileTests(HubTestCase):
    def start(self, program: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def finish(self, process: subprocess.Popen[str]) -> tuple[str, str]:
        with process:
            printed, errors = process.communicate(timeout=120)
        return printed.strip(), errors

    def test_processes_that_ask_together_get_one_secret(self) -> None:
        for before in (None, "", "\n"):
            (self.home / "token").unlink(missing_ok=True)
            if before is not None:
                (self.home / "token").write_text(before)
            processes = [self.start(_ASK) for _ in range(6)]
            (secret,) = {self.finish(process)[0] for process in processes}
            self.assertEqual((self.home / "token").read_text(), f"{secret}\n")
            self.assertGreaterEqual(len(secret), MIN_LENGTH)

    def test_a_write_that_fails_changes_nothing_and_is_one_sentence(self) -> None:
        for before in (None, b""):
            if before is not None:
                (self.home / "token").write_bytes(before)
            printed, errors = self.finish(self.start(_ASK_WITHOUT_ROOM))
            self.assertEqual(printed, "")
            self.assertIn(f"the secret file {self.home}/token cannot be written: File too large", errors)
            self.assertEqual((self.home / "token").exists(), before is not None)
            self.assertEqual([path.name for path in self.home.glob("*.new")], [])

    def test_a_draft_that_a_killed_process_left_is_no_hindrance(self) -> None:
        (self.home / "token.new").write_text("half")
        secret = read_or_create_secret("token")
        self.assertEqual((self.home / "token").read_text(), f"{secret}\n")
        self.assertEqual(stat.S_IMODE((self.home / "token").stat().st_mode), 0o600)
        self.assertFalse((self.home / "token.new").exists())

    def test_the_file_is_synced_before_its_name_leads_to_it_and_the_name_after(self) -> None:
        steps: list[str] = []
        fsync, replace = os.fsync, os.replace

        def noted_fsync(descriptor: int) -> None:
            steps.append("sync folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync file")
            fsync(descriptor)

        def noted_replace(*paths: str) -> None:
            steps.append("rename")
            replace(*paths)

        with mock.patch.object(os, "fsync", noted_fsync), mock.patch.object(os, "replace", noted_replace):
            read_or_create_secret("token")
        self.assertEqual(steps, ["sync file", "rename", "sync folder"])

    def test_what_is_no_secret_is_refused_and_left_as_it_is(self) -> None:
        path = self.home / "token"
        for content in (b"x" * (MIN_LENGTH - 1), b"x" * 5000, b"two words " * 5, b"\xc3\xa9" * 40, b"a" * 40 + b"\nb"):
            path.write_bytes(content)
            with self.subTest(content=content), self.assertRaisesRegex(Unavailable, f"{path} holds .*; remove it, and"):
                read_or_create_secret("token")
            self.assertEqual(path.read_bytes(), content)
        path.unlink()
        path.mkdir()
        with self.assertRaisesRegex(Unavailable, f"the secret file {path} cannot be read: Is a directory"):
            read_or_create_secret("token")

    def test_every_secret_file_of_the_home_is_listed(self) -> None:
        with self.store("alpha"):
            pass
        for name in SECRET_FILES:
            self.assertEqual(secret_files.secret_problem(name), "")
            read_or_create_secret(name)
            self.assertEqual(secret_files.secret_problem(name), "")


class ComparisonTests(TestCase):
    def test_only_the_whole_of_a_sound_secret_matches(self) -> None:
        secret = "s" * MIN_LENGTH
        self.assertTrue(secret_matches(secret, secret))
        for given, expected in (("", ""), ("x", "x"), (secret[1:], secret[1:]), ("", secret), (secret, "é" * 40)):
            with self.subTest(given=given, expected=expected):
                self.assertFalse(secret_matches(given, expected))
