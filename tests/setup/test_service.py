from __future__ import annotations

import json
import os
import plistlib
import stat
import subprocess
import sys
import unittest
from pathlib import Path
from unittest import mock

from django.test import tag

from memoryhub.client.setup import service as services
from tests.hook.client import HookTestCase
from tests.web.server import ROOT, serving

# A service manager that notes how it is called; it fails at the word in ``fails``.
SYSTEMCTL = """#!/bin/sh
echo "$*" >> "$(dirname "$0")/calls"
case "$*" in *"$(cat "$(dirname "$0")/fails" 2>/dev/null || echo nothing)"*)
  echo "Failed to connect to bus: No such file or directory" >&2; exit 1;;
esac
"""


@tag("process")
class ServiceTestCase(HookTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.bin = self.work / "bin"
        self.bin.mkdir()
        program = self.bin / "systemctl"
        program.write_text(SYSTEMCTL)
        program.chmod(0o700)
        self.unit = self.work / "config" / "systemd" / "user" / "memory-hub.service"

    def run_command(self, *words: str) -> tuple[int, str]:
        environment = {
            **os.environ,
            "MEMORY_HUB_HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.work / "config"),
            "PATH": f"{self.bin}:{os.environ['PATH']}",
        }
        done = subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), "service", *words],
            cwd=self.work, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    def calls(self) -> list[str]:
        return (self.bin / "calls").read_text().splitlines()


@tag("process")
class SystemdTests(ServiceTestCase):
    def test_install_status_and_remove(self) -> None:
        self.assertIn("not installed", self.run_command("status")[1])
        code, output = self.run_command("install", "--port", "8400")
        self.assertEqual(code, 0, output)
        self.assertEqual(self.calls()[-2:], ["--user daemon-reload", "--user enable --now memory-hub.service"])
        text = self.unit.read_text()
        self.assertIn(f'Environment="MEMORY_HUB_HOME={self.home}"', text)
        self.assertRegex(text, r'ExecStart="[^"]+" .*"serve" "--service" "--port" "8400"')
        self.assertEqual(stat.S_IMODE(self.unit.stat().st_mode), 0o600)
        status = json.loads(self.run_command("status", "--json")[1])
        self.assertEqual((status["manager"], status["installed"], status["running"]), ("systemd", True, True))
        code, output = self.run_command("remove")
        self.assertEqual((code, self.unit.exists()), (0, False), output)
        self.assertEqual(self.calls()[-2:], ["--user disable --now memory-hub.service", "--user daemon-reload"])
        self.assertIn("not installed", self.run_command("remove")[1])

    def test_nothing_is_left_when_it_cannot_be_started(self) -> None:
        (self.bin / "fails").write_text("enable")
        code, output = self.run_command("install")
        self.assertEqual((code, self.unit.exists()), (8, False))
        self.assertEqual(
            output,
            "memory-hub: systemd can't start the hub: Failed to connect to bus: No such file or directory; clients "
            "still start it on demand\n",
        )

    def test_an_installed_service_stays_when_it_cannot_be_changed(self) -> None:
        self.assertEqual(self.run_command("install", "--port", "8400")[0], 0)
        installed = self.unit.read_text()
        (self.bin / "fails").write_text("--user")
        code, output = self.run_command("install", "--port", "8500")
        self.assertEqual(code, 8, output)
        self.assertEqual(self.unit.read_text(), installed)
        self.assertEqual(stat.S_IMODE(self.unit.stat().st_mode), 0o600)

    def test_a_hub_started_by_hand_is_not_replaced(self) -> None:
        with serving("--no-worker", home=self.home):
            code, output = self.run_command("install")
        self.assertEqual((code, self.unit.exists()), (5, False), output)
        self.assertIn("stop it first", output)

    def test_dry_run_only_shows_the_file(self) -> None:
        code, output = self.run_command("install", "--dry-run")
        self.assertEqual((code, self.unit.exists(), (self.bin / "calls").exists()), (0, False, False))
        self.assertIn("ExecStart=", output)


@tag("process")
class TextTests(unittest.TestCase):
    def test_words_are_quoted_for_systemd(self) -> None:
        content = services._systemd(['/home/a "b"\\c/100%/$HOME/memory-hub']).content
        self.assertIn('ExecStart="/home/a \\"b\\"\\\\c/100%%/$$HOME/memory-hub"\n', content)

    def test_a_home_is_quoted_for_systemd(self) -> None:
        with mock.patch.dict(os.environ, MEMORY_HUB_HOME='/home/a "b"/100%/$HOME'):
            content = services._systemd(["/memory-hub"]).content
        self.assertIn('Environment="MEMORY_HUB_HOME=/home/a \\"b\\"/100%%/$HOME"\n', content)

    def test_launchd_gets_a_property_list(self) -> None:
        with mock.patch.object(sys, "platform", "darwin"), mock.patch.dict(os.environ, MEMORY_HUB_HOME="/tmp/a&b"):
            service = services.service(port=8400)
        content = plistlib.loads(service.content.encode())
        self.assertEqual(content["ProgramArguments"][-4:], ["serve", "--service", "--port", "8400"])
        self.assertEqual(content["EnvironmentVariables"], {"MEMORY_HUB_HOME": "/tmp/a&b"})
        self.assertEqual(service.path.parent, Path.home() / "Library" / "LaunchAgents")
