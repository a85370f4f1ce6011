"""Keep a folder of Markdown files in step with the current store (decision 66)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memoryhub.core.errors import Conflict, HubError, Invalid
from memoryhub.core.stores.store import current_store, use_store
from memoryhub.transfer.folder import Form
from memoryhub.transfer.mirror import files
from memoryhub.transfer.mirror import state as mirror_state
from memoryhub.transfer.mirror import store as mirror_store
from memoryhub.transfer.mirror.files import Stamp
from memoryhub.transfer.mirror.plan import Pass
from memoryhub.transfer.mirror.state import State
from memoryhub.transfer.mirror.steps import Did, Report, left_step

WATCH_SECONDS = 1.0


class Mirror:
    """A folder and the current store."""

    def __init__(self, folder: Path, form: Form, *, adopt: bool = False, allow_deletions: bool = False) -> None:
        self.folder, self.form = folder.resolve(), form
        self.adopt, self.allow_deletions = adopt, allow_deletions

    def run(self, *, preview: bool = False) -> Report:
        """Compare the folder with the store and write what differs; with ``preview`` only report it.

        Raises:
            Conflict: many files are gone or new, which could be a mistake, or the folder mirrors another store.
            Invalid: there is no such folder.
            Locked: another mirror of it is running.
        """
        with self._locked(preview=preview):
            return self._run(preview=preview)

    def watch(self) -> Iterator[Report]:
        """Run whenever the folder or the store has changed; yield the reports that have something new.

        Raises:
            HubError: as ``run``, from the first run; errors of later ones are reported.
        """
        with self._locked(preview=False):
            report = self._run(preview=False)
            yield report
            seen: object = None
            before, left = self._look()[1], _left_in(report)
            while True:
                time.sleep(WATCH_SECONDS)
                now = self._look()
                if now != seen and now[1] == before:  # files are read when two looks in a row find them equal
                    report, is_done = self._try()
                    seen = now if is_done else None
                    known, left = left, _left_in(report)
                    report.steps = [step for step in report.steps if (step.path, step.why) not in known]
                    if report.steps:
                        yield report
                before = now[1]

    def _look(self) -> tuple[str, list[tuple[str, Stamp]]]:
        try:
            with use_store(current_store()):  # raises HubError where the database fails
                return mirror_store.reached(), sorted(files.find(self.folder))
        except (HubError, OSError):
            return "", []

    def _try(self) -> tuple[Report, bool]:
        try:
            with use_store(current_store()):
                return self._run(preview=False), True
        except HubError as error:
            why = error.message
        except OSError as error:
            why = f"can't use {error.filename}: {error.strerror}"
        return Report(str(self.folder), [left_step(".", why)]), False

    def _run(self, *, preview: bool) -> Report:
        state = mirror_state.load(self.folder, current_store().alias, self.form)
        self._require_folder(state, preview=preview)
        return Pass(self.folder, self.form, state, adopt=self.adopt, allow_deletions=self.allow_deletions).run(
            preview=preview
        )

    @contextmanager
    def _locked(self, *, preview: bool) -> Iterator[None]:
        self._require_folder(mirror_state.load(self.folder, current_store().alias, self.form), preview=preview)
        with mirror_state.locked(self.folder):
            yield

    def _require_folder(self, state: State, *, preview: bool) -> None:
        if self.folder.is_dir():
            return
        if not state.is_new:
            raise Conflict(f"{self.folder} is gone; bring it back, or mirror to another folder")
        if preview or self.folder.exists():
            raise Invalid(f"{self.folder} is not a folder; name one, or leave out --preview to create it")
        self.folder.mkdir(parents=True)


def _left_in(report: Report) -> set[tuple[str, str]]:
    return {(step.path, step.why) for step in report.steps if step.did is Did.LEFT}
