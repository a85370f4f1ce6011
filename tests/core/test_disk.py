from __future__ import annotations

import stat
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import TestCase, mock

from memoryhub.core.disk import replacing


class ReplacingTests(TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.path = self.folder / "file"
        self.path.write_text("old")

    def test_readers_find_the_old_content_until_the_new_is_complete(self) -> None:
        with replacing(self.path) as file:
            file.write(b"new")
            file.flush()
            self.assertEqual(self.path.read_text(), "old")
        self.assertEqual(self.path.read_text(), "new")
        self.assertEqual(list(self.folder.iterdir()), [self.path])

    def test_after_an_error_the_old_file_stays_alone(self) -> None:
        with self.assertRaises(ZeroDivisionError), replacing(self.path) as file:
            file.write(b"new")
            raise ZeroDivisionError
        with mock.patch("os.fsync", side_effect=OSError), self.assertRaises(OSError), replacing(self.path) as file:
            file.write(b"new")
        self.assertEqual(self.path.read_text(), "old")
        self.assertEqual(list(self.folder.iterdir()), [self.path])

    def test_threads_that_replace_a_file_at_once_are_not_in_each_others_way(self) -> None:
        both = threading.Barrier(2)

        def write(_: int) -> None:
            with replacing(self.path) as file:
                file.write(b"new")
                both.wait(60)

        with ThreadPoolExecutor(2) as threads:
            list(threads.map(write, range(2)))  # raises their errors
        self.assertEqual(self.path.read_text(), "new")

    def test_a_link_is_replaced_and_the_new_file_is_private(self) -> None:
        link = self.folder / "link"
        link.symlink_to(self.path)
        with replacing(link) as file:
            file.write(b"new")
        self.assertFalse(link.is_symlink())
        self.assertEqual(stat.S_IMODE(link.stat().st_mode), 0o600)
        self.assertEqual(self.path.read_text(), "old")
