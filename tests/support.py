"""Bases of the tests: a hub's home of their own, real store files, and no store left open behind them."""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from django.db import connections
from django.test import SimpleTestCase, TestCase

from memoryhub.cli import main
from memoryhub.core import log
from memoryhub.core.origin import use_origin
from memoryhub.core.stores import schema
from memoryhub.core.stores import store as stores
from memoryhub.core.stores.routing import STORE_PREFIX
from memoryhub.core.stores.store import project_store, use_store
from tests.databases import at_home, on_postgresql, remove_home
from tests.home import run_home


class AnyStore(frozenset[str]):
    def __new__(cls) -> AnyStore:
        return super().__new__(cls, ("default", "jobs"))

    def __contains__(self, alias: object) -> bool:
        return super().__contains__(alias) or str(alias).startswith(STORE_PREFIX)


class StoresTestCase(SimpleTestCase):
    """A test that may use every store."""

    databases: Any = AnyStore()

    @classmethod
    def _validate_databases(cls) -> frozenset[str]:
        return AnyStore()  # Django's own returns a plain copy, which would forget the stores

    # Those in which a test is a transaction. A thread that outlives the test may open a store before Django ends these:
    # Django would end one there that it never began, and then none of the others.
    @classmethod
    def _databases_names(cls, include_mirrors: bool = True) -> list[str]:  # noqa: FBT001, FBT002 - as Django's
        return sorted(AnyStore())


class HubTestCase(StoresTestCase, TestCase):
    """A test with an empty home folder of its own; hub.db is the runner's, rolled back after each test."""

    home: Path

    def setUp(self) -> None:
        super().setUp()
        self.home = Path(tempfile.mkdtemp(prefix="home-", dir=run_home()))
        self.addCleanup(remove_home, self.home)
        self.enterContext(at_home(self.home))
        self.addCleanup(forget_all_stores)
        share_template(self.home)

    @contextmanager
    def store(self, project: str = "alpha", *, create: bool = True, **origin: str) -> Iterator[None]:
        with use_store(project_store(project), create=create), use_origin(**{"source": "service", **origin}):
            yield

    def assert_rebuilds(self) -> None:
        """A rebuild of the current store's read models changes none of them."""
        self.assertEqual([], [table.table for table in log.rebuild().tables if not table.identical])

    def assert_sound(self) -> None:
        """The current store's chain holds, and its read models are those of its log."""
        verification = log.verify()
        self.assertTrue(verification.ok, verification.reason)
        self.assert_rebuilds()


def make_git_folder(folder: Path) -> Path:
    """Make a folder that is a repository to the hub, so that hooks are recorded there, and return it."""
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    return folder


def forget_all_stores() -> None:
    for alias in list(stores._identities):
        stores.drop(alias)
    stores._failed.clear()
    for alias in [each for each in connections if each.startswith(STORE_PREFIX)]:
        connections[alias].close()
        del connections[alias]


def share_template(home: Path) -> None:
    """Give the home the run's template, so that a store is a copy of 3 ms and not a migration of 300."""
    name = f"{schema.fingerprint()[:16]}.{'sql' if on_postgresql() else 'db'}"
    made = run_home() / "templates" / name
    if not made.exists():
        with mock.patch.dict(os.environ, MEMORY_HUB_HOME=str(run_home())):
            _make_template()
    (home / "templates").mkdir(mode=0o700)
    os.link(made, home / "templates" / name)


def _make_template() -> None:
    if on_postgresql():
        from memoryhub.core.backends.postgresql.structure import template_text

        template_text()
    else:
        from memoryhub.core.backends.sqlite.structure import template_path

        template_path()


@dataclass(frozen=True)
class Done:
    """What a command ended with: its exit code, and what it printed on both streams."""

    code: int
    output: str
    errors: str

    @property
    def lines(self) -> list[str]:
        return [*self.output.splitlines(), *self.errors.splitlines()]


def run_command(*arguments: str, given: str = "") -> Done:
    """Run a command line in this process, as `memory-hub` does."""
    out, errors, code = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(errors), mock.patch.object(sys, "stdin", io.StringIO(given)):
        try:
            code = main(["memory-hub", *arguments])
        except SystemExit as end:
            code = int(end.code or 0)
    return Done(code, out.getvalue(), errors.getvalue())
