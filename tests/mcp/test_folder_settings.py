from __future__ import annotations

import tempfile
from pathlib import Path

from tests.mcp.client import McpTestCase, Server


class FolderSettingsTests(McpTestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="work-"))).resolve()
        self.file = self.folder / ".memory-hub.toml"

    def serve(self) -> Server:
        return self.connect(cwd=self.folder)

    def test_they_apply_to_the_server_and_are_read_once(self) -> None:
        self.file.write_text('project = "alpha"\nsearch_mode = "basic"\ncapture_decisions = false\n')
        server = self.serve()
        server.say("memory_write", title="Readers", content="never wait")
        self.file.unlink()
        self.assertIn("mode: basic", server.say("memory_search", query="reader"))
        for tool, arguments in (("decision_record", {"title": "Use WAL"}), ("memory_log_decision", {"title": "Tea"})):
            refused = server.call(tool, chosen="that", **arguments)
            self.assertTrue(refused["isError"])
            output = f"forbidden: agents cannot record decisions here: capture_decisions is false, set by {self.file}"
            self.assertIn(output, refused["content"][0]["text"])
        self.assertNotIn("WAL", server.say("memory_search", query="WAL"))
        server.end()

    def test_a_broken_file_is_reported_in_each_call_until_it_is_fixed(self) -> None:
        self.file.write_text('project = "alpha"\nserch_mode = "basic"\n')
        server = self.serve()
        for _ in range(2):
            output = server.say("memory_search", query="anything")
            self.assertIn(f"{self.file}: there is no setting 'serch_mode' (did you mean 'search_mode'?)", output)
        self.file.write_text('project = "alpha"\nsearch_mode = "basic"\n')
        self.assertIn("mode: basic", server.say("memory_stats"))
        server.end()
