"""Errors of the parallel processes are reported by the first process."""

from __future__ import annotations

import pickle
import sys
import tempfile
import threading
import warnings
from collections import Counter
from pathlib import Path
from unittest import TestCase, TestResult, TestSuite, mock

from django.contrib.auth.models import Group
from django.db import connections
from django.test import SimpleTestCase

from memoryhub.core.stores.routing import STORE_PREFIX
from tests.runner import Counts, PicklingTestRunner, Unraised
from tests.support import HubTestCase, StoresTestCase

_LATE = f"{STORE_PREFIX}project:late"


class PicklingTests(SimpleTestCase):
    class Unpicklable(TestCase):  # nested, so that discovery does not find it
        def runTest(self) -> None:  # noqa: N802 - as unittest names it
            self.generator = (number for number in range(7))
            with self.subTest(number=7):
                self.fail("wrong")

    def test_a_sub_test_that_fails_is_reported_whatever_its_test_holds(self) -> None:
        events = pickle.loads(pickle.dumps(PicklingTestRunner().run(TestSuite([self.Unpicklable()])).events))
        ((subtest, (_, error, _)),) = [event[2:] for event in events if event[0] == "addSubTest"]
        self.assertIn("(number=7)", str(subtest))
        self.assertEqual(str(error), "wrong")


class LateStoreTests(StoresTestCase):
    class Late(HubTestCase):
        def setUp(self) -> None:
            self.addCleanup(connections.settings.__setitem__, _LATE, connections.settings["default"])
            super().setUp()

        def runTest(self) -> None:  # noqa: N802 - as unittest names it
            Group.objects.create(name="of a test")

    def test_a_store_that_a_thread_opens_after_a_test_leaves_hub_db_rolled_back(self) -> None:
        self.addCleanup(connections.settings.pop, _LATE)
        result = TestResult()
        TestSuite([self.Late()]).run(result)
        self.assertEqual((result.errors, result.failures), ([], []))
        self.assertFalse(Group.objects.filter(name="of a test").exists())


class SummaryTests(SimpleTestCase):
    class Mixed(TestCase):
        def test_fails_twice(self) -> None:
            for number in range(2):
                with self.subTest(number=number):
                    self.fail("each time")

        def test_passes(self) -> None:
            pass

        def test_skips(self) -> None:
            self.skipTest("a reason: of this test")

    class Unprepared(TestCase):
        @classmethod
        def setUpClass(cls) -> None:
            raise AssertionError

        def test_never_runs(self) -> None:
            pass

    def test_a_test_counts_once_and_what_never_ran_did_not_pass(self) -> None:
        result = TestResult()
        names = [name for name in dir(self.Mixed) if name.startswith("test_")]
        TestSuite([*map(self.Mixed, names), self.Unprepared("test_never_runs")]).run(result)
        self.assertEqual(str(Counts.of(result)), "Skipped:\n  1: a reason\n1 passed, 2 failed, 1 skipped")

    def test_the_last_lines_of_the_last_run_are_about_all(self) -> None:
        first, second = Counts(10, 2, Counter({"no zsh": 3})), Counts(5, 0, Counter({"no fish": 4, "no zsh": 1}))
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder, "counts"))
            self.assertEqual(first.added_to(path), first)
            together = str(second.added_to(path))
        self.assertEqual(together, "Skipped:\n  4: no zsh\n  4: no fish\n15 passed, 2 failed, 8 skipped")
        self.assertEqual(str(second.added_to("")).splitlines()[-1], "5 passed, 0 failed, 5 skipped")


class UnraisedTests(TestCase):
    def setUp(self) -> None:
        self.enterContext(warnings.catch_warnings())
        self.enterContext(mock.patch.multiple(sys, unraisablehook=sys.unraisablehook))
        self.enterContext(mock.patch.multiple(threading, excepthook=threading.excepthook))
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.unraised = Unraised(lambda: self.folder)
        self.unraised.watch()
        self.unraised.test = "tests.a_test"

    def test_what_is_left_open_is_reported_with_the_test_that_ran(self) -> None:
        leaked = (self.folder / "leaked").open("w")
        del leaked
        (text,) = self.unraised.take()
        self.assertRegex(text, r"^tests\.a_test: .*\n?(.*\n)*ResourceWarning: unclosed file")
        self.assertEqual(self.unraised.take(), [])

    def test_an_error_of_a_thread_is_reported(self) -> None:
        thread = threading.Thread(target=lambda: 1 // 0)
        thread.start()
        thread.join()
        (text,) = self.unraised.take()
        self.assertIn("ZeroDivisionError", text)
