"""What `memory-hub setup` writes when `uvx` runs it: a command that works after uv has cleared its cache."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from unittest import mock

from django.test import SimpleTestCase

from memoryhub import __version__
from memoryhub.client.setup import entries
from memoryhub.client.setup.entries import command_words, shell_command, verb_index


class UvxTests(SimpleTestCase):
    def words(self, prefix: str, *packages: str, **variables: str) -> list[str]:
        with (
            mock.patch.object(sys, "prefix", prefix),
            mock.patch.object(entries, "find_spec", side_effect=lambda name: name in packages or None),
            mock.patch.dict(os.environ, variables),
        ):
            return command_words()

    def test_the_command_names_the_distribution_and_its_extras_instead_of_the_cache(self):
        cached = "/home/user/.cache/uv/archive-v0/rK-oQsP_sQ4RsBWu"
        with tempfile.TemporaryDirectory() as folder:
            uvx = Path(folder, "uvx")
            uvx.touch()
            variables = {"UV": str(uvx.with_name("uv")), "PATH": ""}
            plain = self.words(cached, **variables)
            with_model = self.words(cached, "onnxruntime", **variables)
        self.assertEqual(plain, [str(uvx), "--offline", "--from", f"django-memory-hub=={__version__}", "memory-hub"])
        self.assertEqual(with_model[3], f"django-memory-hub[semantic]=={__version__}")
        self.assertEqual(self.words(cached, UV="", PATH="")[0], "uvx")

    def test_it_is_recognised_as_the_hubs(self):
        words = [*self.words("/cache/uv/environments-v2/abc", UV="", PATH=""), "hook", "claude-code", "Stop"]
        self.assertEqual(verb_index(words, "hook"), 5)

    def test_an_environment_elsewhere_has_its_script(self):
        self.assertNotIn("--from", self.words(sys.prefix))
        self.assertNotIn("--from", self.words("/home/user/archive-view/venv"))

    def test_a_shell_gets_the_extras_quoted(self):
        with (
            mock.patch.object(entries, "command_words", return_value=["uvx", "--from", "a[b]==1", "memory-hub"]),
            mock.patch.dict(os.environ, MEMORY_HUB_HOME=""),
        ):
            self.assertEqual(shell_command("hook"), "uvx --from 'a[b]==1' memory-hub hook")
