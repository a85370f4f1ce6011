"""The product as an agent meets it: the SDK's own client, over real stdio, on real documents, killed while writing."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from contextlib import asynccontextmanager
from io import StringIO
from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.test import tag
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.support import HubTestCase

ROOT = Path(__file__).parents[1]
DEADLINE_SECONDS = 120

DECISION_QUESTIONS = {
    "what do processes do while another one writes?": "random delays",
    "how can a text be erased while the digests still verify?": "salt",
    "is the text of a version stored several times?": "payload",
    "why is the text not stored a second time for searches?": "contentless",
}
MANUAL_QUESTIONS = {
    "what tells me that others on the machine may read a file?": "doctor",
    "where do hook events go if the hub is down?": "spool",
    "how do I keep an item that retention would delete?": "hold",
    "how often can I use a sign-in link?": "once",
    "what is due after a commit changed a file?": "recheck",
}


@tag("process")
class EndToEndTests(HubTestCase):
    def environment(self) -> dict[str, str]:
        """Return the environment of a server, which shares this process's standard error and so should be quiet."""
        settings = {"MEMORY_HUB_HOME": str(self.home), "DJANGO_SETTINGS_MODULE": "memoryhub.settings_store"}
        return {**os.environ, **settings, "PYTHONDEVMODE": ""}

    def run_command(self, *arguments: str) -> str:
        output = StringIO()
        call_command(*arguments, stdout=output)
        return output.getvalue()

    @asynccontextmanager
    async def connected(self):
        """Connect to a real server; the file ``pid`` in the home names its process."""
        script = f'echo $$ > "{self.home}/pid"; exec "{sys.executable}" "{ROOT}/manage.py" mcp --project alpha'
        parameters = StdioServerParameters(command="sh", args=["-c", script], env=self.environment(), cwd=ROOT)
        async with Client(stdio_client(parameters)) as client:
            yield client

    def asks_and_finds(self, folder: Path, questions: dict[str, str]) -> None:
        report = self.run_command("import", "markdown", str(folder), "--project", "alpha")
        self.assertRegex(report, r"\d+ new")
        asyncio.run(self.ask_all(questions), debug=False)

    async def ask_all(self, questions: dict[str, str]) -> None:
        async with self.connected() as client:
            for question, word in questions.items():
                found = await client.call_tool("memory_search", {"query": question, "format": "json", "limit": 5})
                assert found.structured_content
                ids = [hit["id"] for hit in found.structured_content["results"]]
                texts = await client.call_tool("memory_get", {"ids": ids})
                with self.subTest(question=question):
                    self.assertIn(word, text_of(texts).lower())

    def test_sections_are_found_by_questions_in_other_words(self):
        # Elsewhere, so that they are read as notes and not left to `import adr`; the first hundred, because each
        # later one is about words of these questions too
        notes = shutil.copytree(ROOT / "docs" / "decisions", self.home / "notes", ignore=shutil.ignore_patterns("01*"))
        self.asks_and_finds(notes, DECISION_QUESTIONS)

    def test_sections_of_whole_manuals_are_found_too(self):
        self.asks_and_finds(ROOT / "docs", MANUAL_QUESTIONS)

    def test_a_second_import_changes_nothing(self):
        documents = str(ROOT / "docs" / "guides")
        self.run_command("import", "markdown", documents, "--project", "alpha")
        head = self.run_command("verify", "--project", "alpha")
        again = self.run_command("import", "markdown", documents, "--project", "alpha")
        self.assertRegex(again, r"\b0 new")
        self.assertEqual(self.run_command("verify", "--project", "alpha"), head)

    def test_every_acknowledged_write_survives_a_kill(self):
        acknowledged = asyncio.run(self.write_until_killed(), debug=False)
        self.assertGreater(len(acknowledged), 5)
        missing = asyncio.run(self.missing(acknowledged), debug=False)
        self.assertEqual(missing, [])
        self.assertIn("the chain holds", self.run_command("verify", "--project", "alpha"))
        self.assertNotIn("DIFFERENT", self.run_command("rebuild", "--project", "alpha"))

    async def write_until_killed(self) -> dict[int, str]:
        """Write without a pause; kill the server while writes are on their way; return what was acknowledged."""
        acknowledged: dict[int, str] = {}
        try:
            async with self.connected() as client:
                await asyncio.gather(*(self.write_on(client, name, acknowledged) for name in "abcd"))
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
        return acknowledged

    async def write_on(self, client: Client, name: str, acknowledged: dict[int, str]) -> None:
        for number in range(10_000):
            title = f"{name} {number}"
            arguments = {"title": title, "content": f"text {title}", "format": "json"}
            answer = await asyncio.wait_for(client.call_tool("memory_write", arguments), DEADLINE_SECONDS)
            assert answer.structured_content
            acknowledged[answer.structured_content["id"]] = title
            if len(acknowledged) == 60:
                os.kill(int((self.home / "pid").read_text()), signal.SIGKILL)

    async def missing(self, acknowledged: dict[int, str]) -> list[int]:
        async with self.connected() as client:
            lost: list[int] = []
            for memory_id, title in acknowledged.items():
                found = await client.call_tool("memory_get", {"ids": [memory_id]})
                if found.is_error or f"\n  {title}\n" not in text_of(found):
                    lost.append(memory_id)
            return lost


def text_of(result: Any) -> str:
    return "\n".join(block.text for block in result.content)
