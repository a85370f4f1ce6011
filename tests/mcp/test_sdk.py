from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from django.test import SimpleTestCase

from tests.mcp.client import ROOT, environment

UNWANTED = ("ninja", "django_q", "django.contrib.admin", "django.contrib.auth", "uvicorn", "starlette", "mcp.client")

BUILD = """
import json, sys
from memoryhub.mcp import options, serve
serve.build(options.Options(project="alpha"), [])
print(json.dumps(sorted(sys.modules)))
"""

DEFERRED = """
from memoryhub.mcp import options, serve
serve.build(options.Options(project="alpha"), [])
import pydantic
from memories.schemas import MemoryWrite
print(MemoryWrite.__pydantic_complete__, pydantic.BaseModel.model_config)
print(MemoryWrite(title="t", content="c").title, MemoryWrite.__pydantic_complete__)
"""

BROKEN = """
from memoryhub.mcp import sdk
def fail():
    raise RuntimeError("another layout")
sdk._deferred_schemas = fail
sdk.load()
from mcp.server.lowlevel import Server
import mcp, pydantic
print(Server.__name__, mcp.Client.__name__, pydantic.BaseModel.model_config, pydantic.TypeAdapter.__name__)
"""


class ImportingTheSdk(SimpleTestCase):
    def run_python(self, code: str) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryDirectory() as home:
            return subprocess.run(
                [sys.executable, "-c", code],
                env=environment(Path(home)),
                cwd=ROOT,
                text=True,
                capture_output=True,
                timeout=120,
                check=True,
            )

    def test_the_server_imports_nothing_that_it_does_not_need(self) -> None:
        modules = set(json.loads(self.run_python(BUILD).stdout))
        self.assertEqual(modules & set(UNWANTED), set())
        self.assertIn("mcp.server.lowlevel", modules)

    def test_the_hubs_own_schemas_are_built_when_they_are_first_used(self) -> None:
        self.assertEqual(self.run_python(DEFERRED).stdout.split(), ["False", "{}", "t", "True"])

    def test_an_sdk_with_another_layout_is_imported_completely(self) -> None:
        done = self.run_python(BROKEN)
        self.assertEqual(done.stdout.split(), ["Server", "Client", "{}", "TypeAdapter"])
        self.assertIn("importing all of it", done.stderr)
