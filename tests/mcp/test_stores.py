from __future__ import annotations

import shutil
from pathlib import Path

from memoryhub.core.stores.store import project_store
from tests import tampering
from tests.databases import at_home, sqlite_only
from tests.mcp.client import Process, ProcessTestCase


class AHomeThatCannotBeUsed(ProcessTestCase):
    def test_the_reason_is_in_the_handshake_and_in_each_call(self) -> None:
        file = self.home / "file"
        file.write_text("no folder")
        for home, reason in (
            (file, f"the home folder {file} is not a folder; "),
            (Path("relative/home"), "MEMORY_HUB_HOME is 'relative/home', but must be an absolute path: "),
        ):
            with self.subTest(home=home):
                server = self.start(home=home)
                self.assertIn(reason, server.initialize()["instructions"])
                result = server.call("memory_search", query="anything")
                self.assertTrue(result["isError"])
                self.assertRegex(result["content"][0]["text"], f"^unavailable: .*{reason}")
                code, output = server.end()
                self.assertEqual((code, len(output.splitlines())), (0, 1), output)
                self.assertIn(reason, output)
        self.assertEqual([path.name for path in self.home.iterdir()], ["file"])

    def test_over_http_nothing_is_served(self) -> None:
        file = self.home / "file"
        file.write_text("no folder")
        options = ("--project", "alpha", "--http", "0")
        server = self.start(*options, home=file)
        code, output = server.wait()
        self.assertEqual((code, len(output.splitlines())), (8, 1), output)
        self.assertIn(f"the home folder {file} is not a folder; ", output)


class AStoreThatFails(ProcessTestCase):
    def setUp(self) -> None:
        self.server = self.connect()
        self.write("the first")
        self.store: Path = self.home / "projects" / "alpha" / "events.db"

    def write(self, title: str) -> None:
        result = self.server.call("memory_write", title=title, content=f"about {title}")
        self.assertFalse(result["isError"], result)

    def failure(self, server: Process | None = None) -> str:
        result = (server or self.server).call("memory_write", title="lost", content="never kept")
        self.assertTrue(result["isError"], result)
        text = result["content"][0]["text"]
        assert isinstance(text, str)
        return text

    def test_locked_by_another_process(self) -> None:
        with at_home(self.home), tampering.locked(project_store("alpha")):
            self.assertEqual(self.failure(), "locked: memory database is locked by another process")
        self.write("the second")

    @sqlite_only("a project is known by its folder")
    def test_a_folder_that_is_gone(self) -> None:
        away = self.home / "away"
        self.store.parent.rename(away)
        self.assertIn("unavailable: memory database unavailable", self.failure())
        away.rename(self.store.parent)
        self.write("the third")

    @sqlite_only("the header of a file")
    def test_a_header_that_is_overwritten(self) -> None:
        self.server.end()
        kept = self.store.with_suffix(".kept")
        shutil.copy(self.store, kept)
        with self.store.open("r+b") as file:
            file.write(b"no database at all" * 10)
        self.server = self.connect()
        self.assertIn("unavailable: memory database unavailable", self.failure())
        self.assertTrue(self.server.ask("tools/list")["result"]["tools"])
        kept.replace(self.store)
        self.write("the fourth")
