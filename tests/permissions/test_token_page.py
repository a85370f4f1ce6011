"""A new token is shown once, with how clients take it from elsewhere than their files."""

from __future__ import annotations

import html
import json
import re
import shlex
import tomllib
from io import StringIO

from django.core.management import call_command

from memoryhub.config.clients import all_clients
from memoryhub.web.signin import ensure_owner
from tests.setup.test_team import ENTRIES, INPUT, URL
from tests.support import HubTestCase

TOKEN = {"name": "ci", "verbs": "write", "reach": "some", "projects": ["alpha"], "days": "30"}


class TokenPageTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        with self.store("alpha"):
            pass
        self.client.force_login(ensure_owner())

    def create(self, **fields: object) -> tuple[str, list[str], str]:
        """Return the new token, the texts to copy for its use, and the page."""
        response = self.client.post("/tokens", {**TOKEN, **fields}, headers={"host": "localhost"})
        page = response.content.decode()
        texts = [
            html.unescape(text) for text in re.findall(r'<pre [^>]*id="snippet-[^>]*>(.*?)</pre>', page, re.DOTALL)
        ]
        return str(response.context["text"]), texts, page

    def test_the_token_itself_is_in_no_text_to_paste(self) -> None:
        token, texts, page = self.create()
        self.assertEqual(page.count(token), 1)
        self.assertTrue(texts)
        self.assertIn("MEMORY_HUB_TOKEN", page)

    def test_every_client_has_its_command(self) -> None:
        _, texts, _ = self.create()
        commands = [shlex.split(text) for text in texts if text.startswith("memory-hub ")]
        clients = [client.id for client in all_clients().values() if client.http]
        self.assertEqual([words[2] for words in commands], clients)
        for words in commands:
            self.assertEqual((words[:2], words[3]), (["memory-hub", "setup"], "--url"))
            self.assertTrue(words[4].endswith("/p/alpha/mcp"), words)
            call_command("setup", words[2], *words[3:5], "--dry-run", stdout=StringIO())

    def test_every_client_has_the_entry_that_the_command_writes(self) -> None:
        _, texts, page = self.create()
        found = [text for text in texts if not text.startswith(("memory-hub ", "read "))]
        for client, text in zip(ENTRIES, found, strict=True):
            with self.subTest(client=client):
                data = tomllib.loads(text) if text.startswith("[") else json.loads(text)
                (entry,) = data[all_clients()[client].servers[0]].values()
                url = next(value for value in entry.values() if str(value).endswith("/p/alpha/mcp"))
                self.assertEqual(entry, json.loads(json.dumps(ENTRIES[client]).replace(URL, url)))
                self.assertEqual(data.get("inputs", []), [INPUT] if client == "vscode" else [])
        for file in (".mcp.json", ".codex/config.toml", ".vscode/mcp.json", "~/.codeium/windsurf/mcp_config.json"):
            self.assertIn(file, page)

    def test_a_token_that_may_only_read_sets_up_no_hooks(self) -> None:
        _, texts, _ = self.create(verbs="read")
        for text in texts:
            self.assertEqual(text.startswith("memory-hub "), text.endswith(" --no-hooks"))

    def test_without_a_project_its_place_is_named(self) -> None:
        _, texts, page = self.create(reach="hub")
        self.assertTrue(any("/p/PROJECT/mcp" in text for text in texts))
        self.assertIn("instead of PROJECT", page)

    def test_a_script_takes_it_from_the_variable_too(self) -> None:
        _, texts, _ = self.create()
        ask, curl = texts[-1].splitlines()
        self.assertEqual(ask, "read -rs MEMORY_HUB_TOKEN && export MEMORY_HUB_TOKEN")
        self.assertEqual(shlex.split(curl)[:3], ["curl", "-H", "Authorization: Bearer $MEMORY_HUB_TOKEN"])
