from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from memories.models import Conflict, Memory
from memories.schemas import MemoryUpdate, MemoryWrite
from memories.selectors.versions import state_at
from memories.services import update_memory, write_memory
from memoryhub.core import log
from memoryhub.core.errors import Invalid
from memoryhub.core.models import RawEvent
from memoryhub.core.stores.store import StoreId, project_store, use_store
from memoryhub.demo.project import demo_store, make_demo
from memoryhub.transfer.applying import Applied, Outcome, apply_bundle, preview_bundle
from memoryhub.transfer.bundles import Bundle, create_bundle, open_bundle
from tests.home import run_home
from tests.support import HubTestCase, _share_template, forget_all_stores

ALPHA = project_store("alpha")


class TwoHubsTestCase(HubTestCase):
    """``self.home`` is the hub that makes bundles; ``other_hub`` is where they are applied."""

    def setUp(self) -> None:
        super().setUp()
        self.other = Path(tempfile.mkdtemp(prefix="home-", dir=run_home()))
        self.addCleanup(shutil.rmtree, self.other, ignore_errors=True)
        _share_template(self.other)
        self.file = self.home / "alpha.bundle"

    @contextmanager
    def other_hub(self) -> Iterator[None]:
        forget_all_stores()
        with mock.patch.dict(os.environ, MEMORY_HUB_HOME=str(self.other)):
            yield
            forget_all_stores()

    def bundle(self, store: StoreId = ALPHA, passphrase: str = "") -> Bundle:
        with use_store(store):
            create_bundle(self.file, passphrase=passphrase, force=True)
        return open_bundle(self.file, lambda: passphrase)

    def apply(self, bundle: Bundle, store: StoreId = ALPHA) -> Applied:
        plan = preview_bundle(bundle, store)
        applied = apply_bundle(bundle, store)
        self.assertEqual((applied.outcome, applied.added), (plan.outcome, plan.added))
        with use_store(store):
            self.assertTrue(log.verify().ok, log.verify())
            self.assertTrue(log.rebuild().identical)
        return applied

    def write(self, title: str, **fields: str) -> int:
        with self.store("alpha", actor="ada"):
            return write_memory(command=MemoryWrite(title=title, content=f"{title} in full", **fields)).id


def state(store: StoreId = ALPHA) -> tuple[tuple[int, str], dict[str, tuple[int, str]]]:
    with use_store(store):
        return log.head(), log.table_digests()


class ContinuingTests(TwoHubsTestCase):
    def test_an_unknown_store_is_adopted_as_it_is(self) -> None:
        make_demo()
        before = state(demo_store())
        bundle = self.bundle(demo_store())
        self.assertEqual(self.file.stat().st_mode & 0o777, 0o600)
        with self.other_hub():
            self.assertEqual(self.apply(bundle, demo_store()).outcome, Outcome.ADOPTED)
            self.assertEqual(state(demo_store()), before)
            self.assertEqual(self.apply(bundle, demo_store()).outcome, Outcome.CONTAINED)
            self.assertEqual(state(demo_store()), before)

    def test_a_store_goes_on_with_a_longer_log(self) -> None:
        first = self.write("Use WAL")
        shorter = self.bundle()
        with self.other_hub():
            self.apply(shorter)
        with self.store("alpha"):
            update_memory(command=MemoryUpdate(id=first, content="Later"))
        self.write("Locks")
        before, longer = state(), self.bundle()
        with self.other_hub():
            self.assertEqual(self.apply(longer).outcome, Outcome.FORWARDED)
            self.assertEqual(state(), before)

    def test_text_that_was_removed_since_goes_on_forwarding(self) -> None:
        secret, gone, kept = (self.write(title) for title in ("Hunter", "Gone", "Kept"))
        shorter = self.bundle()
        with self.other_hub():
            self.apply(shorter)
            with self.store("alpha"):
                self.assertTrue(Memory.objects.filter(title="Gone").exists())
        with self.store("alpha"):
            payload = json.loads(RawEvent.objects.get(position=secret).payload_json)
            log.redact_payloads({secret: {**payload, "title": "[redacted]", "content": "[redacted]"}}, what="a name")
            log.erase_streams([f"memory:{gone}"], reason="asked")
            update_memory(command=MemoryUpdate(id=kept, content="Later"))
        before, longer = state(), self.bundle()
        with self.other_hub():
            self.assertEqual(self.apply(longer).outcome, Outcome.FORWARDED)
            self.assertEqual(state(), before)
            with self.store("alpha"):
                self.assertTrue(log.compare(whole=True).differences == ())
            self.assertFalse(b"Hunter" in self.other.joinpath("projects/alpha/events.db").read_bytes())


class MergingTests(TwoHubsTestCase):
    """Both hubs have three memories, and go on by themselves."""

    def setUp(self) -> None:
        super().setUp()
        self.ids = [self.write(title) for title in ("Use WAL", "Locks", "Cache")]
        self.common = state()[0]
        common = self.bundle()
        with self.other_hub():
            self.apply(common)

    def update(self, memory_id: int, content: str) -> None:
        with self.store("alpha", actor="ada"):
            update_memory(command=MemoryUpdate(id=memory_id, content=content))

    def texts(self) -> dict[str, str]:
        with self.store("alpha"):
            return dict(Memory.objects.live().values_list("title", "content"))

    def test_both_sides_are_kept_and_conflicts_opened(self) -> None:
        wal, locks, cache = self.ids
        self.update(wal, "WAL, they say")
        self.update(wal, "WAL, they say again")
        self.update(locks, "Only they changed this")
        self.write("New there")
        bundle = self.bundle()
        with self.other_hub():
            self.update(wal, "WAL, we say")
            self.update(cache, "Only we changed this")
            self.write("New here")
            before = state()
            preview_bundle(bundle, ALPHA)
            self.assertEqual(state(), before)
            done = self.apply(bundle)
            self.assertEqual((done.outcome, done.contents.fork, done.added), (Outcome.MERGED, 3, 4))
            self.assertEqual(
                self.texts(),
                {
                    "Use WAL": "WAL, we say",
                    "Locks": "Only they changed this",
                    "Cache": "Only we changed this",
                    "New here": "New here in full",
                    "New there": "New there in full",
                },
            )
            self.assert_open_conflict(wal, "WAL, they say again", "WAL, we say")
            with self.store("alpha"):
                self.assertEqual(RawEvent.objects.get(position=before[0][0]).chain_digest, before[0][1])
                merged = json.loads(RawEvent.objects.get(event_type="log.merged").payload_json)
            self.assertEqual(
                (merged["fork"], merged["fork_digest"], merged["head"], merged["events"], merged["sha256"]),
                (*self.common, bundle.manifest.head, bundle.manifest.events, bundle.sha256),
            )
            after = state()
            again = self.apply(bundle)
            self.assertEqual((again.outcome, again.merged_before), (Outcome.CONTAINED, after[0][0]))
            self.assertEqual(state(), after)

    def assert_open_conflict(self, memory_id: int, theirs: str, ours: str) -> None:
        with self.store("alpha"):
            conflict = Conflict.objects.get(memory_id=memory_id, resolved_at__isnull=True)
            versions = (conflict.version_a, conflict.version_b)
            self.assertEqual([state_at(memory_id, version).content for version in versions], [theirs, ours])


class SecrecyTests(TwoHubsTestCase):
    def test_a_passphrase_opens_an_encrypted_bundle(self) -> None:
        self.write("Use WAL")
        before = state()
        bundle = self.bundle(passphrase="correct horse")
        self.assertNotIn(b"memory-hub", self.file.read_bytes())
        with self.other_hub():
            with self.assertRaisesMessage(Invalid, "the passphrase is wrong"):
                open_bundle(self.file, lambda: "wrong horse")
            self.assertFalse((self.other / "projects").exists())
            self.assertEqual(self.apply(bundle).outcome, Outcome.ADOPTED)
            self.assertEqual(state(), before)
