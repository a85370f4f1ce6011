"""The test runner: dots, failures, and last lines that count and say what was skipped for what.

What a test leaves open (a file, a socket, a database, a process) fails the run, as does an error that nobody could
catch: in a thread, or in a ``__del__``.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import logging
import os
import pickle
import sys
import threading
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from unittest import TextTestResult

from django.core.management import call_command
from django.test.runner import DiscoverRunner, ParallelTestSuite, RemoteTestResult, RemoteTestRunner
from hypothesis import HealthCheck, settings

from tests import databases, programs
from tests.home import run_home

# A file to which each run adds its counts: the last lines of the last run are about all.
COUNTS_VARIABLE = "MEMORY_HUB_TEST_COUNTS"


class Unraised:
    """Errors that Python prints and goes on: of a thread, of a ``__del__``, and warnings of what was left open.

    They are written to a file, because the processes of a run have no other way to say so to the first one.
    """

    def __init__(self, folder: Callable[[], Path] = run_home) -> None:
        self.test = "before any test"
        self._folder = folder

    @property
    def _file(self) -> Path:
        return self._folder() / "unraised"

    def watch(self) -> None:
        warnings.simplefilter("error", ResourceWarning)
        sys.unraisablehook = lambda given: self._add(given.exc_value, given.err_msg)
        threading.excepthook = lambda given: self._add(given.exc_value, f"in thread {given.thread}")

    def _add(self, error: BaseException | None, where: str | None) -> None:
        text = f"{self.test}: {where or 'in __del__'}: " + "".join(traceback.format_exception(error))
        with contextlib.suppress(FileNotFoundError), self._file.open("a") as file:  # not found after the run
            file.write(json.dumps(text) + "\n")

    def take(self) -> list[str]:
        """Return those of the run, each with the test that ran, and forget them."""
        if not self._file.exists():
            return []
        texts = [json.loads(line) for line in self._file.read_text().splitlines()]
        self._file.unlink()
        return texts


UNRAISED = Unraised()


class NamingResult(TextTestResult):
    def startTest(self, test: Any) -> None:  # noqa: N802 - as unittest names it
        UNRAISED.test = test.id()
        super().startTest(test)


class PicklingTestResult(RemoteTestResult):
    """Sends the failures of sub-tests to the first process, whatever their tests hold."""

    def check_picklable(self, test: Any, err: Any) -> None:
        """Accept every error: ``_sendable`` replaces those that cannot be sent to the parent process."""

    def startTest(self, test: Any) -> None:  # noqa: N802 - as unittest names it
        UNRAISED.test = test.id()
        super().startTest(test)

    def addError(self, test: Any, err: Any) -> None:  # noqa: N802 - as unittest names it
        super().addError(test, self._sendable(err))

    def addFailure(self, test: Any, err: Any) -> None:  # noqa: N802 - as unittest names it
        super().addFailure(test, self._sendable(err))

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:  # noqa: N802 - as unittest names it
        """Send a new instance of the test, because this one may hold what cannot be pickled."""
        if err is not None:
            err = self._sendable(err)
            description = subtest._subDescription().removeprefix("[").removesuffix("]")
            subtest = type(subtest)(type(test)(test._testMethodName), description, {})
        super().addSubTest(test, subtest, err)

    def _sendable(self, err: Any) -> Any:
        """Return the error with what its test printed, and as plain text where it cannot be pickled."""
        printed = "".join(stream.getvalue() for stream in (sys.stdout, sys.stderr) if isinstance(stream, io.StringIO))
        if printed:
            err[1].add_note(f"It printed:\n{printed}")
        try:
            pickle.loads(pickle.dumps(err[1]))
        except Exception:  # noqa: BLE001 - an exception may hold anything
            return AssertionError, AssertionError("".join(traceback.format_exception(*err))), None
        return err


class PicklingTestRunner(RemoteTestRunner):
    resultclass = PicklingTestResult

    def run(self, test: Any) -> Any:
        result = super().run(test)
        gc.collect()  # so that what a class leaves open is found while it is the last that ran
        return result


def _init_worker_with_database(*arguments: Any) -> None:
    ParallelTestSuite.init_worker(*arguments)
    if databases.on_postgresql():
        databases.use_process_database()
    gc.freeze()  # or each collection would go through all that was imported
    UNRAISED.watch()


class PicklingTestSuite(ParallelTestSuite):
    runner_class = PicklingTestRunner
    init_worker = _init_worker_with_database


class CurrentStderr:
    """Standard error as it is at the moment: while a test runs, what is written to it is shown only if it fails."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


class HubTestRunner(DiscoverRunner):
    parallel_test_suite = PicklingTestSuite

    def __init__(self, verbosity: int = 1, **options: Any) -> None:
        self._shown = verbosity
        # What a test prints is shown if it fails; preparations are shown if they are asked for.
        super().__init__(verbosity=0 if verbosity == 1 else verbosity, **{**options, "buffer": True})

    def setup_test_environment(self, **kwargs: Any) -> None:
        """Keep the refusals that tests provoke out of their output, and examples from being too slow."""
        if os.environ.get("CI") == "true" and not programs.is_bare() and (missing := programs.all_missing()):
            raise SystemExit(f"CI must have all programs, or tests would be left out: {'; '.join(missing)}")
        super().setup_test_environment(**kwargs)
        os.environ.setdefault("MEMORY_HUB_AUTOSTART", "off")  # tests of clients start no hub unless they say so
        _take_time_for_examples()
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler):
                handler.setStream(CurrentStderr())
        for name in ("django.request", "django.security"):
            logging.getLogger(name).setLevel(logging.CRITICAL)

    def run_checks(self, databases: Any) -> None:
        call_command("check", databases=databases, stdout=io.StringIO())

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

    def get_resultclass(self) -> Any:
        return super().get_resultclass() or NamingResult

    def get_test_runner_kwargs(self) -> dict[str, Any]:
        # Without a filter of its own: the one for what is left open must stay.
        # The processes of a parallel run buffer what their tests print; the first one runs none.
        own = {"verbosity": self._shown, "warnings": "", "buffer": self.buffer and self.parallel == 1}
        return {**super().get_test_runner_kwargs(), **own}

    def run_suite(self, suite: Any, **kwargs: Any) -> Any:
        UNRAISED.watch()
        self.result = super().run_suite(suite, **kwargs)
        gc.collect()
        return self.result

    def run_tests(self, *args: Any, **kwargs: Any) -> int:
        failed = super().run_tests(*args, **kwargs)
        unraised = UNRAISED.take()
        for text in unraised:
            print(f"\nLEFT OPEN, OR FAILED UNSEEN: {text}")
        counts = Counts.of(self.result, len(unraised))
        print(counts.added_to(os.environ.get(COUNTS_VARIABLE, "")))
        return failed + len(unraised)


@dataclass
class Counts:
    passed: int
    failed: int
    # How many tests were skipped, by reason
    skipped: Counter[str]

    @classmethod
    def of(cls, result: Any, more_failures: int = 0) -> Self:
        """Count each test once, however many of its sub-tests failed."""
        failed = [test for test, _ in (*result.failures, *result.errors)] + list(result.unexpectedSuccesses)
        tests = {test.id(): test for test in (getattr(each, "test_case", each) for each in failed)}
        # What follows a colon is of one test: "SQLite only: the header of a file".
        reasons = {getattr(test, "test_case", test).id(): reason.partition(": ")[0] for test, reason in result.skipped}
        skipped = Counter(reason for test, reason in reasons.items() if test not in tests)
        # What fails in setUpClass is no test that ran.
        ran = sum(test.countTestCases() for test in tests.values())
        passed = max(0, result.testsRun - ran - skipped.total())
        return cls(passed, len(tests) + more_failures, skipped)

    def added_to(self, path: str) -> Self:
        """Add them to a file, and return the sum of all in it; without a file they are the sum."""
        if not path:
            return self
        with Path(path).open("a+") as file:
            file.write(json.dumps(vars(self)) + "\n")
            file.seek(0)
            runs = [json.loads(line) for line in file]
        skipped = sum((Counter(run["skipped"]) for run in runs), Counter[str]())
        return type(self)(sum(run["passed"] for run in runs), sum(run["failed"] for run in runs), skipped)

    def __str__(self) -> str:
        """Return what was skipped for what, and the last line."""
        reasons = [f"  {count}: {reason}\n" for reason, count in self.skipped.most_common()]
        return (
            ("Skipped:\n" if reasons else "")
            + "".join(reasons)
            + f"{self.passed} passed, {self.failed} failed, {self.skipped.total()} skipped"
        )


def _take_time_for_examples() -> None:
    """Let no property fail because a busy machine takes long for an example; in CI the examples stay the same."""
    settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("patient")
