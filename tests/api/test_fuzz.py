from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any, ClassVar
from unittest import SkipTest, TestCase

from django.test import tag

from memoryhub.config.clients import hook_clients
from memoryhub.core.backends.selected import stores
from tests.home import UNMEASURED
from tests.torture.rounds import is_long
from tests.web.server import ROOT, Server, run, serving, temporary_home

SEED = 20261122
IS_LONG = is_long()
# Examples per operation in each phase; ``coverage`` tries one in ``SHARE`` boundary values of every schema.
PHASES = {"coverage": 1, "fuzzing": 30, "stateful": 10} if IS_LONG else {"coverage": 1, "fuzzing": 1}
SHARE = 1 if IS_LONG else 12
REQUESTS = 10_000 if IS_LONG else 800
_COUNT = re.compile(r"^\s+([\d,]+) generated", re.MULTILINE)


@unittest.skipIf(sys.platform == "win32", "the server is a POSIX process")
@tag("attack")
class FuzzTests(TestCase):
    server: Server
    settings: ClassVar[dict[str, str]]

    @classmethod
    def setUpClass(cls) -> None:
        try:
            import schemathesis  # noqa: F401
        except ImportError as error:
            raise SkipTest("schemathesis is not installed; it comes with the extra dev") from error
        super().setUpClass()
        home = cls.enterClassContext(temporary_home())
        code, output = run("demo", home=home)
        assert code == 0, output
        cls.server = cls.enterClassContext(serving(*(() if IS_LONG else ("--no-worker",)), home=home))
        known = home / "known.json"
        known.write_text(json.dumps(_fill(cls.server)))
        cls.settings = {"MEMORY_HUB_TEST_FUZZ": str(known), "MEMORY_HUB_TEST_FUZZ_SHARE": str(SHARE)}

    def test_generated_requests_find_no_error(self) -> None:
        made = sum(self._fuzz(phase, examples) for phase, examples in PHASES.items())
        print(f"schemathesis made {made:,} requests", file=sys.stderr)
        self.assertGreaterEqual(made, REQUESTS)
        parts = self.server.api("GET", "health").json()["parts"]
        self.assertEqual((parts[stores.HUB_NAME], parts["project demo"]), ("ok", "ok"), parts)
        verified = self.server.api("GET", "projects/demo/events/verify").json()
        self.assertTrue(verified["ok"], verified)
        self.assertNotIn("Traceback", self.server.text)

    def _fuzz(self, phase: str, examples: int) -> int:
        options = [
            *("--phases", phase, "--max-examples", str(examples), "--seed", str(SEED)),
            *("--header", f"Authorization: Bearer {self.server.token}", "--checks", "all"),
            *("--generation-database", "none", "--no-color", "--warnings", "off", "--suppress-health-check", "all"),
        ]
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli"),
                *("--config-file", str(Path(__file__).parent / "schemathesis.toml")),
                *("run", f"{self.server.address}/api/v1/openapi.json", *options),
            ],
            cwd=ROOT,
            env={**os.environ, **UNMEASURED, "PYTHONDEVMODE": "", **self.settings},
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, f"{phase}: {done.stdout[-20_000:]}{done.stderr[-2_000:]}")
        found = _COUNT.search(done.stdout)
        assert found, done.stdout
        return int(found[1].replace(",", ""))


def _fill(server: Server) -> dict[str, Any]:
    """Complete the sample project, and return values of the parameters that are ids."""

    def post(path: str, body: Any, status: int = 201) -> Any:
        reply = server.api("POST", path, body)
        assert reply.status == status, reply.body
        return reply.json()

    def ids(path: str) -> list[int]:
        found = server.api("GET", f"projects/demo/{path}").json()["results"]
        return [item["id"] for item in found][:20]

    post("orgs", {"id": "harbours", "name": "Harbours"})
    server.api("PATCH", "projects/demo", {"org_id": "harbours"})
    session = post("projects/demo/sessions", {"session_id": "fuzz/session", "purpose": "to be asked for"})
    hold = post("projects/demo/holds", {"stream_id": "session:fuzz/session", "reason": "in use"})
    memory = post("projects/demo/memories", {"title": "Tide tables", "content": "come from the harbour office"})
    for content in ("are printed", "are drawn"):
        server.api("PATCH", f"projects/demo/memories/{memory['id']}", {"content": content, "base_version": 1})
    pack = server.api("GET", "projects/demo/context?query=tides").json()
    missing = 2**53
    return {
        "project_id": ["demo"],
        "org_id": ["harbours"],
        "memory_id": [*ids("memories"), missing],
        "decision_id": [*ids("decisions"), missing],
        "entity_id": [*ids("decisions")[:5], *ids("memories")[:5], missing],
        "relation_id": [*ids("relations"), missing],
        "conflict_id": [*ids("conflicts?all=true"), missing],
        "iteration_id": [*ids("iterations"), missing],
        "pack_id": [pack["meta"]["pack"], missing],
        "run_id": [*ids("retention/runs"), missing],
        "rollback_id": [missing],
        "hold_id": [hold["id"], *ids("holds"), missing],
        "session_id": [session["session_id"], "no-such-session"],
        "client": list(hook_clients()),
        "event": ["SessionStart", "UserPromptSubmit", "PostToolUse", "Stop", "SessionEnd", "Other"],
        "code": ["invalid", "not_found"],
    }
