"""All of ``make dist``, as a person runs it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from django.test import SimpleTestCase, tag

from memoryhub import __version__
from tests.home import UNMEASURED
from tests.packages.test_contents import bytes_of
from tests.programs import ROOT


@tag("process")
class DistributionsTests(SimpleTestCase):
    def build(self) -> tuple[Path, str]:
        folder = Path(tempfile.mkdtemp(prefix="memory-hub-dist-"))
        self.addCleanup(shutil.rmtree, folder)
        (folder / "leftover.whl").touch()
        command = [sys.executable, "-m", "deploy.build_packages", str(folder)]
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **UNMEASURED}, capture_output=True, text=True, check=False
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return folder, done.stdout

    def test_two_builds_have_the_same_bytes_and_all_is_listed(self):
        (first, printed), (second, _) = self.build(), self.build()
        files = bytes_of(first)
        self.assertEqual(files, bytes_of(second))
        packages = {name.partition("/")[0] for name in files}
        self.assertEqual(
            packages,
            {
                f"django_memory_hub-{__version__}-py3-none-any.whl",
                f"django_memory_hub-{__version__}.tar.gz",
                "server.json",
                "plugins",
                "gemini-cli",
                f"memory-hub-{__version__}.mcpb",
                "memory-hub.rb",
            },
        )
        listed = [line.split()[-1].rstrip("/") for line in printed.splitlines() if " kB  " in line]
        self.assertEqual(sorted(listed), sorted(packages))
        digest = hashlib.sha256(files[f"django_memory_hub-{__version__}.tar.gz"]).hexdigest()
        self.assertIn(f'sha256 "{digest}"', files["memory-hub.rb"].decode())
