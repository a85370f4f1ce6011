"""Cases with MCP servers: in the process of the test, and as clients start them."""

from __future__ import annotations

import importlib
import os
import re
import tempfile
import threading
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from django.test import SimpleTestCase

from memoryhub.core import tools
from memoryhub.mcp.jsonrpc import Wire
from memoryhub.mcp.listing import load_tools
from memoryhub.mcp.options import parse
from memoryhub.mcp.relay import Relay
from tests.databases import at_home, remove_home
from tests.home import UNMEASURED, run_home
from tests.mcp.client import DEADLINE_SECONDS, FIXTURES, ROOT, Client, Process
from tests.support import StoresTestCase, forget_all_stores, share_template


class Server(Client):
    """A relay and a server in this process, which has Django already; the home is the current one."""

    def __init__(self, *options: str, cwd: Path | None = None) -> None:
        given, self._requests = os.pipe()
        self._answers, taken = os.pipe()
        super().__init__(self._answers, self._requests)
        self._open = {self._requests, self._answers}
        self._ends = (given, taken)
        chosen = parse([*(options or (() if cwd else ("--project", "alpha")))])
        self._relay = Relay(chosen, Wire(*self._ends), directory=str(cwd or ROOT))
        self._errors: list[str] = []
        self._thread = threading.Thread(target=self._serve, name="mcp server of a test")
        self._thread.start()

    def _serve(self) -> None:
        try:
            with mock.patch("memoryhub.mcp.local.set_up"):
                self._relay.run()
        except BaseException:  # noqa: BLE001 - the test gets it
            self._errors.append(traceback.format_exc())
        finally:
            for end in self._ends:
                os.close(end)

    def close_input(self) -> None:
        self._close(self._requests)

    def wait(self) -> tuple[int, str]:
        self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive(), "the server goes on"
        return len(self._errors), "".join(self._errors)

    def destroy(self) -> None:
        self._close(self._requests)
        self._close(self._answers)
        self.wait()

    def _close(self, descriptor: int) -> None:
        if descriptor in self._open:
            self._open.remove(descriptor)
            os.close(descriptor)


class McpTestCase(StoresTestCase):
    """Servers in this process, which share a home per class."""

    # A module whose tools the servers have besides their own
    tools_module: ClassVar[str] = FIXTURES
    home: Path

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.home = Path(tempfile.mkdtemp(prefix="home-", dir=run_home()))
        cls.addClassCleanup(remove_home, cls.home)
        cls.enterClassContext(at_home(cls.home))
        cls.addClassCleanup(forget_all_stores)
        share_template(cls.home)
        cls.enterClassContext(more_tools(cls.tools_module))

    @classmethod
    def share_server(cls, *options: str, cwd: Path | None = None, **capabilities: Any) -> Server:
        server = Server(*options, cwd=cwd)
        cls.addClassCleanup(server.destroy)
        server.initialize(**capabilities)
        return server

    def start(self, *options: str, cwd: Path | None = None, **changes: str) -> Server:
        """Start a server; it and those after it have the changes in their environment until the test ends."""
        self.enterContext(mock.patch.dict(os.environ, changes))
        server = Server(*options, cwd=cwd)
        self.addCleanup(server.destroy)
        return server

    def connect(self, *options: str, cwd: Path | None = None, **changes: str) -> Server:
        server = self.start(*options, cwd=cwd, **changes)
        server.initialize()
        return server


class SharedServerTestCase(McpTestCase):
    """Tests that share one server."""

    options: ClassVar[tuple[str, ...]] = ()
    capabilities: ClassVar[dict[str, Any]] = {}
    server: Server

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.server = cls.share_server(*cls.options, **cls.capabilities)


class ProcessTestCase(SimpleTestCase):
    """Servers as clients start them, which share a home per class, so that only the first one starts slowly."""

    home: Path

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.home = Path(tempfile.mkdtemp())
        cls.addClassCleanup(remove_home, cls.home)

    def start(self, *options: str, **settings: Any) -> Process:
        server = Process(settings.pop("home", self.home), *options, **{**UNMEASURED, **settings})
        self.addCleanup(server.destroy)
        return server

    def connect(self, *options: str, **settings: Any) -> Process:
        server = self.start(*options, **settings)
        server.initialize()
        return server


@contextmanager
def more_tools(module: str) -> Iterator[None]:
    """Let servers in this process have a module's tools besides their own, or none, inside the block."""
    load_tools()
    with ExitStack() as stack:
        for registered in (tools._tools, tools._aliases, tools._resources, tools._prompts):
            own = {name: found for name, found in registered.items() if not re.match(r"(test|old)_|test:", name)}
            stack.enter_context(mock.patch.dict(registered, own, clear=True))
        stack.enter_context(mock.patch.dict(os.environ, MEMORY_HUB_TEST_TOOLS=module))
        if module:
            importlib.reload(importlib.import_module(module))
        yield
