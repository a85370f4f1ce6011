from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from django.test import tag

from memories import services
from memories.models import Conflict, Memory, MemoryVersion
from memories.schemas import MemoryWrite
from memoryhub.core import log
from memoryhub.core.models import RawEvent
from tests.home import UNMEASURED
from tests.support import HubTestCase

UPDATES = int(os.environ.get("MEMORY_HUB_TEST_UPDATES", "200"))
"""By each process."""
MEMORIES = 10
DEADLINE_SECONDS = 300
WRITER = """
import django, json, random, sys
django.setup()
from importlib import import_module
from memoryhub.core.backends.selected import ENGINE
base = import_module(f"memoryhub.core.backends.{ENGINE}.base")
base.BUSY_TIMEOUT_SECONDS = 60.0  # what is tested is that nothing is lost, not how long it takes
from memories.models import Memory
from memories.schemas import MemoryUpdate
from memories.services import update_memory
from memoryhub.core.errors import PreconditionFailed
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import project_store, use_store
name, count, ids = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
choose = random.Random(name).choice
with use_store(project_store("alpha")), use_origin(actor=name):
    read = dict(Memory.objects.values_list("id", "version"))
    for number in range(count):
        memory = choose(ids)
        text = f"{name} {number}"
        command = MemoryUpdate(id=memory, base_version=read[memory], content=text)
        result = update_memory(command=command)
        read = dict(Memory.objects.values_list("id", "version"))
        print(json.dumps([result.id, result.version, text, result.conflict]), flush=True)
"""


@tag("attack")
class TwoProcessesTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha"))
        commands = [MemoryWrite(title=f"Memory {number}", content=f"first {number}") for number in range(MEMORIES)]
        self.ids = [result.id for result in services.write_memories(commands=commands)]

    def spawn(self, name: str) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            **UNMEASURED,
            "DJANGO_SETTINGS_MODULE": "memoryhub.settings_store",
            "MEMORY_HUB_CONFLICT_WINDOW_SECONDS": "3600",  # however slow the machine is, what is stale is a conflict
        }
        command = [sys.executable, "-c", WRITER, name, str(UPDATES), json.dumps(self.ids)]
        pipe, root = subprocess.PIPE, Path(__file__).parents[2]
        return subprocess.Popen(command, env=environment, cwd=root, stdout=pipe, stderr=pipe, text=True)

    def test_no_version_is_lost_and_every_conflict_is_reported_once(self):
        acknowledged = []
        writers = [self.spawn(name) for name in ("ada", "bob")]
        for writer in writers:
            output, errors = writer.communicate(timeout=DEADLINE_SECONDS)
            self.assertEqual((writer.returncode, errors), (0, ""))
            acknowledged += [json.loads(line) for line in output.splitlines()]
        self.assertEqual(len(acknowledged), 2 * UPDATES)
        self.assertEqual(kept_versions(), sorted((memory, version, text) for memory, version, text, _ in acknowledged))
        reported = [conflict for *_, conflict in acknowledged if conflict is not None]
        self.assertEqual(sorted(reported), list(Conflict.objects.order_by("id").values_list("id", flat=True)))
        self.assertGreater(len(reported), 0)
        self.assertTrue(log.verify().ok)
        self.assertEqual(sum(Memory.objects.values_list("version", flat=True)), MEMORIES + 2 * UPDATES)


def kept_versions() -> list[tuple[int, int, str]]:
    payloads = dict(RawEvent.objects.values_list("position", "payload_json"))
    found = MemoryVersion.objects.filter(version__gt=1).values_list("memory_id", "version", "id")
    return sorted((memory, version, json.loads(payloads[event])["content"]) for memory, version, event in found)
