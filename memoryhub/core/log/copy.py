"""Drafts: stores built from a log, which replace rows of its store under a short write lock (decision 29)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from django.db import IntegrityError, models, transaction

from memoryhub.core.backends.base import LIVE, Source
from memoryhub.core.backends.selected import differences, scratch
from memoryhub.core.errors import Damaged
from memoryhub.core.events.projection import apply, companions, read_models, void_positions
from memoryhub.core.log.append import COLUMNS
from memoryhub.core.log.read import erased_after, head, read_all
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import require_current_alias

Progress = Callable[[int], None]

_PROGRESS_EVENTS = 200
# Events per statement: SQLite keeps the undo data of one statement in memory.
_COPIED_AT_ONCE = 5000

_TAKE = (
    f"INSERT INTO raw_events ({', '.join(COLUMNS)}) SELECT {', '.join(COLUMNS)} FROM {LIVE}.raw_events "
    "WHERE position > %s AND position <= %s ORDER BY position"
)


def take_events(up_to: int) -> int:
    """Copy the events that the current draft lacks; return its previous head. Requires ``scratch.attached``."""
    last = head()[0]
    try:
        for start in range(last, up_to, _COPIED_AT_ONCE):
            rows.execute(_TAKE, [start, min(start + _COPIED_AT_ONCE, up_to)])
    except IntegrityError as error:
        raise Damaged(
            f"the log cannot be copied: {error}; run `memory-hub doctor` to see the damage and the next steps"
        ) from error
    return last


def apply_events(after: int, progress: Progress = lambda _: None) -> int:
    """Apply the draft's events after a position to its read models; return their number."""
    count = 0
    with transaction.atomic(using=require_current_alias()), rows.gathering():
        void = void_positions()
        for event in read_all(after=after):
            if event.position not in void:
                apply(event)
            count += 1
            if count % _PROGRESS_EVENTS == 0:
                progress(count)
    return count


# The draft is compared with a snapshot of the store while others write, and the keys of differing rows are recorded.
# From then on, temporary triggers record the keys of rows that the draft changes. Under the store's write lock the
# draft applies the few events that came since, and only rows with recorded keys are compared again and written. A late
# event may change a row in the store but not in the draft, where it found other rows; so after late events both are
# compared once more.


Model = type[models.Model]

_ROUNDS = 5
# A number of events that is applied quickly enough to do it under the lock.
_FEW = 100
_ATTEMPTS = 3


class ErasedMeanwhile(Exception):
    """Since the draft took its events, text was erased or redacted, or a backup was restored."""


class StoreDraft:
    """The current store, which is built from the log of ``source``, and may replace rows of it."""

    def __init__(self, source: Source, replaced: Sequence[Model] = ()) -> None:
        self._source = source
        self._replaced = replaced
        self._late = 0

    def fill(self, progress: Progress = lambda _: None, *, up_to: int | None = None) -> None:
        """Copy and apply the events up to a position; default: all."""
        with scratch.attached(self._source):
            last = take_events(head(LIVE)[0] if up_to is None else up_to)
        apply_events(last, progress)

    def catch_up(self) -> None:
        """Apply new events until only a few are left for the lock."""
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
            for model in self._replaced:
                differences.apply_recorded(model)
                for table in companions.get(model._meta.db_table, ()):
                    differences.replace_table(table)

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
            return not differing.isdisjoint(self._replaced)

    def _take_late(self) -> int:
        position, digest = head()
        digests = rows.fetch(f"SELECT chain_digest FROM {LIVE}.raw_events WHERE position = %s", [position])
        # A restored backup may end before the draft's last event
        is_of_one_log = not position or digests == [(digest,)]
        if erased_after(position, LIVE) or not is_of_one_log:
            raise ErasedMeanwhile
        return apply_events(take_events(head(LIVE)[0]))
