"""``memory-hub open``: a page in the browser, signed in."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock
from urllib.parse import parse_qs, urlsplit

from django.test import Client

from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub.core import autostart
from memoryhub.management.commands.open import has_display
from memoryhub.ops.serving import process
from memoryhub.web import signin
from tests.support import Done, HubTestCase, make_git_folder, run_command

ADDRESS = "http://127.0.0.1:1"
ON_A_DESK = {"DISPLAY": ":0", "WAYLAND_DISPLAY": "", "MEMORY_HUB_AUTOSTART": "on"}


class OpenTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        with self.store("alpha"):
            self.memory = write_memory(command=MemoryWrite(title="Port", content="It listens on 8321.")).id
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SSH_")}
        self.enterContext(mock.patch.dict(os.environ, {**environment, **ON_A_DESK}, clear=True))
        self.browser = self.enterContext(mock.patch("webbrowser.open", return_value=True))

    @contextmanager
    def hub(self) -> Iterator[None]:
        with process.hold_home(started=process.BY_HAND) as publish, publish(ADDRESS):
            yield

    def opened(self, *arguments: str) -> str:
        """The path that the browser is led to."""
        done = run_command("open", *arguments)
        self.assertEqual((done.code, done.errors), (0, ""))
        (link,) = self.browser.call_args.args
        self.assertTrue(link.startswith(f"{ADDRESS}/signin/"))
        path: str = parse_qs(urlsplit(link).query)["next"][0]
        self.assertEqual(done.output, f"opened {ADDRESS}{path} in the browser\n")
        page = Client(headers={"host": "localhost"}).get(link.removeprefix(ADDRESS))
        self.assertRedirects(page, path, fetch_redirect_response=False)
        return path


class OpenTests(OpenTestCase):
    def test_it_opens_the_page_of_a_project_or_an_id_signed_in(self) -> None:
        with self.hub():
            self.assertEqual(self.opened("alpha"), "/p/alpha/admin/")
            self.assertEqual(self.opened("--project", "alpha"), "/p/alpha/admin/")
            page = f"/p/alpha/admin/memories/memory/{self.memory}/change/"
            self.assertEqual(self.opened(f"#{self.memory}", "--project", "alpha"), page)

    def test_in_a_folder_it_opens_the_folders_project_or_all_projects(self) -> None:
        with tempfile.TemporaryDirectory() as folder, self.hub():
            for name, path in (("alpha", "/p/alpha/admin/"), ("gamma", "/")):
                repository = make_git_folder(Path(folder) / name)
                with mock.patch.object(Path, "cwd", return_value=repository):
                    self.assertEqual(self.opened(), path)

    def test_without_a_display_it_prints_the_link(self) -> None:
        for variables in ({"DISPLAY": ""}, {"SSH_CONNECTION": "192.0.2.1 5 192.0.2.2 22"}):
            on_linux = mock.patch.object(sys, "platform", "linux")
            with self.subTest(variables), self.hub(), mock.patch.dict(os.environ, variables), on_linux:
                self.assertFalse(has_display())
                self.assert_prints_a_link(run_command("open", "alpha"))
        with self.hub():
            self.assert_prints_a_link(run_command("open", "alpha", "--print"))
        self.browser.assert_not_called()

    def test_without_a_browser_it_prints_the_link(self) -> None:
        self.browser.return_value = False
        with self.hub():
            self.assert_prints_a_link(run_command("open", "alpha"))

    def assert_prints_a_link(self, done: Done) -> None:
        self.assertRegex(done.output, rf"\A{ADDRESS}/signin/\S+\?next=%2Fp%2Falpha%2Fadmin%2F\n\Z")

    def test_a_wrong_name_starts_no_hub(self) -> None:
        with mock.patch.object(autostart, "start_hub") as start:
            for words, code in ((["nope"], 3), (["99999", "--project", "alpha"], 3), (["Bad Id"], 2)):
                self.assertEqual(run_command("open", *words).code, code)
        start.assert_not_called()

    def test_a_hub_that_does_not_run_is_started_unless_autostart_is_off(self) -> None:
        with ExitStack() as hubs:
            start = mock.patch.object(autostart, "start_hub", side_effect=lambda: hubs.enter_context(self.hub()))
            with start:
                done = run_command("open", "alpha")
        self.assertEqual(done.errors, "starting Memory Hub\n")
        self.assertEqual(done.output, f"opened {ADDRESS}/p/alpha/admin/ in the browser\n")
        with mock.patch.dict(os.environ, MEMORY_HUB_AUTOSTART="off"), start as starts:
            done = run_command("open", "alpha")
        starts.assert_not_called()
        self.assertRegex(done.errors, "not running, and autostart is off; start it with `memory-hub serve`")
        self.assertEqual(done.code, 8)


class NextPageTests(OpenTestCase):
    def test_a_link_leads_to_no_other_site(self) -> None:
        for path in ("//evil.example/", "https://evil.example/", "/\\evil.example", "evil", "javascript:alert(1)", ""):
            with self.subTest(path):
                link = signin.new_link("", path=path)
                response = Client(headers={"host": "localhost"}).get(link)
                self.assertRedirects(response, "/", fetch_redirect_response=False)
