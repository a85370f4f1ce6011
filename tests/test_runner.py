"""What goes wrong in one of the parallel processes is told by the one that was started."""

from __future__ import annotations

import pickle
from unittest import TestSuite

from django.test import SimpleTestCase

from tests.runner import PicklingTestRunner


class PicklingTests(SimpleTestCase):
    class Holding(SimpleTestCase):  # in here, lest it is found and run
        """Fails in a sub-test, and holds what cannot be sent to another process."""

        def runTest(self) -> None:  # noqa: N802 - as unittest names it
            self.held = lambda: None
            with self.subTest(number=7):
                self.fail("told")

    def test_a_sub_test_that_fails_is_told_whatever_its_test_holds(self) -> None:
        events = pickle.loads(pickle.dumps(PicklingTestRunner().run(TestSuite([self.Holding()])).events))
        ((subtest, (_, error, _)),) = [event[2:] for event in events if event[0] == "addSubTest"]
        self.assertEqual((subtest.params["number"], str(error)), (7, "told"))
