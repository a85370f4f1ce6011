"""Every kind of silent damage is named by `doctor`, and what it proposes brings everything back.

Each row of the tables is one test: a home is copied and damaged, `doctor` must say what is wrong and propose a remedy,
the remedy is run as it is printed, and then `verify`, `doctor` and a comparison with the home that was never damaged
must hold.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from django.test import SimpleTestCase, tag

from tests.home import run_home
from tests.torture import damages_of_files as files
from tests.torture import damages_of_read_models as derived
from tests.torture import damages_of_stores as stores
from tests.torture.damage import BETA, DEMO, GLOBAL, ORG, Attacked, Damage
from tests.torture.hub import ForkedHub, built_home, put_home, read_models, whole_models

OPTIONS = {DEMO: "--project demo", BETA: "--project beta", ORG: "--org acme", GLOBAL: "--global"}
_FINDING = re.compile(r"^(?P<says>\S.*)\n  repair: (?P<repair>.*)$", re.MULTILINE)
_COMMANDS = re.compile(r"(, then )?`((?:memory-hub|rm|mv|cp|chmod) [^`]+)`")
_NO_REMEDY = ("memory-hub serve", "memory-hub doctor", "memory-hub verify")


@dataclass(frozen=True, slots=True)
class Found:
    says: str
    repair: str

    @property
    def commands(self) -> list[str]:
        """The first command of the remedy that changes anything, and those that it says to run then."""
        found = [(then, text) for then, text in _COMMANDS.findall(self.repair) if _changes_anything(text)]
        return [text for number, (then, text) in enumerate(found) if not number or then]


def _changes_anything(command: str) -> bool:
    return "--accept-loss" in command or not command.startswith(_NO_REMEDY)


@tag("attack")
class DamageTestCase(SimpleTestCase):
    hub: ClassVar[ForkedHub]
    older: ClassVar[Path]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.older = built_home().parent / "older"
        folder = Path(tempfile.mkdtemp(prefix="damage-", dir=run_home()))
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        cls.hub = ForkedHub(folder / "home")
        cls.addClassCleanup(cls.hub.close)

    def attack(self, damage: Damage) -> None:
        put_home(self.hub.home)
        at = Attacked(self.hub, self.older)
        damage.do(at)
        found = self.doctor()
        self.assert_named(found, damage)
        self.repair(found)
        if damage.by_hand:
            damage.by_hand(at)
        self.assert_whole(damage)

    def doctor(self) -> list[Found]:
        code, output = self.hub.run("doctor")
        self.assertNotIn("Traceback", output)
        found = [Found(*match.groups()) for match in _FINDING.finditer(output)]
        self.assertEqual(code, 15 if found else 0, output)
        return found

    def assert_named(self, found: Sequence[Found], damage: Damage) -> None:
        named = [each for each in found if re.search(damage.says, each.says)]
        self.assertTrue(named, f"doctor does not say {damage.says!r}; it says {found}")
        repairs = " | ".join(each.repair for each in named)
        self.assertRegex(repairs, damage.repair)
        if damage.loses:
            self.assertIn(damage.loses, " ".join(each.says for each in named))

    def repair(self, found: Sequence[Found]) -> None:
        for command in dict.fromkeys(command for each in found for command in each.commands):
            if command.startswith("memory-hub "):
                _, output = self.hub.run(*shlex.split(command)[1:])
                self.assertNotIn("Traceback", output, command)
            else:
                subprocess.run(["sh", "-c", command], check=True, stdin=subprocess.DEVNULL)

    def assert_whole(self, damage: Damage) -> None:
        code, output = self.hub.run("verify", *OPTIONS[damage.store].split())
        self.assertEqual(code, 0, output)
        self.assertEqual(self.doctor(), [])
        for folder, option in OPTIONS.items():
            if damage.loses and folder == damage.store:
                code, output = self.hub.run("rebuild", *option.split())
                self.assertEqual(code, 0, output)
            else:
                self.assert_same(folder, damage)

    def assert_same(self, folder: str, damage: Damage) -> None:
        whole, mended = dict(whole_models(folder)), read_models(self.hub.home / folder / "events.db")
        is_damaged = folder == damage.store
        if damage.forgets and is_damaged:
            digests = [row for row in whole["store_meta"] if row[0].startswith("secret:")]
            self.assertNotEqual(digests, [])
            whole["store_meta"] = [row for row in whole["store_meta"] if row not in digests]
        if damage.accepted and is_damaged:
            added = [row for row in mended["raw_events"] if row not in whole["raw_events"]]
            self.assertEqual([row.count("log.loss_accepted") for row in added], [1])
            mended["raw_events"] = [row for row in mended["raw_events"] if row not in added]
        self.assertEqual([name for name in whole if whole[name] != mended.get(name)], [], folder)


def _test_of(damage: Damage) -> Callable[[DamageTestCase], None]:
    def test(self: DamageTestCase) -> None:
        self.attack(damage)

    return test


def _tests(*tables: Sequence[Damage]) -> Callable[[type[DamageTestCase]], type[DamageTestCase]]:
    def add(case: type[DamageTestCase]) -> type[DamageTestCase]:
        for damage in (damage for table in tables for damage in table):
            name = f"test_{re.sub(r'[^a-z0-9]+', '_', damage.name.lower()).strip('_')}"
            if hasattr(case, name):
                raise ValueError(f"two rows of the table are called {damage.name!r}")
            setattr(case, name, _test_of(damage))
        return case

    return add


@_tests(stores.LOG_FILES)
@tag("attack")
class LogFileTests(DamageTestCase):
    pass


@_tests(stores.REPLACED_STORES, stores.ANCHORS)
@tag("attack")
class ReplacedStoreTests(DamageTestCase):
    pass


@_tests(stores.LOG_ROWS, derived.READ_MODELS)
@tag("attack")
class RowTests(DamageTestCase):
    pass


@_tests(files.SECRETS, files.MODES, files.DATABASES, files.BACKUPS, files.BESIDE)
@tag("attack")
class FileTests(DamageTestCase):
    def test_a_home_that_is_whole_has_no_finding(self) -> None:
        put_home(self.hub.home)
        self.assertEqual(self.doctor(), [])
