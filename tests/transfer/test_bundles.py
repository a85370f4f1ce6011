"""Bundles between hubs: what is applied and merged, what is refused, and kills; no text is lost."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import signal
import tempfile
import zlib
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from django.core.management import CommandError, call_command
from django.test import tag

from decisions.models import ArtifactLink, Decision, DecisionEdge
from decisions.schemas import DecisionEvidence, DecisionRecord
from decisions.services import add_evidence, record_decision
from governance.imports import ImportRun, list_batches, preview_undo, undo_import
from governance.inbox import InboxItemType, count_entries
from governance.retention.schemas import HoldLift, HoldPlace
from governance.retention.service import lift_hold, place_hold
from memories.models import Conflict as MemoryConflict
from memories.models import Memory, Relation
from memories.schemas import MemoryDelete, MemoryUpdate, MemoryWrite
from memories.schemas.links import RelationCreate
from memories.selectors.versions import state_at
from memories.services import delete_memory, update_memory, write_memory
from memories.services.links import create_relation
from memoryhub.core import log
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.errors import ConflictError, Damaged, Forbidden, Invalid
from memoryhub.core.ids import uuid7
from memoryhub.core.log.digests import HEADER, canonical_json, chain_digest, payload_digest
from memoryhub.core.models import RawEvent
from memoryhub.core.permissions import Act, Grant, use_grant
from memoryhub.core.secrets.context import forget_rules
from memoryhub.core.stores.store import StoreId, project_store, use_store
from memoryhub.demo.project import demo_store, make_demo
from memoryhub.transfer.bundles import age, applying, archive
from memoryhub.transfer.bundles.applying import Applied, BundleOutcome, apply_bundle, preview_bundle
from memoryhub.transfer.bundles.archive import Bundle, check, create_bundle, open_bundle
from memoryhub.transfer.bundles.lines import EventLine
from memoryhub.transfer.bundles.merging import MergeReport
from tests import forks, tampering
from tests.databases import at_home
from tests.governance.rollback_case import DeedTestCase, random_steps
from tests.home import run_home
from tests.support import HubTestCase, forget_all_stores, share_template

# Each met another way in which two logs do not fit
SEEDS = (4, 8, 10, 31)
WITH_TEXT = ("memory.written", "memory.revised", "decision.recorded")
ALPHA = project_store("alpha")


class TwoHubsTestCase(HubTestCase):
    """``self.home`` is the hub that makes bundles; ``other_hub`` is where they are applied."""

    def setUp(self) -> None:
        super().setUp()
        self.make_other_hub()

    def make_other_hub(self) -> None:
        self.other = Path(tempfile.mkdtemp(prefix="home-", dir=run_home()))
        self.addCleanup(shutil.rmtree, self.other, ignore_errors=True)
        share_template(self.other)
        self.file = self.home / "alpha.bundle"

    @contextmanager
    def other_hub(self) -> Iterator[None]:
        forget_all_stores()
        with at_home(self.other):
            yield
            forget_all_stores()

    def bundle(self, store: StoreId = ALPHA, passphrase: str = "", file: Path | None = None) -> Bundle:
        with use_store(store):
            create_bundle(file or self.file, passphrase=passphrase, force=True)
        return open_bundle(file or self.file, lambda: passphrase)

    def share(self) -> None:
        """Give the other hub the log of this one."""
        bundle = self.bundle()
        with self.other_hub():
            self.apply(bundle)

    def apply(self, bundle: Bundle, store: StoreId = ALPHA) -> Applied:
        plan = preview_bundle(bundle, store)
        applied = apply_bundle(bundle, store)
        if path_of(store).exists() and plan.merge:
            self.assertEqual((applied.outcome, applied.added), (plan.outcome, plan.added))
        with use_store(store):
            self.assert_sound()
        return applied

    def merge(self, bundle: Bundle) -> MergeReport:
        report = self.apply(bundle).merge
        assert report
        return report

    def write(self, title: str, **fields: str) -> int:
        with self.store("alpha", actor="ada"):
            return write_memory(command=MemoryWrite(title=title, content=f"{title} in full", **fields)).id

    def update(self, memory_id: int, content: str) -> None:
        with self.store("alpha", actor="ada"):
            update_memory(command=MemoryUpdate(id=memory_id, content=content))

    def delete(self, memory_id: int) -> None:
        with self.store("alpha"):
            delete_memory(command=MemoryDelete(id=memory_id))

    def relate(self, source: int, target: int) -> None:
        with self.store("alpha"):
            create_relation(command=RelationCreate(source=source, relation="related_to", target=target))

    def erase(self, *ids: int, reason: str = "asked", source: str = "service") -> None:
        with self.store("alpha", source=source):
            log.erase_streams([f"memory:{memory_id}" for memory_id in ids], reason=reason)

    def redact(self, position: int, **fields: str) -> None:
        with self.store("alpha"):
            payload = json.loads(RawEvent.objects.get(position=position).payload_json)
            log.redact_payloads({position: {**payload, **fields}}, what="a name")

    def texts(self) -> dict[str, str]:
        with self.store("alpha"):
            return dict(Memory.objects.live().values_list("title", "content"))


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
            for outcome in (BundleOutcome.ADOPTED, BundleOutcome.CONTAINED):
                self.assertEqual(self.apply(bundle, demo_store()).outcome, outcome)
                self.assertEqual(state(demo_store()), before)

    def test_a_store_goes_on_with_a_longer_log_and_loses_text_that_was_removed_since(self) -> None:
        secret, gone, revised = (self.write(title) for title in ("Hunter", "Gone", "Revised"))
        self.share()
        with self.other_hub():
            self.assertIn("Gone", self.texts())
        for step in (
            partial(self.update, revised, "Later"),
            partial(self.redact, secret, title="[redacted]", content="[redacted]"),
            partial(self.erase, gone),
        ):
            step()
            before, longer = state(), self.bundle()
            with self.subTest(step=step), self.other_hub():
                self.assertEqual(self.apply(longer).outcome, BundleOutcome.FORWARDED)
                self.assertEqual(state(), before)
                with self.store("alpha"):
                    self.assertEqual(log.compare(whole=True).differences, ())
        self.assertFalse(b"Hunter" in self.other.joinpath("projects/alpha/events.db").read_bytes())

    def test_a_log_whose_tail_was_lost_gets_it_back_from_a_bundle_with_all_of_it(self) -> None:
        first = self.write("Use WAL")
        for step in (partial(self.write, "Locks"), partial(self.erase, first)):
            with self.subTest(step=step):
                copy = tampering.Copy(ALPHA)
                step()
                shorter = self.bundle(file=self.home / "shorter.bundle")
                self.write("Lost")
                before, whole = state(), self.bundle()
                copy.put_back()
                cut = state()
                with self.assertRaisesRegex(Damaged, "its tail was cut"):
                    self.write("Refused")
                with self.assertRaisesRegex(Damaged, r"nothing was written: the log ends at #\d+, but"):
                    self.apply(shorter)
                self.assertEqual(state(), cut)
                self.assertEqual(self.apply(whole).outcome, BundleOutcome.FORWARDED)
                self.assertEqual(state(), before)
        self.write("Accepted")

    def test_what_this_hubs_rules_would_have_masked_is_counted(self) -> None:
        self.write("Use WAL")
        self.share()
        with self.store("alpha"):
            write_memory(command=MemoryWrite(title="A badge", content="It is ACME-123456"))
        longer = self.bundle()
        with self.other_hub():
            (self.other / "config.toml").write_text('secret_rules = [{id = "badge", pattern = "ACME-[0-9]{6}"}]\n')
            forget_rules()
            self.assertEqual(self.apply(longer).secrets, 1)
            with self.store("alpha"):
                self.assertEqual(count_entries()[InboxItemType.SECRET], 1)
            shutil.rmtree(self.other / "projects")
            forget_all_stores()
            self.assertEqual(self.apply(longer).secrets, 1)


class MergingTests(TwoHubsTestCase):
    """Both hubs have three memories, and go on by themselves."""

    def setUp(self) -> None:
        super().setUp()
        self.ids = [self.write(title) for title in ("Use WAL", "Locks", "Cache")]
        self.common = state()[0]
        self.share()

    def test_both_sides_are_kept_and_conflicts_opened(self) -> None:
        wal, locks, cache = self.ids
        self.update(wal, "WAL, they say")
        self.update(wal, "WAL, they say again")
        self.update(locks, "Only they changed this")
        self.write("New there", idempotency_key="k-1")
        bundle = self.bundle()
        with self.other_hub():
            self.update(wal, "WAL, we say")
            self.update(cache, "Only we changed this")
            self.write("New here")
            before = state()
            preview_bundle(bundle, ALPHA)
            self.assertEqual(state(), before)
            applied = self.apply(bundle)
            self.assertEqual((applied.outcome, applied.contents.fork, applied.added), (BundleOutcome.MERGED, 3, 4))
            new = {f"New {place}": f"New {place} in full" for place in ("here", "there")}
            revised = {"Locks": "Only they changed this", "Cache": "Only we changed this"}
            self.assertEqual(self.texts(), {"Use WAL": "WAL, we say", **revised, **new})
            self.assert_open_conflict(wal, "WAL, they say again", "WAL, we say")
            with self.store("alpha"):
                self.assertEqual(RawEvent.objects.get(position=before[0][0]).chain_digest, before[0][1])
                merged = json.loads(RawEvent.objects.get(event_type="log.merged").payload_json)
                self.assertIn("New there", RawEvent.objects.get(idempotency_key="k-1").payload_json)
            fork, fork_digest = self.common
            manifest = bundle.manifest
            origin = {"fork": fork, "fork_digest": fork_digest, "head": manifest.head, "events": manifest.events}
            self.assertLessEqual({**origin, "sha256": bundle.sha256}.items(), merged.items())
            after = state()
            again = self.apply(bundle)
            self.assertEqual((again.outcome, again.merged_before), (BundleOutcome.CONTAINED, after[0][0]))
            self.assertEqual(state(), after)

    def test_a_topic_that_both_have_begun_is_a_conflict(self) -> None:
        theirs = self.write("Retries", topic_key="retries")
        self.update(theirs, "They retry five times")
        self.relate(theirs, self.ids[0])
        first = self.bundle()
        with self.other_hub():
            ours = self.write("How often we retry", topic_key="retries")
            self.assertEqual(self.merge(first).conflicts, [ours])
            self.assert_open_conflict(ours, "They retry five times", "How often we retry in full")
            with self.store("alpha"):
                self.assertEqual(Relation.objects.get().source_id, ours)
        self.update(theirs, "They retry six times")
        self.relate(theirs, self.ids[1])
        second = self.bundle()
        with self.other_hub():
            self.apply(second)
            with self.store("alpha"):
                self.assertEqual(Relation.objects.filter(source_id=ours).count(), 2)
                contents = {state_at(ours, number + 1).content for number in range(Memory.objects.get(id=ours).version)}
            self.assertIn("They retry six times", contents)
            self.assertEqual(self.texts()["How often we retry"], "How often we retry in full")

    def test_decisions_come_with_their_evidence(self) -> None:
        with self.store("alpha", actor="ada"):
            first = record_decision(command=DecisionRecord(title="One process", chosen="one", context="c")).id
            second = record_decision(command=DecisionRecord(title="Two processes", chosen="two", supersedes=[first])).id
            add_evidence(command=DecisionEvidence(id=second, notes=["measured"]))
        bundle = self.bundle()
        with self.other_hub():
            self.write("New here")
            self.apply(bundle)
            with self.store("alpha"):
                decision = Decision.objects.get(title="Two processes").id
                self.assertEqual(ArtifactLink.objects.get().decision_id, decision)
                self.assertEqual(DecisionEdge.objects.get().from_id, decision)
                self.assertEqual(RawEvent.objects.get(position=decision).actor, "ada")

    def test_exchanging_bundles_comes_to_an_end(self) -> None:
        self.update(self.ids[0], "theirs")
        self.write("New there")
        theirs = self.bundle()
        with self.other_hub():
            self.update(self.ids[0], "ours")
            self.write("New here")
            self.apply(theirs)
        for _ in range(3):
            with self.other_hub():
                ours = self.bundle()
                before = state()
            last = self.apply(ours)
            theirs = self.bundle()
            with self.other_hub():
                back = self.apply(theirs)
        self.assertEqual((last.outcome, back.outcome), (BundleOutcome.CONTAINED, BundleOutcome.CONTAINED))
        here = self.texts()
        with self.other_hub():
            self.assertEqual(state(), before)
            there = self.texts()
        self.assertEqual((here.pop("Use WAL"), there.pop("Use WAL")), ("theirs", "ours"))
        self.assertEqual(here, there)
        self.assertEqual(set(here), {"Locks", "Cache", "New here", "New there"})

    def test_text_that_one_side_has_removed_stays_removed(self) -> None:
        wal, locks, cache = self.ids
        self.redact(wal, content="redacted there")
        self.redact(locks, content="they left some text")
        self.update(cache, "Later, with the text")
        bundle = self.bundle()
        with self.other_hub():
            self.redact(locks, content="[removed]")
            self.erase(cache)
            self.write("New here")
            self.assertEqual(self.merge(bundle).unredacted, [])
            new = {"New here": "New here in full"}
            self.assertEqual(self.texts(), {"Use WAL": "redacted there", "Locks": "[removed]", **new})
            self.assert_gone(b"Use WAL in full", b"Locks in full", b"Cache in full", b"Later, with the text")

    def assert_gone(self, *texts: bytes) -> None:
        data = (self.other / "projects/alpha/events.db").read_bytes()
        self.assertEqual([text for text in texts if text in data], [])

    def test_what_was_erased_there_and_changed_here_stays_if_retention_erased_it(self) -> None:
        wal, locks, cache = self.ids
        self.erase(locks, cache, reason="too old", source="job")
        self.erase(wal)
        bundle = self.bundle()
        with self.other_hub():
            self.update(wal, "Changed here")
            self.update(locks, "Changed here")
            with self.store("alpha"):
                hold = place_hold(command=HoldPlace(stream_id=f"memory:{wal}", reason="a case")).id
            before = state()
            with self.assertRaisesMessage(Invalid, f"hold #{hold} on memory:{wal} prevents this"):
                apply_bundle(bundle, ALPHA)
            self.assertEqual(state(), before)
            with self.store("alpha"):
                lift_hold(command=HoldLift(id=hold))
            self.apply(bundle)
            self.assertEqual(self.texts(), {"Locks": "Changed here"})
            self.assert_gone(b"Use WAL in full", b"Cache in full")

    def test_an_undone_import_stays_undone(self) -> None:
        both = self.load("both")
        self.share()
        for batch in (both, self.load("theirs")):
            self.undo(batch)
        self.load("kept")
        bundle = self.bundle()
        common = {"Use WAL", "Locks", "Cache", "New here"}
        with self.other_hub():
            self.write("New here")
            self.apply(bundle)
            self.assertEqual(set(self.texts()), {*common, "From the tool: kept"})
            with self.store("alpha"):
                (kept,) = [batch.id for batch in list_batches() if not batch.is_undone]
            self.undo(kept)
            self.assertEqual(set(self.texts()), common)

    def load(self, name: str) -> int:
        with self.store("alpha"):
            run = ImportRun("tool", "/data/tool.db")
            with run.recording():
                write_memory(command=MemoryWrite(title=f"From the tool: {name}", content=name))
            return run.end({"created": 1}) or 0

    def undo(self, batch: int) -> None:
        with self.store("alpha"):
            undo_import(batch_id=batch, token=preview_undo(batch).token)

    def test_what_was_deleted_on_one_side_and_changed_on_the_other_is_kept(self) -> None:
        wal, locks, _ = self.ids
        self.update(wal, "Changed there")
        self.delete(locks)
        bundle = self.bundle()
        with self.other_hub():
            self.delete(wal)
            self.update(locks, "Changed here")
            self.assertEqual(self.merge(bundle).kept, [wal, locks])
            self.assertEqual(self.texts(), {"Locks": "Changed here", "Cache": "Cache in full"})
            with self.store("alpha"):
                self.assertEqual(Memory.objects.get(id=wal).content, "Changed there")

    def test_a_project_of_another_name_gets_it_as_writes(self) -> None:
        bundle, beta = self.bundle(), project_store("beta")
        applied = self.apply(bundle, beta)
        self.assertEqual((applied.outcome, applied.added), (BundleOutcome.MERGED, 3))
        self.assertEqual(self.apply(bundle, beta).outcome, BundleOutcome.CONTAINED)
        with use_store(beta):
            self.assertEqual(list(Memory.objects.order_by("id").values_list("id", flat=True)), self.ids)

    def assert_open_conflict(self, memory_id: int, theirs: str, ours: str) -> None:
        with self.store("alpha"):
            conflict = MemoryConflict.objects.get(memory_id=memory_id, resolved_at__isnull=True)
            versions = (conflict.version_a, conflict.version_b)
            self.assertEqual([state_at(memory_id, version).content for version in versions], [theirs, ours])


class CommandTests(TwoHubsTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.wal = self.write("Use WAL")

    def run_bundle(self, *arguments: str) -> str:
        output = StringIO()
        call_command("bundle", *arguments, stdout=output, stderr=StringIO())
        return output.getvalue()

    def test_the_way_from_one_machine_to_the_other(self) -> None:
        file, secret = str(self.file), self.home / "passphrase"
        secret.write_text("correct horse\n")
        passphrase = f"--passphrase-file={secret}"
        output = self.run_bundle("create", file, "--project=alpha", "--encrypt", passphrase)
        self.assertRegex(output, r"^wrote 1 event to \S+/alpha.bundle, encrypted; head [0-9a-f]{12}\n$")
        with self.assertRaisesMessage(CommandError, "exists; use --force to overwrite"):
            self.run_bundle("create", file, "--project=alpha")
        with self.other_hub():
            plan = json.loads(self.run_bundle("apply", file, passphrase, "--preview", "--json"))
            expected = {"outcome": "adopted", "done": False, "added": 1, "encrypted": True}
            self.assertLessEqual(expected.items(), plan.items())
            wrong = self.home / "wrong"
            wrong.write_text("wrong horse\n")
            for more in ([], [f"--passphrase-file={wrong}"]):
                self.assertRaises(CommandError, self.run_bundle, "apply", file, *more)
            self.assertFalse((self.other / "projects").exists())
            self.assertIn("the log was adopted as it is: 1 new event", self.run_bundle("apply", file, passphrase))
            self.assertIn("has all of it; nothing was done", self.run_bundle("apply", file, passphrase))
            self.update(self.wal, "WAL, we say")
        self.update(self.wal, "WAL, they say")
        self.run_bundle("create", file, "--project=alpha", "--force")
        with self.other_hub():
            self.assertIn("would be merged after #1, with 1 new event", self.run_bundle("apply", file, "--preview"))
            conflicts = f"changed in both, with an open conflict: #{self.wal}\n"
            self.assertIn(conflicts, self.run_bundle("apply", file))
            self.assertIn("this is the history that was merged as #5", self.run_bundle("verify", file))

    def test_an_empty_project_is_refused_and_does_not_mean_the_one_that_the_file_names(self) -> None:
        self.run_bundle("create", str(self.file), "--project=alpha")
        for action in ("apply", "verify"):
            with self.other_hub(), self.assertRaisesRegex(CommandError, "project id '' is not valid"):
                self.run_bundle(action, str(self.file), "--project=")

    def test_a_passphrase_is_asked_for_twice(self) -> None:
        create = ("create", str(self.file), "--project=alpha", "--encrypt")
        with self.assertRaisesMessage(CommandError, "a passphrase is needed: set MEMORY_HUB_BUNDLE_PASSPHRASE, or"):
            self.run_bundle(*create)
        with mock.patch("sys.stdin.isatty", return_value=True), mock.patch("getpass.getpass") as getpass:
            for answers, refusal in (
                (["one", "other"], "the two passphrases differ; nothing was written"),
                (["", ""], "an empty passphrase protects nothing"),
            ):
                getpass.side_effect = answers
                with self.assertRaisesMessage(CommandError, refusal):
                    self.run_bundle(*create)
            self.assertFalse(self.file.exists())
            getpass.side_effect = ["one", "one", "one"]
            self.run_bundle(*create)
            self.assertIn("has all of it", self.run_bundle("verify", str(self.file)))

    def test_a_store_that_changes_meanwhile_is_left_alone(self) -> None:
        self.share()
        self.write("Locks")
        longer, planned = self.bundle(), applying._planned

        def written_after(*arguments: Any) -> Applied:
            plan = planned(*arguments)
            self.write("Meanwhile")
            return plan

        with self.other_hub():
            refused = self.assertRaisesMessage(ConflictError, "the store has changed meanwhile; try again")
            with mock.patch.object(applying, "_planned", written_after), refused:
                apply_bundle(longer, ALPHA)
            self.assertEqual(self.apply(longer).outcome, BundleOutcome.MERGED)

    def test_only_an_owner_bundles_a_store(self) -> None:
        bundle = self.bundle()
        with use_grant(Grant(frozenset({Act.VIEW, Act.WRITE}))):
            for attempt in (self.bundle, partial(apply_bundle, bundle, ALPHA)):
                self.assertRaises(Forbidden, attempt)


class RandomTests(TwoHubsTestCase, DeedTestCase):  # type: ignore[misc]
    def setUp(self) -> None:
        HubTestCase.setUp(self)  # without the store that the base would hold open
        self.make_other_hub()

    def go_on(self, chance: Random, most: int) -> None:
        with self.store("alpha", actor="ada", session_id="s-good", source="rest"):
            self.memories = list(Memory.objects.values_list("id", flat=True))
            self.decisions = list(Decision.objects.values_list("id", flat=True))
            for step in random_steps(chance, most):
                self.act(step)

    def test_no_text_is_lost(self) -> None:
        for seed in SEEDS:
            with self.subTest(seed=seed):
                self.exchange(Random(seed))
            for home in (self.home, self.other):
                shutil.rmtree(home / "projects")
            forget_all_stores()

    def exchange(self, chance: Random) -> None:
        with self.store("alpha", actor="ada", session_id="s-good", source="rest"):
            self.prepare([(False, step) for step in random_steps(chance, 40)])
        self.share()
        for _ in range(2):
            self.go_on(chance, 40)
            theirs, bundle = self.texts_by_first(), self.bundle()
            with self.other_hub():
                self.go_on(chance, 40)
                self.apply(bundle)
                self.assert_has(theirs)
                ours, back = self.texts_by_first(), self.bundle()
            self.apply(back)
            self.assert_has(ours)

    def texts_by_first(self) -> list[tuple[str, str]]:
        """Return each text with the event id of the first event of its memory or decision."""
        with self.store("alpha"):
            first = dict(RawEvent.objects.filter(stream_seq=1).values_list("stream_id", "event_id"))
            events = RawEvent.objects.filter(event_type__in=WITH_TEXT, payload_json__isnull=False)
            payloads = [(json.loads(event.payload_json), first[event.stream_id]) for event in events]
            return [(payload.get("content") or payload["title"], begun) for payload, begun in payloads]

    def assert_has(self, texts: list[tuple[str, str]]) -> None:
        present = {text for text, _ in self.texts_by_first()}
        with self.store("alpha"):
            erased = set(RawEvent.objects.filter(payload_json__isnull=True).values_list("event_id", flat=True))
        self.assertEqual([text for text, first in texts if text not in present and first not in erased], [])


FIRST_ID = "0" * 36
JsonLine = dict[str, Any]
# Of the manifest and the events
Change = Callable[[JsonLine, list[JsonLine]], object]


def write_unreadable(manifest: JsonLine, lines: list[JsonLine]) -> None:
    lines[0]["payload"] = {"dreamt": 1}
    lines[0]["payload_digest"] = payload_digest(lines[0]["salt"], canonical_json(lines[0]["payload"]))


def added(name: str, payload: JsonLine, **header: Any) -> Change:
    """Return a change that adds an event, as the author of a bundle can."""

    def change(manifest: JsonLine, lines: list[JsonLine]) -> None:
        number = len(lines) + 1
        event = {**lines[0], "position": number, "event_id": uuid7(), "event_type": name, "event_version": 1}
        event |= {"payload": payload, "stream_id": "memory:1", "stream_seq": number, "idempotency_key": None, **header}
        event["payload_digest"] = payload_digest(event["salt"], canonical_json(payload))
        lines[0]["event_id"] = FIRST_ID
        lines.append(event)
        manifest["events"] = number

    return change


def erasing(*positions: int) -> Change:
    return added("payload.erased", {"positions": [*positions], "streams": ["memory:1"], "reason": "x"})


def erase_first(manifest: JsonLine, lines: list[JsonLine]) -> None:
    lines[0] |= {"payload": None, "salt": None, "erased_digest": lines[0]["payload_digest"]}


def rechain(manifest: JsonLine, lines: list[JsonLine]) -> None:
    head = "0" * 64
    for line in lines:
        line["chain_digest"] = head = chain_digest(head, [line[name] for name in HEADER], line["payload_digest"])
    manifest["head"] = head


# Changes, and what the refusal says
CHANGES: dict[str, tuple[Change, str]] = {
    "a payload": (lambda _, lines: lines[1]["payload"].update(title="x"), "its payload is not the one"),
    "a header": (lambda _, lines: lines[1].update(actor="eve"), "line 3: it, or an event before it, is not the one"),
    "a salt": (lambda _, lines: lines[1].update(salt="0" * 32), "line 3: its payload is not the one"),
    "a digest": (lambda _, lines: lines[1].update(payload_digest="0" * 64), "line 3: it, or an event before it"),
    "no salt": (lambda _, lines: lines[1].update(salt=None), "line 3: its payload is not the one"),
    "two events exchanged": (lambda _, lines: lines.reverse(), "line 2: its position is 3, not 1"),
    "an event less": (lambda _, lines: lines.pop(1), "line 3: its position is 3, not 2"),
    "an event twice": (lambda _, lines: lines.insert(1, dict(lines[0])), "line 3: its position is 1, not 2"),
    "the last event less": (lambda _, lines: lines.pop(), "does not have the 3 events that its manifest names"),
    "another number": (lambda manifest, _: manifest.update(events=9), "does not have the 9 events"),
    "another head": (lambda manifest, _: manifest.update(head="0" * 64), "does not have the 3 events"),
    "another project": (lambda manifest, _: manifest.update(store="beta"), "line 2: it"),
    "a path as project": (lambda manifest, _: manifest.update(store="../../x"), "manifest is not valid"),
    "a field more": (lambda manifest, _: manifest.update(more=1), "manifest is not valid: 'more' is not known"),
    "a view": (lambda manifest, _: manifest.update(scope="view"), "manifest is not valid"),
    "too many values": (lambda _, lines: lines[0]["payload"].update(a=[[]] * 500_000), "more than 500,000 values"),
    "a huge event": (lambda _, lines: lines[0]["payload"].update(title="x" * 17 * 2**20), "longer than 16 MiB"),
}
# The same with a chain that is valid again
FORGED: dict[str, tuple[Change, str]] = {
    "a payload": (lambda _, lines: lines[0]["payload"].update(title="Forged"), "line 2: its payload is not the one"),
    "an erased payload": (erase_first, "line 2: its payload is missing, and no event records an erasure"),
    "a project": (lambda _, lines: lines[0].update(project_id="beta"), "it is of 'beta', not of 'alpha'"),
    "a type": (lambda _, lines: lines[0].update(event_type="memory.dreamt"), "does not know events of type 'memory.d"),
    "a payload of another version": (write_unreadable, "line 2: 'title' is required; also invalid"),
    "an erasure of itself": (erasing(1, 4), "line 5: it names #4, and there is no such event before it"),
    "an erasure of no event": (erasing(0), "line 5: it names #0, and there is no such event before it"),
}
VERSION = {"memory_id": 99, "version": 2, "base_version": 1, "title": "x", "content": "y"}
# Events that are valid each by itself
UNFIT: dict[str, Change] = {
    "the id of another event": added("memory.deleted", {"memory_id": 1}, event_id=FIRST_ID),
    "a place in a stream that is taken": added("memory.deleted", {"memory_id": 1}, stream_seq=1),
    "a version of no memory": added("memory.revised", VERSION),
    "an id that no database has": added("memory.deleted", {"memory_id": 2**70}),
}

# By age-encryption 0.3.1 for Node, with work factor 4 and the passphrase "correct horse"
MADE_BY_TYPAGE = (
    "YWdlLWVuY3J5cHRpb24ub3JnL3YxCi0+IHNjcnlwdCAvR2N0OXlYN1RkTEgxWElPNnhRMm5RIDQKNmUvNFV6VmNodDI0ZGVlc2FhaUt5cEk3"
    "dGN4elJML29xSUttSzk0VGVQOAotLS0gdHYzZkFrZVZjUEF3T3F6NUlCRWdKV2dRYmUvNEFoa211TzhKVDAvK2QzawrjfuiDWjXiQw70HXe5"
    "J3cV+5NOZtcUx3DwAZj0wreT3KbfzDBxTzhnH2W/LylkbNmLywyW0cHW3x9x29Le2bA="
)


class ChangedTests(TwoHubsTestCase):
    def setUp(self) -> None:
        super().setUp()
        for title in ("Use WAL", "Locks", "Cache"):
            self.write(title)

    def assert_refused(self, data: bytes, why: str = "", passphrase: str = "") -> None:
        self.file.write_bytes(data)
        with self.assertRaises(Invalid) as refused:
            check(open_bundle(self.file, lambda: passphrase))
        self.assertIn(why, refused.exception.message)
        self.assertLess(len(refused.exception.message), 300)
        self.assertNotIn("\n", refused.exception.message)

    def forged(self, change: Change, *, chained: bool = True, form: Form | None = None) -> bytes:
        """Return the bundle after a change of its manifest and events, as its author can make it."""
        manifest, lines = self.parts()
        change(manifest, lines)
        if chained:
            rechain(manifest, lines)
        return (form or signed)(manifest, text_of(lines))

    def parts(self) -> tuple[JsonLine, list[JsonLine]]:
        """Return the manifest and the events of a bundle, with what those of the first form had in addition."""
        self.bundle()
        manifest, *lines, _ = map(json.loads, gzip.decompress(self.file.read_bytes()).splitlines())
        for line in lines:
            line["project_id"] = "alpha"
            if line["payload"] is None:
                line["erased_digest"] = line["payload_digest"]
        return manifest, lines

    def test_any_changed_byte_is_noticed_unless_it_is_not_of_the_log(self) -> None:
        chance = Random(65)
        with mock.patch.object(age, "WORK_FACTOR", 2):
            encrypted = self.data("correct horse")
        for data in (encrypted, self.data(), gzip.decompress(self.data()), self.first_form()):
            self.file.write_bytes(data)
            before = read_whole(self.file)
            for place in range(len(data)):
                changed = bytearray(data)
                changed[place] ^= chance.randrange(1, 256)
                self.file.write_bytes(bytes(changed))
                with self.subTest(place=place, start=data[:20]), suppress(Invalid):  # such as the time in gzip's header
                    self.assertEqual(read_whole(self.file), before)

    def first_form(self) -> bytes:
        manifest, lines = self.parts()
        return sealed(manifest, text_of(lines))

    def data(self, passphrase: str = "") -> bytes:
        self.bundle(passphrase=passphrase)
        return self.file.read_bytes()

    def test_a_bundle_of_the_first_form_is_adopted_and_merged(self) -> None:
        self.erase(1)
        before = state()
        data = self.first_form()
        self.write("Later")
        with self.other_hub():
            self.file.write_bytes(data)
            self.assertEqual(self.apply(open_bundle(self.file)).outcome, BundleOutcome.ADOPTED)
            self.assertEqual(state(), before)
            self.assertEqual(self.apply(open_bundle(self.file), project_store("beta")).outcome, BundleOutcome.MERGED)

    def test_the_format_is_that_of_other_implementations(self) -> None:
        self.file.write_bytes(b64decode(MADE_BY_TYPAGE))
        with self.file.open("rb") as file:
            chunks = age.decrypt(file, age.unlock(file, "correct horse"))
            self.assertEqual(b"".join(chunks), b"made by another implementation\n")

    def test_a_part_or_another_file_is_refused(self) -> None:
        with mock.patch.object(age, "WORK_FACTOR", 2):
            encrypted = self.data("correct horse")
        plain = self.data()
        readable = gzip.decompress(plain)
        for whole in (plain, encrypted, readable, self.first_form()):
            for length in (0, 10, 300, len(whole) // 2, len(whole) - 65, len(whole) - 1):
                with self.subTest(length=length):
                    self.assert_refused(whole[:length], passphrase="correct horse")
            self.assert_refused(whole + b"x", passphrase="correct horse")
            self.assert_refused(whole + whole, passphrase="correct horse")
        for data, why in (
            (bytes(range(256)) * 99, "the file is no export or bundle"),
            (readable.replace(b'"version":2', b'"version":3'), "has format version 3, and this version"),
            (b"memory-hub-bundle " + b"9" * 9999, "the file is no export or bundle"),
            (b"memory-hub-bundle 1\n", "the manifest is not valid"),
            (encrypted.replace(b" 2\n", b" 30\n", 1), "asks for a scrypt work factor of 30"),
            (encrypted.replace(b"-> scrypt", b"-> X25519", 1), "but not with a passphrase"),
            (encrypted, "the passphrase is wrong"),
        ):
            self.assert_refused(data, why, passphrase="wrong horse")

    def test_what_was_made_up_is_refused(self) -> None:
        for form in (signed, sealed):
            for changes, chained in ((CHANGES, False), (FORGED, True)):
                for name, (change, why) in changes.items():
                    with self.subTest(name, chained=chained, form=form):
                        self.assert_refused(self.forged(change, chained=chained, form=form), why)
            manifest, lines = self.parts()
            text = text_of(lines)
            twice = text.replace(b'"payload":{', b'"payload":{"a":1},"payload":{', 1)
            for data, why in (
                (form(manifest, b"\n" * 2**26), "line 2: it has no payload"),
                (form(manifest, text + b" " * 2**26), "line 5: it is longer than 16 MiB"),
                (form(manifest, twice), "line 2: it is not one complete JSON object"),
                (form(manifest, text, b"more"), "events are not complete"),
            ):
                self.assert_refused(data, why)
            with mock.patch.multiple(archive, _FREE_BYTES=0, _MAX_RATIO=1):
                self.assert_refused(form(manifest, text), "unpacks to more than 1 times its size")

    def test_events_that_do_not_fit_each_other_are_refused(self) -> None:
        for name, change in UNFIT.items():
            self.file.write_bytes(self.forged(change))
            with self.subTest(name), self.other_hub():
                with self.assertRaisesRegex(Invalid, r"(fit|events before it) .*; nothing was imported$"):
                    apply_bundle(open_bundle(self.file, str), ALPHA)
                with use_store(ALPHA, create=True):
                    self.assertEqual(log.head()[0], 0)


def read_whole(file: Path) -> tuple[list[EventLine], str]:
    bundle = open_bundle(file, lambda: "correct horse")
    check(bundle)
    return list(bundle.events()), bundle.sha256


def text_of(lines: list[JsonLine]) -> bytes:
    text = b""
    for line in lines:
        payload = canonical_json(line.pop("payload"))
        text += f'{canonical_json(line)[:-1]},"payload":{payload}}}\n'.encode()
    return text


Form = Callable[..., bytes]


def signed(manifest: JsonLine, text: bytes, more: bytes = b"") -> bytes:
    """Return a bundle of these events."""
    lines = canonical_json(manifest).encode() + b"\n" + text
    trailer = {"events": text.count(b"\n"), "sha256": hashlib.sha256(lines).hexdigest()}
    return gzip.compress(lines + canonical_json(trailer).encode() + b"\n") + more


def sealed(manifest: JsonLine, text: bytes, more: bytes = b"") -> bytes:
    """Return a bundle as it was before it had the lines of an export."""
    fields = {name: value for name, value in manifest.items() if name not in ("format", "version")}
    data = b"memory-hub-bundle 1\n" + canonical_json(fields).encode() + b"\n" + zlib.compress(text) + more
    return data + hashlib.sha256(data).hexdigest().encode() + b"\n"


# Applies a bundle, and dies at the n-th call of a function
RUN = """
import importlib, os, signal, sys
from pathlib import Path
from memoryhub.core.stores.store import project_store
from memoryhub.transfer.bundles.applying import apply_bundle
from memoryhub.transfer.bundles.archive import open_bundle

module, name, call = sys.argv[2:]
owner = importlib.import_module(module)
*parents, name = name.split(".")
for parent in parents:
    owner = getattr(owner, parent)
original, calls = getattr(owner, name), []

def dying(*args, **options):
    calls.append(name)
    if len(calls) == int(call):
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*args, **options)

setattr(owner, name, dying)
apply_bundle(open_bundle(Path(sys.argv[1]), str), project_store("alpha"))
"""
APPLYING, MERGING, ADOPTING = (
    "memoryhub.transfer.bundles.applying",
    "memoryhub.transfer.bundles.merging",
    "memoryhub.core.log.adopting",
)


@tag("attack")
class KilledTests(TwoHubsTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.first = min(self.write(title) for title in ("Use WAL", "Locks", "Cache"))

    def assert_whole_after_kills(self, outcome: BundleOutcome, *points: tuple[str, str, str]) -> None:
        bundle = self.bundle()
        with self.other_hub():
            for point in points:
                before = state() if path_of(ALPHA).exists() else None
                with self.subTest(point):
                    self.assertEqual(forks.run_program(RUN, str(self.file), *point)[0], -signal.SIGKILL)
                if path_of(ALPHA).exists():
                    with use_store(ALPHA):
                        self.assertTrue(log.verify().ok)
                        self.assertEqual(log.compare(whole=True).differences, ())
                        self.assertEqual(state(), before or (log.head(), log.table_digests()))
            self.assertEqual(self.apply(bundle).outcome, outcome)

    def test_an_adoption(self) -> None:
        self.assert_whole_after_kills(BundleOutcome.ADOPTED, (APPLYING, "append_as_is", "3"), (ADOPTING, "apply", "1"))

    def test_a_log_that_goes_on(self) -> None:
        self.share()
        self.erase(self.first)
        self.write("New there")
        points = ((ADOPTING, "_transfer", "1"), (ADOPTING, "mark_unwiped", "1"))
        self.assert_whole_after_kills(BundleOutcome.FORWARDED, *points)

    def test_a_merge(self) -> None:
        self.share()
        with self.other_hub():
            self.update(self.first, "Ours")
        self.update(self.first, "Theirs")
        self.write("New there")
        points = ((MERGING, "Merge._put", "2"), (MERGING, "append_version", "1"), (APPLYING, "LogMerged", "1"))
        self.assert_whole_after_kills(BundleOutcome.MERGED, *points)
        with self.other_hub(), self.store("alpha"):
            self.assertEqual(RawEvent.objects.filter(event_type="log.merged").count(), 1)
