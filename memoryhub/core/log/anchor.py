"""Copies of the chain's head outside the store: the anchor in the home, and checkpoints that the user keeps."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

from django.db import DatabaseError

from memoryhub.core import clock
from memoryhub.core.backends.base import Anchor
from memoryhub.core.backends.selected import anchors
from memoryhub.core.disk import replacing
from memoryhub.core.errors import Damaged, Invalid, Locked, Unavailable
from memoryhub.core.log.read import digest_at, head
from memoryhub.core.stores.store import StoreId, current_store

# A database cannot detect a truncated log or a deleted WAL; a head kept outside the store can. It is written after
# every commit and synced once a second (decision 4), so it may lag behind the log, but it is never ahead: if it is
# ahead, acknowledged events are lost, and no event may be written at their positions (decision 38).


logger = logging.getLogger(__name__)

read_anchor = anchors.read
known_anchors = anchors.acknowledged


def anchor_problem(end: tuple[int, str] | None = None, *, of: StoreId | None = None) -> str:
    """Return how the current log differs from its store's anchor, as a sentence; "" if it does not.

    Reads the anchor and one or two events: about 30 µs.

    Args:
        end: the log's head, if it is known.
        of: the store, if the log is that of a copy.
    """
    try:
        anchored = known_anchors(of or current_store())
    except ValueError:
        return "the store's anchor cannot be read"
    for anchor in anchored:
        position, digest = end or head()
        if anchor.position > position:
            return f"the log ends at #{position}, but #{anchor.position} was acknowledged; its tail was cut"
        if anchor.position < position:
            digest = digest_at(anchor.position) or ""
        if digest != anchor.digest:
            return f"#{anchor.position} is not the event that was acknowledged"
    return ""


def anchor_warning() -> str:
    """Return a warning to show beside every answer; "" if the log matches its anchor."""
    problem = anchor_problem()
    if not problem:
        return ""
    return f"{problem}; the answer is from the remaining events. Writes are refused: run `memory-hub doctor`"


def require_anchored(end: tuple[int, str] | None = None, *, of: StoreId | None = None) -> None:
    """Raise Damaged if the current log differs from its store's anchor. Arguments as for ``anchor_problem``."""
    problem = anchor_problem(end, of=of)
    if problem:
        raise Damaged(f"nothing was written: {problem}; run `memory-hub doctor`", store=(of or current_store()).name)


def advance_anchor(store: StoreId, position: int, digest: str) -> None:
    """Move the anchor forward to a committed event. On failure it lags until the next commit."""
    try:
        # A restore may have removed the event since the commit; then it must not be anchored.
        anchors.advance(store, Anchor(position, digest), holds=lambda: digest_at(position) == digest)
    except Locked:
        logger.warning("the anchor of %s is locked by another process and lags behind #%s", store.name, position)
    except (OSError, DatabaseError) as error:
        logger.warning("the anchor of %s could not be moved to #%s: %s", store.name, position, error)


def replace_anchor(store: StoreId, position: int, digest: str) -> None:
    """Set the anchor to the head of a restored store, which may be before or after the present one.

    Raises:
        Locked: another process held the anchor for a second.
    """
    anchors.replace(store, Anchor(position, digest))


# The store's anchor can be lost together with the end of the log; a checkpoint on another disk cannot.
@dataclass(frozen=True, slots=True)
class Checkpoint:
    scope: str
    store: str
    position: int
    digest: str
    time: str

    def require_store(self, store: StoreId) -> None:
        if (self.scope, self.store) != (store.scope.value, store.name):
            raise Invalid(f"the checkpoint belongs to {self.scope} {self.store!r}, not to {store.scope} {store.name!r}")


def checkpoint_at(store: StoreId, position: int, digest: str) -> Checkpoint:
    return Checkpoint(store.scope.value, store.name, position, digest, clock.to_text(clock.now()))


def read_checkpoint(path: Path) -> Checkpoint | None:
    try:
        content = json.loads(path.read_text("utf-8"))
        return Checkpoint(**{**content, "position": int(content["position"])})
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable(f"{path} cannot be read ({error.strerror})") from error
    except (ValueError, TypeError, KeyError) as error:
        raise Invalid(f"{path} is not a checkpoint; create one with `verify --write-checkpoint {path}`") from error


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write the file atomically, readable by its owner only, and sync it."""
    try:
        with replacing(path) as file:
            file.write(f"{json.dumps(asdict(checkpoint))}\n".encode())
    except OSError as error:
        raise Unavailable(f"{path} cannot be written ({error.strerror})") from error
