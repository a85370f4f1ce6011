"""Replace the rows of a store by those of its copy, with a short write lock (decision 29)."""

# The copy is compared with a snapshot of the store while others write, and the keys of differing rows are recorded.
# From then on, temporary triggers record the keys of rows that the copy changes. Under the store's write lock the
# copy applies the few events that came since, and only rows with recorded keys are compared again and written. A late
# event may change a row in the store but not in the copy, where it found other rows; so after late events both are
# compared once more.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from django.db import models, transaction

from memoryhub.core.backends.base import LIVE, Source
from memoryhub.core.backends.selected import differences, scratch
from memoryhub.core.events.projection import companions_of, read_models
from memoryhub.core.log.copy import apply_events, take_events
from memoryhub.core.log.read import head, last_erasure
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import require_current_alias

Model = type[models.Model]

_ROUNDS = 5
# A number of events that is applied quickly enough to do it under the lock.
_FEW = 100
_ATTEMPTS = 3


class ErasedMeanwhile(Exception):
    """Since the copy was started, text was erased or redacted, or a backup was restored."""


class Replacing:
    """Transfers what the current copy contains to the store that it was built from."""

    def __init__(self, source: Source, erasure: int, wanted: Sequence[Model]) -> None:
        self._source, self._erasure, self._wanted = source, erasure, wanted
        self._late = 0

    def catch_up(self) -> None:
        """Apply new events to the copy until only a few are left for the lock."""
        for _ in range(_ROUNDS):
            with scratch.attached(self._source), transaction.atomic(using=require_current_alias()):
                late = self._take_late()
            if late < _FEW:
                return

    @contextmanager
    def compared(self) -> Iterator[set[Model]]:
        """Record which rows differ in a snapshot of the store, and yield their models; the block can read both."""
        with scratch.attached(self._source), transaction.atomic(using=require_current_alias()):
            self._take_late()
            yield {model for model in read_models() if differences.record_differing(model)}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the store's write lock, let the block change both, then replace the recorded rows: all or nothing."""
        with scratch.attached(self._source, write=True), transaction.atomic(using=require_current_alias()):
            self._late = self._take_late()
            yield
            for model in self._wanted:
                differences.apply_recorded(model)
                for table in companions_of(model._meta.db_table):
                    differences.replace_table(table)
        self._erasure = last_erasure()

    def settle(self) -> None:
        """Compare again if events came after the comparison, and replace what still differs."""
        with suppress(ErasedMeanwhile):
            for _ in range(_ATTEMPTS):
                if not self._late or not self._differs():
                    return
                with self.locked():
                    pass

    def _differs(self) -> bool:
        with self.compared() as differing:
            return not differing.isdisjoint(self._wanted)

    def _take_late(self) -> int:
        if last_erasure(LIVE) != self._erasure or not is_of_one_log():
            raise ErasedMeanwhile
        return apply_events(take_events(head(LIVE)[0]))


def is_of_one_log() -> bool:
    """Return whether the store still has the copy's last event; a restored backup may end before it."""
    position, digest = head()
    kept = rows.fetch(f"SELECT chain_digest FROM {LIVE}.raw_events WHERE position = %s", [position])
    return not position or kept == [(digest,)]
