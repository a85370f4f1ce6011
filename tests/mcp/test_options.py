from __future__ import annotations

import subprocess

from memoryhub.mcp.options import parse
from tests.mcp.client import ROOT, McpTestCase, command, environment


class Options(McpTestCase):
    def run_command(self, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*options),
            env=environment(self.home),
            cwd=ROOT,
            text=True,
            capture_output=True,
            timeout=120,
            check=False,
        )

    def test_defaults(self) -> None:
        options = parse([])
        self.assertEqual((options.project, options.session, options.profile), (None, "", "core"))

    def test_both_ways_of_writing_a_value(self) -> None:
        options = parse(["--project=alpha", "--session", "s-1", "--profile", "full"])
        self.assertEqual((options.project, options.session, options.profile), ("alpha", "s-1", "full"))

    def test_an_address_is_a_host_and_a_port(self) -> None:
        for given, expected in (
            ("8322", ("127.0.0.1", 8322)),
            ("0.0.0.0:1", ("0.0.0.0", 1)),
            ("[::1]:0", ("::1", 0)),
            ("localhost:8322", ("localhost", 8322)),
        ):
            self.assertEqual(parse(["--http", given]).http, expected)
        self.assertTrue(parse(["--http", "0.0.0.0:1"]).token)
        self.assertFalse(parse(["--http", "[::1]:1", "--no-token"]).token)

    def test_wrong_options_are_explained(self) -> None:
        for given in (
            ["--profile", "huge"],
            ["--colour", "red"],
            ["--project"],
            ["alpha"],
            ["--project", "--profile"],
            ["--http", "localhost"],
            ["--http", "::1:80"],
            ["--no-token"],
            ["--http", "0.0.0.0:8322", "--no-token"],
        ):
            with self.subTest(given=given):
                done = self.run_command(*given)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn("usage: memory-hub mcp", done.stderr)

    def test_help_names_every_option(self) -> None:
        done = self.run_command("--help")
        self.assertEqual(done.returncode, 0)
        for option in ("--project", "--session", "--profile", "--http", "--allow-host", "--no-token"):
            self.assertIn(option, done.stdout)
