"""Errors of the parallel processes are reported by the first process."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from unittest import TestCase, TestResult, TestSuite

from django.test import SimpleTestCase

from tests.runner import PicklingTestRunner, summary, summed


class PicklingTests(SimpleTestCase):
    class Holding(SimpleTestCase):  # in here, lest it is found and run
        """Fails in a sub-test, and holds what cannot be sent to another process."""

        def runTest(self) -> None:  # noqa: N802 - as unittest names it
            self.held = lambda: None
            with self.subTest(number=7):
                self.fail("wrong")

    def test_a_sub_test_that_fails_is_told_whatever_its_test_holds(self) -> None:
        events = pickle.loads(pickle.dumps(PicklingTestRunner().run(TestSuite([self.Holding()])).events))
        ((subtest, (_, error, _)),) = [event[2:] for event in events if event[0] == "addSubTest"]
        self.assertEqual((subtest.params["number"], str(error)), (7, "wrong"))


class SummaryTests(SimpleTestCase):
    class Mixed(TestCase):
        def test_fails_twice(self) -> None:
            for number in range(2):
                with self.subTest(number=number):
                    self.fail("each time")

        def test_passes(self) -> None:
            pass

        def test_skips(self) -> None:
            self.skipTest("a reason")

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
        self.assertEqual(summary(result), "1 passed, 2 failed, 1 skipped")

    def test_the_last_line_of_the_last_run_is_the_sum_of_all(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder, "counts"))
            self.assertEqual(summed("10 passed, 2 failed, 3 skipped", path), "10 passed, 2 failed, 3 skipped")
            self.assertEqual(summed("5 passed, 0 failed, 1 skipped", path), "15 passed, 2 failed, 4 skipped")
        self.assertEqual(summed("5 passed, 0 failed, 1 skipped", ""), "5 passed, 0 failed, 1 skipped")
