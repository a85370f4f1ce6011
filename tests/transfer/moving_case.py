"""A store in SQLite, a PostgreSQL beside it, and processes that write in either."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub import env
from memoryhub.core import log
from memoryhub.core.errors import HubError
from memoryhub.core.stores.store import project_store
from memoryhub.transfer.moving.peer import Peer, Place
from tests.databases import sqlite_only
from tests.home import UNMEASURED
from tests.postgresql import Cluster
from tests.programs import needs
from tests.support import HubTestCase

ROOT = Path(__file__).parents[2]
ALPHA = project_store("alpha")
FILES = Place("sqlite", "")
AT_ONCE = 500
START = """
import django, json, os, signal, sys
django.setup()
from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub.core.errors import HubError
from memoryhub.core.stores.store import project_store, use_store
from memoryhub.transfer.moving import moving, peer, switching
"""
ONE_WRITE = f"""{START}
try:
    with use_store(project_store("alpha"), create=sys.argv[2:] == ["create"]):
        write_memory(command=MemoryWrite(title=sys.argv[1], content="after a move"))
except HubError as error:
    print(error.code)
"""


@sqlite_only("it moves stores between both")
@needs("postgresql")
class MovingTestCase(HubTestCase):
    cluster: Cluster

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.cluster = cls.enterClassContext(Cluster(durable=False))

    def setUp(self) -> None:
        super().setUp()
        self.server = Place("", self.enterContext(self.cluster.database()))

    def write(self, *titles: str, create: bool = True) -> list[int]:
        with self.store("alpha", create=create), log.transaction():
            return [write_memory(command=MemoryWrite(title=title, content=f"on {title}")).id for title in titles]

    def fill(self, count: int) -> None:
        for start in range(0, count, AT_ONCE):
            self.write(*(f"note {number}" for number in range(start, min(start + AT_ONCE, count))))

    def start(
        self, program: str, *arguments: str, place: Place = FILES, settings: str = "memoryhub.settings_store"
    ) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            **UNMEASURED,
            "DJANGO_SETTINGS_MODULE": settings,
            env.DATABASE_VARIABLE: place.url or env.FILES,
        }
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)

    def write_at(self, place: Place, title: str, *, create: bool = False) -> str:
        """Return the code of the refusal, "" if the write was acknowledged."""
        if place != FILES:
            arguments = [title, "create"] if create else [title]
            return self.start(ONE_WRITE, *arguments, place=place).communicate()[0].strip()
        try:
            self.write(title, create=create)
        except HubError as error:
            return error.code
        return ""

    def read(self, place: Place) -> dict[str, Any]:
        """Return the digests of the log and of all read models, and the anchor."""
        with Peer(place) as peer:
            peer.call("read", store="project:alpha")
            return {**peer.call("digests"), "anchor": peer.call("anchor", store="project:alpha")}
