"""Bundles that are damaged, changed or made up are refused with one sentence; killed processes leave a whole store."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import zlib
from base64 import b64decode
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from django.core.management import CommandError, call_command
from django.test import tag

from memories.schemas import MemoryUpdate
from memories.services import update_memory
from memoryhub.core import log
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.errors import Invalid
from memoryhub.core.ids import uuid7
from memoryhub.core.log.digests import HEADER, canonical_json, chain_digest, payload_digest
from memoryhub.core.models import RawEvent
from memoryhub.core.stores.store import use_store
from memoryhub.transfer.bundles import age, reading
from memoryhub.transfer.bundles.applying import Outcome, apply_bundle
from memoryhub.transfer.bundles.checking import check
from memoryhub.transfer.bundles.reading import open_bundle
from tests.home import UNMEASURED
from tests.transfer.test_bundles import ALPHA, TwoHubsTestCase, state

Line = dict[str, Any]
# Changes the manifest and the events; what the refusal says
Change = tuple[Callable[[Line, list[Line]], object], str]


def swap(manifest: Line, lines: list[Line]) -> None:
    lines[0], lines[1] = lines[1], lines[0]


def drop(manifest: Line, lines: list[Line]) -> None:
    del lines[1]


def forge(manifest: Line, lines: list[Line]) -> None:
    # A valid chain whose payload no redaction explains
    lines[0]["payload"] = {**lines[0]["payload"], "title": "Forged"}
    rechain(manifest, lines)


def empty(manifest: Line, lines: list[Line]) -> None:
    lines[0] |= {"payload": None, "salt": None, "erased_digest": lines[0]["payload_digest"]}
    rechain(manifest, lines)


def of_another(manifest: Line, lines: list[Line]) -> None:
    for line in lines:
        line["project_id"] = "beta"
    rechain(manifest, lines)


def unknown(manifest: Line, lines: list[Line]) -> None:
    lines[0]["event_type"] = "memory.dreamt"
    rechain(manifest, lines)


def unreadable(manifest: Line, lines: list[Line]) -> None:
    lines[0]["payload"] = {"dreamt": 1}
    lines[0]["payload_digest"] = payload_digest(lines[0]["salt"], canonical_json(lines[0]["payload"]))
    rechain(manifest, lines)


def added(name: str, payload: Line, **header: Any) -> Change:
    """Return a change that adds an event, with its digests, as the author of a bundle can."""

    def change(manifest: Line, lines: list[Line]) -> None:
        number = len(lines) + 1
        event = {**lines[0], "position": number, "event_id": uuid7(), "event_type": name, "event_version": 1}
        event |= {"payload": payload, "stream_id": "memory:1", "stream_seq": number, "idempotency_key": None, **header}
        event["payload_digest"] = payload_digest(event["salt"], canonical_json(payload))
        lines.append(event)
        manifest["events"] = number
        rechain(manifest, lines)

    return change, ""


def erasing(*positions: int) -> Callable[[Line, list[Line]], object]:
    return added("payload.erased", {"positions": [*positions], "streams": ["memory:1"], "reason": "x"})[0]


def rechain(manifest: Line, lines: list[Line]) -> None:
    head = "0" * 64
    for line in lines:
        line["chain_digest"] = head = chain_digest(head, [line[name] for name in HEADER], line["payload_digest"])
    manifest["head"] = head


CHANGES: dict[str, Change] = {
    "a payload": (lambda _, lines: lines[1]["payload"].update(title="x"), "its payload is not the one"),
    "a payload, with its digest": (forge, "line 2: its payload is not the one that was written"),
    "a header": (lambda _, lines: lines[1].update(actor="eve"), "line 3: it, or an event before it, is not the one"),
    "a salt": (lambda _, lines: lines[1].update(salt="0" * 32), "line 3: its payload is not the one"),
    "a digest": (lambda _, lines: lines[1].update(payload_digest="0" * 64), "line 3: it, or an event before it"),
    "an erased payload": (empty, "line 2: its payload is missing, and no event records an erasure"),
    "no salt": (lambda _, lines: lines[1].update(salt=None), "line 3: its payload is not the one"),
    "two events exchanged": (swap, "line 2: its position is 2, not 1"),
    "an event less": (drop, "line 3: its position is 3, not 2"),
    "an event twice": (lambda _, lines: lines.insert(1, lines[0]), "line 3: its position is 1, not 2"),
    "the last event less": (lambda _, lines: lines.pop(), "does not have the 3 events that its manifest names"),
    "another number": (lambda manifest, _: manifest.update(events=9), "does not have the 9 events"),
    "another head": (lambda manifest, _: manifest.update(head="0" * 64), "does not have the 3 events"),
    "events of another project": (of_another, "it is of 'beta', not of 'alpha'"),
    "another project": (lambda manifest, _: manifest.update(store="beta"), "it is of 'alpha', not of 'beta'"),
    "a path as project": (lambda manifest, _: manifest.update(store="../../x"), "manifest is not valid"),
    "a field more": (lambda manifest, _: manifest.update(more=1), "manifest is not valid: 'more' is not known"),
    "a view": (lambda manifest, _: manifest.update(scope="view"), "manifest is not valid"),
    "an unknown type": (unknown, "this version does not know events of type 'memory.dreamt'"),
    "a payload of another version": (unreadable, "line 2: 'title' is required; also invalid"),
    "an erasure of itself": (erasing(1, 4), "line 5: it names #4, and there is no such event before it"),
    "an erasure of no event": (erasing(0), "line 5: it names #0, and there is no such event before it"),
    "too many values": (lambda _, lines: lines[0]["payload"].update(a=[[]] * 500_000), "more than 500,000 values"),
    "a huge event": (lambda _, lines: lines[0]["payload"].update(title="x" * 17 * 2**20), "more than 16 MiB"),
}


# Events that are valid each by itself
UNFIT: dict[str, Change] = {
    "the id of another event": added("memory.deleted", {"memory_id": 1}, event_id="0" * 36),
    "a place in a stream that is taken": added("memory.deleted", {"memory_id": 1}, stream_seq=1),
    "a version of no memory": added(
        "memory.revised", {"memory_id": 99, "version": 2, "base_version": 1, "title": "x", "content": "y"}
    ),
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

    def test_any_changed_byte_is_noticed(self) -> None:
        chance = Random(65)
        with mock.patch.object(age, "WORK_FACTOR", 2):
            for passphrase in ("", "correct horse"):
                self.bundle(passphrase=passphrase)
                data = self.file.read_bytes()
                for place in range(len(data)):
                    changed = bytearray(data)
                    changed[place] ^= chance.randrange(1, 256)
                    with self.subTest(place=place, encrypted=bool(passphrase)):
                        self.assert_refused(bytes(changed), passphrase=passphrase)

    def test_the_format_is_that_of_other_implementations(self) -> None:
        self.file.write_bytes(b64decode(MADE_BY_TYPAGE))
        with self.file.open("rb") as file:
            chunks = age.decrypt(file, age.unlock(file, "correct horse"))
            self.assertEqual(b"".join(chunks), b"made by another implementation\n")

    def test_a_part_or_another_file_is_refused(self) -> None:
        with mock.patch.object(age, "WORK_FACTOR", 2):
            self.bundle(passphrase="correct horse")
        sealed = self.file.read_bytes()
        self.bundle()
        plain = self.file.read_bytes()
        for whole in (plain, sealed):
            for length in (0, 10, 300, len(whole) // 2, len(whole) - 65, len(whole) - 1):
                with self.subTest(length=length):
                    self.assert_refused(whole[:length], passphrase="correct horse")
            self.assert_refused(whole + b"x", passphrase="correct horse")
            self.assert_refused(whole + whole, passphrase="correct horse")
        self.assert_refused(bytes(range(256)) * 99, "the file is no bundle")
        self.assert_refused(plain.replace(b"bundle 1\n", b"bundle 2\n"), "has version 2, and this version")
        self.assert_refused(b"memory-hub-bundle " + b"9" * 9999, "the bundle has version 999999999")
        self.assert_refused(sealed.replace(b" 2\n", b" 30\n", 1), "asks for a scrypt work factor of 30")
        self.assert_refused(sealed.replace(b"-> scrypt", b"-> X25519", 1), "but not with a passphrase")
        self.assert_refused(sealed, "the passphrase is wrong", passphrase="wrong horse")

    def test_what_was_made_up_is_refused(self) -> None:
        self.bundle()
        intro, described, rest = self.file.read_bytes().split(b"\n", 2)
        text = zlib.decompressobj().decompress(rest)
        for name, (change, why) in CHANGES.items():
            manifest, lines = json.loads(described), [json.loads(line) for line in text.splitlines()]
            change(manifest, lines)
            with self.subTest(name):
                self.assert_refused(sealed_again(intro, manifest, "".join(map(written, lines)).encode()), why)
        manifest = json.loads(described)
        bomb = sealed_again(intro, manifest, b"\n" * 2**26)
        self.assert_refused(bomb, "line 2: it has no payload")
        bomb = sealed_again(intro, manifest, text + b" " * 2**26)
        self.assert_refused(bomb, "has an event of more than 16 MiB")
        with mock.patch.multiple(reading, _FREE_BYTES=0, _MAX_RATIO=1):
            self.assert_refused(sealed_again(intro, manifest, text), "unpacks to more than 1 times its size")
        twice = text.replace(b'"payload":{', b'"payload":{"a":1},"payload":{', 1)
        self.assert_refused(sealed_again(intro, manifest, twice), "line 2: it is not one complete JSON object")
        self.assert_refused(sealed_again(intro, manifest, text, b"more"), "events are not complete")

    def test_events_that_do_not_fit_each_other_are_refused(self) -> None:
        self.bundle()
        intro, described, rest = self.file.read_bytes().split(b"\n", 2)
        text = zlib.decompressobj().decompress(rest)
        for name, (change, _) in UNFIT.items():
            manifest, lines = json.loads(described), [json.loads(line) for line in text.splitlines()]
            lines[0]["event_id"] = "0" * 36
            change(manifest, lines)
            self.file.write_bytes(sealed_again(intro, manifest, "".join(map(written, lines)).encode()))
            with self.subTest(name), self.other_hub():
                with self.assertRaises(Invalid) as refused:
                    apply_bundle(open_bundle(self.file, str), ALPHA)
                self.assertRegex(refused.exception.message, r"(fit|events before it) .*; nothing was imported$")
                with use_store(ALPHA, create=True):
                    self.assertEqual(log.head()[0], 0)

    def test_a_refusal_changes_nothing(self) -> None:
        self.bundle(passphrase="correct horse")
        before = state()
        (self.home / "wrong").write_text("wrong horse\n")
        with self.other_hub():
            for more in ([], [f"--passphrase-file={self.home / 'wrong'}"]):
                with self.assertRaises(CommandError):
                    call_command("bundle", "apply", str(self.file), *more, stdout=StringIO())
            self.assertFalse((self.other / "projects").exists())
        self.assertEqual(state(), before)


def written(line: Line) -> str:
    header = {name: value for name, value in line.items() if name != "payload"}
    return f'{canonical_json(header)[:-1]},"payload":{canonical_json(line["payload"])}}}\n'


def sealed_again(intro: bytes, manifest: Line, text: bytes, more: bytes = b"") -> bytes:
    data = intro + b"\n" + canonical_json(manifest).encode() + b"\n" + zlib.compress(text) + more
    return data + hashlib.sha256(data).hexdigest().encode() + b"\n"


# Applies a bundle, and dies at the n-th call of a function
RUN = """
import importlib, os, signal, sys, django
from pathlib import Path
django.setup()
from memoryhub.core.stores.store import project_store
from memoryhub.transfer.bundles.applying import apply_bundle
from memoryhub.transfer.bundles.reading import open_bundle

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

    def assert_whole_after_kills(self, points: list[tuple[str, str, str]], outcome: Outcome) -> None:
        bundle = self.bundle()
        with self.other_hub():
            for point in points:
                before = state() if path_of(ALPHA).exists() else None
                with self.subTest(point):
                    self.assertEqual(self.run_until(point), -signal.SIGKILL)
                if path_of(ALPHA).exists():
                    with use_store(ALPHA):
                        self.assertTrue(log.verify().ok)
                        self.assertTrue(log.compare(whole=True).differences == ())
                        self.assertEqual(state(), before or (log.head(), log.table_digests()))
            self.assertEqual(self.apply(bundle).outcome, outcome)

    def run_until(self, point: tuple[str, str, str]) -> int:
        environment = {**os.environ, **UNMEASURED, "DJANGO_SETTINGS_MODULE": "memoryhub.settings_store"}
        command = [sys.executable, "-c", RUN, str(self.file), *point]
        return subprocess.run(command, env=environment, cwd=Path(__file__).parents[2], check=False).returncode

    def test_an_adoption(self) -> None:
        points = [(APPLYING, "append_as_is", "3"), (ADOPTING, "apply", "1")]
        self.assert_whole_after_kills(points, Outcome.ADOPTED)

    def test_a_log_that_goes_on(self) -> None:
        common = self.bundle()
        with self.other_hub():
            self.apply(common)
        with self.store("alpha"):
            log.erase_streams([f"memory:{self.first}"], reason="asked")
        self.write("New there")
        points = [(ADOPTING, "_transfer", "1"), (ADOPTING, "mark_unwiped", "1")]
        self.assert_whole_after_kills(points, Outcome.FORWARDED)

    def test_a_merge(self) -> None:
        common = self.bundle()
        with self.other_hub():
            self.apply(common)
            with self.store("alpha"):
                update_memory(command=MemoryUpdate(id=self.first, content="Ours"))
        with self.store("alpha"):
            update_memory(command=MemoryUpdate(id=self.first, content="Theirs"))
        self.write("New there")
        points = [(MERGING, "_Merge._put", "2"), (MERGING, "append_version", "1"), (MERGING, "_record", "1")]
        self.assert_whole_after_kills(points, Outcome.MERGED)
        with self.other_hub(), self.store("alpha"):
            self.assertEqual(RawEvent.objects.filter(event_type="log.merged").count(), 1)
