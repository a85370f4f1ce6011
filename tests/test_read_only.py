"""A store that may not be written: each door says so in one sentence, and goes on reading.

Root may write what is read-only, so the doors run here in a process of their own that has given that right up.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from django.test import SimpleTestCase

from tests.web.server import serving, temporary_home

ROOT = Path(__file__).parents[1]
WITHOUT_OVERRIDE = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]


class ReadOnlyTests(SimpleTestCase):
    def test_mcp_and_rest_refuse_the_write_and_go_on_reading(self):
        with temporary_home() as home:
            wrapper = WITHOUT_OVERRIDE if os.geteuid() == 0 else []
            command = [*wrapper, sys.executable, "-m", "tests.test_read_only", str(home)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        self.assertRegex(found["mcp_write"], "^unavailable: memory database unavailable: .*readonly")
        self.assertIn("kept before", found["mcp_read"])
        self.assertEqual(found["rest_write"][0], 503)
        self.assertRegex(found["rest_write"][1], "^memory database unavailable: .*readonly")
        self.assertEqual(found["rest_read"], 200)
        self.assertRegex(found["mcp_later"], "created|has this text already")


def ask_the_doors(home: Path) -> dict[str, Any]:
    """Write, take the right to write away, ask both doors, give it back, write again."""
    from tests.mcp.client import Process as McpServer

    found: dict[str, Any] = {}
    with serving("--no-worker", home=home) as server:
        mcp = McpServer(home, "--project", "alpha", MEMORY_HUB_TEST_TOOLS="")
        try:
            mcp.initialize()
            mcp.say("memory_write", title="first", content="kept before")
            files = list((home / "projects" / "alpha").glob("events.db*"))
            for path in files:
                path.chmod(0o400)
            fresh = McpServer(home, "--project", "alpha", MEMORY_HUB_TEST_TOOLS="")
            fresh.initialize()
            found["mcp_write"] = fresh.say("memory_write", title="second", content="refused")
            found["mcp_read"] = fresh.say("memory_search", query="what was kept before?")
            written = server.api("POST", "projects/alpha/memories", {"title": "third", "content": "refused"})
            found["rest_write"] = [written.status, written.json()["detail"]]
            found["rest_read"] = server.api("GET", "projects/alpha/memories").status
            for path in files:
                path.chmod(0o600)
            # The first call after the repair closes what was opened read-only; the next one opens it again.
            calls = [fresh.say("memory_write", title="fourth", content="kept after") for _ in range(2)]
            found["mcp_later"] = calls[-1]
            fresh.destroy()
        finally:
            mcp.destroy()
    return found


if __name__ == "__main__":
    print(json.dumps(ask_the_doors(Path(sys.argv[1]))))
