from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from unittest import mock

from django.test import tag

from memoryhub.mcp import snapshot
from tests.mcp.client import Process, ProcessTestCase

MARK = "answered by the front"


@tag("process")
class ASnapshotCountsWhileNothingHasChanged(ProcessTestCase):
    path: Path
    kept: str

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        server = Process(cls.home)
        cls.addClassCleanup(server.destroy)
        server.initialize()
        server.end()
        (cls.path,) = (cls.home / "cache").glob("mcp-*.json")
        cls.kept = cls.path.read_text()

    def setUp(self) -> None:
        for path in self.path.parent.iterdir():
            path.unlink()
        self.path.write_text(self.kept)
        self.mark()

    def mark(self, **changes: object) -> None:
        kept = json.loads(self.path.read_text())
        for answers in kept["answers"].values():
            for method in answers.keys() & {"initialize", "server/discover"}:
                answers[method] = json.dumps({**json.loads(answers[method]), "instructions": MARK})
        self.path.write_text(json.dumps({**kept, **changes}))

    def is_front_answering(self, **settings: str) -> bool:
        return bool(self.start(**settings).initialize()["instructions"] == MARK)

    def test_the_front_answers_from_it(self) -> None:
        self.assertTrue(self.is_front_answering())

    def test_only_its_owner_may_read_it(self) -> None:
        self.path.unlink()
        path = self.keep_snapshot()
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        self.assertEqual(path.parent.stat().st_mode & 0o777, 0o700)
        self.assertEqual(list(path.parent.iterdir()), [path])

    def test_another_profile_has_another(self) -> None:
        hello = self.start("--project", "alpha", "--profile", "full").initialize()
        self.assertNotEqual(hello["instructions"], MARK)

    def test_changed_tools_make_it_stale(self) -> None:
        self.assertFalse(self.is_front_answering(MEMORY_HUB_TEST_TOOLS=""))

    def test_a_key_that_differs_makes_it_stale_and_it_is_replaced(self) -> None:
        self.mark(key=[*json.loads(self.path.read_text())["key"], "/somewhere/pydantic-99.dist-info"])
        self.assertFalse(self.is_front_answering())
        self.keep_snapshot()
        self.assertNotIn(MARK, self.path.read_text())

    def test_a_broken_file_is_ignored_and_replaced(self) -> None:
        self.path.write_bytes(b"{")
        self.assertFalse(self.is_front_answering())
        self.keep_snapshot()
        self.assertTrue(json.loads(self.path.read_text())["answers"])


@tag("process")
class WhatCounts(ProcessTestCase):
    def test_a_broken_file_is_ignored(self) -> None:
        path = self.home / "cache" / "mcp-core.json"
        path.parent.mkdir()
        with mock.patch.dict(os.environ, MEMORY_HUB_HOME=str(self.home)):
            path.write_text(json.dumps({"key": ["k"], "answers": {}}))
            self.assertEqual(snapshot.load("core", ["k"]), {})
            for text in ("", "{", "[]", '{"key": []}', '{"key": ["k"]}', "\udcff"):
                with self.subTest(text=text):
                    path.write_bytes(text.encode("utf-8", "surrogateescape"))
                    self.assertIsNone(snapshot.load("core", ["k"]))

    def test_a_source_file_that_changes_makes_it_stale(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "tools.py"
            source.write_text("a = 1")
            before = list(snapshot._sources(folder))
            source.write_text("a = 22")
            self.assertNotEqual(list(snapshot._sources(folder)), before)

    def test_the_key_names_the_sdk_and_the_hubs_own_sources(self) -> None:
        key = "\n".join(snapshot.current_key())
        for part in ("/mcp-", "/mcp_types-", "/pydantic-", "memoryhub/mcp/server.py", "memories/tools/core.py"):
            self.assertIn(part, key)


@tag("process")
class ACacheThatCannotBeWritten(ProcessTestCase):
    def test_the_server_serves_without_a_snapshot_and_says_so_without_a_traceback(self) -> None:
        (self.home / "cache").write_text("no folder")
        server = self.connect()
        self.assertEqual(server.say("test_echo", text="hi"), "hi")
        code, output = server.end()
        self.assertEqual(code, 0)
        self.assertNotIn("Traceback", output)
        self.assertIn("could not save the snapshot, so the next start will be slower: ", output)
