"""Runs the tools on Node that ``.ci/node`` installs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.mcp.client import ROOT, McpTestCase

INSTALLED = ROOT / ".node" / "node_modules"
PACKAGES = INSTALLED / "@modelcontextprotocol"
SUITE = PACKAGES / "conformance" / "dist" / "index.js"
INSPECTOR = PACKAGES / "inspector" / "clients" / "launcher" / "build" / "index.js"


class NodeTestCase(McpTestCase):
    """Skipped if the tools are not installed; in CI that is a failure."""

    def setUp(self) -> None:
        if not _node() or not SUITE.exists():
            message = "the protocol's tools are not installed; run .ci/node"
            if os.environ.get("CI"):
                self.fail(message)
            self.skipTest(message)

    def run_node(self, script: Path, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a tool in the home folder of the class."""
        return subprocess.run(
            [_node(), str(script), *words],
            cwd=self.home,
            env={**os.environ, "HOME": str(self.home)},
            text=True,
            capture_output=True,
            timeout=120,
            check=False,
        )


def _node() -> str:
    """Return the path of Node: the one installed with the tools, else the system's."""
    own = next(INSTALLED.glob("node-*/bin/node"), None)
    return str(own or shutil.which("node") or "")
