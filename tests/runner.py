"""The test runner: the hub's home in a temporary folder, PostgreSQL's databases, and a last line that counts."""

from __future__ import annotations

import logging
import os
import pickle
import re
import traceback
from pathlib import Path
from typing import Any

from django.test.runner import DiscoverRunner, ParallelTestSuite, RemoteTestResult, RemoteTestRunner
from hypothesis import HealthCheck, settings

from tests import databases

# A file to which each run adds its last line: the line of the last run is the sum of all.
COUNTS_VARIABLE = "MEMORY_HUB_TEST_COUNTS"


class PicklingTestResult(RemoteTestResult):
    """Tells the parent of what failed in a sub-test, whatever its test holds on to."""

    def check_picklable(self, test: Any, err: Any) -> None:
        """Accept every error: ``_sendable`` replaces those that cannot be sent to the parent process."""

    def addError(self, test: Any, err: Any) -> None:  # noqa: N802 - as unittest names it
        super().addError(test, _sendable(err))

    def addFailure(self, test: Any, err: Any) -> None:  # noqa: N802 - as unittest names it
        super().addFailure(test, _sendable(err))

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:  # noqa: N802 - as unittest names it
        """Keep a copy without what cannot be sent: Django leaves that out only for as long as the test runs."""
        if err is not None:
            self.check_subtest_picklable(test, subtest)
            subtest = pickle.loads(pickle.dumps(subtest))
        super().addSubTest(test, subtest, err)


def _sendable(err: Any) -> Any:
    try:
        pickle.loads(pickle.dumps(err[1]))
    except Exception:  # noqa: BLE001 - an exception may hold anything
        error = AssertionError("".join(traceback.format_exception(*err)))
        return AssertionError, error, None
    return err


class PicklingTestRunner(RemoteTestRunner):
    resultclass = PicklingTestResult


def _init_worker_with_database(*arguments: Any) -> None:
    ParallelTestSuite.init_worker(*arguments)
    if databases.on_postgresql():
        databases.use_process_database()


class PicklingTestSuite(ParallelTestSuite):
    runner_class = PicklingTestRunner
    init_worker = _init_worker_with_database


class HubTestRunner(DiscoverRunner):
    parallel_test_suite = PicklingTestSuite

    def setup_test_environment(self, **kwargs: Any) -> None:
        """Keep the refusals that tests provoke out of their output, and examples from being too slow."""
        super().setup_test_environment(**kwargs)
        os.environ.setdefault("MEMORY_HUB_AUTOSTART", "off")  # tests of clients start no hub unless they say so
        _take_time_for_examples()
        for name in ("django.request", "django.security"):
            logging.getLogger(name).setLevel(logging.CRITICAL)

    def setup_databases(self, **kwargs: Any) -> Any:
        if not databases.on_postgresql():
            return super().setup_databases(**kwargs)
        databases.prepare_run()
        databases.use_process_database()
        return []

    def teardown_databases(self, old_config: Any, **kwargs: Any) -> None:
        if databases.on_postgresql():
            databases.remove_run()
        else:
            super().teardown_databases(old_config, **kwargs)

    def run_suite(self, suite: Any, **kwargs: Any) -> Any:
        self.result = super().run_suite(suite, **kwargs)
        return self.result

    def run_tests(self, *args: Any, **kwargs: Any) -> int:
        failed = super().run_tests(*args, **kwargs)
        print(summed(summary(self.result), os.environ.get(COUNTS_VARIABLE, "")))
        return failed


def summary(result: Any) -> str:
    """Return the last line: a test counts once, however many of its sub-tests failed."""
    failed = [test for test, _ in (*result.failures, *result.errors)] + list(result.unexpectedSuccesses)
    tests = {test.id(): test for test in (getattr(each, "test_case", each) for each in failed)}
    skipped = {test.id() for test in (getattr(each, "test_case", each) for each, _ in result.skipped)} - tests.keys()
    # What fails in setUpClass is no test that ran.
    ran = sum(test.countTestCases() for test in tests.values())
    passed = max(0, result.testsRun - ran - len(skipped))
    return f"{passed} passed, {len(tests)} failed, {len(skipped)} skipped"


def summed(line: str, path: str) -> str:
    """Add a last line to the file, and return the sum of all in it; without a file it is the line."""
    if not path:
        return line
    with Path(path).open("a+") as file:
        file.write(f"{line}\n")
        file.seek(0)
        counts = [map(int, re.findall(r"\d+", each)) for each in file]
    passed, failed, skipped = map(sum, zip(*counts, strict=True))
    return f"{passed} passed, {failed} failed, {skipped} skipped"


def _take_time_for_examples() -> None:
    """Let no property fail because a busy machine takes long for an example; in CI the examples stay the same."""
    settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("patient")
