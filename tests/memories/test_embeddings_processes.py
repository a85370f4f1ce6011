from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from django.test import tag

from memories import services
from memories.embeddings import meaning, remote
from memories.embeddings.remote import ADDRESS_FILE, NOT_RUNNING, RemoteEngine
from memories.models import EmbeddingModel, Vector
from memories.schemas import MemoryWrite
from memoryhub.core import log
from memoryhub.core.backends.selected import stores
from memoryhub.core.errors import Unavailable
from memoryhub.core.jobs import find_job
from memoryhub.core.stores.store import current_store, project_store
from memoryhub.core.stores.store_id import folder_of
from memoryhub.ops import jobs  # noqa: F401 - defines all jobs
from memoryhub.ops.jobs import run_job
from memoryhub.ops.metrics import render
from tests.support import HubTestCase
from tests.web.server import poll

ROOT = Path(__file__).parents[2]
EMBED_ONCE = """
import django
django.setup()
from memoryhub.ops.hub_databases import prepare_databases
prepare_databases()
from memoryhub.core.jobs import find_job
from memoryhub.ops.jobs import run_job
for outcome in run_job(job=find_job("embed texts"), asked_by="ada"):
    print(outcome.message, flush=True)
"""
CATS = "Cats sleep on warm roofs all afternoon"
COUNT = 150  # so many that one is killed in the middle
FEW = 12


def peak_megabytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) // 1024


@tag("attack")
class ProcessTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.processes = self.enterContext(ExitStack())
        remote._silent_until = 0.0
        self.enterContext(self.store("alpha", actor="ada"))

    def write(self, count: int) -> None:
        notes = [f"Note {number} on locks, queues and the order of events" for number in range(count)]
        commands = [MemoryWrite(title=f"Note {index}", content=text) for index, text in enumerate([*notes, CATS])]
        self.cats = services.write_memories(commands=commands)[-1].id

    def spawn(self, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "memoryhub.settings", "MEMORY_HUB_LOG": "ERROR"}
        pipe, command = subprocess.PIPE, [sys.executable, *arguments]
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT
        )
        self.processes.callback(self.end, process)
        return process

    def end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        for pipe in filter(None, (process.stdin, process.stdout)):
            pipe.close()

    def model_process(self) -> subprocess.Popen[bytes]:
        (self.home / ADDRESS_FILE).unlink(missing_ok=True)
        process = self.spawn("-m", "memoryhub.ops.serving.embedding")
        poll((self.home / ADDRESS_FILE).exists, what="the address of the process that holds the model")
        return process

    def embed(self) -> str:
        return "".join(item.message for item in run_job(job=find_job("embed texts"), asked_by="ada"))

    def lag(self) -> float:
        lines = [line for line in render().decode().splitlines() if 'projector="embeddings-' in line]
        return float(lines[0].rpartition(" ")[2])

    def first(self) -> int:
        hits = poll(lambda: meaning.nearest("feline animals").hits, what="an answer by meaning")
        return int(hits[0][0])

    def test_after_a_killed_worker_answers_go_on_and_the_next_one_finishes(self):
        self.write(COUNT)
        self.model_process()
        worker = self.spawn("-c", EMBED_ONCE)
        poll(Vector.objects.count, what="the first vectors")
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        done = Vector.objects.count()
        self.assertTrue(0 < done < COUNT, done)
        self.assertGreater(self.lag(), 0)
        self.assertEqual(len(meaning.nearest("locks").hits), done)
        # A lease in a database ends some seconds after its holder did
        ended = poll(lambda: "already running" not in (message := self.embed()) and message, what="the lease ends")
        self.assertIn(f"embedded {COUNT + 1 - done} texts", ended)
        self.assertEqual(self.lag(), 0)
        self.assertEqual((self.first(), Vector.objects.count()), (self.cats, COUNT + 1))
        self.assertTrue(EmbeddingModel.objects.get().complete)
        self.assertTrue(log.verify().ok)

    def test_after_a_killed_model_process_the_reason_is_reported_and_the_next_one_answers(self):
        self.write(FEW)
        holder = self.model_process()
        self.embed()
        self.assertEqual(self.first(), self.cats)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        self.assertEqual(meaning.nearest("feline animals").problem, NOT_RUNNING)
        services.write_memory(command=MemoryWrite(title="While it is away", content="writes go on"))
        with self.assertLogs("memoryhub.ops.jobs", logging.WARNING):
            self.assertIn(NOT_RUNNING, self.embed())
        self.assertGreater(self.lag(), 0)
        index = folder_of(current_store()) / "index" / "vectors-1.bin"
        index.write_bytes(index.read_bytes()[:-100])
        self.model_process()
        self.assertEqual(self.first(), self.cats)
        self.assertIn("embedded 1 text", self.embed())
        self.assertEqual(self.lag(), 0)

    def test_only_callers_with_the_secret_are_answered_about_stores_of_this_hub(self):
        self.write(FEW)
        holder = self.model_process()
        self.embed()
        with self.assertRaisesRegex(Unavailable, "not in this hub"):
            index = {"path": "/etc/events.db", "key": 1, "revision": 1}
            model = {"name": "all-MiniLM-L6-v2-int8", "version": "1", "dimensions": 384}
            remote._ask({"do": "nearest", "index": {**index, "model": model}, "question": "q", "limit": 1}, 30)
        address = self.home / ADDRESS_FILE
        self.assertEqual(address.stat().st_mode & 0o777, 0o600)
        contact = json.loads(address.read_text())
        socket.create_connection(("127.0.0.1", contact["port"])).close()  # a silent client is not an error
        address.write_text(json.dumps({**contact, "secret": "guessed"}))
        self.assertIn("wrong secret", meaning.nearest("feline animals").problem)
        self.assertTrue(stores.exists(project_store("alpha")))
        self.ends_with_the_process_that_started_it(holder)

    def test_long_texts_of_many_clients_at_once_take_a_bounded_amount_of_memory(self):
        holder = self.model_process()
        engine = RemoteEngine()
        model = engine.describe("all-MiniLM-L6-v2-int8")
        texts = [f"{number} " + "every word of a long text is a token " * 60 for number in range(16)]
        with ThreadPoolExecutor(4) as clients:
            found = list(clients.map(lambda _: engine.embed(model, texts), range(4)))
        self.assertEqual(found, [found[0]] * 4)
        self.assertLess(peak_megabytes(holder.pid), 400)

    def ends_with_the_process_that_started_it(self, holder: subprocess.Popen[bytes]) -> None:
        assert holder.stdin
        assert holder.stdout
        holder.stdin.close()
        self.assertEqual((holder.wait(60), holder.stdout.read()), (0, b""))
