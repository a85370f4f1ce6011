"""No text is lost, whatever both sides do while mirrors are killed at any point."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

from django.test import tag

from memories.models import Memory
from memories.schemas import MemoryDelete, MemoryTouch, MemoryUpdate, MemoryWrite
from memories.services import delete_memory, restore_memory, update_memory, write_memory
from memoryhub.core import log
from memoryhub.core.errors import HubError
from memoryhub.core.models import RawEvent
from memoryhub.transfer.folder import Form
from memoryhub.transfer.mirror.run import Mirror
from tests.home import UNMEASURED
from tests.support import HubTestCase
from tests.transfer.mirror_user import User

ROOT = Path(__file__).parents[2]
EDITS = int(os.environ.get("MEMORY_HUB_TEST_MIRROR_EDITS", "40"))
SEEDS = [int(seed) for seed in os.environ.get("MEMORY_HUB_TEST_MIRROR_SEEDS", "1").split(",")]
# Edits between two mirrors, on each side together
_AT_ONCE = 8
# Few, so that both sides often change the same one
_FEWEST = 5


@tag("attack")
class KilledMirrorTests(HubTestCase):
    def test_no_text_is_lost(self) -> None:
        for seed in SEEDS:
            with self.subTest(seed=seed), self.store("alpha", actor="ada"):
                self.check(seed)

    def check(self, seed: int) -> None:
        chance = random.Random(seed)
        folder = self.home / f"out-{seed}"
        folder.mkdir()
        user, agent = User(folder, chance, f"f{seed}"), Agent(chance, f"s{seed}")
        for _ in range(_FEWEST):
            agent.write()
        user.create()
        killed = 0
        for round_number in range(EDITS // _AT_ONCE):
            for _ in range(_AT_ONCE):
                (user if chance.random() < 0.5 else agent).act()
            killed += self.mirror(folder, 1000 * seed + round_number, chance) == -9
        self.assertGreater(killed, 0)
        self.settle(folder)
        self.assertEqual((user.expected() | agent.written) - self.found(folder), set())
        self.assertTrue(log.verify().ok)

    def mirror(self, folder: Path, seed: int, chance: random.Random) -> int:
        counts = [str(int(10 ** chance.uniform(1.5, 4.5))), str(int(10 ** chance.uniform(1.5, 4.5)))]
        command = [sys.executable, "-m", "tests.transfer.mirror_process", str(folder), str(seed), *counts]
        environment = {**os.environ, **UNMEASURED, "DJANGO_SETTINGS_MODULE": "memoryhub.settings", "PYTHONDEVMODE": ""}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        self.assertIn(done.returncode, (0, -9), done.stderr)
        return done.returncode

    # A run leaves what it read to the next one where a file was being saved
    def settle(self, folder: Path) -> None:
        for _ in range(5):
            report = Mirror(folder, Form.MARKDOWN, adopt=True, allow_deletions=True).run()
            if set(report.counts) <= {"left"}:
                return
        self.fail(f"the mirror doesn't settle: {report.steps}")

    def found(self, folder: Path) -> set[str]:
        from tests.transfer.mirror_user import WORD

        texts = [path.read_text() for path in folder.rglob("*.md")]
        payloads = RawEvent.objects.filter(stream_id__startswith="memory:").values_list("payload_json", flat=True)
        texts += [json.dumps(json.loads(payload or "{}")) for payload in payloads]
        return {word for text in texts for word in WORD.findall(text)}


class Agent:
    """Writes to the store at random, as agents do. What is in the log cannot be lost; its words must stay readable."""

    def __init__(self, chance: random.Random, name: str) -> None:
        self.chance, self.name, self.count = chance, name, 0
        self.written: set[str] = set()

    def word(self) -> str:
        self.count += 1
        word = f"w{self.name[0]}{self.name[1:]}x{self.count}"
        self.written.add(word)
        return word

    def act(self) -> None:
        ids = sorted(Memory.objects.live().values_list("id", flat=True))
        actions = [self.change, self.change, self.change, self.delete, self.restore]
        if len(ids) < _FEWEST:
            self.write()
        else:
            self.chance.choice(actions)(self.chance.choice(ids))

    def write(self) -> None:
        word = self.word()
        write_memory(command=MemoryWrite(title=f"Of the store {word}", content=f"Text {word}.\n\nMore."))

    def change(self, memory_id: int) -> None:
        content = Memory.objects.get(id=memory_id).content
        update_memory(command=MemoryUpdate(id=memory_id, content=f"Changed {self.word()}.\n{content}"))

    def delete(self, memory_id: int) -> None:
        delete_memory(command=MemoryDelete(id=memory_id))

    def restore(self, _: int) -> None:
        deleted = Memory.objects.filter(deleted_at__isnull=False).order_by("id").first()
        if deleted:
            try:
                restore_memory(command=MemoryTouch(id=deleted.id))
            except HubError:
                return  # its title is taken
