"""Runs the tools on Node that ``.ci/node`` installs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from django.test import tag

from tests.mcp.client import McpTestCase
from tests.programs import NODE_MODULES, needs, path_of

PACKAGES = NODE_MODULES / "@modelcontextprotocol"
SUITE = PACKAGES / "conformance" / "dist" / "index.js"
INSPECTOR = PACKAGES / "inspector" / "clients" / "launcher" / "build" / "index.js"


@needs("node tools")
@tag("conformance")
class NodeTestCase(McpTestCase):
    def run_node(self, script: Path, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a tool in the home folder of the class."""
        return subprocess.run(
            [path_of("node"), str(script), *words],
            cwd=self.home,
            env={**os.environ, "HOME": str(self.home)},
            text=True,
            capture_output=True,
            timeout=120,
            check=False,
        )
