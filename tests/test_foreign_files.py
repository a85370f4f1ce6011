"""A file of someone else's folder costs no reader much memory or time, whatever it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path
from unittest import mock

from memoryhub.core.foreign_files import holds, read_foreign
from tests.foreign_files import FILES, READERS, Case, faults_of
from tests.hook.client import folder
from tests.web.server import ROOT


class ReadersTests(unittest.TestCase):
    def test_no_reader_hangs_or_takes_much_time_or_memory(self):
        command = [sys.executable, "-m", "tests.foreign_files"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        cases = [Case(**json.loads(line)) for line in done.stdout.splitlines()]
        self.assertEqual(len(cases), len(READERS) * len(FILES))
        faults = [f"{case.reader}: {case.file}: {fault}" for case in cases for fault in faults_of(case)]
        self.assertEqual(faults, [])


class ReadForeignTests(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = self.enterContext(folder())
        self.file = self.folder / "a"

    def refusal(self, path: str | Path, *, limit: int = 100, follows_links: bool = True) -> str:
        with self.assertRaises(OSError) as caught:
            read_foreign(path, limit=limit, follows_links=follows_links)
        return str(caught.exception.strerror)

    def test_a_file_of_just_the_limit_is_read_and_one_byte_more_refused(self):
        self.file.write_bytes(b"x" * 2_048)
        self.assertEqual(read_foreign(self.file, limit=2_048), b"x" * 2_048)
        self.assertEqual(self.refusal(self.file, limit=2_047), "it is larger than 1 KB")

    def test_a_file_that_grows_while_it_is_read_is_read_to_the_limit(self):
        # It says that it is empty
        self.assertEqual(Path("/proc/self/status").stat().st_size, 0)
        self.assertEqual(self.refusal("/proc/self/status", limit=64), "it is larger than 0 KB")
        self.file.write_bytes(b"")
        with (
            mock.patch.object(os, "read", side_effect=lambda _, count: b"x" * min(count, 7)) as read,
            self.assertRaises(OSError),
        ):
            read_foreign(self.file, limit=70)
        self.assertEqual(read.call_count, 11)

    def test_a_link_is_followed_where_the_caller_allows_it(self):
        (self.folder / "b").write_text("text")
        self.file.symlink_to("b")
        self.assertEqual(read_foreign(self.file), b"text")
        self.assertIn("symbolic links", self.refusal(self.file, follows_links=False))

    def test_no_descriptor_stays_open(self):
        os.mkfifo(self.file)
        before = len([*Path("/proc/self/fd").iterdir()])
        self.assertEqual(self.refusal(self.file), "it is not a file")
        self.assertEqual(self.refusal("a\0b"), "its name is not a file name")
        self.assertEqual(len([*Path("/proc/self/fd").iterdir()]), before)

    def test_only_a_plain_file_of_the_same_text_holds_it(self):
        self.file.write_text("text")
        link = self.folder / "link"
        link.symlink_to(self.file)
        answers = [holds(self.file, "text"), holds(self.file, "tex"), holds(self.file, "text "), holds(link, "text")]
        self.assertEqual(answers, [True, False, False, False])
